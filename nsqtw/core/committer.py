"""
Commits: the publishes of several topics are sealed into segments, stored, and released or refused.

The broker commits what fits into a turn; `GroupCommit` what takes longer; `WriteBehind` what class memory stores later.
"""

# mypyc: compiled

from __future__ import annotations

from nsqtw.core.context import Context
from nsqtw.core.segment import Segment
from nsqtw.core.storage_health import StorageHealth
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, BackendFull, Exiting
from nsqtw.interfaces import IBackend, IBackendQueue, OperatorLog, Waiter

Sealed = tuple[Topic, list[Segment], list[Waiter]]
"""The publishes of a topic: segments, and the waiters for their result."""

Writes = list[tuple[IBackendQueue, list[Segment]]]

NOT_SYNCED = "NSQ: what was stored may not survive a power loss - {error}"


class Committer:
    """The steps of a commit that need the topics of a broker. `health` is told how storing went."""

    def __init__(self, context: Context, health: StorageHealth) -> None:
        self._context = context
        self._health = health

    def seal(self, topics: list[Topic], now: float) -> list[Sealed]:
        """Return everything that was published to `topics`, with its place in their logs."""
        timestamp_ns = self._context.timestamp_ns(now)
        sealed: list[Sealed] = []
        for topic in topics:
            waiters = topic.take_waiters()
            try:
                sealed.append((topic, topic.seal(timestamp_ns), waiters))
            except Exception as error:
                failure = self._as_backend_error(error, f"TOPIC({topic.name}): collecting its messages failed")
                self._health.record_commit(failure)
                self._context.answer(waiters, failure)
        return sealed

    def complete(
        self, sealed: list[Sealed], failed: dict[IBackendQueue, BackendError], now: float, *, is_async: bool = False
    ) -> int:
        """
        Release what is stored now, or was stored in the thread (`is_async`), and answer the waiters. Returns how many.
        """
        answered_count = 0
        for topic, segments, waiters in sealed:
            failure: Exception | None = Exiting() if topic.exiting else failed.get(topic.log.queue)
            if segments and failure is None:
                try:
                    topic.accept(segments, now, pinned=topic.is_write_behind and not is_async)
                except Exception:  # they are stored, and so they are answered
                    self._context.log("critical", "TOPIC({topic}): releasing its messages failed", topic=topic.name)
            self._context.answer(waiters, failure)
            answered_count += len(waiters)
        return answered_count

    def _as_backend_error(self, error: Exception, what: str) -> BackendError:
        """Return the error to answer with. An unexpected one is logged with its traceback; called while handled."""
        if isinstance(error, BackendError):
            return error
        self._context.log("critical", what)
        return BackendError(f"{type(error).__name__}: {error}")


def refusal_of(backend: IBackend, log: OperatorLog) -> BackendError | None:
    """Return why the backend cannot store anything; None if it can."""
    try:
        return next(iter(backend.commit([], True).values()), None)
    except BackendError as error:
        return error
    except Exception as error:  # of a backend that does not keep to the interface
        log("critical", "NSQ: the backend failed to commit")
        return BackendError(f"{type(error).__name__}: {error}")


def commit_to(backend: IBackend, writes: Writes, durable: bool, log: OperatorLog) -> dict[IBackendQueue, BackendError]:
    """Commit, whatever the backend raises. Returns the queues that failed."""
    try:
        return backend.commit(writes, durable)
    except BackendError as error:
        failure = error
    except Exception as error:  # of a backend that does not keep to the interface
        log("critical", "NSQ: the backend failed to commit")
        failure = BackendError(f"{type(error).__name__}: {error}")
    if not writes and not isinstance(failure, BackendFull):  # a full disk takes no more, and keeps what it has
        log("error", NOT_SYNCED, error=failure)
    return dict.fromkeys([queue for queue, _ in writes], failure)
