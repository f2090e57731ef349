"""
Contract of replica stores, as tests. Run as the contracts of backends in `contracts`:

    from nsqtw.testing.replica_contract import ReplicaStoreContract

    class TestMine(ReplicaStoreContract):
        def make_store(self, directory):
            return MyStore(my_database(directory))

        def damage(self, store, topic, first):
            store.flip_a_bit(topic, first)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import attrs
import pytest
from zope.interface.verify import verifyObject

from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import (
    Checkpoint,
    CursorState,
    HeldRow,
    PendingRow,
    PendingRun,
    PublisherId,
    TopicState,
    Waiting,
)
from nsqtw.core.pending import all_rows
from nsqtw.core.segment import Segment
from nsqtw.errors import DataSetExists, NoDataSet, NotOwner, ReplicaError
from nsqtw.replication.store import (
    Correction,
    DataSet,
    ForgetDelays,
    ForgetIds,
    ForgetPending,
    IReplicaStore,
    IReplicaWriter,
    StoredSegment,
)
from nsqtw.testing.contracts import OnDirectory, make_segment, make_segment_with_headers

A, B = "broker-a", "broker-b"
LONG = 600.0
"""A lease that does not end during a test. One of 0 seconds has ended at once."""
ALL = 1 << 30

State = dict[str, tuple[TopicState, dict[str, tuple[CursorState, list[HeldRow]]], list[PublisherId]]]
"""What was saved: by its name each topic, its channels with their held rows, and its publishers' ids."""

EVERYTHING = Checkpoint(
    topics=[
        TopicState(
            "t",
            paused=True,
            released=20,
            released_total=20,
            end=(1 << 53) - 1,
            put_total=25,
            dropped=[(10, 12), (15, 20)],
            waiting=[Waiting(21, 3, 60_000), Waiting(25, 1, 1 << 40)],
            durability="fsync",
            retention_time=90061.5,
            retention_bytes=1 << 40,
            floor=7,
            marks=[(7, 1_700_000_000_000, 0), (30, 1_700_000_000_001, 1 << 50)],
            runs=[(7, 0), (15, 5), (30, 20)],
            policy={"message_ttl": 90061.5},
            publisher_ids=[
                PublisherId(bytes(range(16)), 1_700_000_000_000, (1 << 53) - 1),
                PublisherId(b"\0" * 16, 5, 0),
            ],
            dedupe_window_ms=1 << 60,
            cursors=[
                CursorState(
                    "c1",
                    paused=True,
                    next=9,
                    taken_total=8,
                    first_deliveries=[8, 6, 7],
                    interrupted=[4],
                    pending=[
                        PendingRow(2, 7, 0),
                        PendingRow(3, 2, 0),
                        PendingRow(4, 9, 0),
                        PendingRow(5, 65535, 1_700_000_000_000),
                    ],
                    runs=[PendingRun(10, 3, 500), PendingRun(20, 1, 400)],
                    pending_count=8,
                    held=[HeldRow(2, 7, "requeued", "it said \0 \x01 é 中", 77), HeldRow(3, 2, "timed out", "", 0)],
                    replays=12,
                    counted_to=10,
                    positions=[11, 10, 9],
                    class_depths=[2, 0, 1, 20],
                    policy={"max_attempts": 5, "requeue_delay": 1.5, "overflow": "drop_oldest"},
                ),
                CursorState("c2#ephemeral"),
            ],
        ),
        TopicState("empty"),
    ],
    wall_shift_ms=-5_000,
    pending_ms=1,
)
"""Has a value of its own in each field that is saved."""


def _rows(*sequences: int) -> list[PendingRow]:
    return [PendingRow(sequence, 1, 0) for sequence in sequences]


def _of_channel(**fields: Any) -> Checkpoint:
    """A checkpoint with one channel."""
    return Checkpoint(topics=[TopicState("t", released=50, cursors=[CursorState("c", next=40, **fields)])])


