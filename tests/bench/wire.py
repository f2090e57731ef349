"""
The bytes a load generator sends and takes apart, with as little Python per message as can be.

A message frame, as the broker writes it (all integers big-endian):

    0       4       8               16      18              34
    | size  | type  | timestamp_ns  | tries | id, 16 bytes  | body ...
    size = 4 + 26 + len(body), type = 2

A consumer here knows the length of every body, so frames lie at a fixed distance in what it receives, and
one strided slice picks the same byte out of all of them. Sixteen such slices carry the ids of a whole buffer
into a template of FIN commands, 20 ns a message. This holds only while every frame is such a message:
byte 7 (type) and byte 3 (low byte of size) of each are compared first, also by slices. The first frame that
is something else (a heartbeat, an error) still starts where a message would, so its own type byte gives it
away, and the buffer is then walked frame by frame.
"""

import json
import re
import struct
from typing import NamedTuple

from .errors import BrokerFailed

MAGIC = b"  V2"
RESPONSE, ERROR, MESSAGE = 0, 1, 2
HEARTBEAT = b"_heartbeat_"
CLOSE_WAIT = b"CLOSE_WAIT"

_FRAME = struct.Struct(">ii")
_SIZE = struct.Struct(">i")
MESSAGE_HEADER_BYTES = struct.calcsize(">iiqH16s")
_ID_START = struct.calcsize(">iiqH")
ID_BYTES = 16
_OK_FRAME = struct.pack(">ii", 6, RESPONSE) + b"OK"


