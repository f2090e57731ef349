"""
The frames a V2 client receives.

    offset 0     4     8
           size  type  data ...        big-endian; size = 4 + len(data)
           type: 0 response, 1 error, 2 message (encoded by nsqtw.core.segment)
"""

from __future__ import annotations

import struct

_HEAD = struct.Struct(">ii")
RESPONSE = 0
ERROR = 1


def frame(kind: int, data: bytes) -> bytes:
    """One response or error frame."""
    return _HEAD.pack(len(data) + 4, kind) + data


OK = frame(RESPONSE, b"OK")
HEARTBEAT = frame(RESPONSE, b"_heartbeat_")
CLOSE_WAIT = frame(RESPONSE, b"CLOSE_WAIT")
