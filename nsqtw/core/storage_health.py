"""
Health of storage, as /ping reports it.

It is the result of the last attempt to store messages and positions. While /ping reports a failure a load balancer may
keep publishers away, and then no publish would show that the disk has recovered. So an empty commit is tried once a
second, until one succeeds. Positions are retried once a second anyway.
"""

# mypyc: compiled

from __future__ import annotations

from nsqtw.core.context import Context
from nsqtw.core.timers import Timer
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, BackendFull
from nsqtw.interfaces import OperatorLog

PROBE_SECONDS = 1.0


class StorageHealth(Timer):
    """The health of the storage of `topics`, by name."""

    def __init__(self, context: Context, topics: dict[str, Topic]) -> None:
        super().__init__()
        self._context = context
        self._topics = topics
        self._commit_error: BackendError | None = None
        self._save_error: BackendError | None = None
        self._is_watching = False
        """From the first failure until a later attempt has succeeded."""
        self._has_waited = False
        self._probe_is_due = False
        self.error_count = 0
        """Failed attempts to store messages or positions."""

    def __str__(self) -> str:
        """`OK`, or `NOK - ` and why."""
        if self._context.is_suspended:
            return "NOK - suspended: another broker may be serving this data"
        error = self._commit_error or self._save_error
        return "OK" if error is None else f"NOK - {error}"

    @property
    def is_good(self) -> bool:
        return self._commit_error is None and self._save_error is None

    @property
    def cannot_save(self) -> bool:
        """Positions could not be stored the last time."""
        return self._save_error is not None

    def record_commit(self, error: BackendError | None) -> None:
        """Record the last attempt to store messages. A change is logged."""
        if error is None and self._commit_error is None:
            return
        _log_change(self._context.log, "messages", self._commit_error, error)
        self.error_count += error is not None
        if isinstance(error, BackendFull) and not isinstance(self._commit_error, BackendFull):
            # Trim also looks at what it left alone while there was space.
            for topic in self._topics.values():
                topic.touch()
        self._commit_error = error
        if error is not None and not self._is_watching:
            self._is_watching, self._has_waited = True, False
            self._context.timers.schedule(0.0, self)

    def record_save(self, error: BackendError | None) -> None:
        """Record the last attempt to store positions."""
        _log_change(self._context.log, "positions", self._save_error, error)
        self.error_count += error is not None
        self._save_error = error

    def on_timer(self, now: float) -> float | None:
        if self._commit_error is None:
            self._is_watching = False
            return None
        if not self._has_waited:
            self._has_waited = True
            return now + PROBE_SECONDS
        self._probe_is_due = True
        return None

    def take_probe(self) -> bool:
        """Return whether an empty commit is due. The caller reports it with `probed`."""
        is_due, self._probe_is_due = self._probe_is_due, False
        return is_due

    def probed(self, error: BackendError | None, now: float) -> None:
        """Record the result of an empty commit."""
        if error is None and self._commit_error is not None:
            self.record_commit(None)
        self._context.timers.schedule(now + PROBE_SECONDS, self)


def _log_change(log: OperatorLog, what: str, before: BackendError | None, now: BackendError | None) -> None:
    if now is not None and str(now) != str(before):
        log("error", "NSQ: {what} cannot be stored - {error}", what=what, error=now)
    elif now is None and before is not None:
        log("info", "NSQ: {what} are stored again", what=what)
