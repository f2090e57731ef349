"""
The bytes of protocol V3 that a load generator sends and takes apart (docs/protocol-v3.md).

A DELIVER has the message frames of V2 behind its header, so a consumer cuts the frames as one of V2 does, DELIVER by
DELIVER.
"""

import struct

from .errors import BrokerFailed

MAGIC = b"  V3"
SUBSCRIPTION = 1
PUBLISH, SUBSCRIBE, CREDIT, FIN, PING, PONG = 3, 4, 6, 7, 16, 17
WELCOME, CONFIRM, SUBSCRIBED, DELIVER = 32, 33, 35, 37
HEAD_BYTES = 12
FIN_BYTES = 24
_SET = 1

_HEAD = struct.Struct(">IBBHI")
_RANGE = struct.Struct(">QI")
_PAIR = struct.Struct(">II")
_SIZE = struct.Struct(">I")
_ID_AT, _BODY_AT = 18, 34
_U16S = struct.pack(">65536H", *range(0x10000))


def frame(kind: int, number: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return _HEAD.pack(8 + len(payload), kind, flags, 0, number) + payload


def hello() -> bytes:
    """
    The magic and a HELLO without a secret; its answer is WELCOME.
    """
    return MAGIC + frame(1, 0, b'\0\0{"client_id": "bench"}')


def publish(topic: str, messages: list[bytes], number: int = 1) -> bytes:
    name = topic.encode()
    return frame(PUBLISH, number, bytes([len(name)]) + name + b"".join(_SIZE.pack(len(one)) + one for one in messages))


def confirmed(first: int, count: int) -> bytes:
    """
    The CONFIRM of so many PUBLISH frames.
    """
    return frame(CONFIRM, 0, _PAIR.pack(first, count))


CONFIRMED = confirmed(1, 1)


def subscribe(topic: str, channel: str, credit: int) -> bytes:
    names = b"".join(bytes([len(name)]) + name.encode() for name in (topic, channel))
    return frame(SUBSCRIBE, SUBSCRIPTION, names + struct.pack(">IQI", credit, 0, 0))


def credit(messages: int) -> bytes:
    """
    A CREDIT that replaces the credit in messages.
    """
    return frame(CREDIT, SUBSCRIPTION, struct.pack(">iq", messages, 0), _SET)


def fin(ranges: list[tuple[int, int]]) -> bytes:
    return frame(FIN, SUBSCRIPTION, b"".join(_RANGE.pack(*one) for one in ranges))


def single_fins(first: int, count: int) -> bytes:
    """
    A FIN for each of so many messages. Slices put the lowest two bytes of the ids into a template, which takes few
    steps.
    """
    low = first & 0xFFFF
    here = min(count, 0x10000 - low)
    fins = bytearray(fin([(first, 1)]) * here)
    fins[HEAD_BYTES + 6 :: FIN_BYTES] = _U16S[2 * low : 2 * (low + here) : 2]
    fins[HEAD_BYTES + 7 :: FIN_BYTES] = _U16S[2 * low + 1 : 2 * (low + here) : 2]
    return bytes(fins) + (single_fins(first + here, count - here) if here < count else b"")


class DeliveryCutter:
    """
    Takes DELIVER frames apart and keeps the ids as ranges.
    """

    def __init__(self) -> None:
        self.count = 0
        self._ranges: list[tuple[int, int]] = []
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """
        Count the messages in what was received. `BrokerFailed` for a frame that is no DELIVER.
        """
        data = self._rest + data
        offset = 0
        while len(data) - offset >= HEAD_BYTES:
            size, kind, _, _, _ = _HEAD.unpack_from(data, offset)
            stop = offset + 4 + size
            if stop > len(data):
                break
            if kind != DELIVER:
                raise BrokerFailed(f"frame of type {kind}")
            self._cut(data, offset + HEAD_BYTES, stop)
            offset = stop
        self._rest = data[offset:]

    def fins(self) -> bytes:
        """
        One FIN of everything.
        """
        ranges, self._ranges = self._ranges, []
        return fin(ranges)

    def single_fins(self) -> bytes:
        """
        A FIN for each message.
        """
        ranges, self._ranges = self._ranges, []
        return b"".join([fin([(number, 1)]) for first, count in ranges for number in range(first, first + count)])

    def _cut(self, data: bytes, offset: int, stop: int) -> None:
        while offset < stop:
            number = int(data[offset + _ID_AT : offset + _BODY_AT], 16)
            if self._ranges and sum(self._ranges[-1]) == number:
                self._ranges[-1] = (self._ranges[-1][0], self._ranges[-1][1] + 1)
            else:
                self._ranges.append((number, 1))
            self.count += 1
            offset += 4 + _SIZE.unpack_from(data, offset)[0]


class ConfirmReplies:
    """
    Counts confirmed PUBLISH frames, and WELCOME as one; PING passes, anything else is `BrokerFailed`.
    """

    def __init__(self) -> None:
        self.rest = b""
        """What has come of the next frame."""

    def feed(self, data: bytes) -> int:
        """
        The number of PUBLISH frames that ``data`` confirms.
        """
        pending = self.rest + data
        offset = count = 0
        while len(pending) - offset >= HEAD_BYTES:
            size, kind, _, _, _ = _HEAD.unpack_from(pending, offset)
            stop = offset + 4 + size
            if stop > len(pending):
                break
            if kind == CONFIRM:
                count += sum(confirmed for _, confirmed in _PAIR.iter_unpack(pending[offset + HEAD_BYTES : stop]))
            elif kind == WELCOME:
                count += 1
            elif kind != PING:
                raise BrokerFailed(f"instead of CONFIRM the broker sent {pending[offset:stop]!r}")
            offset = stop
        self.rest = pending[offset:]
        return count
