"""`nsqtw migrate-backend`: the messages of a data path in another backend, whatever interrupts the migration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from zope.interface import Interface, directlyProvides, providedBy

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.manifest import Manifest, backends_with_messages, check_backend, read_manifest, write_manifest
from nsqtw.backends.sqlite.backend import SqliteBackend
from nsqtw.cli.main import run_nsqtw
from nsqtw.daemon.data_path import lock_data_path
from nsqtw.errors import NsqtwError
from nsqtw.interfaces import IBackend
from nsqtw.testing.contracts import headers, make_segment, make_segment_with_headers, messages, read_all
from nsqtw.tools import migrate_backend as module
from nsqtw.tools.migrate_backend import migrate_backend
from tests.process import Counts, ForkedNsqd, NsqdProcess, Start, starting

OPEN: dict[str, Callable[[str], IBackend]] = {
    "disk": lambda directory: DiskBackend(directory, 2000, lambda *damage: None),
    "sqlite": lambda directory: SqliteBackend(directory, lambda *damage: None),
}
SEGMENTS = {
    "t": [make_segment(0, 5), make_segment(7, 300), make_segment(400, delay_ms=60_000)],
    "with.dot": [make_segment(500, 2, size=50_000)],
}
WANTED = {topic: messages(segments) for topic, segments in SEGMENTS.items()}


class INothing(Interface):
    """No backend provides it."""


class Killed(BaseException):
    """Nothing of ours catches it."""


class Stepping:
    """Opens a backend, and is one. `step` is called before and after what changes something."""

    def __init__(self, name: str, step: Callable[[], None]) -> None:
        self._name = name
        self._step = step
        self._opened: Any = None

    def open(self, argument: str, directory: str, options: object, report: object) -> Stepping:
        self._opened = OPEN[self._name](directory)
        directlyProvides(self, providedBy(self._opened))
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def commit(self, *arguments: Any) -> Any:
        return self._stepped(self._opened.commit, *arguments)

    def queue(self, topic: str) -> Any:
        """Also called before each deletion."""
        return self._stepped(self._opened.queue, topic)

    def remove(self) -> None:
        self._stepped(self._opened.remove)

    def _stepped(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self._step()
        answer = call(*arguments)
        self._step()
        return answer


def store(directory: Path, backend: str) -> None:
    opened = OPEN[backend](str(directory))
    for topic, segments in SEGMENTS.items():
        for segment in segments:
            assert opened.commit([(opened.queue(topic), [segment])], False) == {}
    opened.close()
    assert check_backend(str(directory), backend) == ""


def stored(directory: Path, backend: str) -> dict[str, dict[int, tuple[int, bytes]]]:
    opened = OPEN[backend](str(directory))
    found = {topic: messages(read_all(opened.queue(topic))) for topic in opened.topics()}
    opened.close()
    return found


def migrate(directory: Path, source: str, target: str) -> list[str]:
    said: list[str] = []
    migrate_backend(str(directory), source, target, said.append)
    return said


def refusal(directory: Path, source: str, target: str) -> str:
    with pytest.raises(NsqtwError) as refused:
        migrate(directory, source, target)
    return str(refused.value)


@pytest.mark.parametrize(("source", "target"), [("disk", "sqlite"), ("sqlite", "disk")])
def test_all_messages_move(tmp_path: Path, source: str, target: str) -> None:
    store(tmp_path, source)
    assert migrate(tmp_path, source, target) == [
        "topic t: 306 stored messages",
        "topic with.dot: 2 stored messages",
        f"moved from {source} to {target}: 2 topics, 308 stored messages, 113532 bytes",
    ]
    assert read_manifest(str(tmp_path)) == Manifest(target)
    assert backends_with_messages(str(tmp_path)) == [target]
    assert list(tmp_path.glob("messages.db*") if target == "disk" else tmp_path.glob("*/*.log")) == []
    assert stored(tmp_path, target) == WANTED
    assert migrate(tmp_path, source, target) == [f"the backend is {target} already"]


@pytest.mark.parametrize(("source", "target"), [("disk", "sqlite"), ("sqlite", "disk")])
def test_headers_and_channels_move(tmp_path: Path, source: str, target: str) -> None:
    segments = [make_segment_with_headers(0, 4), make_segment(4), make_segment_with_headers(5, 2, channel="c")]
    opened = OPEN[source](str(tmp_path))
    assert opened.commit([(opened.queue("t"), segments)], False) == {}
    opened.close()
    assert migrate(tmp_path, source, target)[0] == "topic t: 7 stored messages"
    opened = OPEN[target](str(tmp_path))
    found = read_all(opened.queue("t"))
    opened.close()
    assert (headers(found), messages(found)) == (headers(segments), messages(segments))


def test_a_backend_that_stores_no_headers_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says so, and the messages are where they were."""
    opened = OPEN["disk"](str(tmp_path))
    assert opened.commit([(opened.queue("t"), [make_segment_with_headers(1)])], False) == {}
    opened.close()
    monkeypatch.setattr(module, "IHeaderBackend", INothing)
    assert refusal(tmp_path, "disk", "sqlite") == (
        "topic t has messages with headers, which the backend 'sqlite' does not store"
    )
    opened = OPEN["disk"](str(tmp_path))
    assert headers(read_all(opened.queue("t"))) == headers([make_segment_with_headers(1)])
    opened.close()


