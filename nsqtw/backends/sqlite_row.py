"""Whether a row of segments is what was written."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from nsqtw.core.segment import BODY_AT, ID_AT, SEQUENCE_MASK, sequence_of


def damage_of(first: Any, last: Any, delay_ms: Any, crc: Any, frames: Any) -> str:
    """
    Why it is not; nothing when it is. The numbers have no checksum: they are compared with the ids of the first and
    the last message.
    """
    if type(frames) is not bytes or crc32(frames) != crc:
        return "the checksum does not match"
    if not (is_sequence(first) and is_sequence(last) and is_sequence(delay_ms)):
        return "its numbers are damaged"
    first_id = frames[ID_AT:BODY_AT]
    last_id = b"%016x" % (int(first_id, 16) + last - first)
    if sequence_of(first_id) != first or last < first or last_id not in frames:
        return "its sequences are damaged"
    return ""


def is_sequence(number: Any) -> bool:
    """Whether it is a whole number of at most 53 bits."""
    return type(number) is int and 0 <= number <= SEQUENCE_MASK
