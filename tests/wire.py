"""
A blocking V2 client for dialogues: what is sent and what comes back, nothing done in secret but answering heartbeats.

    frame      size u32 | type u32 | data          size counts type and data; types: 0 response, 1 error, 2 message
    message    timestamp (ns) i64 | attempts u16 | id, 16 bytes | body ...                             all big-endian
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import snappy

HOST = "127.0.0.1"
ANSWER_SECONDS = 60.0
"""How long anything may take before a test gives up; a busy machine never needs so much."""

MAGIC = b"  V2"
RESPONSE, ERROR, MESSAGE = range(3)
OK = b"OK"
HEARTBEAT = b"_heartbeat_"
CLOSE_WAIT = b"CLOSE_WAIT"

_FRAME = struct.Struct(">II")
_SIZE = struct.Struct(">I")
_MESSAGE = struct.Struct(">qH16s")
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Closed(Exception):
    """The broker ended the connection."""


class Refused(Exception):
    """The broker answered with an error frame; the argument is its text."""


class Frame(NamedTuple):
    """What the broker sent."""

    kind: int
    data: bytes


class Message(NamedTuple):
    """A message as a consumer gets it."""

    id: bytes
    attempts: int
    timestamp_ns: int
    body: bytes


class Closable(Protocol):
    def close(self) -> None:
        """Give back what the operating system gave."""


@contextmanager
def closed_on_failure(one: Closable) -> Iterator[None]:
    """Close `one` if this fails: a constructor that raises gives its caller nothing to close."""
    try:
        yield
    except BaseException:
        one.close()
        raise


def sized(data: bytes) -> bytes:
    """`data` behind its size."""
    return _SIZE.pack(len(data)) + data


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    """An MPUB command."""
    return b"MPUB %s\n" % topic.encode() + sized(_SIZE.pack(len(bodies)) + b"".join(map(sized, bodies)))


class Decompressed:
    """What comes through a compression, as a stream."""

    def __init__(self, below: Any, decompress: Callable[[bytes], bytes]) -> None:
        self._below = below
        self._decompress = decompress
        self._waiting = b""

    def read(self, count: int) -> bytes:
        """So many bytes, fewer only at the end."""
        while len(self._waiting) < count and (data := self._below.read1(1 << 16)):
            self._waiting += self._decompress(data)
        found, self._waiting = self._waiting[:count], self._waiting[count:]
        return found

    def close(self) -> None:
        self._below.close()


class Client:
    """One connection. Every method gives up after ANSWER_SECONDS. OSError or Closed when the broker is gone."""

    def __init__(self, port: int, magic: bytes = MAGIC) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS)
        self._stream: Any = self._socket.makefile("rb", buffering=1 << 16)
        self._compress: Callable[[bytes], bytes] = bytes
        self._early: deque[Message] = deque()
        self.heartbeats = 0
        with closed_on_failure(self):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.send(magic)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def address(self) -> tuple[str, int]:
        """Where the broker sees it come from."""
        host, port = self._socket.getsockname()
        return host, port

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def reset(self) -> None:
        """End the connection without a goodbye: the broker sees a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self.close()

    # -- bytes and frames

    def send(self, data: bytes) -> None:
        self._socket.sendall(self._compress(data))

    def end(self) -> None:
        """Send no more; what comes can still be read."""
        self._socket.shutdown(socket.SHUT_WR)

    def frame(self) -> Frame:
        """
        The next frame that is no heartbeat; a heartbeat is answered and counted. TimeoutError when nothing else comes.
        """
        deadline = time.monotonic() + 2 * ANSWER_SECONDS
        while time.monotonic() < deadline:
            size, kind = _FRAME.unpack(self._read(_FRAME.size))
            frame = Frame(kind, self._read(size - _SIZE.size))
            if frame != (RESPONSE, HEARTBEAT):
                return frame
            self.heartbeats += 1
            self.send(b"NOP\n")
        raise TimeoutError("nothing but heartbeats")

    def rest(self) -> list[Frame]:
        """Everything up to the end of the connection, which the broker must bring about."""
        frames = []
        while True:
            try:
                frames.append(self.frame())
            except (Closed, ConnectionError):
                return frames

    def bytes_left(self) -> bytes:
        """The same as it came, for what is not V2."""
        data: bytes = self._stream.read()
        return data

    # -- dialogues

    def ask(self, command: bytes) -> bytes:
        """The response to a command. Messages that come before it are kept for `message`. Refused."""
        self.send(command)
        while True:
            frame = self.frame()
            if frame.kind == RESPONSE:
                return frame.data
            if frame.kind == ERROR:
                raise Refused(frame.data.decode(errors="replace"))
            self._early.append(message_of(frame.data))

    def identify(self, **features: Any) -> dict[str, Any]:
        """What the broker negotiated."""
        document = json.dumps({"feature_negotiation": True, **features}).encode()
        answer: dict[str, Any] = json.loads(self.ask(b"IDENTIFY\n" + sized(document)))
        return answer

    def upgrade(self, wants: ssl.SSLContext | None = None, **asked: Any) -> dict[str, Any]:
        """Identify, and do what the broker then offers, with TLS as `wants` says. What was negotiated."""
        answer = self.identify(**({} if wants is None else {"tls_v1": True}), **asked)
        if answer["tls_v1"]:
            assert wants is not None
            self._socket = wants.wrap_socket(self._socket, server_hostname="localhost")
            self._stream = self._socket.makefile("rb", buffering=1 << 16)
            assert self.frame() == (RESPONSE, OK)
        if answer["deflate"]:
            deflate, inflate = zlib.compressobj(6, wbits=-15), zlib.decompressobj(wbits=-15)
            self._compress = lambda data: deflate.compress(data) + deflate.flush(zlib.Z_SYNC_FLUSH)
            self._stream = Decompressed(self._stream, inflate.decompress)
            assert self.frame() == (RESPONSE, OK)
        elif answer["snappy"]:
            self._compress = snappy.StreamCompressor().compress
            self._stream = Decompressed(self._stream, snappy.StreamDecompressor().decompress)
            assert self.frame() == (RESPONSE, OK)
        return answer

    def pub(self, topic: str, body: bytes) -> None:
        """Returns when the broker said OK."""
        assert self.ask(b"PUB %s\n" % topic.encode() + sized(body)) == OK

    def mpub(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Returns when the broker said OK."""
        assert self.ask(mpub(topic, bodies)) == OK

    def dpub(self, topic: str, delay_ms: int, body: bytes) -> None:
        """Returns when the broker said OK."""
        assert self.ask(b"DPUB %s %d\n" % (topic.encode(), delay_ms) + sized(body)) == OK

    def sub(self, topic: str, channel: str, ready: int = 0) -> None:
        """Subscribe, and be ready for so many messages."""
        assert self.ask(f"SUB {topic} {channel}\n".encode()) == OK
        if ready:
            self.rdy(ready)

    def rdy(self, count: int) -> None:
        self.send(b"RDY %d\n" % count)

    def message(self) -> Message:
        """The next message. Refused for an error frame, whatever it answers."""
        if self._early:
            return self._early.popleft()
        frame = self.frame()
        if frame.kind == ERROR:
            raise Refused(frame.data.decode(errors="replace"))
        assert frame.kind == MESSAGE, frame
        return message_of(frame.data)

    def take(self, count: int) -> list[Message]:
        """The next `count` messages, not finished."""
        return [self.message() for _ in range(count)]

    def drain(self, count: int) -> list[Message]:
        """The next `count` messages, each finished as it comes."""
        messages = []
        for _ in range(count):
            messages.append(self.message())
            self.fin(messages[-1:])
        return messages

    def fin(self, messages: Iterable[Message]) -> None:
        self.send(b"".join(b"FIN %s\n" % message.id for message in messages))

    def req(self, message: Message, delay_ms: int) -> None:
        self.send(b"REQ %s %d\n" % (message.id, delay_ms))

    def cls(self) -> None:
        """Start to close. When this returns, all that was sent before has been done."""
        assert self.ask(b"CLS\n") == CLOSE_WAIT

    # -- inside

    def _read(self, count: int) -> bytes:
        data: bytes = self._stream.read(count)
        if len(data) < count:
            raise Closed
        return data


def message_of(data: bytes) -> Message:
    """The message in a frame's data."""
    timestamp_ns, attempts, message_id = _MESSAGE.unpack_from(data)
    return Message(message_id, attempts, timestamp_ns, data[_MESSAGE.size :])
