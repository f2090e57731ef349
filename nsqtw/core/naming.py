"""
When the names of topics and channels are written to `nsqd.dat`.

Theory of operation. Whoever adds, removes or pauses something durable calls `change`; the next `Save` of the broker
then carries all names, and whoever waits for that save is answered when the file is there. So that thousands of
topics made one after the other do not each write the names of all, the file is written ten times a second at most,
and what comes in between is written when its time has come. A pause does not wait: it is answered with the file
written, as in nsqd (nsqd specification 5.2). What fails is tried again.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from nsqtw.core.agenda import Due
from nsqtw.core.cut import NamedTopic
from nsqtw.errors import BackendError

if TYPE_CHECKING:
    from nsqtw.core.broker import Broker

REST_SECONDS = 0.1
RETRY_SECONDS = 1.0


class Naming(Due):
    """
    What the file must be told of the topics of `broker`. While something is to be written, a save is asked for or
    this is on the agenda.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self._is_behind = False
        self._cannot_rest = False
        self._earliest = -inf
        self._error: BackendError | None = None

    def names(self) -> tuple[NamedTopic, ...]:
        """All durable topics with their durable channels."""
        return tuple([topic.named() for topic in self._broker.topics.values() if not topic.ephemeral])

    def change(self, *, at_once: bool = False) -> None:
        """The names are not what was written last. `at_once`: whoever waits for the next save waits for the file."""
        if at_once or not self._is_behind:
            self._broker.save(_nobody)
        self._is_behind = True
        self._cannot_rest = self._cannot_rest or at_once

    def take(self, now: float) -> tuple[NamedTopic, ...] | None:
        """What a save that starts now is to write, if anything. A broker that stops writes the file in any case."""
        if not (self._is_behind or self._broker.stopping):
            return None
        if now < self._earliest and not (self._cannot_rest or self._broker.stopping):
            self._broker.agenda.at(self._earliest, self)
            return None
        self._is_behind = self._cannot_rest = False
        self._earliest = now + REST_SECONDS
        return self.names()

    def written(self, error: BackendError | None) -> None:
        """What was taken last is in the file, or it could not be written. The operator is told once of each reason."""
        if error is not None:
            if str(error) != str(self._error):
                self._broker.log("error", f"failed to persist metadata - {error}")
            self._is_behind = True
            self._earliest += RETRY_SECONDS
            self._broker.agenda.at(self._earliest, self)
        self._error = error

    def fall_due(self, now: float) -> None:
        """The file may be written again."""
        if self._is_behind:
            self._broker.save(_nobody)


def _nobody(error: Exception | None) -> None:
    """Nobody waits for this."""
