"""
Commands of protocol V3 as a client writes them (docs/protocol-v3.md).

A consumer has one subscription on its connection, with the id 1.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from nsqtw.client.options import ClientOptions
from nsqtw.message_headers import encode_headers
from nsqtw.protocols.v3 import codec

MAGIC: Final = b"  V3"
MESSAGE_IDS: Final = "message_ids"
"""The feature: CONFIRM has the ids of messages."""
SUBSCRIPTION: Final = 1
LAST_PING: Final = 0xFFFFFFFF
"""The id of the PING of a consumer that stops: behind its PONG there is no message."""
MAX_NUMBER: Final = 0xFFFFFFFF
MAX_REASON_BYTES: Final = 1000
"""Of a NACK: a dead letter has no more."""
RANGE: Final = struct.Struct(">QI")

_SIZE = struct.Struct(">I")
_SIZE_2 = struct.Struct(">H")
_LIMITS = struct.Struct(">IQI")
_CREDIT = struct.Struct(">iq")
_DELAYS = struct.Struct(">II")


class V3Commands:
    """The commands of one consumer or producer. The PUBLISH frames are numbered."""

    def __init__(self, options: ClientOptions) -> None:
        self._timeout_ms = int(options.msg_timeout * 1000)
        self._number = 0

    def rdy(self, count: int) -> bytes:
        """CREDIT: how many messages may be in flight."""
        return codec.frame_of(codec.CREDIT, SUBSCRIPTION, _CREDIT.pack(count, 0), codec.SET)

    def sub(self, topic: str, channel: str) -> bytes:
        """SUBSCRIBE, without credit."""
        names = _name(topic) + _name(channel)
        return codec.frame_of(codec.SUBSCRIBE, SUBSCRIPTION, names + _LIMITS.pack(0, 0, self._timeout_ms))

    def fin(self, message_id: bytes) -> bytes:
        """FIN: the message is finished."""
        return codec.frame_of(codec.FIN, SUBSCRIPTION, _range(message_id))

    def req(self, message_id: bytes, delay_ms: int, reason: str = "") -> bytes:
        """REQ: deliver the message again after `delay_ms`; with a reason NACK."""
        if not reason:
            return codec.frame_of(codec.REQ, SUBSCRIPTION, _SIZE.pack(delay_ms) + _range(message_id))
        text = reason.encode("utf-8", "replace")[:MAX_REASON_BYTES].decode("utf-8", "ignore").encode()
        payload = _SIZE.pack(delay_ms) + _SIZE_2.pack(len(text)) + text + _range(message_id)
        return codec.frame_of(codec.NACK, SUBSCRIPTION, payload)

    def touch(self, message_id: bytes) -> bytes:
        """TOUCH: restart the timeout of the message."""
        return codec.frame_of(codec.TOUCH, SUBSCRIPTION, _range(message_id))

    def close(self) -> bytes:
        """Get no more messages, and be told when none comes any more."""
        return self.rdy(0) + codec.frame_of(codec.PING, LAST_PING)

    def pub(self, topic: str, body: bytes) -> bytes:
        """PUBLISH of one message."""
        self._number = (self._number + 1) & MAX_NUMBER
        return codec.frame_of(codec.PUBLISH, self._number, _name(topic) + _SIZE.pack(len(body)) + body)

    def publish(
        self,
        topic: str,
        bodies: Sequence[bytes],
        delay_ms: int = 0,
        headers: Sequence[Mapping[str, str]] | None = None,
    ) -> bytes:
        """PUBLISH of messages, all or none. InvalidHeaders."""
        parts, flags = [_name(topic)], 0
        if headers is not None and any(headers):
            encoded = [encode_headers(one) for one in headers]
            table = b"".join([_SIZE_2.pack(len(one)) + one for one in encoded])
            parts += (_SIZE.pack(len(table)), table)
            flags = codec.HEADERS
        if delay_ms:
            parts.append(_DELAYS.pack(1, delay_ms))
            flags |= codec.DELAYS
        for body in bodies:
            parts += (_SIZE.pack(len(body)), body)
        self._number = (self._number + 1) & MAX_NUMBER
        return codec.frame_of(codec.PUBLISH, self._number, b"".join(parts), flags)


def hello(options: ClientOptions) -> bytes:
    """HELLO with the secret and what the broker may know."""
    secret = options.auth_secret.encode()
    interval = options.heartbeat_interval
    document = {
        "client_id": options.client_id,
        "hostname": options.hostname,
        "user_agent": options.user_agent,
        "heartbeat_interval": 0 if interval < 0 else int(interval * 1000),
        "features": [MESSAGE_IDS] if options.message_ids else [],
    }
    return codec.frame_of(codec.HELLO, 0, _SIZE_2.pack(len(secret)) + secret + json.dumps(document).encode())


def finishes(numbers: Sequence[int]) -> bytes:
    """FIN of messages, neighbours as one range."""
    ranges: list[bytes] = []
    first = number = numbers[0]
    for following in numbers[1:]:
        if following != number + 1:
            ranges.append(RANGE.pack(first, number - first + 1))
            first = following
        number = following
    ranges.append(RANGE.pack(first, number - first + 1))
    return codec.frame_of(codec.FIN, SUBSCRIPTION, b"".join(ranges))


@lru_cache(1024)
def _name(name: str) -> bytes:
    data = name.encode()
    return bytes((len(data),)) + data


def _range(message_id: bytes) -> bytes:
    return RANGE.pack(int(message_id, 16), 1)
