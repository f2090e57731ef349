"""What damage is said to cost is what it costs: no more is missing afterwards, whatever was hit."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.sqlite.backend import SqliteBackend, SqliteQueue
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackend
from nsqtw.testing.contracts import make_segment, read_all
from tests.backends.data_path import spoil
from tests.crash.damage import DAMAGES, StoredMessage, is_sound, messages_in, repair_malformed

SEEDS = 15
SEGMENTS = [make_segment(first, 3, size=20) for first in range(0, 300, 3)]


def opened(backend: str, directory: Path) -> IBackend:
    if backend == "disk":
        return DiskBackend(str(directory), 10_000, lambda *damage: None)
    return SqliteBackend(str(directory), lambda *damage: None)


def stored_messages(backend: str, directory: Path, topics: str = "t") -> frozenset[StoredMessage]:
    opening = opened(backend, directory)
    found = [messages_in(segment.frames) for topic in topics for segment in read_all(opening.queue(topic))]
    opening.close()
    return frozenset().union(*found)


def write_mixed(alive: SqliteBackend) -> frozenset[StoredMessage]:
    """
    Have a log of changes with pages that the database has in a later version: it was copied back, and not truncated.
    What was ever stored.
    """
    chance = random.Random("b")  # with which rows get out of the order of the table, and are not found by their id
    queues = [queue for topic in "tu" if isinstance(queue := alive.queue(topic), SqliteQueue)]
    written, sequence = set[StoredMessage](), 0

    def commit(number: int) -> None:
        nonlocal sequence
        for _ in range(number):
            segment = make_segment(sequence, 3, size=20)
            written.update(messages_in(segment.frames))
            assert alive.commit([(chance.choice(queues), [segment])], False) == {}
            sequence += 3

    def copy_back(how: str) -> None:
        assert alive._writer.execute(f"PRAGMA wal_checkpoint({how})").fetchone()[0] == 0

    commit(600)
    copy_back("TRUNCATE")
    for step in range(6):
        commit(30)
        chance.choice(queues)._trim_rows(sequence // 2 + step * 60, range(0, sequence, 97), 40)
        alive._writer.executescript("PRAGMA incremental_vacuum(5)")
    copy_back("PASSIVE")
    return frozenset(written)


def test_a_malformed_database(tmp_path: Path) -> None:
    """A broker starts with it, invents nothing, and says what helps; a repair keeps all that can be read."""
    (tmp_path / "alive").mkdir()
    alive = opened("sqlite", tmp_path / "alive")
    assert isinstance(alive, SqliteBackend)
    written = write_mixed(alive)
    killed, repaired = tmp_path / "killed", tmp_path / "repaired"
    for copy in (killed, repaired):
        shutil.copytree(tmp_path / "alive", copy)
        spoil(copy / "messages.db-wal", (copy / "messages.db-wal").stat().st_size * 2 // 3)
        assert not is_sound(copy)
    alive.close()
    repair_malformed(repaired)
    assert stored_messages("sqlite", killed, "tu") < stored_messages("sqlite", repaired, "tu") < written
    opening = opened("sqlite", killed)
    with pytest.raises(BackendError, match="is malformed; stop nsqd and run nsqtw fsck --repair, which keeps all that"):
        opening.queue("t").trim(10_000, [])
    opening.close()


@pytest.mark.parametrize("backend", [*DAMAGES])
def test_damage_costs_what_is_said_and_no_more(tmp_path: Path, backend: str) -> None:
    (tmp_path / "alive").mkdir()
    alive = opened(backend, tmp_path / "alive")
    queue = alive.queue("t")
    for segment in SEGMENTS:
        assert alive.commit([(queue, [segment])], False) == {}
    written = frozenset().union(*(messages_in(segment.frames) for segment in SEGMENTS))
    costs = []
    for seed in range(SEEDS):
        killed = tmp_path / str(seed)
        shutil.copytree(tmp_path / "alive", killed)
        destroyed = DAMAGES[backend](killed, random.Random(seed))
        assert stored_messages(backend, killed) == written - destroyed
        costs.append(len(destroyed))
    alive.close()
    assert 0 < sum(costs) / SEEDS < len(written)
