"""
Commands of NSQ's V2 protocol as a client writes them.

    command   NAME parameter ...\\n          PUB, DPUB, IDENTIFY and AUTH: then size u32 | body
    MPUB      MPUB topic\\n                  then size u32 | count u32 | (size u32 | body) ...
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

MAGIC: Final = b"  V2"
NOP: Final = b"NOP\n"
CLS: Final = b"CLS\n"

_SIZE = struct.Struct(">I")
_TWO_SIZES = struct.Struct(">II")
_pack_size = _SIZE.pack
_MOST_LINES: Final = 1024


def identify(body: Mapping[str, Any]) -> bytes:
    """IDENTIFY with a JSON object."""
    return _with_body(b"IDENTIFY\n", json.dumps(body, separators=(",", ":")).encode())


def auth(secret: str) -> bytes:
    return _with_body(b"AUTH\n", secret.encode())


def sub(topic: str, channel: str) -> bytes:
    """SUB: subscribe to a channel."""
    return f"SUB {topic} {channel}\n".encode()


def rdy(count: int) -> bytes:
    """RDY: how many messages may be in flight."""
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    """FIN: the message is finished."""
    return b"FIN %b\n" % message_id


def req(message_id: bytes, delay_ms: int, reason: str = "") -> bytes:
    """REQ: deliver the message again after `delay_ms`. V2 has no place for a reason."""
    return b"REQ %b %d\n" % (message_id, delay_ms)


def touch(message_id: bytes) -> bytes:
    """TOUCH: restart the timeout of the message."""
    return b"TOUCH %b\n" % message_id


def pub(topic: str, body: bytes) -> bytes:
    """PUB: publish a message."""
    return _pub_line(topic) + _pack_size(len(body)) + body


def dpub(topic: str, delay_ms: int, body: bytes) -> bytes:
    """DPUB: publish a message that is delivered after `delay_ms`."""
    return b"DPUB %b %d\n%b%b" % (topic.encode(), delay_ms, _SIZE.pack(len(body)), body)


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    """MPUB: publish several messages, all or none."""
    size = _SIZE.size * (1 + len(bodies)) + sum(map(len, bodies))
    parts = [b"MPUB %b\n" % topic.encode(), _TWO_SIZES.pack(size, len(bodies))]
    for body in bodies:
        parts += (_SIZE.pack(len(body)), body)
    return b"".join(parts)


@lru_cache(_MOST_LINES)
def _pub_line(topic: str) -> bytes:
    return f"PUB {topic}\n".encode()


def _with_body(line: bytes, body: bytes) -> bytes:
    return line + _SIZE.pack(len(body)) + body
