"""
Where a repair keeps what it takes away:

    <data path>/damaged.d/<number of the repair>/positions.db ...
                                                 <topic's directory>/<first sequence>.log
                                                                     <first sequence>.log.from-<offset>    cut off

The name has a dot because no topic's directory has one: a topic may be called `damaged`.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from nsqtw.backends.files import Files, write_all

DIRECTORY = "damaged.d"
_COPY_BYTES = 1 << 20


class Aside:
    """One repair's place for what it takes out of a data path. Nothing is made before it is needed. OSError."""

    def __init__(self, data_path: str, files: Files) -> None:
        self._data_path = data_path
        self._files = files
        root = os.path.join(data_path, DIRECTORY)
        numbers = [int(name) for name in files.names(root) if name.isascii() and name.isdigit()]
        self.directory = os.path.join(root, str(max(numbers, default=0) + 1))
        self.is_used = False

    def move(self, path: str) -> None:
        """Take a file away."""
        place = self._place(path)
        self._files.rename(path, place)
        self._files.sync_directory(os.path.dirname(place))
        self._files.sync_directory(os.path.dirname(path))

    def keep(self, path: str) -> None:
        """Let a file have a second name here: the first one is about to become another's."""
        place = self._place(path)
        try:
            os.link(path, place)
        except OSError:
            # Not every file system has links.
            with suppress(FileNotFoundError):
                self._files.unlink(place)
            shutil.copyfile(path, place)
            self._sync(place)
        self._files.sync_directory(os.path.dirname(place))

    def keep_part(self, path: str, position: int, stop: int) -> None:
        """Copy the bytes of a file from `position` up to `stop`."""
        place = self._place(f"{path}.from-{position}")
        old = self._files.open(path)
        try:
            new = self._files.open(place, create=True)
            try:
                written = 0
                while position < stop:
                    data = self._files.read(old, min(_COPY_BYTES, stop - position), position)
                    if not data:
                        break
                    written = write_all(self._files, new, [data], written)
                    position += len(data)
                self._files.sync(new)
            finally:
                self._files.close(new)
        finally:
            self._files.close(old)
        self._files.sync_directory(os.path.dirname(place))

    def _place(self, path: str) -> str:
        place = os.path.join(self.directory, os.path.relpath(path, self._data_path))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not self.is_used:
            self.is_used = True
            self._files.sync_directory(self._data_path)
            self._files.sync_directory(os.path.join(self._data_path, DIRECTORY))
        self._files.sync_directory(self.directory)
        return place

    def _sync(self, path: str) -> None:
        fd = self._files.open(path)
        try:
            self._files.sync(fd)
        finally:
            self._files.close(fd)
