"""The saved counts of messages of each priority, in both backends: fsck compares them with the log."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.backends.sqlite.backend import SqliteBackend
from nsqtw.interfaces import IBackend
from nsqtw.message_headers import NO_HEADERS, encode_headers
from nsqtw.tools.fsck.command import CLEAN, FINDINGS, REPAIRED, run
from tests.tools.fsck.data_path import LONG_AFTER, Stored, findings, whats

HIGH, NORMAL, LOW = (encode_headers({"priority": name}) for name in ("high", "normal", "low"))
WHAT = "wrong class depths"


class OnDisk(Stored):
    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, max_bytes_per_file=450, mem_queue_size=0, **options)
        self.channel("c").policies.set({"priority": True})
        self.turn()

    def publish(self, *headers: bytes, delay_ms: int = 0, only: str = "") -> None:
        bodies = [b"%d" % number for number in range(len(headers))]
        answers: list[Exception | None] = []
        self.topic().put(bodies, delay_ms, answers.append, headers, only)
        self.turn()
        assert answers == [None]

    def deliver(self, count: int) -> None:
        """Deliver so many messages, and finish them."""
        reader = self.reader(ready=count)
        reader.finish(*[message.id for message in reader.read()])
        reader.leave()


class InSqlite(OnDisk):
    def open_backend(self, path: str) -> IBackend:
        return SqliteBackend(path, self.report)


KINDS = (OnDisk, InSqlite)


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OnDisk]:
    """A broker with 1 high, 3 normal and 2 low messages that wait, of which 2 high and a normal one are finished."""
    broker: OnDisk = request.param(tmp_path)
    broker.publish(LOW, NORMAL, HIGH, NO_HEADERS, HIGH)
    broker.publish(NORMAL, LOW, HIGH)
    broker.deliver(2)
    broker.save()
    yield broker
    broker.close()


def change(directory: Path, place: int, by: int) -> None:
    """Change a number of the row of a channel's priorities: three positions, three counts, and the counted end."""
    with closing(sqlite3.connect(directory / "positions.db")) as connection, connection:
        ((blob,),) = connection.execute("SELECT positions FROM priority").fetchall()
        numbers = [*struct.unpack("<7Q", blob)]
        numbers[place] += by
        connection.execute("UPDATE priority SET positions = ?", (struct.pack("<7Q", *numbers),))


def test_right_counts_are_no_finding(broker: OnDisk) -> None:
    assert broker.channel("c").class_depths == [1, 3, 2]
    assert findings(broker.directory) == []


@pytest.mark.parametrize(
    ("place", "by", "counts"),
    [
        (3, 5, "6 high, 3 normal, 2 low"),
        (3, -1, "0 high, 3 normal, 2 low"),
        (4, 1, "1 high, 4 normal, 2 low"),
        (5, 1 << 40, f"1 high, 3 normal, {2 + (1 << 40)} low"),
    ],
)
def test_wrong_counts_are_removed(
    broker: OnDisk, capsys: pytest.CaptureFixture[str], place: int, by: int, counts: str
) -> None:
    change(broker.directory, place, by)
    (finding,) = findings(broker.directory)
    assert (finding.what, finding.topic, finding.channel) == (WHAT, "t", "c")
    assert finding.costs.startswith(f"{counts} wait by the saved counts, 1 high, 3 normal, 2 low by the log; ")
    assert run(str(broker.directory), False) == FINDINGS
    broker.close()
    assert run(str(broker.directory), True) == REPAIRED
    assert "--repair removes the counts, and the next start counts anew" in capsys.readouterr().out
    assert run(str(broker.directory), False) == CLEAN
    broker.start()
    assert broker.channel("c").class_depths == [1, 3, 2]
    assert len(broker.drain()) == 6


def test_messages_that_are_lost_are_counted(broker: OnDisk) -> None:
    """A finding of its own, beside that the channel lacks messages."""
    broker.close()
    if isinstance(broker, InSqlite):
        with closing(sqlite3.connect(broker.directory / "messages.db")) as connection, connection:
            connection.execute("DELETE FROM segment WHERE id = (SELECT max(id) FROM segment)")
    else:
        min(broker.directory.glob("t/*.log")).unlink()
    found = findings(broker.directory)
    assert {"missing messages", WHAT} <= {*whats(found)}
    run(str(broker.directory), True)
    assert WHAT not in whats(findings(broker.directory))
    broker.start()


STEP = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.sampled_from((HIGH, NORMAL, LOW, NO_HEADERS)), min_size=1, max_size=6)),
    st.tuples(st.just("deliver"), st.integers(1, 5)),
    st.tuples(st.just("fail"), st.integers(1, 3)),
    st.tuples(st.sampled_from(("defer", "direct", "elsewhere", "empty", "seek", "restart", "wait", "save")), st.none()),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(steps=st.lists(STEP, max_size=14))
def test_no_history_of_a_broker_is_a_finding(kind: type[OnDisk], steps: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as directory:
        broker = kind(Path(directory))
        try:
            for step, argument in steps:
                carry_out(broker, step, argument)
            broker.save()
            assert {*whats(findings(broker.directory))} <= {"stray file"}, "a file that is to be used again"
        finally:
            broker.close()


def carry_out(broker: OnDisk, step: str, argument: Any) -> None:
    channel = broker.channel("c")
    if step == "publish":
        broker.publish(*argument)
    elif step in ("deliver", "fail"):
        reader = broker.reader(ready=argument)
        for message in reader.read():
            reader.finish(message.id) if step == "deliver" else reader.requeue(message.id)
        reader.leave()
    elif step == "defer":
        broker.publish(HIGH, LOW, delay_ms=1000)
    elif step in ("direct", "elsewhere"):
        broker.channel("other")
        broker.publish(HIGH, LOW, only="c" if step == "direct" else "other")
    elif step == "empty":
        channel.empty()
    elif step == "seek":
        channel.seek(broker.topic().log.queue.first)
    elif step == "restart":
        broker.restart()
    elif step == "wait":
        broker.wait(LONG_AFTER)
    broker.turn()
