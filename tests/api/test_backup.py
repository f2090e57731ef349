"""Holding the files of a broker over HTTP."""

from __future__ import annotations

import pytest

from nsqtw.daemon.data_path import data_path_identity
from tests.http.broker_fixture import DONE, Web, request


def test_a_hold_is_answered_when_everything_is_saved() -> None:
    one = Web(durability="memory")
    one.post("/topic/create?topic=t")
    one.post("/pub?topic=t", b"a")
    one.writer.is_held_back = True
    browser = one.connect()
    browser.send(request("POST", "/v2/backup/hold?time=30s"))
    assert browser.read() == []
    assert one.broker.checkpointer.file_hold.is_on
    one.writer.is_held_back = False
    (reply,) = browser.read()
    assert (reply.json["data_path"], reply.json["backend"]) == ("/", one.broker.options.backend)
    assert reply.json["identity"] == data_path_identity("/")
    one.core.crash()
    assert one.core.topic().depth == 1, "what class memory had not stored is stored"


def test_a_hold_is_extended_and_ends() -> None:
    one = Web()
    number = one.post("/v2/backup/hold").json["hold"]
    one.core.wait(50.0)
    assert one.post(f"/v2/backup/hold?hold={number}&time=60s").json["hold"] == number
    one.core.wait(50.0)
    assert one.broker.checkpointer.file_hold.is_on
    assert one.post(f"/v2/backup/release?hold={number}").outcome == DONE
    assert one.post(f"/v2/backup/hold?hold={number}").outcome == (404, "HOLD_NOT_FOUND")
    one.post("/v2/backup/hold?time=24h")
    one.core.wait(601.0)
    assert not one.broker.checkpointer.file_hold.is_on, "10 minutes at most"


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("hold?time=soon", (400, "INVALID_TIME")),
        ("hold?hold=0", (400, "INVALID_HOLD")),
        ("hold?hold=7", (404, "HOLD_NOT_FOUND")),
        ("release?hold=x", (400, "INVALID_HOLD")),
        ("release", (404, "HOLD_NOT_FOUND")),
    ],
)
def test_refusals(path: str, outcome: tuple[int, str]) -> None:
    one = Web()
    assert one.post(f"/v2/backup/{path}").outcome == outcome
    assert not one.broker.checkpointer.file_hold.is_on


def test_class_memory_that_cannot_be_stored() -> None:
    one = Web(durability="memory")
    one.post("/topic/create?topic=t")
    one.post("/pub?topic=t", b"a")
    one.fail_commits()
    assert one.post("/v2/backup/hold").outcome == (500, "INTERNAL_ERROR")
    assert not one.broker.checkpointer.file_hold.is_on
    one.broker.begin_stop()
    assert one.post("/v2/backup/hold").outcome == (503, "EXITING")


def test_a_data_path_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(directory: str) -> str:
        raise FileNotFoundError(directory)

    monkeypatch.setattr("nsqtw.api.backup.data_path_identity", fail)
    one = Web()
    assert one.post("/v2/backup/hold").outcome == (500, "INTERNAL_ERROR")
    assert not one.broker.checkpointer.file_hold.is_on
