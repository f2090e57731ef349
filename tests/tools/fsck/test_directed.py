"""Messages for one channel, in both backends: what fsck says of them, whole and damaged, and that it is so."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nsqtw.backends.disk.format import RECORD_BYTES
from nsqtw.backends.finding import Finding
from nsqtw.backends.sqlite.backend import SqliteBackend
from nsqtw.interfaces import IBackend
from nsqtw.tools.fsck.command import CLEAN, FINDINGS, run
from tests.backends.data_path import spoil
from tests.core.stored_harness import StoredHarness
from tests.tools.fsck.data_path import Stored, findings, whats

CHANNELS = ("c", "other")
DELAY = 60.0
ONE = b"for c %d "
ALL = b"for all %d "
FRAME_BYTES = 34 + len(ONE % 0) + 100


class OnDisk(Stored):
    """Two messages in a log file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, max_bytes_per_file=450, mem_queue_size=0)

    def spoil(self, body: bytes, offset: int) -> None:
        """Spoil a byte, so far behind the begin of the frames of the message with this body."""
        for log in self.directory.glob("t/*.log"):
            for record in re.finditer(rb"\xf5NS[QD]", data := log.read_bytes()):
                begin = record.start() + RECORD_BYTES
                if data.startswith(body, begin + 34):
                    spoil(log, begin + offset)


class InSqlite(OnDisk):
    """Each in a row."""

    def open_backend(self, path: str) -> IBackend:
        return SqliteBackend(path, self.report)

    def spoil(self, body: bytes, offset: int) -> None:
        with closing(sqlite3.connect(self.directory / "messages.db")) as connection, connection:
            for row_id, *parts in connection.execute("SELECT id, frames, headers FROM segment").fetchall():
                if parts[0].startswith(body, 34):
                    column = int(offset >= len(parts[0]))
                    damaged = bytearray(parts[column])
                    damaged[offset - column * len(parts[0])] ^= 0x5B
                    name = ("frames", "headers")[column]
                    connection.execute(f"UPDATE segment SET {name} = ? WHERE id = ?", (bytes(damaged), row_id))


KINDS = [OnDisk, InSqlite]


@pytest.fixture(params=KINDS)
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OnDisk]:
    """One with five messages for the channel `c` alone, each followed by one for all channels; none is read."""
    kind: type[OnDisk] = request.param
    broker = kind(tmp_path)
    for channel in CHANNELS:
        broker.channel(channel)
    broker.save()
    for number in range(5):
        put(broker, ONE % number + b"x" * 100)
        broker.put(ALL % number + b"y" * 100)
        broker.turn()
    broker.save()
    yield broker
    broker.close()


def put(broker: OnDisk, body: bytes, delay_ms: int = 0) -> None:
    broker.topic().put([body], delay_ms, lambda error: None, None, "c")
    broker.turn()


def die(broker: OnDisk, body: bytes, offset: int) -> list[Finding]:
    """The broker died, and what it left is damaged. Returns what fsck finds."""
    broker.close()
    broker.spoil(body, offset)
    return findings(broker.directory)


def depths(broker: OnDisk) -> dict[str, int]:
    return {name: broker.channel(name).depth for name in CHANNELS}


def received(broker: OnDisk) -> dict[str, int]:
    return {name: sum(broker.bodies(name).values()) for name in CHANNELS}


def missing(found: list[Finding]) -> dict[str | None, str]:
    """How many messages of which channels are missing."""
    return {one.channel: one.costs.split(" of ")[0] for one in found if one.what == "missing messages"}


ONE_MISSING = "not in the log: 1"
NOTHING = dict.fromkeys(CHANNELS, 0)


def test_they_are_counted_by_channel(broker: OnDisk, capsys: pytest.CaptureFixture[str]) -> None:
    put(broker, b"deferred", delay_ms=int(DELAY * 1000))
    broker.save()
    assert run(str(broker.directory), False) == CLEAN
    said = capsys.readouterr().out
    assert "\ntopic t has messages for one channel only: 6 for c\n" in said
    assert "which has headers or messages for one channel" in said
    assert " 11 messages, " in said


