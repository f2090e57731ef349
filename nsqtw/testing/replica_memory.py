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
    DataSet,
    Finding,
    IReplicaStore,
    IReplicaWriter,
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
    lease: float = 0.0
    segments: list[StoredSegment] = field(factory=list)
    ends: dict[str, int] = field(factory=dict)
    positions: MemoryPositions = field(factory=MemoryPositions)
    next_block: int | None = None
    began: dict[int, int] = field(factory=dict)
    """The LSN at the claim of each epoch."""
    standbys: dict[str, tuple[StandbyReport, float]] = field(factory=dict)


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
        row = DataSet(self._name, token_hex(8), 0, "", "", False, 0.0, 0, 0, "")
        self._database.data_sets[self._name] = _Stored(row)
        return row

    def forget(self) -> None:
        """IReplicaStore API"""
        self._database.fail()
        self._database.data_sets.pop(self._name, None)

    def claim(self, owner: str, address: str, lease: float, *, forced: bool = False) -> IReplicaWriter | None:
        """IReplicaStore API"""
        stored = self._stored()
        row = self._row(stored)
        is_free = not row.owner or row.owner == owner or row.is_released or row.lease_left <= 0
        if not (forced or is_free):
            return None
        epoch = row.epoch + 1
        stored.row = evolve(row, epoch=epoch, owner=owner, address=address, is_released=False, requested_by="")
        stored.renewed, stored.lease = self._database.now(), lease
        stored.began[epoch] = row.lsn
        return MemoryReplicaWriter(self._database, stored, epoch)

    def renew(self, epoch: int) -> DataSet:
        """IReplicaStore API"""
        stored = self._stored()
        check_owner(stored.row, epoch)
        stored.renewed = self._database.now()
        return self._row(stored)

    def request(self, standby: str) -> None:
        """IReplicaStore API"""
        stored = self._stored()
        stored.row = evolve(stored.row, requested_by=standby)

    def epoch_began(self, epoch: int) -> int | None:
        """IReplicaStore API"""
        return self._stored().began.get(epoch)

    def report(self, standby: str, address: str, lsn: int) -> None:
        """IReplicaStore API"""
        report = StandbyReport(standby, address, lsn, 0.0)
        self._stored().standbys[standby] = report, self._database.now()

    def standbys(self) -> Sequence[StandbyReport]:
        """IReplicaStore API"""
        now = self._database.now()
        reports = [evolve(report, seconds_ago=now - at) for report, at in self._stored().standbys.values()]
        return [report for report in reports if report.seconds_ago <= 60]

    def segments(self, after: int, limit: int) -> Sequence[StoredSegment]:
        """IReplicaStore API"""
        found: list[StoredSegment] = []
        size = 0
        for stored in sorted(self._stored().segments, key=lambda one: (one.lsn, one.topic, one.segment.first)):
            if stored.lsn <= after:
                continue
            if found and size >= limit and stored.lsn != found[-1].lsn:
                break
            found.append(stored)
            size += stored.segment.size
        return found

    def behind(self, after: int) -> Behind:
        """IReplicaStore API"""
        segments = [one.segment for one in self._stored().segments if one.lsn > after]
        return Behind(sum(segment.count for segment in segments), sum(segment.size for segment in segments))

    def kept(self, topics: Sequence[str]) -> Mapping[str, int]:
        """IReplicaStore API"""
        stored = self._stored()
        known = {topic.name for topic in stored.positions.saved.topics} | {one.topic for one in stored.segments}
        lowest = {topic: stored.ends.get(topic, 0) for topic in known}
        for one in stored.segments:
            lowest[one.topic] = min(lowest[one.topic], one.segment.first)
        return {topic: lowest[topic] for topic in topics if topic in lowest}

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
        left = max(0.0, stored.renewed + stored.lease - self._database.now())
        return evolve(stored.row, lease_left=left if stored.row.owner and not stored.row.is_released else 0.0)


@implementer(IReplicaWriter)
class MemoryReplicaWriter:
    """The writer of one claim."""

    def __init__(self, database: MemoryDatabase, stored: _Stored, epoch: int) -> None:
        self.epoch = epoch
        self.lsn = stored.row.lsn
        self._database = database
        self._stored = stored

    def append(self, writes: Sequence[Write]) -> None:
        """IReplicaWriter API"""
        lsn = self._begin()
        for topic, segments in writes:
            self._stored.segments += [StoredSegment(lsn, topic, segment) for segment in segments]
            self._stored.ends[topic] = segments[-1].end
        self._commit(lsn)

    def save(self, checkpoints: Iterable[Checkpoint], replaced: Sequence[str] = ()) -> None:
        """IReplicaWriter API"""
        lsn = self._begin()
        positions = self._stored.positions
        positions.saved.topics = [topic for topic in positions.saved.topics if topic.name not in replaced]
        for topic in replaced:
            positions.saved_ids.pop(topic, None)
        for checkpoint in checkpoints:
            positions.save(checkpoint)
            for name in checkpoint.deleted_topics:
                self._stored.segments = [one for one in self._stored.segments if one.topic != name]
                self._stored.ends.pop(name, None)
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
        check_owner(stored.row, self.epoch)
        if stored.row.lsn < self.lsn:
            raise StoreLost(f"the store has lost {self.lsn - stored.row.lsn} transactions")
        self._stored = stored
        self._stored.renewed = self._database.now()
        return stored.row.lsn + 1

    def _commit(self, lsn: int) -> None:
        self._stored.row = evolve(self._stored.row, lsn=lsn)
        if self._database.failure_after_commit is not None:
            raise self._database.failure_after_commit
        self.lsn = lsn


def check_owner(row: DataSet, epoch: int) -> None:
    """NotOwner if another epoch has begun."""
    if row.epoch != epoch:
        raise NotOwner(f"the broker at {row.address} owns the data set {row.name} since epoch {row.epoch}")