@pytest.mark.parametrize(("source", "target"), [("disk", "sqlite"), ("sqlite", "disk")])
def test_a_migration_that_is_killed_anywhere_is_finished_by_the_next(
    tmp_path: Path, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each commit, deletion and change of the manifest, and behind it; a broker may start in between."""
    kills = 0
    while True:
        directory = tmp_path / str(kills)
        directory.mkdir()
        store(directory, source)
        left = [kills]

        def step(left: list[int] = left) -> None:
            if left[0] == 0:
                raise Killed
            left[0] -= 1

        def write(directory: str, manifest: Manifest, step: Callable[[], None] = step) -> None:
            step()
            write_manifest(directory, manifest)
            step()

        with monkeypatch.context() as patch:
            patch.setattr(module, "write_manifest", write)
            patch.setattr(module, "find_backend", lambda name, step=step: (Stepping(name, step), ""))
            try:
                migrate(directory, source, target)
            except Killed:
                pass
            else:
                break
        recorded = read_manifest(str(directory))
        assert recorded is not None
        assert check_backend(str(directory), recorded.backend) == "" or "again" in check_backend(
            str(directory), recorded.backend
        )
        assert stored(directory, recorded.backend) == WANTED
        migrate(directory, source, target)
        assert stored(directory, target) == WANTED
        assert backends_with_messages(str(directory)) == [target]
        assert read_manifest(str(directory)) == Manifest(target)
        kills += 1
    assert kills > 10


def test_messages_that_are_no_copies_are_not_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two backends were used in turn by an nsqtw that did not record it."""
    store(tmp_path, "sqlite")
    (tmp_path / "manifest.json").unlink()
    opened = OPEN["disk"](str(tmp_path))
    opened.commit([(opened.queue("u"), [make_segment(900, 3)])], False)
    opened.close()
    said = f"{tmp_path} has messages of the backends 'disk' and 'sqlite', and no manifest says which are the broker's"
    assert refusal(tmp_path, "disk", "sqlite").startswith(said)
    assert run_nsqtw(["fsck", str(tmp_path)]) == 1
    assert "two backends: " in capsys.readouterr().out
    assert "has messages too" in check_backend(str(tmp_path), "sqlite")
    assert refusal(tmp_path, "sqlite", "disk") == (
        "the backend 'disk' has messages of 1 topics already that are not copies:"
        f" 'nsqtw fsck --repair {tmp_path}' sets them aside"
    )
    run_nsqtw(["fsck", "--repair", str(tmp_path)])
    said = capsys.readouterr().out
    assert (
        f"foreign messages: {tmp_path}: 3 stored messages of 1 topics of the backend 'disk', which a broker with"
        " --backend=sqlite never delivers; --repair sets them aside" in said
    )
    assert len(list(tmp_path.glob("damaged.d/1/u/*.log"))) == 1
    migrate(tmp_path, "sqlite", "disk")
    assert stored(tmp_path, "disk") == WANTED


def test_what_is_refused(tmp_path: Path) -> None:
    store(tmp_path, "disk")
    assert refusal(tmp_path, "disk", "disk:") == "FROM and TO are the same backend, 'disk'"
    assert refusal(tmp_path, "sqlite", "disk:x").endswith("are kept by the backend 'disk', not 'sqlite'")
    assert refusal(tmp_path, "disk", "paper").startswith("unknown backend 'paper'")
    assert refusal(tmp_path, "disk", "sqlite:x") == "the backend 'sqlite' takes no argument, not 'x'"
    assert refusal(tmp_path, "disk", "dummy") == "the backend 'dummy' keeps no messages, and there are some to keep"
    lock = lock_data_path(str(tmp_path))
    assert "possibly in use by another instance" in refusal(tmp_path, "disk", "sqlite")
    os.close(lock)
    assert read_manifest(str(tmp_path)) == Manifest("disk")
    assert stored(tmp_path, "disk") == WANTED


def test_a_data_path_without_messages(tmp_path: Path) -> None:
    assert check_backend(str(tmp_path), "disk") == ""
    moved = "moved from disk to dummy: 0 topics, 0 stored messages, 0 bytes"
    assert migrate(tmp_path, "disk", "dummy") == [moved]
    assert migrate(tmp_path, "dummy", "sqlite")[-1].startswith("moved from dummy to sqlite: 0 topics")


@pytest.fixture
def start(tmp_path: Path):
    with starting(tmp_path, ForkedNsqd) as one:
        yield one


def other(broker: NsqdProcess, backend: str) -> NsqdProcess:
    """The same data path with another backend."""
    again = ForkedNsqd(broker.data_path.parent, f"--backend={backend}")
    again.start()
    return again


def test_a_broker_goes_on_with_another_backend(start: Start) -> None:
    """What was finished stays finished, what was deferred stays deferred, and ids go on."""
    broker = start("--backend=disk")
    broker.create("t", "c", "d")
    broker.publish("t", [b"%d" % number for number in range(100)])
    with broker.client() as consumer:
        consumer.sub("t", "c", ready=40)
        taken = consumer.take(40)
        consumer.rdy(0)
        consumer.fin(taken)
        broker.await_counts("t", "c", Counts(60, 0, 0))
    broker.publish("t", [b"last"])
    broker.await_counts("t", "c", Counts(61, 0, 0))
    broker.store()
    with broker.client() as producer:
        producer.dpub("t", 3_600_000, b"deferred")
    broker.await_counts("t", "c", Counts(61, 0, 1))
    broker.kill()
    refused = broker.command()
    data_path = str(broker.data_path)
    answer = subprocess.run([*refused, "--backend=sqlite"], capture_output=True, text=True)
    assert answer.returncode == 1
    assert "are kept by the backend 'disk', not by 'sqlite': start with --backend=disk, or move them" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert run_nsqtw(["migrate-backend", f"--data-path={data_path}", "disk", "sqlite"]) == 0
    broker = other(broker, "sqlite")
    try:
        assert broker.counts("t", "c") == Counts(61, 0, 1)
        broker.publish("t", [b"new"])
        with broker.client() as consumer:
            consumer.sub("t", "d", ready=500)
            bodies = [message.body for message in consumer.drain(102)]
        assert bodies == [*(b"%d" % number for number in range(100)), b"last", b"new"]
        broker.await_counts("t", "d", Counts(0, 0, 1))
        broker.stop()
    finally:
        broker.close()
