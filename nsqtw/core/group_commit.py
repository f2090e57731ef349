"""
Commits that take longer than a turn may: of class fsync, and all of a backend that works in the writer thread.

Theory of operation. One commit is on its way at a time, the *flight*. What is published meanwhile waits in its topic
and leaves with the next flight, so the slower the medium, the more publishers share one fsync. Nothing of it is visible
before the flight has landed: then it is released or its publishers are told what failed, as at the end of a turn.

Who waits for each answer publishes again at once. On a slow medium the next flight lets them come on board: else there
would be two groups, each of which waits for the other one's flight, and half of the publishers in each
(`CommitWindow`).

A flight without passengers only syncs: what class os has written reaches stable storage `sync_timeout` seconds after
it was written. Not more often: a write to a file that is being synced waits for the medium, in the reactor.

None of this reads a clock or has a thread: the pump takes a flight, has it committed, and brings it back.
"""

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
"""Nobody gathers after a flight that took less: 64 publishers take that long to come back, and fly while others do."""
_WINDOW_SHARE = 0.5
"""Of what the last flight took. 64 publishers that wait for each answer, 3.5 ms a flight: 1.65 times the rate."""
MAX_WINDOW_SECONDS = 0.1
"""However long the last flight took: a medium that stood still may be there again, and who waited for it may not."""
COMMITS_WITHOUT_WINDOW = 16
"""So many flights leave at once after one that waited in vain."""


class CommitBatch:
    """One commit on its way. `commit` may be called from any thread."""

    def __init__(
        self, sealed: list[Sealed], writes: dict[tuple[IBackend, bool], Writes] | None = None, *, is_probe: bool = False
    ) -> None:
        self.sealed = sealed
        self.writes = {} if writes is None else writes
        """By backend, and whether it has to be durable."""
        self.is_probe = is_probe
        """It stores nothing, to find out whether something could be stored."""
        self.refusal: BackendError | None = None
        """Why nothing could."""
        self.began = 0.0

    def failed(self, error: BackendError) -> dict[IBackendQueue, BackendError]:
        """What `commit` returns when nothing could be stored."""
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
    From the landing of a slow flight until all who were on it are back, and those who waited already, though for no
    longer than a part of what it took. When they were not, because they have nothing more to say or the machine is too
    busy for that, it is not tried again for a while.
    """

    def __init__(self, timers: TimerQueue) -> None:
        super().__init__()
        self._timers = timers
        self._until = -inf
        self._expected = 0
        self._commits_without_window = 0

    def begin(self, now: float, seconds: float, expected: int) -> None:
        """So many waiters are expected after a flight that `seconds` so many seconds."""
        if self._commits_without_window:
            self._commits_without_window -= 1
        elif seconds >= MIN_COMMIT_SECONDS:
            self._until, self._expected = now + min(seconds * _WINDOW_SHARE, MAX_WINDOW_SECONDS), expected
            self._timers.schedule(self._until, self)

    def is_over(self, now: float, present: int) -> bool:
        """Return whether nobody more is waited for. Who asks and is told so begins the next flight."""
        if present < self._expected:
            if now < self._until:
                return False
            self._commits_without_window = COMMITS_WITHOUT_WINDOW
        self._expected = 0
        return True

    def on_timer(self, now: float) -> float | None:
        return self._until if now < self._until else None


class GroupCommit(Timer):
    """What waits for the next flight. `backend` is the one that is synced and probed."""

    def __init__(self, context: Context, committer: Committer, health: StorageHealth, backend: IBackend) -> None:
        super().__init__()
        self._context = context
        self._committer = committer
        self._health = health
        self._backend = backend
        self._waiting: dict[Topic, None] = {}
        self._out: set[Topic] = set()
        self._sync_is_due = False
        self._window = CommitWindow(context.timers)

    def take(self, topic: Topic) -> bool:
        """Return whether what the topic took leaves with a flight; then it will."""
        if not (topic.commits_async or topic in self._out):
            return False
        self._waiting[topic] = None
        return True

    def stored(self, now: float) -> None:
        """Something of class os was handed to the operating system."""
        self._context.timers.schedule(now + self._context.options.sync_timeout, self)

    def on_timer(self, now: float) -> float | None:
        self._sync_is_due = True
        return None

    def begin(self, now: float) -> CommitBatch | None:
        """The next flight, if there is one; then `end`. One at a time."""
        if self._waiting:
            if not (self._context.stopping or self._window.is_over(now, self._waiter_count)):
                return None
            waiting, self._waiting = self._waiting, {}
            batch = CommitBatch(self._committer.seal(list(waiting), now))
            batch.began = now
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
        """The flight has landed."""
        self._out.clear()
        if batch.is_probe:
            self._health.probed(batch.refusal, now)
        if any(writes and not durable for (_, durable), writes in batch.writes.items()):
            self.stored(now)
        if batch.sealed:
            self._health.record_commit(next(iter(failed.values()), None))
            self._committer.complete(batch.sealed, failed, now, is_async=True)
            if any(durable for _, durable in batch.writes):
                # A sync takes as long for many as for one. What only computes had better be always at it.
                answered_count = sum([len(waiters) for _, _, waiters in batch.sealed])
                self._window.begin(now, now - batch.began, answered_count + self._waiter_count)
        for error in failed.values() if not batch.sealed else ():
            self._context.log("error", NOT_SYNCED, error=error)

    @property
    def _waiter_count(self) -> int:
        return sum([topic.waiter_count for topic in self._waiting])
