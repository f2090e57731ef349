"""Pace of the trims of a topic with very many unfinished messages."""

from __future__ import annotations

_AT_EACH_CALL = 10_000


class TrimPace:
    """
    Skips trims that would be expensive.

    A trim is requested about once a second, and reads all that is still needed below, which may be millions of deferred
    messages. The more the last one read, the more requests are skipped, so that over time a request reads at most some
    ten thousand.
    """

    def __init__(self) -> None:
        self._passes = 0
        self._kept_count = -1

    def is_due(self, kept_count: int) -> bool:
        """Return whether to trim now, where `kept_count` files could be freed: always when these became more."""
        if self._passes and kept_count <= self._kept_count:
            self._passes -= 1
            return False
        return True

    def looked_at(self, wanted_count: int, kept_count: int) -> None:
        """Record that a trim read `wanted_count` needed messages, and that `kept_count` files are kept for them."""
        self._passes = wanted_count // _AT_EACH_CALL
        self._kept_count = kept_count
