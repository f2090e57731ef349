"""A replica store in memory, for tests: several stores of one `MemoryDatabase` see the same data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from secrets import token_hex

from attrs import define, evolve, field
from zope.interface import implementer

from nsqtw.core.checkpoint import Checkpoint
from nsqtw.errors import DataSetExists, NoDataSet, NotOwner, ReplicaError, StoreLost
from nsqtw.replication.snapshot import snapshot
from nsqtw.replication.store import (
    Behind,
    Claim,
    Correction,
    DataSet,
    Finding,
    ForgetDelays,
    ForgetIds,
    IReplicaStore,
    IReplicaWriter,
    OnDamage,
    Size,
    StandbyReport,
    StoredSegment,
    Write,
)
from nsqtw.testing.memory import MemoryPositions


@define
class _Stored:
    """A data set."""

    row: DataSet
    renewed: float = 0.0
    segments: list[StoredSegment] = field(factory=list)
    damaged: set[tuple[str, int]] = field(factory=set)
    """Topic and first sequence of segments that cannot be read."""
    positions: MemoryPositions = field(factory=MemoryPositions)
    next_block: int | None = None
    claims: dict[int, Claim] = field(factory=dict)
    """By epoch."""
    standbys: dict[str, tuple[StandbyReport, float]] = field(factory=dict)

    def renew(self, now: float) -> None:
        """The owner shows that it is there."""
        self.renewed = now
        # The clock of a test may stand still.
        self.row = evolve(self.row, renewed=str(int(self.row.renewed) + 1))


class MemoryDatabase:
    """The data sets, by name. `now` is the clock of leases; a test sets `failure` to have every call fail."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self.now = now
        self.failure: ReplicaError | None = None
        """The error of every call, while it is set."""
        self.failure_after_commit: ReplicaError | None = None
        """The error of a write that is committed all the same, while it is set."""
        self.data_sets: dict[str, _Stored] = {}

    def fail(self) -> None:
        """Raise the failure, if there is one."""
        if self.failure is not None:
            raise self.failure

    def damage(self, name: str, topic: str, first: int) -> None:
        """Let the segment of a data set that begins with `first` be damaged."""
        self.data_sets[name].damaged.add((topic, first))


