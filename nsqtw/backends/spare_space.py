"""
A file that reserves disk space, which is freed when the disk is full.

A database on a full disk cannot store that messages are finished, so nothing is trimmed and the disk stays full. The
space of this file is enough for the transactions that lead to the next trim. It is taken again when the disk has room.
"""

from __future__ import annotations

import os
from contextlib import suppress

from nsqtw.backends.disk.open_files import Descriptor
from nsqtw.backends.files import Files

SUFFIX = ".spare"
SPARE_BYTES = 1024 * 1024
_SHARE = 32
"""On a small disk the file is this part of it."""
_ROOM_SHARE = 4
"""The file is made when so many times its size is free."""


class SpareSpace:
    """The file beside the database at `database`."""

    def __init__(self, files: Files, database: str) -> None:
        self._files = files
        self._directory = os.path.dirname(database)
        self._path = database + SUFFIX
        self._is_there = False

    def take(self) -> None:
        """Make the file, unless it is there or space is short."""
        if self._is_there:
            return
        with suppress(OSError):
            free, total = self._files.free_space(self._directory)
            size = min(SPARE_BYTES, total // _SHARE)
            if free < size * _ROOM_SHARE:
                return
            self.give_back()  # one that a killed process left has an unknown size
            # A file system that compresses keeps no space for zeros.
            Descriptor(self._files, self._files.open(self._path, create=True)).write([os.urandom(size)], 0)
            self._is_there = True

    def give_back(self) -> bool:
        """Remove the file. Returns whether there was one."""
        self._is_there = False
        try:
            self._files.unlink(self._path)
        except OSError:
            return False
        return True
