"""
The body of a request, which arrives in parts.

Large parts are kept as they are, and joined once, when the body is complete: a buffer that grows with each part
is copied several times. Small parts are collected, because an object for each byte would take forty times its size.
"""

from __future__ import annotations

LARGE_BYTES = 16 * 1024
"""A part of this size is kept as it is."""


class RequestBody:
    """The parts of one body."""

    __slots__ = ("_parts", "_tail", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._tail = bytearray()
        """The small parts behind the others."""
        self.size = 0

    def append(self, part: bytes) -> None:
        """Add the next part."""
        self.size += len(part)
        if len(part) < LARGE_BYTES:
            self._tail += part
        if len(self._tail) >= LARGE_BYTES or (len(part) >= LARGE_BYTES and self._tail):
            self._parts.append(bytes(self._tail))
            self._tail.clear()
        if len(part) >= LARGE_BYTES:
            self._parts.append(part)

    def join(self) -> bytes:
        """Return the whole body."""
        if self._tail or len(self._parts) != 1:
            self._parts = [b"".join((*self._parts, self._tail))]
            self._tail.clear()
        return self._parts[0]
