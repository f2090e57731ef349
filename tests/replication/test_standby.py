"""A standby copies, waits, and takes over."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from nsqtw.core.checkpoint import Checkpoint, TopicState
from nsqtw.errors import BackendError, NoDataSet, NotACopy, NotOwner, ReplicaError
from nsqtw.replication.standby import GRACE_SECONDS, POLL_SECONDS, RETRY_SECONDS, SKIP_SECONDS, TRIM_SECONDS, Standby
from nsqtw.replication.state_file import CopyState, read_state
from nsqtw.replication.store import IReplicaWriter
from nsqtw.testing.contracts import make_segment, messages, read_all
from nsqtw.testing.replica_memory import MemoryDatabase, MemoryReplicaStore
from tests.replication.harness import LEASE, Clock, disk_backend, standby


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(clock: Clock) -> MemoryDatabase:
    database = MemoryDatabase(clock)
    MemoryReplicaStore(database).create()
    return database


@pytest.fixture
def owner(database: MemoryDatabase) -> IReplicaWriter:
    """The writer of another broker."""
    writer = MemoryReplicaStore(database).claim("owner", "owner:4150", LEASE)
    assert writer is not None
    return writer


def in_path(directory: Path, topic: str = "t") -> list[int]:
    """Return the sequences of the messages in a data path, which is open elsewhere."""
    return list(messages(read_all(disk_backend(str(directory)).queue(topic))))


def test_it_copies_and_waits(tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock) -> None:
    """As long as the owner has a lease; what is behind is copied without a pause."""
    follower = standby(str(tmp_path), database)
    owner.append([("t", [make_segment(5, 2)])])
    shown: list[tuple[int, int]] = []
    follower._copy.apply = lambda *copied, apply=follower._copy.apply: (
        shown.append((follower.progress.behind, follower.progress.behind_messages)),
        apply(*copied),
    )
    assert follower.step(clock.now) == 0
    assert shown == [(1, 2)]
    assert follower.step(clock.now) == POLL_SECONDS
    assert in_path(tmp_path) == [5, 6]
    assert follower.writer is None
    assert (follower.progress.owner, follower.progress.behind) == ("owner:4150", 0)
    clock.now += 1
    assert follower.step(clock.now) == POLL_SECONDS
    assert (follower.progress.copied_at, follower.progress.behind_messages) == (clock.now, 0)
    [report] = MemoryReplicaStore(database).standbys()
    assert (report.identity, report.address, report.lsn) == (follower.identity, "standby:4151", 1)


def test_it_takes_over_when_the_lease_ends(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """And copies what the owner stored until then. The owner writes nothing from then on."""
    follower = standby(str(tmp_path), database)
    assert follower.step(clock.now) == POLL_SECONDS
    clock.now += LEASE - 0.1
    assert follower.step(clock.now) == POLL_SECONDS
    assert follower.writer is None
    clock.now += 0.1
    database.data_sets["nsqtw"].renewed -= 1  # stored after the copy, and before the claim
    assert follower.step(clock.now) == POLL_SECONDS
    writer = follower.writer
    assert writer is not None
    assert writer.epoch == 2
    with pytest.raises(NotOwner, match="standby:4150"):
        owner.append([("t", [make_segment(5)])])


def test_what_was_stored_before_the_claim_is_copied_after_it(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """Nobody writes any more, so the copy is complete."""
    follower = standby(str(tmp_path), database)
    follower.step(clock.now)
    claim = follower._store.claim

    def append_and_claim(*arguments: object, **named: object) -> IReplicaWriter | None:
        owner.append([("t", [make_segment(5)])])
        return claim(*arguments, forced=True)

    follower._store.claim = append_and_claim
    clock.now += LEASE
    follower.step(clock.now)
    assert in_path(tmp_path) == []
    follower.copy_rest(lambda: False)
    assert in_path(tmp_path) == [5]


@pytest.mark.parametrize("why", ["released", "itself"])
def test_it_takes_over_at_once(tmp_path: Path, database: MemoryDatabase, clock: Clock, why: str) -> None:
    """From an owner that released the data set, and when it was the owner itself."""
    follower = standby(str(tmp_path), database)
    owner = follower.identity if why == "itself" else "owner"
    writer = MemoryReplicaStore(database).claim(owner, "owner:4150", LEASE)
    assert writer is not None
    if why == "released":
        writer.release()
    else:
        follower._copy.state.claimed(epoch=writer.epoch, token=writer.token, lsn=0, checkpoint_lsn=0)
    follower.step(clock.now)
    assert follower.writer is not None


def test_it_claims_nothing_before_it_has_copied_all(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """Another standby may be nearer."""
    owner.append([("t", [make_segment(5)])])
    owner.release()
    follower = standby(str(tmp_path), database)
    assert follower.step(clock.now) == 0
    assert follower.writer is None
    follower.step(clock.now)
    assert follower.writer is not None


def test_it_frees_what_the_store_has_freed(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """And deletes topics that are deleted there."""
    follower = standby(str(tmp_path), database)
    owner.append([("t", [make_segment(5)]), ("gone", [make_segment(100)])])
    owner.save(Checkpoint(topics=[TopicState("t"), TopicState("gone")]))
    while follower.step(clock.now) == 0:
        pass
    owner.save(Checkpoint(deleted_topics=["gone"]))
    clock.now += TRIM_SECONDS
    follower.step(clock.now)
    assert in_path(tmp_path, "gone") == []
    assert in_path(tmp_path) == [5]


def test_a_segment_that_is_there_is_not_stored_again(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """A data path may have more than its state says."""
    owner.append([("t", [make_segment(5, 3)])])
    backend = disk_backend(str(tmp_path))
    backend.commit([(backend.queue("t"), [make_segment(5, 2)])], False)
    backend.close()
    follower = standby(str(tmp_path), database)
    assert follower.step(clock.now) == 0
    assert in_path(tmp_path) == [5, 6, 7]


def test_a_failure_is_tried_again(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """The store is away, and comes back."""
    follower = standby(str(tmp_path), database)
    database.failure = ReplicaError("the store is away")
    assert follower.step(clock.now) == RETRY_SECONDS
    assert follower.progress.error == "the store is away"
    database.failure = None
    assert follower.step(clock.now) == POLL_SECONDS
    assert follower.progress.error == ""


def test_a_full_data_path_loses_no_place(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same transaction is copied again."""
    owner.append([("t", [make_segment(5)])])
    follower = standby(str(tmp_path), database)
    backend = follower._copy._backend
    commit = backend.commit
    backend.commit = lambda writes, durable: {queue: BackendError("full") for queue, _ in writes}
    assert follower.step(clock.now) == RETRY_SECONDS
    assert follower.progress.error == "full"
    backend.commit = commit
    assert follower.step(clock.now) == 0
    assert in_path(tmp_path) == [5]