def body(length: int) -> bytes:
    """
    A message body of ``length`` bytes, printable and not constant, so that a shifted or cut one differs.
    """
    alphabet = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return (alphabet * (length // len(alphabet) + 1))[:length]


def identify() -> bytes:
    """
    The magic and an IDENTIFY without feature negotiation; its answer is OK.

    The output buffer timeout is nsqd's least (25 ms): with the default of 250 ms the last messages of a
    backlog may wait a good part of the measured time in a buffer that no longer fills.
    """
    about = {
        "client_id": "bench",
        "hostname": "bench",
        "user_agent": "nsqtw-bench",
        "output_buffer_timeout": 25,
    }
    document = json.dumps(about).encode()
    return MAGIC + b"IDENTIFY\n" + _SIZE.pack(len(document)) + document


def pub(topic: str, message: bytes) -> bytes:
    return b"PUB %s\n" % topic.encode() + _SIZE.pack(len(message)) + message


def dpub(topic: str, delay_ms: int, message: bytes) -> bytes:
    return b"DPUB %s %d\n" % (topic.encode(), delay_ms) + _SIZE.pack(len(message)) + message


def sub(topic: str, channel: str) -> bytes:
    return f"SUB {topic} {channel}\n".encode()


def mpub(topic: str, messages: list[bytes]) -> bytes:
    content = message_list(messages)
    return b"MPUB %s\n" % topic.encode() + _SIZE.pack(len(content)) + content


def message_list(messages: list[bytes]) -> bytes:
    """
    ``int32 count | count x (int32 size | body)``: the content of MPUB and of a binary HTTP /mpub.
    """
    return _SIZE.pack(len(messages)) + b"".join(_SIZE.pack(len(one)) + one for one in messages)


def post(path: str, content: bytes) -> bytes:
    """
    An HTTP/1.1 request on a connection that stays open.
    """
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


class Frame(NamedTuple):
    """
    One frame: its type and the bytes after the type field.
    """

    kind: int
    data: bytes


def next_frame(buffer: bytes | bytearray, start: int, end: int) -> Frame | None:
    """
    The frame at ``start``, or None while ``buffer[:end]`` does not hold all of it.

    An error frame is raised as `BrokerFailed`, because no load test provokes one.
    """
    if end - start < _FRAME.size:
        return None
    size, kind = _FRAME.unpack_from(buffer, start)
    if size < 4 or kind not in (RESPONSE, ERROR, MESSAGE):
        raise BrokerFailed(f"not a frame: size {size}, type {kind}")
    if end - start < 4 + size:
        return None
    data = bytes(buffer[start + _FRAME.size : start + 4 + size])
    if kind == ERROR:
        raise BrokerFailed(f"the broker answered {data.decode(errors='replace')}")
    return Frame(kind, data)


class Cut(NamedTuple):
    """
    What `MessageCutter.cut` found; ``fins`` holds one FIN command a message, ``consumed`` counts bytes.
    """

    fins: bytes
    messages: int
    consumed: int
    heartbeats: int
    responses: tuple[bytes, ...]


class MessageCutter:
    """
    Cuts received bytes, up to ``buffer_bytes`` at a time, into messages with bodies of ``body_bytes``.
    """

    def __init__(self, body_bytes: int, buffer_bytes: int) -> None:
        self.frame_bytes = MESSAGE_HEADER_BYTES + body_bytes
        most_messages = buffer_bytes // self.frame_bytes
        self._types = bytes([MESSAGE]) * most_messages
        self._sizes = bytes([(self.frame_bytes - 4) & 0xFF]) * most_messages
        self._fins = bytearray(b"FIN 0123456789abcdef\n" * most_messages)

    def cut(self, buffer: bytearray, end: int) -> Cut:
        """
        Take the whole frames out of ``buffer[:end]``; an incomplete one at the end is left for later.

        Raises `BrokerFailed` for an error frame, bytes that are no frame, and a body of another length.
        """
        count = end // self.frame_bytes
        fins, responses = b"", []
        if self._only_messages(buffer, count):
            fins = self._fins_of(buffer, count)
        else:
            count = 0
        messages, position, heartbeats = count, count * self.frame_bytes, 0
        while (frame := next_frame(buffer, position, end)) is not None:
            position += _FRAME.size + len(frame.data)
            if frame.kind == MESSAGE:
                if _FRAME.size + len(frame.data) != self.frame_bytes:
                    raise BrokerFailed(f"a message of {len(frame.data)} bytes, not {self.frame_bytes - 8}")
                fins += b"FIN %s\n" % frame.data[_ID_START - _FRAME.size :][:ID_BYTES]
                messages += 1
            elif frame.data == HEARTBEAT:
                heartbeats += 1
            else:
                responses.append(frame.data)
        return Cut(fins, messages, position, heartbeats, tuple(responses))

    def _only_messages(self, buffer: bytearray, count: int) -> bool:
        stop, step = count * self.frame_bytes, self.frame_bytes
        return buffer[7:stop:step] == self._types[:count] and buffer[3:stop:step] == self._sizes[:count]

    def _fins_of(self, buffer: bytearray, count: int) -> bytes:
        fins, stop, step = self._fins, count * self.frame_bytes, self.frame_bytes
        line = len(b"FIN \n") + ID_BYTES
        for offset in range(ID_BYTES):
            fins[4 + offset : count * line : line] = buffer[_ID_START + offset : stop : step]
        return bytes(memoryview(fins)[: count * line])


def finished_ids(fins: bytes) -> list[bytes]:
    """
    The ids in a run of FIN commands.
    """
    return [one for (one,) in struct.iter_unpack("4x16sx", fins)]


class FrameReplies:
    """
    Counts OK frames; heartbeats pass, anything else is `BrokerFailed`.
    """

    def __init__(self) -> None:
        self.rest = b""
        """What has come of the next frame."""
        self._run = _OK_FRAME * 8192

    def feed(self, data: bytes) -> int:
        """
        The number of OK frames that ``data`` completes.
        """
        length = len(data)
        if not self.rest and length % len(_OK_FRAME) == 0 and data == self._run[:length]:
            return length // len(_OK_FRAME)
        pending = self.rest + data
        position = count = 0
        while (frame := next_frame(pending, position, len(pending))) is not None:
            position += _FRAME.size + len(frame.data)
            if frame == (RESPONSE, b"OK"):
                count += 1
            elif frame != (RESPONSE, HEARTBEAT):
                raise BrokerFailed(f"instead of OK the broker sent {frame.data[:80]!r}")
        self.rest = pending[position:]
        return count


class HttpReplies:
    """
    Counts HTTP answers with status 200; another status is `BrokerFailed`.
    """

    _LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

    def __init__(self) -> None:
        self.rest = b""
        """What has come of the next answer."""

    def feed(self, data: bytes) -> int:
        """
        The number of answers that ``data`` completes. Answers need a Content-Length, as nsqd's have.
        """
        self.rest += data
        count = 0
        while (head_end := self.rest.find(b"\r\n\r\n")) >= 0:
            head = self.rest[:head_end]
            found = self._LENGTH.search(head)
            if not head.startswith(b"HTTP/1.1 200 ") or found is None:
                raise BrokerFailed(f"the broker answered {head[:80].decode(errors='replace')!r}")
            length = head_end + 4 + int(found[1])
            if len(self.rest) < length:
                break
            self.rest = self.rest[length:]
            count += 1
        return count