_HELD = [HeldRow(sequence, 1, "requeued", "why", sequence) for sequence in range(1, 6)]
_IDS = [PublisherId(bytes([number]) * 16, 1000 + number, number) for number in range(3)]
HISTORIES: dict[str, list[Checkpoint]] = {
    "everything": [EVERYTHING],
    "again": [EVERYTHING, EVERYTHING],
    "replaced by defaults": [EVERYTHING, Checkpoint(topics=[TopicState("t", cursors=[CursorState("c1")])])],
    "one channel of two": [
        Checkpoint(
            topics=[
                TopicState("t", cursors=[CursorState("c", pending=_rows(1, 2, 3)), CursorState("d", next=4)]),
                TopicState("other", paused=True),
            ]
        ),
        _of_channel(pending=[PendingRow(2, 5, 8), PendingRow(6, 1, 0)], dropped_rows=[1, 99], pending_count=3),
    ],
    "emptied": [_of_channel(pending=_rows(*range(5)), held=_HELD[:4]), _of_channel(pending=_rows(8), emptied=True)],
    "moved": [
        _of_channel(pending=_rows(*range(6)), held=_HELD, interrupted=[0]),
        _of_channel(pending=_rows(8), forgotten_from=3, interrupted=[0]),
    ],
    "runs": [
        _of_channel(runs=[PendingRun(10, 3, 500), PendingRun(20, 1, 400), PendingRun(30, 5000, 600)]),
        _of_channel(pending=_rows(31), dropped_rows=[40], runs=[PendingRun(11, 4, 900)]),
    ],
    "overlapping runs": [_of_channel(pending=_rows(11, 11), runs=[PendingRun(10, 3, 500), PendingRun(11, 5, 400)])],
    "held rows change": [
        _of_channel(pending=_rows(*range(1, 7)), held=_HELD, interrupted=[6, 9]),
        _of_channel(
            pending=[PendingRow(1, 3, 0), PendingRow(3, 4, 0)],
            dropped_rows=[2],
            held=[HeldRow(3, 4, "timed out", "", 0)],
            interrupted=[1],
        ),
    ],
    "deleted and created again": [
        Checkpoint(
            topics=[
                TopicState(
                    name,
                    dedupe_window_ms=1 << 60,
                    publisher_ids=_IDS,
                    policy={"message_ttl": 5.0},
                    cursors=[
                        CursorState(channel, pending=_rows(1), held=_HELD[:1], policy={"max_attempts": 5})
                        for channel in ("x", "y")
                    ],
                )
                for name in ("t", "gone")
            ]
        ),
        Checkpoint(
            deleted_topics=["gone", "never"],
            deleted_channels=[("t", "x"), ("t", "never"), ("never", "x")],
            topics=[TopicState("gone", cursors=[CursorState("x")]), TopicState("t", cursors=[CursorState("x")])],
        ),
    ],
    "deleted": [EVERYTHING, Checkpoint(deleted_topics=["empty"], deleted_channels=[("t", "c1")])],
    "publishers' ids": [
        Checkpoint(topics=[TopicState("t", publisher_ids=_IDS, dedupe_window_ms=1 << 60)]),
        Checkpoint(
            topics=[
                TopicState("t", publisher_ids=[PublisherId(_IDS[1].hash, 2000, 9)], dedupe_window_ms=1 << 60),
                TopicState("u", publisher_ids=[PublisherId(_IDS[0].hash, 5, 6)], dedupe_window_ms=1 << 60),
            ]
        ),
    ],
    "many rows": [
        Checkpoint(
            topics=[
                TopicState(
                    "t",
                    publisher_ids=[PublisherId(b"%016d" % number, number, number) for number in range(25_000)],
                    dedupe_window_ms=1 << 60,
                    cursors=[
                        CursorState("c", pending=_rows(*range(0, 60_000, 2)), held=_HELD[1::2], interrupted=[8]),
                        CursorState("d", pending=_rows(5), pending_count=1),
                    ],
                ),
                *(TopicState(f"t{number}", released=number) for number in range(500)),
            ]
        )
    ],
}
"""What is saved, one checkpoint after the other."""


CORRECTIONS: dict[str, list[Correction]] = {
    "pending rows": [ForgetPending("t", "c1", 4), ForgetPending("t", "unknown", 0), ForgetPending("unknown", "c1", 0)],
    "held rows": [ForgetPending("t", "c1", 3)],
    "all rows": [ForgetPending("t", "c1", 0)],
    "publishers' ids": [ForgetIds("t", 1), ForgetIds("unknown", 0)],
    "delays": [ForgetDelays()],
    "several": [ForgetPending("t", "c1", 11), ForgetDelays(), ForgetIds("t", 1), ForgetIds("t", 0)],
}
"""What a start may do to EVERYTHING."""


def saved_state(directory: str, history: Iterable[Checkpoint | Correction]) -> tuple[State, int]:
    """
    Save checkpoints in a new `positions.db`, and make corrections there; return what the next process loads, and the
    shift of the wall clock.
    """
    path = f"{directory}/positions.db"
    positions = Positions(path)
    positions.load()
    for one in history:
        if isinstance(one, Checkpoint):
            positions.save(one)
        elif isinstance(one, ForgetPending):
            positions.forget_pending(one.topic, one.channel, one.start)
        elif isinstance(one, ForgetIds):
            positions.forget_publisher_ids(one.topic, one.start)
        else:
            positions.forget_delays()
    positions.close(False)
    positions = Positions(path)
    saved = positions.load()
    assert saved.invalid == []
    state: State = {}
    for topic in saved.topics:
        cursors = {}
        for cursor in topic.cursors:
            cursor.pending = sorted(all_rows(positions, topic.name, cursor.name), key=attrgetter("sequence"))
            cursor.interrupted.sort()
            cursors[cursor.name] = cursor, positions.held(topic.name, cursor.name)
        ids = sorted(positions.all_publisher_ids(topic.name), key=attrgetter("hash"))
        state[topic.name] = attrs.evolve(topic, cursors=[]), cursors, ids
    positions.close(False)
    return state, saved.wall_shift_ms


