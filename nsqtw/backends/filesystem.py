"""
The file system that the data path is on, as something that is synced whole.

To sync 10,000 files one after the other takes 2 s, and of that 0.9 s of CPU, for each makes the file system write down
what it knows of that file. To sync the file system takes 0.2 s for all of them. But

- it waits for what other programs have written there, too: so it is only done when all that is unwritten on this
  machine is not more than syncing the files one after the other would leave time for;
- it does not say which file failed, and says it once: so after the first failure each file is asked, until the next
  start, for the failure may have been that of a file which is not to be synced now;
- on some systems it does not say that one failed: there it is not done (`Files.open_filesystem`).
"""

from __future__ import annotations

from contextlib import suppress

from nsqtw.backends.files import Files

MANY_FILES = 100
BYTES_A_FILE = 256 * 1024
"""The data that a disk writes while one file is synced: 0.2 ms here, 10 ms on a rotating disk."""


class Filesystem:
    """
    The file system of `directory`, from now on: what could not be written since then is told. Used by one thread at a
    time.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._fd: int | None = None
        self._device = -1
        with suppress(OSError):  # the next access to a file there reports it
            self._fd = files.open_filesystem(directory)
            self._device = files.device(directory)

    def sync(self, file_count: int) -> bool:
        """Sync the whole file system, if that is better than syncing so many files. Returns whether it did."""
        if self._fd is None or file_count < MANY_FILES:
            return False
        if self._files.unwritten_bytes() > file_count * BYTES_A_FILE:
            return False
        try:
            self._files.sync_filesystem(self._fd)
        except OSError:
            self.close()
            return False
        return True

    def has(self, directory: str) -> bool:
        """Return whether a directory is on it: an operator may have linked a topic's to another disk."""
        try:
            return self._files.device(directory) == self._device
        except OSError:
            return False

    def close(self) -> None:
        """It is not synced whole any more."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._files.close_filesystem(fd)

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()