def test_the_owner_renews_its_lease_first(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """The store was away for longer than a lease: neither could reach it, so the owner may go on."""
    follower = standby(str(tmp_path), database)
    follower.step(clock.now)
    database.failure = ReplicaError("the store is away")
    clock.now += 10 * LEASE
    follower.step(clock.now)
    database.failure = None
    follower.step(clock.now)
    clock.now += GRACE_SECONDS - 0.1
    follower.step(clock.now)
    assert follower.writer is None
    clock.now += 0.1
    follower.step(clock.now)
    assert follower.writer is not None


def test_what_is_damaged_in_the_store_keeps_nobody_from_a_takeover(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """A standby that had copied it before may come first; without one the damaged messages are lost, and no others."""
    for first in (5, 6, 7):
        owner.append([("t", [make_segment(first)])])
    database.damage("nsqtw", "t", 6)
    follower = standby(str(tmp_path), database)
    while clock.now < 100 + SKIP_SECONDS:
        follower.step(clock.now)
        clock.now += 1
    assert follower.writer is None
    for _ in range(20):
        if follower.writer is None:
            follower.step(clock.now)
            clock.now += 1
    assert follower.writer is not None
    assert in_path(tmp_path) == [5, 7]
    assert follower.skipped == {"t"}


def test_a_claim_that_stores_nothing_is_recorded(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """The store remembers a limited number of them."""
    follower = standby(str(tmp_path), database)
    follower.step(clock.now)
    MemoryReplicaStore(database).claim("other", "", LEASE, forced=True)
    follower.step(clock.now)
    assert follower._copy.state.state.epoch == 2


# -- the history of the data set


def state_of(database: MemoryDatabase, **changes: object) -> CopyState:
    row = database.data_sets["nsqtw"].row
    state = CopyState(data_set=row.identity, broker="me", epoch=row.epoch, token=row.token, lsn=row.lsn)
    return evolve(state, **changes)


def refused(directory: Path, database: MemoryDatabase, state: CopyState) -> str:
    follower: Standby = standby(str(directory), database, state)
    with pytest.raises(NotACopy) as caught:
        follower.step(0.0)
    return str(caught.value)


def test_a_store_that_lost_transactions_is_refused(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter
) -> None:
    """One line counts both sides, and names the remedies."""
    owner.append([("t", [make_segment(5)])])
    line = refused(tmp_path, database, state_of(database, lsn=7))
    assert "up to 7 of epoch 1" in line
    assert "up to 1:" in line
    assert "--replicate-from=store" in line
    assert "--replicate-from=local" in line


def test_a_store_that_lost_transactions_and_went_on_is_refused(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter
) -> None:
    """The next epoch began below what the data path has of its own epoch."""
    owner.append([("t", [make_segment(5)])])
    state = state_of(database, lsn=2)
    writer = MemoryReplicaStore(database).claim("other", "", LEASE, forced=True)
    assert writer is not None
    for first in range(10, 20):
        writer.append([("t", [make_segment(first)])])
    assert "up to 1:" in refused(tmp_path, database, state)


def test_a_data_path_of_an_epoch_before_is_a_copy(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """An owner that was replaced comes back."""
    owner.append([("t", [make_segment(5)])])
    state = state_of(database)
    MemoryReplicaStore(database).claim("other", "", LEASE, forced=True)
    follower = standby(str(tmp_path), database, state)
    assert follower.step(clock.now) == POLL_SECONDS


def test_a_claim_that_the_store_has_lost_is_refused(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter
) -> None:
    """Another broker got the same epoch, and went on."""
    state = state_of(database, token="lost", lsn=1)
    owner.append([("t", [make_segment(5)])])
    owner.append([("t", [make_segment(6)])])
    assert "has lost" in refused(tmp_path, database, state)


def test_a_copy_of_its_files_gets_an_identity_of_its_own(
    tmp_path: Path, database: MemoryDatabase, clock: Clock
) -> None:
    """It is a standby of the one that claimed first, and does not take part in its claim."""
    follower = standby(str(tmp_path), database)
    before = follower.identity
    assert MemoryReplicaStore(database).claim(before, "owner:4150", LEASE) is not None
    assert follower.step(clock.now) == POLL_SECONDS
    assert follower.writer is None
    assert follower.identity != before


def test_the_data_path_of_the_last_owner_is_not_trimmed(tmp_path: Path, database: MemoryDatabase, clock: Clock) -> None:
    """It may have messages that have no copy."""
    backend = disk_backend(str(tmp_path))
    backend.commit([(backend.queue("t"), [make_segment(5)])], False)
    backend.close()
    follower = standby(str(tmp_path), database)
    writer = MemoryReplicaStore(database).claim(follower.identity, "owner:4150", LEASE)
    assert writer is not None
    follower._copy.state.claimed(epoch=writer.epoch, token=writer.token, lsn=0, checkpoint_lsn=0)
    follower.step(clock.now)
    follower.copy_rest(lambda: False)
    assert follower.was_owner
    assert in_path(tmp_path) == [5]


def test_a_clock_that_goes_back_keeps_nobody_from_a_takeover(
    tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock
) -> None:
    """The standby has seen no renewal for a lease by its own clock."""
    follower = standby(str(tmp_path), database)
    database.now = lambda: -1000.0
    follower.step(clock.now)
    clock.now += LEASE + GRACE_SECONDS - 0.1
    follower.step(clock.now)
    assert follower.writer is None
    clock.now += 0.2
    follower.step(clock.now)
    assert follower.writer is not None


def test_another_data_set_of_the_same_name_is_refused(tmp_path: Path, database: MemoryDatabase) -> None:
    """It was removed and created again."""
    assert "another data set, old" in refused(tmp_path, database, state_of(database, data_set="old"))


def test_a_removed_data_set(tmp_path: Path, database: MemoryDatabase) -> None:
    """Nobody creates it but the operator."""
    follower = standby(str(tmp_path), database)
    MemoryReplicaStore(database).forget()
    with pytest.raises(NoDataSet, match="replicate init"):
        follower.step(0.0)


def test_the_state_is_kept(tmp_path: Path, database: MemoryDatabase, owner: IReplicaWriter, clock: Clock) -> None:
    """A restarted standby goes on where it was."""
    owner.append([("t", [make_segment(5)])])
    first = standby(str(tmp_path), database)
    first.step(clock.now)
    first._copy.close()
    state = read_state(str(tmp_path))
    assert state is not None
    assert state.lsn == 1
    second = standby(str(tmp_path), database)
    assert second.identity == first.identity
    assert second.step(clock.now) == POLL_SECONDS
