"""
Commits that take longer than a turn may: all of class fsync, and all of a backend that works in the storage thread.

Theory of operation. One commit batch is in the thread at a time. Publishes that arrive meanwhile wait in their topics
and go with the next batch, so the slower the medium, the more publishers share one fsync. No message of a batch is
visible before its commit has ended: then it is released, or its publishers are told what failed, as at the end of a
turn.

Publishers that wait for each answer publish again at once. On a slow medium the next batch is delayed briefly so that
they can join it (`CommitWindow`). Otherwise two groups would form, each of which waits for the other one's commit with
half of the publishers.

An empty batch only syncs: what class os has written reaches stable storage `sync_timeout` seconds after the write. It
does not sync more often, because a write to a file that is being synced blocks the reactor.

Nothing here reads a clock or has a thread: the pump takes a batch, has it committed, and returns it.
"""

# mypyc: compiled

from __future__ import annotations

from math import inf

from nsqtw.core.committer import NOT_SYNCED, Committer, Sealed, Writes, commit_to, refusal_of
from nsqtw.core.context import Context
from nsqtw.core.storage_health import StorageHealth
from nsqtw.core.timers import Timer, TimerQueue
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackend, IBackendQueue, OperatorLog

MIN_COMMIT_SECONDS = 0.001
"""No window follows a faster commit: 64 publishers take that long to return, and the next commit runs meanwhile."""
_WINDOW_SHARE = 0.5
"""
The window as a share of the last commit. 64 publishers that wait for each answer, 3.5 ms a commit: 1.65 times the rate.
"""
MAX_WINDOW_SECONDS = 0.1
"""However long the last commit took: a medium that stalled may have recovered, and its waiters may be gone."""
COMMITS_WITHOUT_WINDOW = 16
"""Commits without a window after a window in which not all expected publishers returned."""


class CommitBatch:
    """One commit on its way. `commit` may be called from any thread."""

    def __init__(
        self, sealed: list[Sealed], writes: dict[tuple[IBackend, bool], Writes] | None = None, *, is_probe: bool = False
    ) -> None:
        self.sealed = sealed
        self.writes = {} if writes is None else writes
        """Writes by backend, and whether they have to be durable."""
        self.is_probe = is_probe
        """It stores nothing, to find out whether something could be stored."""
        self.refusal: BackendError | None = None
        """Why nothing could."""
        self.began = 0.0
        self.waiting_since: dict[Topic, float] = {}
        """When the oldest publish of each topic was read."""
        self.seconds = 0.0
        """How long `commit` took; the thread that calls it sets this."""

    def failed(self, error: BackendError) -> dict[IBackendQueue, BackendError]:
        """Return the result of `commit` when nothing could be stored."""
        self.refusal = error if self.is_probe else None
        return {queue: error for writes in self.writes.values() for queue, _ in writes}

    def commit(self, log: OperatorLog) -> dict[IBackendQueue, BackendError]:
        """Store it. Returns the queues that failed."""
        failed: dict[IBackendQueue, BackendError] = {}
        for (backend, durable), writes in self.writes.items():
            if self.is_probe:
                self.refusal = refusal_of(backend, log)
                continue
            failed.update(commit_to(backend, writes, durable, log))
        return failed


class CommitWindow(Timer):
    """
    A short wait after a slow commit, until its publishers and those that waited already have published again.

    It takes no longer than a share of the commit. When not all of them returned, because they have nothing more to
    publish or the machine is too busy, the next commits begin without a window.
    """

    def __init__(self, timers: TimerQueue) -> None:
        super().__init__()
        self._timers = timers
        self._until = -inf
        self._expected = 0
        self._commits_without_window = 0

    def begin(self, now: float, seconds: float, expected: int) -> None:
        """Expect `expected` waiters after a commit that took `seconds`."""
        if self._commits_without_window:
            self._commits_without_window -= 1
        elif seconds >= MIN_COMMIT_SECONDS:
            self._until, self._expected = now + min(seconds * _WINDOW_SHARE, MAX_WINDOW_SECONDS), expected
            self._timers.schedule(self._until, self)

    def is_over(self, now: float, present: int) -> bool:
        """Return whether the next commit may begin, which the caller then does."""
        if present < self._expected:
            if now < self._until:
                return False
            self._commits_without_window = COMMITS_WITHOUT_WINDOW
        self._expected = 0
        return True

    def on_timer(self, now: float) -> float | None:
        return self._until if now < self._until else None


