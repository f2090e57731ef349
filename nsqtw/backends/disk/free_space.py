"""
A reserve of disk space that is not for messages.

On a disk that publishers have filled to the last byte, what consumers finish could not be recorded: positions.db cannot
grow, so nothing may be trimmed, so no space becomes free. Therefore publishing ends a little earlier. Consumers go on,
what they finish is saved and trimmed, and publishing resumes by itself.
"""

# mypyc: compiled

from __future__ import annotations

import errno
import os

from nsqtw.backends.disk.trim import RecycledFiles
from nsqtw.backends.files import Files

RESERVE_BYTES = 16 * 1024 * 1024
_SHARE = 8
"""On a small disk the reserve is this part of it."""
_LOOKS_PER_RESERVE = 4
_UNKNOWN = 1 << 62


class Reserve:
    """Watches the free space where `directory` is."""

    def __init__(self, files: Files, directory: str, recycled: RecycledFiles) -> None:
        self._files = files
        self._directory = directory
        self._recycled_files = recycled
        self._until_next_check = 0
        self._is_low = False
        self.free_bytes = _UNKNOWN
        """The free space at the last check."""

    def refusal(self, size: int) -> OSError | None:
        """Why `size` more bytes of messages must not be written now, if so. Looks again after a part of the reserve."""
        self._until_next_check -= size
        if self._until_next_check > 0 and not self._is_low:
            return None
        self._is_low = not self._has_room(size)
        if self._is_low:
            self._recycled_files.give_back()
            self._is_low = not self._has_room(size)
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if self._is_low else None

    def is_short(self) -> bool:
        """Return whether publishing is refused for want of space."""
        return self._is_low

    def _has_room(self, size: int) -> bool:
        try:
            free, total = self._files.free_space(self._directory)
        except OSError:
            return True  # the write itself will tell
        self.free_bytes = free
        reserve = min(RESERVE_BYTES, total // _SHARE)
        self._until_next_check = reserve // _LOOKS_PER_RESERVE
        return free - size >= reserve
