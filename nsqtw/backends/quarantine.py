"""
The quarantine of a data path, for what the broker or `nsqtw fsck --repair` removes because it is damaged:

    <data path>/damaged.d/<number of the run>/positions.db ...
                                                 <topic's directory>/<first sequence>.log
                                                                     <first sequence>.log.from-<offset>    tail

The name has a dot because no topic's directory has one: a topic may be called `damaged`.
"""

from __future__ import annotations

import os
import re
import shutil

from nsqtw.backends.files import Files, write_all

DIRECTORY = "damaged.d"
_DATABASE = re.compile(r"(messages|positions)\.db\.damaged\.[0-9]+")
_COPY_BYTES = 1 << 20


class Quarantine:
    """
    The directory of one run of a broker, or of one repair. Nothing is made before it is needed. The methods return the
    path at which a file is kept, and raise OSError.
    """

    def __init__(self, data_path: str, files: Files) -> None:
        self._data_path = data_path
        self._files = files
        root = os.path.join(data_path, DIRECTORY)
        self.directory = os.path.join(root, str(max(_numbers(files, root), default=0) + 1))
        self.is_used = False

    def move(self, path: str) -> str:
        """Take a file away."""
        target = self._target(path)
        self._files.rename(path, target)
        self._files.sync_directory(os.path.dirname(target))
        self._files.sync_directory(os.path.dirname(path))
        return target

    def keep(self, path: str) -> str:
        """Let a file have a second name here: the first one is about to become another's."""
        target = self._target(path)
        try:
            self._files.link(path, target)
        except OSError:
            # Not every file system has links.
            shutil.copyfile(path, target)
            self._sync(target)
        self._files.sync_directory(os.path.dirname(target))
        return target

    def keep_part(self, path: str, position: int, stop: int) -> str:
        """Copy the bytes of a file from `position` up to `stop`."""
        target = self._target(f"{path}.from-{position}")
        old = self._files.open(path)
        try:
            new = self._files.open(target, create=True)
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
        self._files.sync_directory(os.path.dirname(target))
        return target

    def name_of(self, target: str) -> str:
        """The path of a kept file below the data path."""
        return os.path.relpath(target, self._data_path)

    def _target(self, path: str) -> str:
        target = base = os.path.join(self.directory, os.path.relpath(path, self._data_path))
        number = 1
        while os.path.lexists(target):  # a file may be damaged, and set aside, more than once in a run
            number += 1
            target = f"{base}.{number}"
        self.is_used = True
        directory = self._data_path
        for part in os.path.relpath(os.path.dirname(target), self._data_path).split(os.sep):
            inner = os.path.join(directory, part)
            if not os.path.isdir(inner):
                self._files.make_directory(inner)
                self._files.sync_directory(directory)
            directory = inner
        return target

    def _sync(self, path: str) -> None:
        fd = self._files.open(path)
        try:
            self._files.sync(fd)
        finally:
            self._files.close(fd)


def kept_in(data_path: str, files: Files) -> list[str]:
    """Return everything in quarantine, of all runs: paths below the data path. Databases are beside their originals."""
    root = os.path.join(data_path, DIRECTORY)
    databases = sorted(name for name in files.names(data_path) if _DATABASE.fullmatch(name))
    for number in sorted(_numbers(files, root)):
        for directory, _, names in os.walk(os.path.join(root, str(number))):
            databases += sorted(os.path.relpath(os.path.join(directory, name), data_path) for name in names)
    return databases


def _numbers(files: Files, root: str) -> list[int]:
    return [int(name) for name in files.names(root) if name.isascii() and name.isdigit()]