def contents(stored: Iterable[StoredSegment]) -> list[tuple[Any, ...]]:
    """Return all of segments that were read, to be compared."""
    return [(one.lsn, one.topic, *parts(one.segment)) for one in stored]


def parts(segment: Segment) -> tuple[Any, ...]:
    """Return all of a segment, to be compared."""
    headers = None if segment.headers is None else [*segment.headers]
    return segment.first, segment.count, segment.delay_ms, segment.frames, headers, segment.channel


def row_of(store: IReplicaStore) -> DataSet:
    """Return the row of a data set that is there."""
    row: DataSet | None = store.data_set()
    assert row is not None
    return row


def claimed(store: IReplicaStore, owner: str = A, *, token: str = "", forced: bool = False) -> IReplicaWriter:
    """Claim the data set, which must succeed."""
    writer = store.claim(owner, f"{owner}:4150", LONG, token=token, forced=forced)
    assert writer is not None
    return writer


WRITES: dict[str, Callable[[IReplicaWriter], None]] = {
    "append": lambda writer: writer.append([("t", [make_segment(100)])]),
    "save": lambda writer: writer.save(EVERYTHING),
    "save a deletion": lambda writer: writer.save(Checkpoint(deleted_topics=["t"])),
    "correct": lambda writer: writer.save(Checkpoint(), [ForgetPending("t", "c1", 0), ForgetDelays()]),
    "reserve": lambda writer: writer.reserve(99),
    "trim": lambda writer: writer.trim("t", 10, []),
    "release": lambda writer: writer.release(),
}
"""Each way to write."""


