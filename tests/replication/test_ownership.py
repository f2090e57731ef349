"""What an owner stores where, when the store fails, and when it is not the owner any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint, CursorState, PendingRow, PendingRun, PublisherId, TopicState
from nsqtw.core.pending import all_rows
from nsqtw.errors import BackendError, NotOwner, ReplicaError, StoreLost
from nsqtw.replication.backend import ReplicatedBackend
from nsqtw.replication.positions import ReplicatedPositions
from nsqtw.replication.state_file import read_state
from nsqtw.testing.contracts import make_segment, messages, read_all
from nsqtw.testing.memory import MemoryBackend, MemoryPositions
from nsqtw.testing.replica_memory import MemoryDatabase, MemoryReplicaStore
from tests.replication.harness import LEASE, Clock, disk_backend, no_log, ownership

FULL = ReplicaError("the store is away")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(clock: Clock) -> MemoryDatabase:
    return MemoryDatabase(clock)


def stored(database: MemoryDatabase) -> dict[int, bytes]:
    """Return the bodies of all messages in the store, by sequence."""
    segments = [one.segment for one in database.data_sets["nsqtw"].segments]
    return {sequence: body for sequence, (_, body) in messages(segments).items()}


def test_a_commit_is_in_the_store_and_in_the_data_path(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> None:
    """Both have it, and the state says so."""
    backend = ReplicatedBackend(disk_backend(str(tmp_path)), ownership(str(tmp_path), database, clock))
    queue = backend.queue("t")
    assert backend.commit([(queue, [make_segment(5, 3)])], True) == {}
    assert list(stored(database)) == [5, 6, 7]
    assert list(messages(read_all(queue))) == [5, 6, 7]
    state = read_state(str(tmp_path))
    assert state is not None
    assert (state.lsn, state.epoch) == (1, 1)


def test_the_store_fails_and_nothing_is_stored(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> None:
    """All queues of the commit fail with the error of the store."""
    backend = ReplicatedBackend(disk_backend(str(tmp_path)), ownership(str(tmp_path), database, clock))
    queues = [backend.queue("a"), backend.queue("b")]
    database.failure = FULL
    assert backend.commit([(queue, [make_segment(5)]) for queue in queues], False) == dict.fromkeys(queues, FULL)
    assert [read_all(queue) for queue in queues] == [[], []]


def test_a_probe_asks_the_store_that_failed(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> None:
    """An empty commit fails as long as the store does, and does not ask one that works."""
    backend = ReplicatedBackend(disk_backend(str(tmp_path)), ownership(str(tmp_path), database, clock))
    queue = backend.queue("t")
    database.failure = FULL
    assert backend.commit([], True) == {}
    assert backend.commit([(queue, [make_segment(5)])], False) == {queue: FULL}
    with pytest.raises(ReplicaError, match="away"):
        backend.commit([], True)
    database.failure = None
    assert backend.commit([], True) == {}


def test_a_data_path_that_fails_leaves_the_copy(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> None:
    """The publish is refused, and may be delivered after a takeover."""
    local = MemoryBackend()
    backend = ReplicatedBackend(local, ownership(str(tmp_path), database, clock))
    queue = backend.queue("t")
    local.failure = BackendError("full")
    assert backend.commit([(queue, [make_segment(5)])], False) == {queue: local.failure}
    assert list(stored(database)) == [5]


class FullBackend(DiskBackend):
    """Its disk is full for a topic."""

    is_full = False

    def commit(self, writes: Any, durable: bool) -> Any:
        failed = {queue: FULL for queue, _ in writes} if self.is_full else {}
        return failed or super().commit(writes, durable)


def test_a_data_path_that_lacks_what_the_store_has_is_not_trusted(
    tmp_path: Path, database: MemoryDatabase, clock: Clock
) -> None:
    """Later messages are behind what it lacks, in a log that only grows: it has to be copied anew."""
    owned = ownership(str(tmp_path), database, clock)
    local = FullBackend(str(tmp_path), 1 << 20, lambda *damage: None)
    backend = ReplicatedBackend(local, owned)
    queue = backend.queue("t")
    local.is_full = True
    assert backend.commit([(queue, [make_segment(5)])], False) == {queue: FULL}
    local.is_full = False
    assert backend.commit([(queue, [make_segment(6)])], False) == {}
    assert list(stored(database)) == [5, 6]
    owned.close(is_synced=True, is_released=True)
    state = read_state(str(tmp_path))
    assert state is not None
    assert not state.is_trusted


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_refused_commit_that_the_store_has_is_not_in_the_data_path(
    tmp_path: Path, database: MemoryDatabase, clock: Clock, is_committed: bool
) -> None:
    """The next commit shows whether it has."""
    backend = ReplicatedBackend(disk_backend(str(tmp_path)), ownership(str(tmp_path), database, clock))
    queue = backend.queue("t")
    if is_committed:
        database.failure_after_commit = FULL
    else:
        database.failure = FULL
    assert backend.commit([(queue, [make_segment(5)])], False) == {queue: FULL}
    database.failure = database.failure_after_commit = None
    assert backend.commit([(queue, [make_segment(6)])], False) == {}
    state = read_state(str(tmp_path))
    assert state is not None
    assert state.is_trusted != is_committed


def test_ephemeral_topics_have_no_copy(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> None:
    """Their messages end with the process, wherever it runs."""
    backend = ReplicatedBackend(disk_backend(str(tmp_path)), ownership(str(tmp_path), database, clock))
    queue = backend.queue("t#ephemeral")
    assert backend.commit([(queue, [make_segment(5)])], False) == {}
    assert stored(database) == {}
    assert list(messages(read_all(queue))) == [5]


def test_class_memory_is_stored_by_the_data_path_alone(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> None:
    """The reactor thread commits it, and must not wait for the store."""
    backend = ReplicatedBackend(disk_backend(str(tmp_path)), ownership(str(tmp_path), database, clock))
    queue = backend.queue("t")
    assert backend.local.commit([(queue, [make_segment(5)])], False) == {}
    assert stored(database) == {}
    assert list(messages(read_all(queue))) == [5]


@pytest.mark.parametrize("lost", ["claimed", "rewound"])
def test_who_is_not_the_owner_writes_nothing(tmp_path: Path, database: MemoryDatabase, clock: Clock, lost: str) -> None:
    """The first write fails, the lease is lost, and every later write fails without asking."""
    owned = ownership(str(tmp_path), database, clock)
    told: list[bool] = []
    owned.lease.on_lost = lambda: told.append(True)
    backend = ReplicatedBackend(disk_backend(str(tmp_path)), owned)
    queue = backend.queue("t")
    assert backend.commit([(queue, [make_segment(5)])], False) == {}
    if lost == "claimed":
        assert MemoryReplicaStore(database).claim("other", "other:4150", LEASE, forced=True) is not None
    else:
        data_set = database.data_sets["nsqtw"]
        data_set.row = evolve(data_set.row, lsn=0)
    failed = backend.commit([(queue, [make_segment(6)])], False)
    assert isinstance(failed[queue], NotOwner if lost == "claimed" else StoreLost)
    assert told == [True]
    assert owned.lease.left == 0
    database.failure = FULL
    assert backend.commit([(queue, [make_segment(7)])], False) == failed
    assert list(messages(read_all(queue))) == [5]


def test_the_lease_is_counted_from_the_beginning_of_the_last_answer(
    tmp_path: Path, database: MemoryDatabase, clock: Clock
) -> None:
    """A failure renews nothing."""
    owned = ownership(str(tmp_path), database, clock)
    clock.now += 2
    owned.append([("t", [make_segment(5)])])
    assert owned.lease.left == LEASE
    clock.now += 2
    database.failure = FULL
    with pytest.raises(ReplicaError):
        owned.append([("t", [make_segment(6)])])
    assert owned.lease.left == LEASE - 2
    clock.now += 1
    assert owned.lease.left == 0


# -- checkpoints


def checkpoint(next_: int, *rows: int, dropped: tuple[int, ...] = ()) -> Checkpoint:
    """Return a checkpoint of topic t with one channel."""
    pending = [PendingRow(sequence, 1, 0) for sequence in rows]
    cursor = CursorState("c", next=next_, pending=pending, dropped_rows=[*dropped])
    return Checkpoint(topics=[TopicState("t", released=next_, end=next_, cursors=[cursor])])


def rows_in_store(database: MemoryDatabase) -> list[int]:
    positions = MemoryPositions(database.data_sets["nsqtw"].positions)
    return [row.sequence for row in all_rows(positions, "t", "c")]


@pytest.fixture
def positions(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> ReplicatedPositions:
    positions = ReplicatedPositions(
        Positions(str(tmp_path / "positions.db")), ownership(str(tmp_path), database, clock), no_log
    )
    positions.load()
    return positions


def test_a_checkpoint_is_saved_in_both(
    tmp_path: Path, positions: ReplicatedPositions, database: MemoryDatabase
) -> None:
    """The state says which checkpoint the data path has."""
    positions.save(checkpoint(9, 3, 4))
    assert rows_in_store(database) == [3, 4]
    state = read_state(str(tmp_path))
    assert state is not None
    assert state.checkpoint_lsn == database.data_sets["nsqtw"].row.checkpoint_lsn == 1


def test_a_checkpoint_of_unknown_outcome_leaves_nothing(
    positions: ReplicatedPositions, database: MemoryDatabase
) -> None:
    """
    The store has saved it, the owner does not know, and the next one is a difference from the one before, with what
    was dropped. A row that was only in it is gone.
    """
    positions.save(checkpoint(9, 3))
    database.failure_after_commit = FULL
    with pytest.raises(ReplicaError):
        positions.save(checkpoint(10, 4, dropped=(3,)))
    assert rows_in_store(database) == [4]
    database.failure_after_commit = None
    positions.save(checkpoint(11, 5, dropped=(3,)))
    assert rows_in_store(database) == [5]


def test_a_part_that_does_not_have_the_topic_of_a_failed_one_changes_nothing_of_it(
    tmp_path: Path, positions: ReplicatedPositions, database: MemoryDatabase
) -> None:
    """What the store may have of it is newer, and consistent. Until its own part the two count as different."""
    positions.save(checkpoint(9, 3))
    database.failure = FULL
    with pytest.raises(ReplicaError):
        positions.save(checkpoint(20, 3))
    database.failure = None
    positions.save(Checkpoint(topics=[TopicState("other")]))
    assert rows_in_store(database) == [3]
    row = database.data_sets["nsqtw"].row
    state = read_state(str(tmp_path))
    assert state is not None
    assert state.checkpoint_lsn != row.checkpoint_lsn
    positions.save(checkpoint(21, 5, dropped=(3,)))
    assert rows_in_store(database) == [5]
    state = read_state(str(tmp_path))
    assert state is not None
    assert state.checkpoint_lsn == database.data_sets["nsqtw"].row.checkpoint_lsn


def test_rows_are_owed_until_their_channel_is_saved(positions: ReplicatedPositions, database: MemoryDatabase) -> None:
    """However many parts lie between."""
    database.failure_after_commit = FULL
    with pytest.raises(ReplicaError):
        positions.save(checkpoint(9, 6, 7))
    database.failure_after_commit = None
    positions.save(Checkpoint(topics=[TopicState("other")]))
    assert rows_in_store(database) == [6, 7]
    positions.save(checkpoint(9, 7))
    assert rows_in_store(database) == [7]


def test_runs_of_a_failed_checkpoint_are_dropped(positions: ReplicatedPositions, database: MemoryDatabase) -> None:
    """As far as the next one does not put them again."""
    first = checkpoint(0)
    first.topics[0].cursors[0].runs = [PendingRun(0, 5, 0), PendingRun(10, 2, 0)]
    database.failure_after_commit = FULL
    with pytest.raises(ReplicaError):
        positions.save(first)
    database.failure_after_commit = None
    second = checkpoint(0, 1)
    second.topics[0].cursors[0].runs = [PendingRun(10, 2, 0)]
    positions.save(second)
    assert sorted(rows_in_store(database)) == [1, 10, 11]


def test_ids_that_a_start_finds_reach_the_store(positions: ReplicatedPositions, database: MemoryDatabase) -> None:
    """With the next checkpoint of their topic."""
    positions.save(checkpoint(9))
    positions.put_publisher_ids("t", [PublisherId(b"0" * 16, 1, 3)])
    positions.save(Checkpoint(topics=[TopicState("other")]))
    positions.save(checkpoint(10))
    assert [one.sequence for one in database.data_sets["nsqtw"].positions.all_publisher_ids("t")] == [3]


def test_damaged_positions_are_made_anew_by_the_next_start(
    tmp_path: Path, positions: ReplicatedPositions, database: MemoryDatabase
) -> None:
    """One line says so, and the state that they are not those of the copy."""
    positions.save(checkpoint(9))
    positions.close(False)
    (tmp_path / "positions.db").write_bytes(b"no database" * 100)
    (tmp_path / "positions.db-wal").unlink(missing_ok=True)
    again = ReplicatedPositions(Positions(str(tmp_path / "positions.db")), positions._ownership, no_log)
    with pytest.raises(ReplicaError, match="next start makes it anew"):
        again.load()
    state = read_state(str(tmp_path))
    assert state is not None
    assert state.checkpoint_lsn == 0


def test_a_damaged_data_path_ends_the_ownership(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> None:
    """Before a checkpoint says that the lost messages are finished. The next start copies them again."""
    owned = ownership(str(tmp_path), database, clock)
    positions = ReplicatedPositions(Positions(str(tmp_path / "positions.db")), owned, no_log)
    positions.load()
    owned.damaged("a record")  # a start counts what was copied
    positions.save(checkpoint(8))
    owned.is_complete = True
    owned.damaged("a record")
    with pytest.raises(ReplicaError, match="damaged"):
        positions.save(checkpoint(9))
    state = read_state(str(tmp_path))
    assert state is not None
    assert not state.is_trusted


def test_a_deleted_channel_of_unknown_outcome_is_deleted(
    positions: ReplicatedPositions, database: MemoryDatabase
) -> None:
    """The deletion comes again, and finds nothing."""
    positions.save(checkpoint(9, 3))
    database.failure_after_commit = FULL
    deletion = Checkpoint(deleted_channels=[("t", "c")])
    with pytest.raises(ReplicaError):
        positions.save(deletion)
    database.failure_after_commit = None
    positions.save(deletion)
    [topic] = database.data_sets["nsqtw"].positions.saved.topics
    assert topic.cursors == []


def test_rows_that_a_start_forgets_are_forgotten_in_the_store(
    tmp_path: Path, positions: ReplicatedPositions, database: MemoryDatabase
) -> None:
    """With the next checkpoint. Until then the data path has no checkpoint of the store."""
    first = checkpoint(9, 3, 4, 5)
    first.topics[0].publisher_ids = [PublisherId(b"0" * 16, 1, 3), PublisherId(b"1" * 16, 1, 5)]
    positions.save(first)
    assert positions.forget_pending("t", "c", 4) == 2
    positions.forget_publisher_ids("t", 4)
    state = read_state(str(tmp_path))
    assert state is not None
    assert state.checkpoint_lsn == 0
    positions.save(Checkpoint(topics=[TopicState("other")]))
    assert rows_in_store(database) == [3]
    assert [one.sequence for one in database.data_sets["nsqtw"].positions.all_publisher_ids("t")] == [3]


def test_a_deleted_topic_loses_its_segments_with_the_checkpoint(
    tmp_path: Path, positions: ReplicatedPositions, database: MemoryDatabase
) -> None:
    """And no earlier."""
    data_set = database.data_sets["nsqtw"]
    store = MemoryReplicaStore(database)
    writer = store.claim("x", "", LEASE, forced=True)
    assert writer is not None
    writer.append([("t", [make_segment(5)])])
    writer.save(Checkpoint(deleted_topics=["t"]))
    assert data_set.segments == []


def test_finished_messages_are_freed_in_the_store(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> None:
    """What a channel still wants stays."""
    owned = ownership(str(tmp_path), database, clock)
    positions = ReplicatedPositions(Positions(str(tmp_path / "positions.db")), owned, no_log)
    positions.load()
    for first in (0, 10, 20, 30):
        owned.append([("t", [make_segment(first, 10)])])
    positions.save(checkpoint(35, 15))
    assert [one.segment.first for one in database.data_sets["nsqtw"].segments] == [10, 30]


def test_blocks_are_reserved_ahead(positions: ReplicatedPositions, database: MemoryDatabase, tmp_path: Path) -> None:
    """The reactor takes blocks without the store; more are reserved with a checkpoint."""
    owned = positions._ownership
    owned.start_blocks(1000)
    reserved = database.data_sets["nsqtw"].next_block
    assert reserved is not None
    database.failure = FULL
    positions.reserve(reserved)
    with pytest.raises(ReplicaError, match="used up"):
        positions.reserve(reserved + 1)
    database.failure = None
    positions.save(checkpoint(9))
    assert database.data_sets["nsqtw"].next_block > reserved
    positions.reserve(reserved + 1)