@implementer(IReplicaStore)
class MemoryReplicaStore:
    """The data set `name` of `database`."""

    def __init__(self, database: MemoryDatabase, name: str = "nsqtw") -> None:
        self._database = database
        self._name = name

    def data_set(self) -> DataSet | None:
        """IReplicaStore API"""
        self._database.fail()
        stored = self._database.data_sets.get(self._name)
        return None if stored is None else self._row(stored)

    def create(self) -> DataSet:
        """IReplicaStore API"""
        self._database.fail()
        if self._name in self._database.data_sets:
            raise DataSetExists(f"the data set {self._name} exists")
        row = DataSet(
            self._name,
            identity=token_hex(8),
            epoch=0,
            owner="",
            address="",
            is_released=False,
            lease_left=0.0,
            lease=0.0,
            renewed="0",
            token="",
            lsn=0,
            checkpoint_lsn=0,
            requested_by="",
        )
        self._database.data_sets[self._name] = _Stored(row)
        return row

    def forget(self) -> None:
        """IReplicaStore API"""
        self._database.fail()
        self._database.data_sets.pop(self._name, None)

    def claim(
        self,
        owner: str,
        address: str,
        lease: float,
        *,
        token: str = "",
        unchanged: DataSet | None = None,
        forced: bool = False,
    ) -> IReplicaWriter | None:
        """IReplicaStore API"""
        stored = self._stored()
        row = self._row(stored)
        is_free = row.epoch == 0 or row.is_released or row.lease_left <= 0
        is_same = unchanged is not None and _version(row) == _version(unchanged)
        if not (forced or is_free or is_same or (token and token == row.token)):
            return None
        epoch = row.epoch + 1
        stored.row = evolve(
            row,
            epoch=epoch,
            owner=owner,
            address=address,
            lease=lease,
            token=token_hex(8),
            is_released=False,
            requested_by="",
        )
        stored.renew(self._database.now())
        stored.claims[epoch] = Claim(stored.row.token, row.lsn)
        return MemoryReplicaWriter(self._database, stored)

    def renew(self, epoch: int) -> DataSet:
        """IReplicaStore API"""
        stored = self._stored()
        check_owner(stored.row, epoch)
        stored.renew(self._database.now())
        return self._row(stored)

    def request(self, standby: str) -> None:
        """IReplicaStore API"""
        stored = self._stored()
        stored.row = evolve(stored.row, requested_by=standby)

    def claim_of(self, epoch: int) -> Claim | None:
        """IReplicaStore API"""
        return self._stored().claims.get(epoch)

    def report(self, standby: str, address: str, lsn: int) -> None:
        """IReplicaStore API"""
        report = StandbyReport(standby, address, lsn, 0.0)
        self._stored().standbys[standby] = report, self._database.now()

    def standbys(self) -> Sequence[StandbyReport]:
        """IReplicaStore API"""
        now = self._database.now()
        reports = [evolve(report, seconds_ago=now - at) for report, at in self._stored().standbys.values()]
        return [report for report in reports if report.seconds_ago <= 60]

    def segments(self, after: int, limit: int, on_damage: OnDamage | None = None) -> Sequence[StoredSegment]:
        """IReplicaStore API. [] says that nothing above `after` can be read, and not that nothing is there."""
        data_set = self._stored()
        found: list[StoredSegment] = []
        damaged: list[StoredSegment] = []
        size = 0
        for stored in sorted(data_set.segments, key=lambda one: (one.lsn, one.topic, one.segment.first)):
            lsn, topic, segment = stored
            if lsn <= after:
                continue
            if found and size >= limit and lsn != found[-1].lsn:
                break
            if (topic, segment.first) not in data_set.damaged:
                found.append(stored)
                size += segment.size
            elif on_damage is None:
                raise ReplicaError(f"the segment {segment.first} of topic {topic} is damaged")
            else:
                damaged.append(stored)
        for lsn, topic, segment in damaged:
            # What is behind the last one comes again with the next call.
            if on_damage is not None and (not found or lsn <= found[-1].lsn):
                on_damage(topic, segment.first, segment.end - 1, f"the segment {segment.first} is damaged")
        return found

    def behind(self, after: int) -> Behind:
        """IReplicaStore API"""
        segments = [one.segment for one in self._stored().segments if one.lsn > after]
        return Behind(sum(segment.count for segment in segments), sum(segment.size for segment in segments))

    def kept(self, topics: Sequence[str]) -> Mapping[str, int | None]:
        """IReplicaStore API"""
        stored = self._stored()
        lowest: dict[str, int | None] = {topic.name: None for topic in stored.positions.saved.topics}
        for one in sorted(stored.segments, key=lambda one: one.segment.first, reverse=True):
            lowest[one.topic] = one.segment.first
        return {topic: lowest[topic] for topic in topics if topic in lowest}

    def ends(self, topics: Sequence[str]) -> Mapping[str, int]:
        """IReplicaStore API"""
        ends: dict[str, int] = {}
        for _, topic, segment in self._stored().segments:
            ends[topic] = max(ends.get(topic, 0), segment.end)
        return {topic: ends[topic] for topic in topics if topic in ends}

    def spans(self, topic: str) -> Iterator[tuple[int, int]]:
        """IReplicaStore API"""
        segments = [one.segment for one in self._stored().segments if one.topic == topic]
        return iter(sorted((segment.first, segment.end) for segment in segments))

    def checkpoints(self) -> Iterator[Checkpoint]:
        """IReplicaStore API"""
        positions = self._stored().positions
        saved = positions.load()
        yield Checkpoint(wall_shift_ms=saved.wall_shift_ms)
        for topic in saved.topics:
            yield from snapshot(positions, topic)

    def next_block(self) -> int | None:
        """IReplicaStore API"""
        return self._stored().next_block

    def size(self) -> Size:
        """IReplicaStore API"""
        stored = self._stored()
        segments = [one.segment for one in stored.segments]
        pending = [len(cursor.pending) for topic in stored.positions.saved.topics for cursor in topic.cursors]
        count = sum(segment.count for segment in segments)
        return Size(len(segments), count, sum(segment.size for segment in segments), sum(pending))

    def health(self) -> Sequence[Finding]:
        """IReplicaStore API"""
        self._database.fail()
        return [Finding("memory", False, "the copy is in memory, and is lost with its process")]

    def close(self) -> None:
        """IReplicaStore API"""

    def _stored(self) -> _Stored:
        self._database.fail()
        stored = self._database.data_sets.get(self._name)
        if stored is None:
            raise NoDataSet(f"there is no data set {self._name}")
        return stored

    def _row(self, stored: _Stored) -> DataSet:
        left = stored.renewed + stored.row.lease - self._database.now()
        left = min(max(left, 0.0), stored.row.lease)
        return evolve(stored.row, lease_left=left if stored.row.epoch and not stored.row.is_released else 0.0)


