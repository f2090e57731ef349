"""
What was refused or closed because of a limit: a number for each limit, and now and then a line in the log.

A flood must not fill the log too: a limit is spoken of at once, and then at most every LINE_SECONDS, with how many
there were since the line before.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

LINE_SECONDS = 10.0

_log = Logger()


class Rejections:
    """By the name of the option that says where the limit is. `now` is a clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.counts: dict[str, int] = {}
        self._said: dict[str, tuple[float, int]] = {}

    def note(self, limit: str, remote: str) -> None:
        """One more; `remote` is who it was."""
        count = self.counts[limit] = self.counts.get(limit, 0) + 1
        now = self._now()
        said_at, said_count = self._said.get(limit, (-LINE_SECONDS, 0))
        if now - said_at >= LINE_SECONDS:
            self._said[limit] = (now, count)
            text = "LIMIT: client({client}) is over --{limit}; {count} since the last such line"
            _log.warn(text, client=remote, limit=limit, count=count - said_count)
