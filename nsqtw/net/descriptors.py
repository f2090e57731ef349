"""
File descriptors: the limit of the system, of which some are kept for storage.

A new descriptor always has the lowest free number, so the number of a temporary one tells how many are left, whatever
uses the others.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

_MAX_WANTED = 1_048_576
_KEPT_FOR_FILES = 320
"""Log files that stay open in any case (`backends.disk.open_files`), the databases, and a few."""
_LARGEST_PART_KEPT = 3
"""Of a small limit at most a third is kept."""
LOW_LIMIT = 1024
"""Below it the start warns: every topic in use and every connection takes a descriptor."""
HTTP_RESERVE = 4
"""Descriptors that only HTTP connections may use besides: so /ping is answered when clients have all others."""


def raise_limit() -> int:
    """Let this process have as many open files as the system allows. Return how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MAX_WANTED if hard == resource.RLIM_INFINITY else min(hard, _MAX_WANTED)
    if soft != resource.RLIM_INFINITY and soft < target:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        except (OSError, ValueError):  # the system says one thing and does another: it goes on with what it has
            return soft
        return target
    return _MAX_WANTED if soft == resource.RLIM_INFINITY else soft


class Descriptors:
    """
    The file descriptors of this process. `release` closes files that can be opened again, and returns whether there
    were any.
    """

    def __init__(self, release: Callable[[], bool] = lambda: False) -> None:
        self._release = release
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = _MAX_WANTED if soft == resource.RLIM_INFINITY else soft
        self.for_connections = limit - min(_KEPT_FOR_FILES, limit // _LARGEST_PART_KEPT)
        """Descriptors below this number are for connections too."""
        self._probe = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def are_short(self, reserve: int = 0) -> bool:
        """
        Return whether a connection that was accepted has to be closed, so that files can be opened. Files that can be
        opened again are closed first. The caller may use `reserve` descriptors more than others.
        """
        while not self._has_free_below(self.for_connections + reserve):
            if not self._release():
                return True
        return False

    def _has_free_below(self, number: int) -> bool:
        try:
            lowest_free = os.dup(self._probe)
        except OSError:
            return False
        os.close(lowest_free)
        return lowest_free < number

    def close(self) -> None:
        """Give up the one that is held."""
        os.close(self._probe)