class ReplicaStoreContract(OnDirectory):
    """The duties of `IReplicaStore` and `IReplicaWriter`."""

    def make_store(self, directory: str) -> IReplicaStore:
        """
        Open a store. All that are opened for one directory have the same data set, which is not there at first; those
        of different directories have different ones.
        """
        raise NotImplementedError

    def damage(self, store: IReplicaStore, topic: str, first: int) -> None:
        """Damage the segment of a topic that begins with `first`, as a failing disk does."""
        raise NotImplementedError

    @pytest.fixture
    def absent(self, directory: str) -> Iterator[IReplicaStore]:
        """A store whose data set was not created."""
        store = self.make_store(directory)
        yield store
        store.forget()
        store.close()

    @pytest.fixture
    def store(self, absent: IReplicaStore) -> IReplicaStore:
        """A store with a data set that belongs to nobody."""
        absent.create()
        return absent

    @pytest.fixture
    def other(self, store: IReplicaStore, directory: str) -> Iterator[IReplicaStore]:
        """The same data set, as another broker or thread sees it."""
        other = self.make_store(directory)
        yield other
        other.close()

    @pytest.fixture
    def writer(self, store: IReplicaStore) -> Iterator[IReplicaWriter]:
        writer = claimed(store)
        yield writer
        writer.close()

    # -- the data set

    def test_it_provides_the_interfaces(self, store: IReplicaStore, writer: IReplicaWriter) -> None:
        """The store and the writer have what the interfaces name."""
        assert verifyObject(IReplicaStore, store)
        assert verifyObject(IReplicaWriter, writer)

    def test_without_a_data_set(self, absent: IReplicaStore) -> None:
        """It is None, there is nothing to claim and to read, and nothing to forget."""
        assert absent.data_set() is None
        absent.forget()
        for ask in (
            lambda: absent.claim(A, "a:1", LONG),
            lambda: absent.claim(A, "a:1", LONG, forced=True),
            lambda: absent.claim(A, "a:1", LONG, token="x"),
            lambda: absent.renew(1),
            lambda: absent.request(B),
            lambda: absent.report(B, "b:1", 1),
            lambda: absent.segments(0, ALL),
            lambda: next(absent.spans("t"), None),
        ):
            with pytest.raises(NoDataSet):
                ask()

    def test_a_new_data_set_belongs_to_nobody(self, absent: IReplicaStore) -> None:
        """It is empty, and there is one of its name."""
        created = absent.create()
        assert created == absent.data_set()
        assert created.identity
        assert (created.epoch, created.owner, created.address, created.requested_by) == (0, "", "", "")
        assert (created.is_released, created.lease_left, created.lsn, created.checkpoint_lsn) == (False, 0, 0, 0)
        assert created.token == ""
        with pytest.raises(DataSetExists):
            absent.create()
        assert absent.data_set() == created
        assert absent.segments(0, ALL) == []
        assert absent.kept(["t"]) == {}
        assert [*absent.spans("t")] == []
        assert absent.next_block() is None
        assert absent.claim_of(1) is None
        assert absent.standbys() == []
        assert saved_topics(absent) == []

    def test_a_forgotten_data_set_is_gone(
        self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter
    ) -> None:
        """The next one of its name has another identity and nothing of it, and the old owner cannot write."""
        before = row_of(store)
        writer.append([("t", [make_segment(0, 3)])])
        writer.save(EVERYTHING)
        writer.reserve(7)
        store.report(B, "b:1", 1)
        other.forget()
        assert store.data_set() is None
        with pytest.raises((NotOwner, NoDataSet)):
            writer.append([("t", [make_segment(3)])])
        created = other.create()
        assert created.identity != before.identity
        for name, write in WRITES.items():
            if name != "trim":  # there is nothing to remove
                with pytest.raises((NotOwner, NoDataSet)):
                    write(writer)
        assert store.data_set() == created
        assert store.segments(0, ALL) == []
        assert store.kept(["t"]) == {}
        assert store.next_block() is None
        assert store.standbys() == []
        assert store.claim_of(1) is None
        assert claimed(store, B, token=writer.token).epoch == 1
        assert saved_topics(store) == []

    def test_data_sets_are_apart(self, store: IReplicaStore, writer: IReplicaWriter, tmp_path: Any) -> None:
        """One store keeps those of several brokers."""
        (tmp_path / "second").mkdir()
        second = self.make_store(str(tmp_path / "second"))
        second.create()
        writer.append([("t", [make_segment(0, 3)])])
        writer.save(EVERYTHING)
        assert second.segments(0, ALL) == [] and saved_topics(second) == []
        its_writer = claimed(second, B)
        its_writer.append([("t", [make_segment(50, 3)])])
        its_writer.save(Checkpoint(deleted_topics=["t"]))
        second.forget()
        assert [one.segment.first for one in store.segments(0, ALL)] == [0]
        assert len(saved_topics(store)) == 2
        its_writer.close()
        second.close()

    # -- the owner

    def test_a_claim(self, store: IReplicaStore, other: IReplicaStore) -> None:
        """The first broker that claims the data set owns it, and another one does not."""
        writer = claimed(store)
        assert (writer.epoch, writer.lsn) == (1, 0)
        row = row_of(other)
        assert (row.epoch, row.owner, row.address, row.is_released) == (1, A, f"{A}:4150", False)
        assert 0 < row.lease_left <= LONG
        assert (row.lease, row.token) == (LONG, writer.token)
        assert other.claim(B, "b:1", LONG) is None
        assert other.claim(B, "b:1", 0.0) is None
        assert row_of(other).epoch == 1
        writer.append([("t", [make_segment(0)])])
        writer.close()

    def test_the_owner_claims_again(self, store: IReplicaStore, other: IReplicaStore) -> None:
        """After a restart, with the token of its claim. What it was before cannot write any more."""
        first = claimed(store)
        for token in ("", "x"):
            assert other.claim(A, f"{A}:4150", LONG, token=token) is None
        second = claimed(other, token=first.token)
        assert (first.epoch, second.epoch) == (1, 2)
        assert first.token != second.token == row_of(store).token
        assert other.claim(A, f"{A}:4150", LONG, token=first.token) is None
        with pytest.raises(NotOwner):
            first.append([("t", [make_segment(0)])])
        second.append([("t", [make_segment(0)])])
        first.close()
        second.close()

    def test_a_lease_that_is_over(self, store: IReplicaStore, other: IReplicaStore) -> None:
        """The lease is that of the owner. Its writes and renewals count from the time of the store."""
        writer = store.claim(A, "a:1", 0.0)
        assert writer is not None
        assert row_of(store).lease_left == 0
        writer.append([("t", [make_segment(0)])])
        assert store.renew(1).lease_left == 0
        taken = other.claim(B, "b:1", LONG)
        assert taken is not None and (taken.epoch, taken.lsn) == (2, 1)
        assert store.claim(A, "a:1", 0.0) is None
        writer.close()
        taken.close()

    def test_a_claim_of_what_stayed_as_it_was(
        self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter
    ) -> None:
        """A standby that has waited by its own clock takes over, unless the owner did anything meanwhile."""
        for change in (
            lambda: store.renew(1),
            lambda: writer.append([("t", [make_segment(0)])]),
            lambda: writer.save(EVERYTHING),
        ):
            before = row_of(other)
            change()
            assert row_of(other).renewed != before.renewed
            assert other.claim(B, "b:1", LONG, unchanged=before) is None
        before = row_of(other)
        other.report(B, "b:1", 2)
        other.request(B)
        taken = other.claim(B, "b:1", LONG, unchanged=before)
        assert taken is not None and (taken.epoch, taken.lsn) == (2, 2)
        assert store.claim(A, "a:1", LONG, unchanged=before) is None
        with pytest.raises(NotOwner):
            writer.append([("t", [make_segment(1)])])
        taken.close()

    def test_a_forced_claim(self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """It does not wait for the lease."""
        writer.append([("t", [make_segment(0)])])
        taken = claimed(other, B, forced=True)
        assert (taken.epoch, taken.lsn) == (2, 1)
        row = row_of(store)
        assert (row.owner, row.address, row.epoch) == (B, f"{B}:4150", 2)
        taken.close()

    def test_a_renewal(self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """Of the current epoch only."""
        row = other.renew(1)
        assert (row.epoch, row.owner) == (1, A) and 0 < row.lease_left <= LONG
        with pytest.raises(NotOwner):
            store.renew(2)
        claimed(other, B, forced=True).close()
        with pytest.raises(NotOwner, match=f"{B}:4150"):
            store.renew(1)
        assert store.renew(2).owner == B

    def test_a_release(self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """Another broker need not wait."""
        store.request(B)
        writer.append([("t", [make_segment(0)])])
        writer.release()
        row = row_of(other)
        assert row.is_released and row.lease_left == 0 and row.owner == A
        with pytest.raises(NotOwner):
            store.renew(1)
        for write in WRITES.values():
            with pytest.raises(NotOwner):
                write(writer)
        taken = claimed(other, B)
        assert (taken.epoch, taken.lsn) == (2, 1)
        row = row_of(store)
        assert not row.is_released and row.requested_by == ""
        taken.close()

    def test_a_request(self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """The owner sees it with the next renewal, until it is taken back."""
        other.request(B)
        assert store.renew(1).requested_by == B
        other.request("")
        assert store.renew(1).requested_by == ""

    def test_claims_are_kept(self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """Each with the LSN that the data set had then."""
        for first in range(3):
            writer.append([("t", [make_segment(first)])])
        taken = claimed(other, B, forced=True)
        taken.append([("t", [make_segment(3)])])
        assert [store.claim_of(epoch) for epoch in (0, 3)] == [None, None]
        claims = [store.claim_of(epoch) for epoch in (1, 2)]
        assert [(one.token, one.began) for one in claims if one] == [(writer.token, 0), (taken.token, 3)]
        taken.close()

    def test_standbys(self, store: IReplicaStore, other: IReplicaStore) -> None:
        """The last report of each."""
        other.report("s1", "s1:4151", 1)
        other.report("s2", "s2:4151", 5)
        other.report("s1", "s1:4153", 9)
        found = sorted(store.standbys(), key=attrgetter("identity"))
        assert [(one.identity, one.address, one.lsn) for one in found] == [("s1", "s1:4153", 9), ("s2", "s2:4151", 5)]
        assert all(0 <= one.seconds_ago < 60 for one in found)

    @pytest.mark.parametrize("name", WRITES)
    def test_who_lost_the_data_set_writes_nothing(
        self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter, name: str
    ) -> None:
        """Whatever it tries, each time; the new owner's data set stays as it is."""
        writer.append([("t", [make_segment(0, 3)])])
        writer.save(EVERYTHING)
        writer.reserve(5)
        taken = claimed(other, B, forced=True)
        before = self._all(other)
        for _ in range(2):
            with pytest.raises(NotOwner, match=f"{B}:4150"):
                WRITES[name](writer)
        assert self._all(other) == before
        taken.append([("t", [make_segment(3)])])
        taken.close()

    def _all(self, store: IReplicaStore) -> tuple[Any, ...]:
        row = row_of(store)
        stored = contents(store.segments(0, ALL))
        return attrs.evolve(row, lease_left=0), stored, [*store.checkpoints()], store.next_block(), store.kept(["t"])

    # -- segments

    def test_segments_come_back_as_they_were(self, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """With delay, headers and channel, under the LSN of their transaction."""
        segments = [
            make_segment(7, 3),
            make_segment(10, 1, delay_ms=1 << 40),
            make_segment(11, 2, size=0),
            make_segment_with_headers(13, 5),
            make_segment_with_headers(18, 4, channel="only"),
            Segment(30, 2, 5, make_segment(30, 2).frames, None, "only"),
        ]
        writer.append([("t", segments[:2])])
        assert writer.lsn == 1
        writer.append([("t", segments[2:])])
        assert writer.lsn == 2
        stored = other.segments(0, ALL)
        assert contents(stored) == [(1 if one.first < 11 else 2, "t", *parts(one)) for one in segments]
        assert row_of(other).lsn == 2

    def test_segments_come_in_order(self, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """By LSN, then by topic as Python sorts them, then by sequence; those above an LSN only."""
        topics = ["b", "a.b", "B", "a-b", "a_b", "a", "ab#ephemeral"]
        writer.append([(topic, [make_segment(100, 2), make_segment(110)]) for topic in topics])
        writer.append([("z", [make_segment(0)])])
        writer.append([("a", [make_segment(200)]), ("0", [make_segment(5)])])
        expected = [(1, topic, first) for topic in sorted(topics) for first in (100, 110)]
        expected += [(2, "z", 0), (3, "0", 5), (3, "a", 200)]
        for after in range(4):
            found = [(one.lsn, one.topic, one.segment.first) for one in other.segments(after, ALL)]
            assert found == [one for one in expected if one[0] > after]
        assert other.segments(99, ALL) == []

    def test_a_transaction_is_never_returned_in_part(self, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """However low the limit is; with a limit that allows more, more come."""
        for first in range(0, 50, 5):
            writer.append([("t", [make_segment(first + at, 1, size=100) for at in range(5)])])
        size = 5 * len(make_segment(0, 1, size=100).frames)
        for limit, count in ((0, 1), (1, 1), (size, 1), (3 * size + 1, 3), (100 * size, 10)):
            found: list[StoredSegment] = []
            while some := other.segments(found[-1].lsn if found else 0, limit):
                if not found:
                    assert 1 <= len({one.lsn for one in some}) <= count + 1
                found += some
            assert [one.segment.first for one in found] == [*range(50)]
        assert len(other.segments(0, 100 * size)) == 50

    def test_large_segments_and_many(self, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """One message may be as large as it likes, and a transaction takes what a turn brought."""
        segments = [make_segment(0), make_segment(1, 1, size=5_000_000), make_segment(2)]
        writer.append([("t", segments)])
        writer.append([("u", [make_segment(first) for first in range(3000)])])
        assert contents(other.segments(0, 1)) == [(1, "t", *parts(one)) for one in segments]
        assert [one.segment.first for one in other.segments(1, 1)] == [*range(3000)]

    def test_what_a_standby_lacks(self, store: IReplicaStore, writer: IReplicaWriter) -> None:
        """Messages and bytes above an LSN."""
        segments = [make_segment(0, 3), make_segment_with_headers(3, 4)]
        for segment in segments:
            writer.append([("t", [segment])])
        assert [store.behind(after).messages for after in range(3)] == [7, 4, 0]
        assert store.behind(0).bytes >= sum(segment.size for segment in segments)
        assert store.behind(2).bytes == 0

    def test_the_size(self, store: IReplicaStore, writer: IReplicaWriter) -> None:
        """Segments, messages, bytes, and pending rows."""
        segment = make_segment(0, 3)
        writer.append([("t", [segment, make_segment(3, 4)])])
        writer.save(EVERYTHING)
        size = store.size()
        assert (size.segments, size.messages, size.pending_rows) == (2, 7, 8)
        assert size.bytes >= len(segment.frames)

    def test_health(self, store: IReplicaStore) -> None:
        """Each finding has a name and one line."""
        findings = store.health()
        assert findings
        assert all(one.name and one.text and "\n" not in one.text for one in findings)

    # -- trimming

    def test_trim_keeps_what_is_needed(self, store: IReplicaStore, writer: IReplicaWriter) -> None:
        """Whatever is removed, it is not from `below` on and has nothing of `keep`; other topics keep all."""
        writer.save(Checkpoint(topics=[TopicState("t"), TopicState("u")]))
        segments = [make_segment(first, 10, size=50) for first in range(0, 500, 10)]
        for segment in segments:
            writer.append([("t", [segment]), ("u", [segment])])
        for below, keep in ((205, [3, 4, 77, 150]), (330, [4, 150, 200, 299]), (330, [299]), (500, [])):
            writer.trim("t", below, iter(keep))
            stored = store.segments(0, ALL)
            firsts = {one.segment.first for one in stored if one.topic == "t"}
            needed = {*(sequence // 10 * 10 for sequence in keep), *range(below // 10 * 10, 500, 10)}
            assert firsts >= needed
            assert store.kept(["t"]) == {"t": min(firsts, default=None)}
            assert [*store.spans("t")] == [(first, first + 10) for first in sorted(firsts)]
            assert len([one for one in stored if one.topic == "u"]) == 50
        writer.trim("unknown", 100, [])

    def test_trim_of_many(self, store: IReplicaStore, writer: IReplicaWriter) -> None:
        """What is needed may be very much, and is read one after the other."""
        writer.append([("t", [make_segment(first, 5) for first in range(0, 10_000, 5)])])
        writer.trim("t", 9_000, iter(range(0, 9_000, 7)))
        kept = {one.segment.first for one in store.segments(0, ALL)}
        assert kept >= {sequence // 5 * 5 for sequence in range(0, 9_000, 7)} | {*range(9_000, 10_000, 5)}

    def test_what_is_kept(self, store: IReplicaStore, writer: IReplicaWriter) -> None:
        """The lowest sequence of each topic that exists; None of a topic without messages."""
        writer.append([("a", [make_segment(10, 5), make_segment(20, 5)]), ("b", [make_segment(7)])])
        writer.save(Checkpoint(topics=[TopicState("a"), TopicState("empty")]))
        assert store.ends(["b", "empty", "unknown"]) == {"b": max(end for _, end in store.spans("b"))}
        assert store.kept(["a", "b", "empty", "unknown"]) == {"a": 10, "b": 7, "empty": None}
        assert store.kept([]) == {}
        writer.trim("a", 25, [])
        stored = [one.segment.first for one in store.segments(0, ALL) if one.topic == "a"]
        assert store.kept(["a"]) == {"a": min(stored, default=None)}
        writer.append([("a", [make_segment(1000)])])
        assert store.kept(["a"]) == {"a": min(stored, default=1000)}

    def test_spans(self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """Of one topic, ascending, however many there are; they are read one after the other."""
        expected = [(first, first + 3) for first in range(0, 48_000, 4)]
        writer.append([("t", [make_segment(first, 3, size=0) for first, _ in expected[6_000:]])])
        writer.append([("t", [make_segment(first, 3, size=0) for first, _ in expected[:6_000]])])
        writer.append([("a", [make_segment(1)]), ("u", [make_segment(2), make_segment(1 << 52, 2)])])
        assert [*other.spans("t")] == expected
        assert [*other.spans("u")] == [(2, 3), (1 << 52, (1 << 52) + 2)]
        assert [*other.spans("unknown")] == []
        spans = other.spans("t")
        assert [next(spans) for _ in range(3)] == expected[:3]
        # Beside other calls.
        assert other.kept(["t"]) == {"t": 0}
        assert [*spans] == expected[3:]

    # -- damage

    def test_a_damaged_segment(self, store: IReplicaStore, writer: IReplicaWriter) -> None:
        """It is an error, or left out and reported, with what is beside it."""
        writer.append([("t", [make_segment(0, 3), make_segment(3, 4), make_segment(7)]), ("u", [make_segment(3)])])
        self.damage(store, "t", 3)
        with pytest.raises(ReplicaError, match="damaged"):
            store.segments(0, ALL)
        damaged: list[tuple[Any, ...]] = []
        stored = store.segments(0, ALL, lambda *damage: damaged.append(damage))
        assert [(one.topic, one.segment.first) for one in stored] == [("t", 0), ("t", 7), ("u", 3)]
        ((topic, first, last, why),) = damaged
        assert (topic, first, last) == ("t", 3, 6)
        assert why and "\n" not in why
        assert store.kept(["t"]) == {"t": 0}

    @pytest.mark.parametrize("limit", [1, ALL])
    def test_what_is_behind_damaged_transactions_comes(
        self, store: IReplicaStore, writer: IReplicaWriter, limit: int
    ) -> None:
        """[] comes only when nothing behind can be read. Who goes on by LSN is told of each damaged segment once."""
        for first in range(0, 40, 2):
            writer.append([("t", [make_segment(first), make_segment(first + 1)])])
        gone = [*range(6), 11, *range(20, 24), *range(34, 40)]
        for first in gone:
            self.damage(store, "t", first)
        damaged: list[int] = []

        def note(topic: str, first: int, last: int, why: str) -> None:
            damaged.append(first)

        found: list[StoredSegment] = []
        while some := store.segments(found[-1].lsn if found else 0, limit, note):
            found += some
        assert [one.segment.first for one in found] == [first for first in range(40) if first not in gone]
        assert [one.lsn for one in found] == [one.segment.first // 2 + 1 for one in found]
        assert damaged == gone
        assert store.segments(17, limit, note) == []

    def test_a_deleted_topic_has_no_segments(self, store: IReplicaStore, writer: IReplicaWriter) -> None:
        """One that is created again starts anew."""
        writer.append([("t", [make_segment(0, 3)]), ("u", [make_segment(0, 3)])])
        writer.save(Checkpoint(topics=[TopicState("t"), TopicState("u")]))
        writer.save(Checkpoint(deleted_topics=["t"]))
        assert [one.topic for one in store.segments(0, ALL)] == ["u"]
        assert store.kept(["t", "u"]) == {"u": 0}
        assert [*store.spans("t")] == []
        writer.append([("t", [make_segment(90)])])
        writer.save(Checkpoint(topics=[TopicState("t", released=91)]))
        assert store.kept(["t", "u"]) == {"t": 90, "u": 0}
        assert sorted(topic.name for topic in saved_topics(store)) == ["t", "u"]

    # -- what is saved

    @pytest.mark.parametrize("name", HISTORIES)
    def test_checkpoints_save_the_same_again(
        self, other: IReplicaStore, writer: IReplicaWriter, tmp_path: Any, name: str
    ) -> None:
        """A `positions.db` made from the store is equal to the one of the owner."""
        for checkpoint in HISTORIES[name]:
            writer.save(checkpoint)
        self._assert_equal(other, tmp_path, HISTORIES[name])

    def test_the_lsn_of_a_checkpoint(self, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """Each checkpoint has one, and the data set that of the last."""
        for lsn in (1, 2):
            writer.save(EVERYTHING)
            row = row_of(other)
            assert writer.lsn == row.lsn == row.checkpoint_lsn == lsn
        writer.append([("t", [make_segment(0)])])
        row = row_of(other)
        assert (row.lsn, row.checkpoint_lsn) == (3, 2)

    @pytest.mark.parametrize("added", [[], [PendingRow(4, 2, 8), PendingRow(50, 1, 0)]])
    @pytest.mark.parametrize("name", CORRECTIONS)
    def test_corrections(
        self, other: IReplicaStore, writer: IReplicaWriter, tmp_path: Any, name: str, added: list[PendingRow]
    ) -> None:
        """They do what `positions.db` does at a start, under the LSN of the checkpoint behind them."""
        corrections = CORRECTIONS[name]
        left = {2, 3, 4, 5, 10, 11, 12, 20}
        for one in corrections:
            if isinstance(one, ForgetPending) and (one.topic, one.channel) == ("t", "c1"):
                left = {sequence for sequence in left if sequence < one.start}
        left |= {row.sequence for row in added}
        cursor = CursorState("c1", interrupted=[4] if 4 in left and not added else [], pending=added)
        cursor.pending_count = len(left)
        ids = _IDS if added else []
        topic = TopicState("t", cursors=[cursor], publisher_ids=ids, dedupe_window_ms=1 << 60)
        checkpoint = Checkpoint(topics=[topic])
        writer.append([("t", [make_segment(5)])])
        writer.save(EVERYTHING)
        writer.save(checkpoint, corrections)
        row = row_of(other)
        assert writer.lsn == row.lsn == row.checkpoint_lsn == 3
        assert [one.segment.first for one in other.segments(0, ALL)] == [5]
        self._assert_equal(other, tmp_path, [EVERYTHING, *corrections, checkpoint])

    def test_checkpoints_have_a_limited_size(self, store: IReplicaStore, writer: IReplicaWriter) -> None:
        """The first one has the shift of the wall clock."""
        pending = _rows(*range(150_000))
        writer.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", pending=pending)])], wall_shift_ms=7))
        checkpoints = [*store.checkpoints()]
        assert [one.wall_shift_ms for one in checkpoints] == [7, *[None] * (len(checkpoints) - 1)]
        counts = [len(cursor.pending) for one in checkpoints for topic in one.topics for cursor in topic.cursors]
        assert sum(counts) == 150_000 and max(counts) <= 100_000

    def test_reserved_blocks(self, store: IReplicaStore, other: IReplicaStore, writer: IReplicaWriter) -> None:
        """The highest number counts."""
        highest = (1 << 33) + 64
        for block in (5, highest, 7):
            writer.reserve(block)
        assert other.next_block() == highest
        assert row_of(store).lsn == writer.lsn

    def _assert_equal(self, store: IReplicaStore, tmp_path: Any, history: Sequence[Checkpoint | Correction]) -> None:
        for name in ("direct", "copied"):
            (tmp_path / name).mkdir()
        direct = saved_state(str(tmp_path / "direct"), history)
        assert saved_state(str(tmp_path / "copied"), store.checkpoints()) == direct


def saved_topics(store: IReplicaStore) -> list[TopicState]:
    """Return what is saved of topics, each one once."""
    topics = {topic.name: topic for checkpoint in store.checkpoints() for topic in checkpoint.topics}
    return [*topics.values()]
