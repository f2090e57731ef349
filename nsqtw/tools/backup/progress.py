"""Progress of a long copy, in a line on stderr if it is a terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO

FIRST_SECONDS = 1.0
"""What takes no longer has no line."""
_AGAIN_SECONDS = 0.2
_MEGABYTE = 1 << 20


class ProgressLine:
    """The progress of `what`, of about `total` bytes."""

    def __init__(self, what: str, total: int, stream: TextIO | None = None) -> None:
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr  # noqa: TID251 - no foreign text, and control characters of its own
        self._is_shown = self._stream.isatty()
        self._next = time.monotonic() + FIRST_SECONDS
        self._done = 0
        self._has_line = False

    def __call__(self, count: int) -> None:
        """So many more bytes are done."""
        self._done += count
        now = time.monotonic()
        if self._is_shown and now >= self._next:
            self._next = now + _AGAIN_SECONDS
            self._has_line = True
            share = min(99, 100 * self._done // self._total) if self._total else 99
            self._stream.write(f"\r{self._what}: {self._done // _MEGABYTE} MB, {share} %")
            self._stream.flush()

    def close(self) -> None:
        """Remove the line."""
        if self._has_line:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
