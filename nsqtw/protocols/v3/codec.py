"""
Frames of protocol V3, as the broker reads and writes them. docs/protocol-v3.md draws all of them.

    0        4      5       6          8        12            12+E
    size     type   flags   E          id       extension     payload
    u32      u8     u8      u16        u32      E bytes       size - 8 - E bytes

Performance: called once per frame, and once per run of FINs.
"""

# mypyc: compiled

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from nsqtw.errors import ClientError
from nsqtw.interfaces import Range
from nsqtw.protocols.mpub import equal_messages_in, messages_in
from nsqtw.protocols.v3.single_fins import FIN_BYTES, equal_fins, single_fins

HELLO: Final = 1
AUTH: Final = 2
PUBLISH: Final = 3
SUBSCRIBE: Final = 4
UNSUBSCRIBE: Final = 5
CREDIT: Final = 6
FIN: Final = 7
REQ: Final = 8
NACK: Final = 9
TOUCH: Final = 10
PING: Final = 16
PONG: Final = 17
CLOSE: Final = 18
WELCOME: Final = 32
CONFIRM: Final = 33
REJECT: Final = 34
SUBSCRIBED: Final = 35
UNSUBSCRIBED: Final = 36
DELIVER: Final = 37
FAILED: Final = 38
PAUSED: Final = 39
RESUMED: Final = 40
DRAINING: Final = 41
ERROR: Final = 42

HEADERS: Final = 1
"""Flag of PUBLISH and DELIVER: with a header table."""
DELAYS: Final = 2
"""Flag of PUBLISH."""
MESSAGE_IDS: Final = 1
"""Flag of CONFIRM: with the ids of the messages."""
SET: Final = 1
"""Flag of CREDIT: the limits are replaced."""

HEAD_BYTES: Final = 12
RANGE_BYTES: Final = 12
HELLO_BYTES: Final = 70_000
"""The largest frame before WELCOME, and before a secret where one is needed."""
MAX_TEXT: Final = 0xFFFF
_SIZE_BYTES: Final = 4
SIZE_BEYOND_PAYLOAD: Final = HEAD_BYTES - _SIZE_BYTES
"""What the size of a frame without an extension counts besides the payload."""
_PLAIN_PUBLISH: Final = PUBLISH << 24
"""Type, flags and size of the extension of a PUBLISH, as one number."""
_MAX_ID: Final = 1 << 63
_MAX_RUN: Final = 512
"""Frames that are taken together."""
_MAX_FINS: Final = 2048
"""FINs that are taken together if they are in the order of delivery."""
_MIN_WINDOW: Final = 64
_ONE: Final = b"\0\0\0\1"
"""The count of a CONFIRM of one PUBLISH."""
_SHORT_RUN: Final = 8
"""FINs in order that are not worth a look for more."""
_COUNT_AT: Final = FIN_BYTES - 1
"""The place of the lowest byte of the count."""
_STEPS: Final = (256, 64, 16, 4, 1)
"""The numbers of structures that formats are made for."""
_HEAD: Final = struct.Struct(">IBBHI")
_PUBLISH: Final = struct.Struct(">III1sI")
"""A PUBLISH of one message up to the body, with a topic of no characters."""
_CONFIRMED: Final = struct.Struct(">IIQI")
_CREDIT: Final = struct.Struct(">iq")
_LIMITS: Final = struct.Struct(">IQI")
_RANGE: Final = struct.Struct(">QI")
_U32: Final = struct.Struct(">I")
_U16: Final = struct.Struct(">H")
unpack_head: Final[Callable[[bytes, int], tuple[int, int, int, int, int]]] = _HEAD.unpack_from
"""Bound once: Python 3.11 looks up the method of an imported name at every call."""
unpack_range: Final = _RANGE.unpack_from
_unpack_credit: Final[Callable[[bytes, int], tuple[int, int]]] = _CREDIT.unpack_from
_CREDIT_BYTES: Final = _CREDIT.size
unpack_u32: Final = _U32.unpack_from
unpack_u16: Final = _U16.unpack_from
pack_head: Final = _HEAD.pack
pack_u32: Final[Callable[[int], bytes]] = _U32.pack
_PAIR: Final = struct.Struct(">II")
_CONFIRM_HEAD: Final = pack_head(SIZE_BEYOND_PAYLOAD + _PAIR.size, CONFIRM, 0, 0, 0)
"""Of a CONFIRM with one entry."""


