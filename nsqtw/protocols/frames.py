"""
The frames a V2 client receives.

    offset 0     4     8
           size  type  data ...        big-endian; size = 4 + len(data)
           type: 0 response, 1 error, 2 message (encoded by nsqtw.core.segment)
"""

# mypyc: compiled

from __future__ import annotations

import struct
from typing import Final

HEAD: Final = struct.Struct(">ii")
"""Size of what follows it, and type."""
RESPONSE: Final = 0
ERROR: Final = 1


def frame(kind: int, data: bytes) -> bytes:
    """One response or error frame."""
    return HEAD.pack(len(data) + 4, kind) + data


OK: Final = frame(RESPONSE, b"OK")
HEARTBEAT: Final = frame(RESPONSE, b"_heartbeat_")
CLOSE_WAIT: Final = frame(RESPONSE, b"CLOSE_WAIT")