class GroupCommit(Timer):
    """The publishes that wait for the next commit. `backend` is the one that is synced and probed."""

    def __init__(self, context: Context, committer: Committer, health: StorageHealth, backend: IBackend) -> None:
        super().__init__()
        self._context = context
        self._committer = committer
        self._health = health
        self._backend = backend
        self._waiting: dict[Topic, float] = {}
        """When the oldest publish of each topic was read."""
        self._out: set[Topic] = set()
        self._sync_is_due = False
        self._window = CommitWindow(context.timers)

    @property
    def is_busy(self) -> bool:
        """Whether publishes wait for a commit, or are in one."""
        return bool(self._waiting or self._out)

    def take(self, topic: Topic, now: float) -> bool:
        """Return whether the publishes of a topic go with a group commit; then they will."""
        if not (topic.commits_async or topic in self._out):
            return False
        self._waiting.setdefault(topic, now)
        return True

    def stored(self, now: float) -> None:
        """Something of class os was handed to the operating system."""
        self._context.timers.schedule(now + self._context.options.sync_timeout, self)

    def on_timer(self, now: float) -> float | None:
        self._sync_is_due = True
        return None

    def begin(self, now: float) -> CommitBatch | None:
        """Return the next batch, if there is one; call `end` with the result. One at a time."""
        if self._waiting:
            if not (self._context.stopping or self._window.is_over(now, self._waiter_count)):
                return None
            waiting, self._waiting = self._waiting, {}
            batch = CommitBatch(self._committer.seal(list(waiting), now))
            batch.began, batch.waiting_since = now, waiting
            for topic, segments, _ in batch.sealed:
                self._out.add(topic)
                if segments:
                    key = (topic.log.backend, topic.durability == "fsync")
                    batch.writes.setdefault(key, []).append((topic.log.queue, segments))
            return batch
        if self._health.take_probe() and not self._context.stopping:
            return CommitBatch([], {(self._backend, True): []}, is_probe=True)
        if self._sync_is_due and not self._context.stopping:
            self._sync_is_due = False
            return CommitBatch([], {(self._backend, True): []})
        return None

    def end(self, batch: CommitBatch, failed: dict[IBackendQueue, BackendError], now: float) -> None:
        self._out.clear()
        if batch.is_probe:
            self._health.probed(batch.refusal, now)
        if any(writes and not durable for (_, durable), writes in batch.writes.items()):
            self.stored(now)
        if not (failed or batch.is_probe) and any(durable for _, durable in batch.writes):
            self._context.fsync.observe(batch.seconds, 1)
        if batch.sealed:
            self._health.record_commit(next(iter(failed.values()), None))
            answered_count = self._committer.complete(batch.sealed, failed, now, is_async=True)
            for topic, _, waiters in batch.sealed:
                self._context.publish_ack.observe(now - batch.waiting_since[topic], len(waiters))
            if any(durable for _, durable in batch.writes):
                # A sync takes as long for many publishers as for one; a commit that only computes needs no window.
                self._window.begin(now, now - batch.began, answered_count + self._waiter_count)
        for error in failed.values() if not batch.sealed else ():
            self._context.log("error", NOT_SYNCED, error=error)

    @property
    def _waiter_count(self) -> int:
        return sum([topic.waiter_count for topic in self._waiting])