class Frame:
    """A frame in a buffer: its payload is `buffer[start:stop]`."""

    __slots__ = ("buffer", "flags", "id", "kind", "start", "stop")

    def __init__(self, kind: int, flags: int, number: int, buffer: bytes, start: int, stop: int) -> None:
        self.kind = kind
        self.flags = flags
        self.id = number
        self.buffer = buffer
        self.start = start
        self.stop = stop

    @property
    def payload(self) -> bytes:
        """The bytes behind header and extension."""
        return self.buffer[self.start : self.stop]


class FrameReader:
    """The input of one connection, frame by frame. A frame may have `max_size` bytes."""

    def __init__(self) -> None:
        self.max_size = HELLO_BYTES
        self.buffer = b""
        """What was fed last, behind what was left before."""
        self._offset = 0
        self._pieces: list[bytes] = []
        """What came behind the buffer, joined when the frame is complete: a large one is copied once."""
        self._piece_bytes = 0
        self._missing = 0
        """Bytes without which the first frame is incomplete, as far as its size is known."""
        self.has_more = False
        """Whether there may be another frame."""
        self._topic = b""
        """The topic of most PUBLISH frames, as they have it."""
        self._unpack_publish: Callable[[bytes, int], tuple[int, int, int, bytes, int]] = _PUBLISH.unpack_from
        self._publish_bytes = _PUBLISH.size
        """What is before the body in such a frame."""
        self.number = self.start = self.stop = 0
        """Of the last frame of `next_publish`."""
        self.fin_number = 0
        """The subscription of the FINs of `next_fins`, whose header is `fin_head`; without one it looks for none."""
        self.fin_head = b""
        self._next_ranges: Callable[[int], Sequence[Range]] = _none_expected
        self._fin_window = _MAX_FINS
        """FINs that are compared at once: after a jump, twice as many as came since the one before."""

    @property
    def unfinished_bytes(self) -> int:
        """How many bytes are kept."""
        return len(self.buffer) - self._offset + self._piece_bytes

    def feed(self, chunk: bytes) -> None:
        """Take what was read."""
        if not self.buffer:
            self.buffer, self.has_more = chunk, True
            return
        if self._missing > len(chunk):
            self._missing -= len(chunk)
            self._pieces.append(chunk)
            self._piece_bytes += len(chunk)
            return
        self.buffer = b"".join((self.buffer[self._offset :], *self._pieces, chunk))
        self._offset, self._missing, self._piece_bytes, self.has_more = 0, 0, 0, True
        self._pieces.clear()

    def release(self) -> None:
        """Keep nothing of the buffer, which was read to its end: the next chunk is read into the same memory."""
        self.buffer, self._offset = b"", 0

    def next_frame(self) -> Frame | None:
        """Return the next frame; None while it is incomplete. ClientError for one that is none."""
        buffer, offset = self.buffer, self._offset
        end = len(buffer)
        if end - offset < HEAD_BYTES or self._missing:
            self.has_more = False
            if offset == end:
                self.release()
            return None
        size, kind, flags, extension, number = unpack_head(buffer, offset)
        stop = offset + _SIZE_BYTES + size
        if size > self.max_size:
            raise ClientError("E_INVALID", f"frame of {size} bytes is larger than {self.max_size}")
        if size < SIZE_BEYOND_PAYLOAD + extension:
            raise ClientError("E_INVALID", f"frame of {size} bytes is too short")
        if stop > end:
            self._missing = stop - end
            self.has_more = False
            return None
        self._offset = stop
        self.has_more = stop < end
        return Frame(kind, flags, number, buffer, offset + HEAD_BYTES + extension, stop)

    def expect(self, topic: bytes) -> None:
        """Have `next_publish` look for PUBLISH frames for this topic."""
        self._topic = bytes((len(topic),)) + topic
        form = struct.Struct(f">III{len(self._topic)}sI")
        self._unpack_publish, self._publish_bytes = form.unpack_from, form.size

    def next_publish(self) -> bytes | None:
        """
        Return the body of the next frame, if it is a PUBLISH without flags for the topic that is expected; None if it
        is not, or is incomplete. Empty for a PUBLISH of several messages, which are then `buffer[start:stop]`. Its
        correlation id is `number`. Most publishers send such frames only.
        """
        buffer, offset = self.buffer, self._offset
        start, end = offset + self._publish_bytes, len(buffer)
        if start > end:
            return None
        size, mark, number, topic, body_size = self._unpack_publish(buffer, offset)
        stop = offset + _SIZE_BYTES + size
        if mark != _PLAIN_PUBLISH or topic != self._topic or size > self.max_size or not body_size:
            return None
        if not start <= stop <= end:
            return None
        self.number = number
        self._offset = stop
        self.has_more = stop < end
        if start + body_size == stop:
            return buffer[start:stop]
        self.start, self.stop = start - _SIZE_BYTES, stop
        return b""

    def next_like(self, body: bytes) -> tuple[list[int], list[bytes]]:
        """
        Return correlation ids and bodies of the PUBLISH frames that follow the one that `next_publish` has returned as
        `body`, and are for the same topic and as large. They are taken out.
        """
        buffer, offset = self.buffer, self._offset
        stride = self._publish_bytes + len(body)
        first, count = offset - stride, min((len(buffer) - offset) // stride, _MAX_RUN)
        head_bytes, begin, start = HEAD_BYTES - _SIZE_BYTES, first + HEAD_BYTES, first + self._publish_bytes
        if not (
            count
            and _repeats(buffer, first, head_bytes, stride, count)
            and _repeats(buffer, begin, start - begin, stride, count)
        ):
            return [], []
        fields = _repeated(f"{head_bytes}xI{start - begin}x{len(body)}s", count, stride, buffer, offset)
        self._offset = offset + count * stride
        self.has_more = self._offset < len(buffer)
        return fields[0::2], fields[1::2]

    def expect_fins(self, number: int, next_ranges: Callable[[int], Sequence[Range]]) -> None:
        """
        Have `next_fins` look for FINs of one range for the subscription `number`. `next_ranges` is that of its
        consumer.
        """
        self.fin_number = number
        self._next_ranges = next_ranges
        self.fin_head = pack_head(FIN_BYTES - _SIZE_BYTES, FIN, 0, 0, number)

    def next_fins(self) -> Sequence[Range]:  # noqa: C901  # a call is a cost of each FIN
        """
        Return the ranges of the expected FINs from here on, and take them out; empty if the next frame is none of them.
        Most clients that answer each message by itself do so in the order of delivery: what they send is known then,
        and compared as it is. Of others each range of consecutive numbers is looked for. FINs of longer ranges are
        taken one by one, those of _MAX_FINS messages together.
        """
        buffer, offset = self.buffer, self._offset
        if not buffer.startswith(self.fin_head, offset):
            return []
        end = len(buffer)
        count = min((end - offset) // FIN_BYTES, _MAX_FINS)
        if count < 2:
            if not count:
                return []
            self._offset = stop = offset + FIN_BYTES
            self.has_more = stop < end
            return [unpack_range(buffer, offset + HEAD_BYTES)]
        if buffer[offset + _COUNT_AT] != 1:
            return self._next_fin_ranges(count)
        expected = self._next_ranges(count)
        if expected and buffer.startswith(wanted := single_fins(self.fin_head, expected, count), offset) and wanted:
            self._offset = offset = offset + count * FIN_BYTES
            self.has_more = offset < end
            return expected
        ranges: list[Range] = []
        left = count
        while left:
            number, one = unpack_range(buffer, offset + HEAD_BYTES)
            if one != 1 or number >= _MAX_ID:
                break
            run = 1
            if left > 1:
                low = number & 0xFFFF
                run = min(left, 0x10000 - low, self._fin_window)
                wanted = single_fins(self.fin_head, ((number, run),), run)
                if not buffer.startswith(wanted, offset):
                    run = equal_fins(buffer, offset, wanted)
                    self._fin_window = max(2 * run, _MIN_WINDOW)
            ranges.append((number, run))
            offset += run * FIN_BYTES
            left -= run
            if not left or buffer[offset : offset + HEAD_BYTES] != self.fin_head:
                break
            if run == self._fin_window:
                self._fin_window *= 4
            elif run < _SHORT_RUN and (number + run) & 0xFFFF:  # not where the tables end
                break
        if left and 0 < count - left < _SHORT_RUN:
            count = min(count, _MAX_RUN)
            fields = _repeated("12sQI", count, FIN_BYTES, buffer, self._offset)
            if fields[0::3].count(self.fin_head) == fields[2::3].count(1) == count:
                ranges = [(number, 1) for number in fields[1::3]]
                offset = self._offset + count * FIN_BYTES
        self._offset = offset
        self.has_more = offset < end
        return ranges

    def _next_fin_ranges(self, count: int) -> list[Range]:
        """Return the ranges of at most `count` FINs."""
        buffer, offset, total = self.buffer, self._offset, 0
        ranges: list[Range] = []
        while count and buffer[offset : offset + HEAD_BYTES] == self.fin_head:
            first, size = unpack_range(buffer, offset + HEAD_BYTES)
            total += size
            if ranges and (total > _MAX_FINS or first >= _MAX_ID):
                break
            ranges.append((first, size))
            offset += FIN_BYTES
            count -= 1
        self._offset = offset
        self.has_more = offset < len(buffer)
        return ranges

    def forget(self) -> None:
        """Nothing more is read."""
        self.buffer, self._offset, self._missing, self.has_more = b"", 0, 0, False
        self._next_ranges = _none_expected
        self._pieces.clear()
        self._piece_bytes = 0


def _repeats(buffer: bytes, start: int, width: int, stride: int, count: int) -> bool:
    """
    Return whether `width` bytes come again at the next `count` strides. A slice compares one of them at all strides.
    """
    end = start + (count + 1) * stride
    for index in range(start, start + width):
        if buffer[index:end:stride] != buffer[index : index + 1] * (count + 1):
            return False
    return True


def _none_expected(limit: int) -> Sequence[Range]:
    return ()


def _repeated(form: str, count: int, size: int, buffer: bytes, offset: int) -> list[Any]:
    """Return the fields of `count` structures of `size` bytes. Unpacked in few calls, a message costs no step."""
    fields: list[Any] = []
    for step in _STEPS:
        while count >= step:
            fields += _format(form, step).unpack_from(buffer, offset)
            count -= step
            offset += step * size
    return fields


@lru_cache(64)
def _format(form: str, count: int) -> struct.Struct:
    return struct.Struct(">" + form * count)


# -- what clients send


def read_topic(frame: Frame) -> tuple[bytes, int]:
    """Return the topic of a PUBLISH, and the offset behind it. ClientError."""
    return _short(frame, frame.start, PUBLISH)


def read_publish(
    frame: Frame, offset: int, max_msg_size: int
) -> tuple[list[bytes], list[bytes] | None, list[float] | None]:
    """Return bodies, encoded headers and delays in seconds of a PUBLISH, from behind the topic on. ClientError."""
    headers: list[bytes] | None = None
    delays: list[float] | None = None
    table_at = 0
    if frame.flags & HEADERS:
        table_at, offset = offset, _end_of_table(frame, offset)
    if frame.flags & DELAYS:
        delays, offset = _delays(frame, offset)
    bodies = equal_messages_in(frame.buffer, offset, frame.stop, max_msg_size)
    if bodies is None:
        try:
            bodies = messages_in(frame.buffer, offset, frame.stop)
        except ValueError:
            raise invalid(PUBLISH) from None
    if table_at:
        headers = _header_table(frame, table_at, len(bodies))
    return bodies, headers, delays


def read_subscribe(frame: Frame) -> tuple[bytes, bytes, int, int, int]:
    """Return topic, channel, credit, bytes and message timeout of a SUBSCRIBE. ClientError."""
    topic, offset = _short(frame, frame.start, SUBSCRIBE)
    channel, offset = _short(frame, offset, SUBSCRIBE)
    if frame.stop - offset != _LIMITS.size:
        raise invalid(SUBSCRIBE)
    messages, size, timeout = _LIMITS.unpack_from(frame.buffer, offset)
    return topic, channel, messages, size, timeout


def read_credit(frame: Frame) -> tuple[int, int]:
    """Return messages and bytes of a CREDIT. ClientError."""
    if frame.stop - frame.start != _CREDIT_BYTES:
        raise invalid(CREDIT)
    return _unpack_credit(frame.buffer, frame.start)


def read_ranges(frame: Frame, max_count: int) -> tuple[list[tuple[int, int]], float, str]:
    """
    Return the ranges of a FIN, REQ, NACK or TOUCH, `max_count` at most, the delay in seconds, and the reason.
    ClientError.
    """
    buffer, offset, stop, kind = frame.buffer, frame.start, frame.stop, frame.kind
    delay, reason = 0.0, ""
    if kind in (REQ, NACK):
        if stop - offset < _U32.size:
            raise invalid(kind)
        delay = _U32.unpack_from(buffer, offset)[0] / 1000
        offset += _U32.size
    if kind == NACK:
        text, offset = _long(frame, offset, NACK)
        reason = text.decode("utf-8", "replace")
    if stop == offset or (stop - offset) % _RANGE.size:
        raise invalid(kind)
    if stop - offset > max_count * _RANGE.size:
        raise ClientError("E_INVALID", f"frame of type {kind} has more than {max_count} ranges")
    if stop - offset == _RANGE.size:
        first, count = _RANGE.unpack_from(buffer, offset)
        return [(first, count)], delay, reason
    return [*_RANGE.iter_unpack(buffer[offset:stop])], delay, reason


def read_hello(frame: Frame) -> tuple[bytes, bytes]:
    """Return the secret and the JSON of a HELLO. ClientError."""
    secret, offset = _long(frame, frame.start, HELLO)
    return secret, frame.buffer[offset : frame.stop]


def invalid(kind: int) -> ClientError:
    """The error for a payload that has not the form of its type."""
    return ClientError("E_INVALID", f"invalid frame of type {kind}")


def _short(frame: Frame, offset: int, kind: int) -> tuple[bytes, int]:
    """Return a name behind its size, a byte, and the offset behind it. ClientError."""
    start = offset + 1
    if start > frame.stop:
        raise invalid(kind)
    stop = start + frame.buffer[offset]
    if stop > frame.stop:
        raise invalid(kind)
    return frame.buffer[start:stop], stop


def _long(frame: Frame, offset: int, kind: int) -> tuple[bytes, int]:
    """Like `_short`, with a size of two bytes."""
    start = offset + _U16.size
    if start > frame.stop:
        raise invalid(kind)
    stop = start + _U16.unpack_from(frame.buffer, offset)[0]
    if stop > frame.stop:
        raise invalid(kind)
    return frame.buffer[start:stop], stop


def _end_of_table(frame: Frame, offset: int) -> int:
    """Return the offset behind a header table. ClientError."""
    if frame.stop - offset < _U32.size:
        raise invalid(PUBLISH)
    end: int = offset + _U32.size + unpack_u32(frame.buffer, offset)[0]
    if end > frame.stop:
        raise invalid(PUBLISH)
    return end


def _header_table(frame: Frame, offset: int, count: int) -> list[bytes]:
    """Return the headers of `count` messages; if there are fewer or more, another number of them. ClientError."""
    buffer, end = frame.buffer, _end_of_table(frame, offset)
    position = offset + _U32.size
    table: list[bytes] = []
    while position < end and len(table) <= count:
        start = position + _U16.size
        if start > end:
            raise invalid(PUBLISH)
        position = start + unpack_u16(buffer, position)[0]
        table.append(buffer[start:position])
    if position > end:
        raise invalid(PUBLISH)
    return table


def _delays(frame: Frame, offset: int) -> tuple[list[float], int]:
    start = offset + _U32.size
    if start > frame.stop:
        raise invalid(PUBLISH)
    end = start + _U32.size * _U32.unpack_from(frame.buffer, offset)[0]
    if end > frame.stop:
        raise invalid(PUBLISH)
    return [delay / 1000 for (delay,) in _U32.iter_unpack(frame.buffer[start:end])], end


# -- what the broker sends


def frame_of(kind: int, number: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """Return a frame."""
    return pack_head(SIZE_BEYOND_PAYLOAD + len(payload), kind, flags, 0, number) + payload


def confirm(first: int, count: int) -> bytes:
    """Return a CONFIRM of the PUBLISH frames `first` to `first + count - 1`."""
    if count == 1:
        return _CONFIRM_HEAD + first.to_bytes(4, "big") + _ONE
    return _CONFIRM_HEAD + _PAIR.pack(first, count)


def confirm_several(entries: Sequence[tuple[int, int]]) -> bytes:
    """Return a CONFIRM of PUBLISH frames, as pairs of the first one and the number of them."""
    return frame_of(CONFIRM, 0, b"".join([_PAIR.pack(*entry) for entry in entries]))


def confirm_with_ids(entries: Sequence[tuple[int, list[int]]]) -> bytes:
    """Return a CONFIRM of PUBLISH frames with the ids of their messages. An entry has ids that are consecutive."""
    packed: list[bytes] = []
    for number, ids in entries:
        if not ids:  # of an AUTH
            packed.append(_CONFIRMED.pack(number, 1, 0, 0))
            continue
        start = 0
        for index in range(1, len(ids) + 1):
            if index == len(ids) or ids[index] != ids[index - 1] + 1:
                packed.append(_CONFIRMED.pack(number, 1, ids[start], index - start))
                start = index
    return frame_of(CONFIRM, 0, b"".join(packed), MESSAGE_IDS)


def deliver_mark(number: int) -> bytes:
    """Return what is behind the size in the header of a DELIVER without headers."""
    return pack_head(0, DELIVER, 0, 0, number)[_SIZE_BYTES:]


def deliver_head(number: int, size: int, headers: Sequence[bytes]) -> bytes:
    """Return what is before the messages in a DELIVER with headers."""
    table: list[bytes] = [b""] * (2 * len(headers))
    table[0::2] = [_U16.pack(len(one)) for one in headers]
    table[1::2] = headers
    content = b"".join(table)
    before = _U32.pack(len(content)) + content
    return pack_head(SIZE_BEYOND_PAYLOAD + len(before) + size, DELIVER, HEADERS, 0, number) + before


def error_payload(error: ClientError) -> bytes:
    """Return the error of a REJECT, UNSUBSCRIBED, FAILED or ERROR."""
    code = error.code.encode()
    text = error.description.encode("utf-8", "replace")[:MAX_TEXT]
    return bytes((len(code),)) + code + _U16.pack(len(text)) + text


def failed_payload(kind: int, error: ClientError, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return the payload of a FAILED."""
    return bytes((kind,)) + error_payload(error) + b"".join([_RANGE.pack(*one) for one in ranges])
