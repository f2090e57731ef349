"""
File descriptors: as many as the system allows, and some of them kept for what is stored.

A new descriptor always has the lowest free number, so the number of one that is made for a moment tells how many are
left, whoever has taken the others.
"""

from __future__ import annotations

import os
import resource

_MOST_WANTED = 1_048_576
_KEPT_FOR_FILES = 320
"""Log files that stay open in any case (`backends.disk_file`), the databases, and a few."""
_LARGEST_PART_KEPT = 3
"""Of a small limit no more than a third is kept."""


def raise_limit() -> None:
    """From now on this process may have as many open files as the system lets it have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_WANTED if hard == resource.RLIM_INFINITY else min(hard, _MOST_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # the system says one thing and does another: it goes on with what it has
            return


class Descriptors:
    """Those of this process."""

    def __init__(self) -> None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = _MOST_WANTED if soft == resource.RLIM_INFINITY else soft
        self.for_connections = limit - min(_KEPT_FOR_FILES, limit // _LARGEST_PART_KEPT)
        """Descriptors below this number are for connections too."""
        self._probe = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def are_short(self) -> bool:
        """Whether a connection that was accepted has to go again, so that files can be opened."""
        try:
            lowest_free = os.dup(self._probe)
        except OSError:
            return True
        os.close(lowest_free)
        return lowest_free >= self.for_connections

    def close(self) -> None:
        """Give up the one that is held."""
        os.close(self._probe)
