"""
Time to live of messages: which of a segment have expired.

A message expires when its time to live has passed since its publish, both by the wall clock. The header `ttl`, decimal
milliseconds, is the time to live of one message; without it, or with any other text in it, that of the topic is taken.
0 stands for no end.
"""

from __future__ import annotations

import re
from typing import Final

from nsqtw.core.segment import Segment, timestamp_ns_of
from nsqtw.message_headers import TTL, header

_NS_PER_MS = 10**6
_MILLISECONDS = re.compile(r"[0-9]{1,18}")
_MARK: Final = bytes((len(TTL),)) + TTL.encode()
"""Part of all encoded headers that have the time to live; others may have it by chance."""
_BETWEEN: Final = b"\0"
"""Not a part of it, so that two headers together do not have it."""


def is_expired(segment: Segment, index: int, topic_ttl_ns: int, wall_ns: int) -> bool:
    ttl_ns = _ttl_ns(segment.headers_of(index), topic_ttl_ns)
    return bool(ttl_ns) and timestamp_ns_of(segment.frames, segment.offsets[index]) + ttl_ns <= wall_ns


def leading_run(segment: Segment, start: int, stop: int, topic_ttl_ns: int, wall_ns: int) -> tuple[int, bool]:
    """
    Return the end of the first run of messages from `start` on that have all expired, or of which none has; and whether
    they have. A segment without headers is not looked through when all its messages were published together.
    """
    headers = segment.headers
    if headers is not None and _MARK in _BETWEEN.join(headers[start:stop]):
        expired, end = is_expired(segment, start, topic_ttl_ns, wall_ns), start + 1
        while end < stop and is_expired(segment, end, topic_ttl_ns, wall_ns) == expired:
            end += 1
        return end, expired
    if not topic_ttl_ns:
        return stop, False
    expired, end = False, start
    for timestamp_ns, first, end_of_run in segment.published_together(start, stop):
        if first > start and (timestamp_ns + topic_ttl_ns <= wall_ns) != expired:
            break
        expired, end = timestamp_ns + topic_ttl_ns <= wall_ns, end_of_run
    return end, expired


def _ttl_ns(encoded: bytes, topic_ttl_ns: int) -> int:
    """Return the time to live of a message in ns; 0 for no end."""
    text = header(encoded, TTL) if _MARK in encoded else None
    return int(text) * _NS_PER_MS if text is not None and _MILLISECONDS.fullmatch(text) else topic_ttl_ns
