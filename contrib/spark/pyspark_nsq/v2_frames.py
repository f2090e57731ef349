"""NSQ's protocol V2, as much of it as a consumer needs: frames in, commands out. No socket.

A frame, all integers big-endian; `size` counts what follows it:

    | size 4 | type 4 | payload |            type 0: response, 1: error, 2: message

The payload of a message:

    | timestamp 8, ns | attempts 2 | id 16 | body |
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

MAGIC = b"  V2"
RESPONSE, ERROR, MESSAGE = 0, 1, 2
HEARTBEAT = b"_heartbeat_"
OK = b"OK"
CLOSE_WAIT = b"CLOSE_WAIT"
NOP = b"NOP\n"
CLS = b"CLS\n"

_FRAME = struct.Struct(">iI")
_MESSAGE = struct.Struct(">qH16s")
_SIZE = struct.Struct(">i")
_TYPE_BYTES = 4
#: nsqd sends no larger message than its --max-msg-size; anything near this is not NSQ.
_MOST_FRAME_BYTES = 1 << 30


class NotNsqError(Exception):
    """The bytes are not NSQ's protocol."""


class Message(NamedTuple):
    """One delivery. `timestamp_ns` since 1970; `attempts` counts this delivery, too."""

    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes


class Frames:
    """Cuts what a connection reads into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that `data` completes, as (type, payload). Raises NotNsqError."""
        data = self._rest + data if self._rest else data
        found = []
        at, end = 0, len(data)
        while end - at >= _FRAME.size:
            size, kind = _FRAME.unpack_from(data, at)
            if not _TYPE_BYTES <= size <= _MOST_FRAME_BYTES:
                raise NotNsqError(f"a frame of {size} bytes")
            stop = at + _SIZE.size + size
            if stop > end:
                break
            found.append((kind, data[at + _FRAME.size : stop]))
            at = stop
        self._rest = data[at:]
        return found


def message_of(payload: bytes) -> Message:
    """Raises NotNsqError."""
    if len(payload) < _MESSAGE.size:
        raise NotNsqError(f"a message of {len(payload)} bytes")
    timestamp_ns, attempts, message_id = _MESSAGE.unpack_from(payload)
    return Message(timestamp_ns, attempts, message_id, payload[_MESSAGE.size :])


def _with_body(command: bytes, body: bytes) -> bytes:
    return command + _SIZE.pack(len(body)) + body


def identify(about: dict[str, Any]) -> bytes:
    return _with_body(b"IDENTIFY\n", json.dumps(about).encode())


def auth(secret: str) -> bytes:
    return _with_body(b"AUTH\n", secret.encode("ascii"))


def sub(topic: str, channel: str) -> bytes:
    return f"SUB {topic} {channel}\n".encode("ascii")


def rdy(count: int) -> bytes:
    return b"RDY %d\n" % count


def fin(ids: Iterable[bytes]) -> bytes:
    return b"".join([b"FIN %s\n" % one for one in ids])


def req(ids: Iterable[bytes]) -> bytes:
    """To be delivered to somebody at once."""
    return b"".join([b"REQ %s 0\n" % one for one in ids])
