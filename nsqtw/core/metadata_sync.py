"""
Schedule of writes of the names of topics and channels to `nsqd.dat`.

Theory of operation. Each change of durable topics and channels calls `change`. A deletion and a pause go with
the next save: they are answered when the file says so too, for what was deleted must not come back, and nsqd answers a
pause with the file written. A creation is answered when it is saved in positions.db, and is
in the file DELAY_SECONDS later, together with all that is new by then: so the first SUB of a channel waits for no
other file, and thousands of topics made one after the other do not each write the names of all. A save that
fails is tried again.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable

from nsqtw.core.checkpoint import NamedTopic
from nsqtw.core.context import Context
from nsqtw.core.timers import Timer
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError
from nsqtw.interfaces import Waiter

DELAY_SECONDS = 0.1
RETRY_SECONDS = 1.0


class MetadataSync(Timer):
    """
    The changes of `topics` that the file lacks. `save` asks for a checkpoint. While something is to be written, a
    checkpoint is asked for or under way, or a timer is scheduled.
    """

    def __init__(self, context: Context, topics: dict[str, Topic], save: Callable[[Waiter], None]) -> None:
        super().__init__()
        self._context = context
        self._topics = topics
        self._save = save
        self._is_behind = False
        self._is_urgent = False
        self._taken_at = 0.0
        self._error: BackendError | None = None

    def names(self) -> tuple[NamedTopic, ...]:
        """Return all durable topics with their durable channels."""
        return tuple([topic.named() for topic in self._topics.values() if not topic.ephemeral])

    def change(self, *, at_once: bool = False) -> None:
        """The names differ from the file. `at_once`: waiters of the next checkpoint wait for the file, too."""
        if at_once or not self._is_behind:
            self._save(_nobody)
        self._is_behind = True
        self._is_urgent = self._is_urgent or at_once

    def take(self, now: float) -> tuple[NamedTopic, ...] | None:
        """
        Return the names that a checkpoint which begins now must write; None: none. A broker that stops always writes
        them.
        """
        if not (self._is_urgent or self._context.stopping):
            if self._is_behind:
                self._context.timers.schedule(now + DELAY_SECONDS, self)
            return None
        names = self.names()
        self._is_behind = self._is_urgent = False
        self._taken_at = now
        return names

    def written(self, error: BackendError | None) -> None:
        """The last names are in the file, or could not be written. Each reason is logged once."""
        if error is not None:
            if str(error) != str(self._error):
                self._context.log("error", f"failed to persist metadata - {error}")
            self._is_behind = True
            self._context.timers.schedule(self._taken_at + RETRY_SECONDS, self)
        self._error = error

    def on_timer(self, now: float) -> None:
        """The time has come to write the file."""
        if self._is_behind:
            self.change(at_once=True)


def _nobody(error: Exception | None) -> None:
    """Nobody waits for this."""