def test_messages_that_others_get_are_not_missed_where_they_are_not_expected(broker: OnDisk) -> None:
    """In each state of a channel: it has read some, is moved back, or was emptied, and some are deferred."""
    topic, other = broker.topic(), broker.channel("other")
    topic.reader.retention_policy.give((1e9, None), broker.now)
    reader = broker.reader("other", ready=2)
    reader.finish(*[message.id for message in reader.read()])
    put(broker, b"deferred", delay_ms=int(DELAY * 1000))
    reader.leave()
    broker.save()
    assert findings(broker.directory) == []
    other.seek(topic.reader.kept_from)
    broker.save()
    assert findings(broker.directory) == []
    topic.pause()
    put(broker, b"paused")
    topic.empty()
    put(broker, b"paused")
    broker.save()
    assert findings(broker.directory) == []
    assert other.depth == 5
    topic.unpause(broker.now)
    broker.wait(DELAY)
    broker.save()
    assert findings(broker.directory) == []
    assert received(broker) == {"c": 5 + 5 + 1 + 1, "other": 5}


def test_a_lost_message_for_all_is_missing_in_each_channel(broker: OnDisk) -> None:
    found = die(broker, ALL % 2, 50)
    assert missing(found) == dict.fromkeys(CHANNELS, ONE_MISSING)
    assert [one.channel for one in found if one.what == "damaged record"] == [None]
    broker.start()
    assert received(broker) == {"c": 9, "other": 4}
    assert depths(broker) == NOTHING


def test_a_lost_message_for_one_channel_is_missing_there(broker: OnDisk) -> None:
    found = die(broker, ONE % 2, 50)
    assert missing(found) == {"c": ONE_MISSING}
    (damaged,) = [one for one in found if one.what == "damaged record"]
    assert (damaged.channel, "these messages" in damaged.costs) == ("c", True)
    broker.start()
    assert received(broker) == {"c": 9, "other": 5}
    assert depths(broker) == NOTHING


def test_a_message_whose_channel_is_damaged_is_missing_in_one_channel(
    broker: OnDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody gets it: the others must not. After a repair it is not in the way."""
    found = die(broker, ONE % 2, FRAME_BYTES + 6)
    assert missing(found) == {"c": ONE_MISSING}
    (damaged,) = [one for one in found if one.what == "damaged record"]
    assert damaged.channel is None
    assert re.search("nothing tells (the channel|which)", damaged.costs)
    assert run(str(broker.directory), True) == FINDINGS
    assert "topic t has messages for one channel only: 4 for c\n" in capsys.readouterr().out
    assert whats(findings(broker.directory)) == ["missing messages"]
    broker.start()
    assert received(broker) == {"c": 9, "other": 5}
    assert depths(broker) == NOTHING


@pytest.mark.parametrize("broker", [OnDisk], indirect=True)
def test_a_read_that_meets_a_lost_message_counts_it_where_it_was_counted(broker: OnDisk) -> None:
    """Depth is what a channel gets. A read of the log comes by before the channels do."""
    die(broker, ONE % 2, 50)
    broker.start()
    assert depths(broker) == {"c": 10, "other": 5}
    broker.topic().reader.read(0, 1 << 20)
    assert depths(broker) == {"c": 9, "other": 5}
    assert received(broker) == {"c": 9, "other": 5}


@pytest.mark.parametrize("backend", ["disk", "sqlite"])
def test_a_replay_that_is_not_counted_yet_lacks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr("nsqtw.core.for_others._LOOKS", 0)  # nothing is looked through
    core = StoredHarness(tmp_path, backend, retention_time=3600.0)
    core.channel("c"), core.channel("other")
    core.put(b"1", b"2", channel="c")
    core.put(b"3")
    core.turn()
    core.channel("other").seek(core.topic().reader.kept_from)
    assert core.channel("other").depth == 3
    core.save()
    core.close()
    assert findings(tmp_path / "0") == []
