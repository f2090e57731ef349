"""
Body of an /mpub whose messages have headers (docs/how-to/headers.md), big-endian:

    "NSQH" | int32 count | count x (int32 headers size | headers | int32 size | body)

The headers of a message are encoded as in `nsqtw.message_headers`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from nsqtw.message_headers import encode_headers

_SIZE = struct.Struct(">i")
_MAGIC: Final = b"NSQH"


def mpub_body(messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> bytes:
    """Return the body of an /mpub with binary=true and headers=true. InvalidHeaders."""
    parts = [_MAGIC, _SIZE.pack(len(messages))]
    for body, headers in messages:
        encoded = encode_headers(headers)
        parts += (_SIZE.pack(len(encoded)), encoded, _SIZE.pack(len(body)), body)
    return b"".join(parts)
