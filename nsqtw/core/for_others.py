"""
Messages in a part of a topic's log that a channel does not get, because they are for another channel only.

Theory of operation. The sequences of a topic tell how many messages are between two places (`LogReader.count`), and not
for whom. So a channel that is moved back has the log looked through from its new place up to `released`. A backend
that knows where such messages are (`IDirectedQueue`) reads nothing else for that. A part of the log is looked through
in a turn; more of it takes several turns, until nothing is missing (`look_on`). The messages found are not kept: a seek
is rare, and a topic may have any number of such messages. Before that, what a move forwards skips is looked for.
"""

from __future__ import annotations

from typing import Final

from nsqtw.core.sequence_ranges import SequenceRanges
from nsqtw.core.timers import Timer
from nsqtw.core.topic_log import TopicLog
from nsqtw.core.unread import UnreadMessages
from nsqtw.errors import BackendError
from nsqtw.interfaces import Waiter

_LOOKS: Final = 4
"""Parts of the log that are looked through in a turn."""
_NEXT_TURN: Final = 0.001


class ForOthers(Timer):
    """
    The messages from `start` on, as far as `end`, that are in the log of `topic` and not for `channel`. `unread` are
    those before, if it must be known which of them the channel has not read.
    """

    def __init__(self, topic: TopicLog, channel: str, start: int, unread: UnreadMessages | None = None) -> None:
        super().__init__()
        self.start = self.end = start
        self.unread = unread
        self._topic = topic
        self._channel = channel
        self._found = SequenceRanges(start)
        self._told: Waiter | None = None

    def look(self) -> bool:
        """Look through the next parts of the log. Returns whether `end` is where it is released. BackendError."""
        if self.unread is not None and not any(self.unread.look() for _ in range(_LOOKS)):
            return False
        for _ in range(_LOOKS):
            stop = self._topic.released
            if self.end >= stop:
                return True
            runs, reached = self._topic.log.directed(self.end)
            for first, end, channel in runs:
                first = max(first, self.end)
                if channel != self._channel:
                    self._found.add(first, end - first)
            self.end = reached if reached > self.end else stop
        return self.end >= self._topic.released

    def look_on(self, told: Waiter) -> None:
        """Look through the rest in the next turns; then call `told`, also with a BackendError."""
        self._told = told
        self._topic.context.timers.schedule(0.0, self)

    def on_timer(self, now: float) -> float | None:
        """Timer API: look on."""
        error: BackendError | None = None
        try:
            if not self._topic.exiting and not self.look():
                return now + _NEXT_TURN
        except BackendError as failed:
            error = failed
        told, self._told = self._told, None
        if told is not None:
            told(error)
        return None

    def count(self, start: int, stop: int) -> int:
        """Return how many there are between two sequences, without those that were emptied."""
        emptied = self._topic.dropped.between(start, stop)
        return self._between(start, stop) - sum([self._between(*place) for place in emptied])

    def _between(self, start: int, stop: int) -> int:
        return (self._found.before(stop) or 0) - (self._found.before(start) or 0)
