"""
Quotas of topics and channels: their total number, and the number of new topics in one turn.

Theory of operation. Stored topics and channels are always loaded: the caps apply to requests of clients after that.
Creating a topic costs as much as a hundred publishes, and one read may ask for thousands; a session that finds the turn
`is_full` leaves the rest of its input for the next turn, so that others are served in between.
"""

# mypyc: compiled

from __future__ import annotations

from nsqtw.errors import CapReached, InvalidName
from nsqtw.names import is_valid_name
from nsqtw.options.broker import Options

CREATIONS_PER_TURN = 32


class Quotas:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._creations = 0
        self.channel_count = 0
        """Channels of all topics."""
        self.are_on = False

    def check_topic(self, name: str, topic_count: int) -> None:
        """Before the birth of a topic. InvalidName, CapReached."""
        _check_name(name)
        limit = self._options.max_topics
        if self.are_on and limit and topic_count >= limit:
            raise CapReached("topics", limit)
        self._creations += 1

    def check_channel(self, name: str) -> None:
        """Before the birth of a channel. InvalidName, CapReached."""
        _check_name(name)
        limit = self._options.max_channels
        if self.are_on and limit and self.channel_count >= limit:
            raise CapReached("channels", limit)

    @property
    def is_full(self) -> bool:
        """Whether the limit of new topics in a turn is reached."""
        return self._creations >= CREATIONS_PER_TURN

    def begin_turn(self) -> None:
        self._creations = 0


def _check_name(name: str) -> None:
    """Protocols check names first; whatever they accept, no invalid name is stored."""
    if not is_valid_name(name):
        raise InvalidName