@implementer(IReplicaWriter)
class MemoryReplicaWriter:
    """The writer of one claim."""

    def __init__(self, database: MemoryDatabase, stored: _Stored) -> None:
        self.epoch = stored.row.epoch
        self.token = stored.row.token
        self.lsn = stored.row.lsn
        self._database = database
        self._stored = stored

    def append(self, writes: Sequence[Write]) -> None:
        """IReplicaWriter API"""
        lsn = self._begin()
        for topic, segments in writes:
            self._stored.segments += [StoredSegment(lsn, topic, segment) for segment in segments]
        self._commit(lsn)

    def save(self, checkpoint: Checkpoint, corrections: Sequence[Correction] = ()) -> None:
        """IReplicaWriter API"""
        lsn = self._begin()
        for correction in corrections:
            _correct(self._stored.positions, correction)
        self._stored.positions.save(checkpoint)
        gone = {*checkpoint.deleted_topics}
        self._stored.segments = [one for one in self._stored.segments if one.topic not in gone]
        self._stored.row = evolve(self._stored.row, checkpoint_lsn=lsn)
        self._commit(lsn)

    def reserve(self, next_block: int) -> None:
        """IReplicaWriter API"""
        self._begin()
        self._stored.next_block = max(self._stored.next_block or 0, next_block)

    def trim(self, topic: str, below: int, keep: Iterable[int]) -> None:
        """IReplicaWriter API"""
        self._begin()
        kept = set(keep)
        self._stored.segments = [
            one
            for one in self._stored.segments
            if one.topic != topic
            or one.segment.end > below
            or not kept.isdisjoint(range(one.segment.first, one.segment.end))
        ]

    def release(self) -> None:
        """IReplicaWriter API"""
        self._begin()
        self._stored.row = evolve(self._stored.row, is_released=True)

    def close(self) -> None:
        """IReplicaWriter API"""

    def _begin(self) -> int:
        """Return the LSN of a new transaction, if this writer may write."""
        self._database.fail()
        stored = self._database.data_sets.get(self._stored.row.name)
        if stored is None or stored.row.identity != self._stored.row.identity:
            raise NotOwner("the data set was removed")
        check_owner(stored.row, self.epoch, self.token)
        if stored.row.lsn < self.lsn:
            raise StoreLost(f"the store has lost {self.lsn - stored.row.lsn} transactions")
        self._stored = stored
        self._stored.renew(self._database.now())
        return stored.row.lsn + 1

    def _commit(self, lsn: int) -> None:
        self._stored.row = evolve(self._stored.row, lsn=lsn)
        if self._database.failure_after_commit is not None:
            raise self._database.failure_after_commit
        self.lsn = lsn


def _version(row: DataSet) -> tuple[object, ...]:
    """Return what another claim or a renewal changes."""
    return row.identity, row.epoch, row.token, row.lsn, row.renewed


def _correct(positions: MemoryPositions, correction: Correction) -> None:
    if isinstance(correction, ForgetDelays):
        positions.forget_delays()
    elif isinstance(correction, ForgetIds):
        positions.forget_publisher_ids(correction.topic, correction.start)
    else:
        positions.forget_pending(correction.topic, correction.channel, correction.start)


def check_owner(row: DataSet, epoch: int, token: str | None = None) -> None:
    """NotOwner if another broker has claimed the data set, or if it was released."""
    if row.epoch == epoch and row.is_released:
        raise NotOwner(f"the broker at {row.address} gave the data set {row.name} up")
    if row.epoch != epoch or token not in (None, row.token):
        raise NotOwner(f"the broker at {row.address} owns the data set {row.name} since epoch {row.epoch}")
