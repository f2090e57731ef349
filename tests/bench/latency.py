"""
How long a message takes from producer to consumer at a steady rate far below the most there can be.

Theory of operation. One thread sends PUBs at moments fixed beforehand and reads what arrives; each body says when it
was sent, so a late send counts for nothing and a late arrival for all of it. Only what is delivered wakes the thread:
the OKs of the PUBs are read when the next one is sent, for a thread that is busy with an OK is late for the message
behind it. It waits with `select`, as `epoll` knows no time below a millisecond. The broker is asked not to collect
output (`output_buffer_timeout` and `output_buffer_size` of -1): otherwise the wait in its buffer would be all there is
to see.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from . import wire
from .errors import BrokerFailed, WrongCount

RATE = 5_000
READY = 2_500
_STAMP = struct.Struct(">d")
_BODY_REST = wire.body(200 - _STAMP.size)
_RECEIVE_BYTES = 65_536
"""Not more than 128 KiB: glibc maps and unmaps a larger block for each `recv`, which takes 15 to 30 us."""
_PATIENCE_SECONDS = 20.0
_WARM_SECONDS = 0.2
"""What is sent first is delivered, and not counted."""


@dataclass(frozen=True)
class Latencies:
    """Microseconds, sorted."""

    sorted_us: tuple[float, ...]

    def at(self, quantile: float) -> float:
        """The latency that this part of the messages does not exceed."""
        return self.sorted_us[min(len(self.sorted_us) - 1, int(quantile * len(self.sorted_us)))]


def _identify() -> bytes:
    about = {"client_id": "bench", "output_buffer_timeout": -1, "output_buffer_size": -1}
    document = json.dumps(about).encode()
    return wire.MAGIC + b"IDENTIFY\n" + struct.pack(">i", len(document)) + document


def _connect(port: int, greeting: bytes, answers: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(greeting)
    received = b""
    while received.count(b"OK") < answers:
        if not (more := connection.recv(_RECEIVE_BYTES)):
            raise BrokerFailed(f"the broker closed a connection after {received!r}")
        received += more
    connection.settimeout(None)  # with one, Python polls before each call
    return connection


class _Reader:
    """Takes messages from a connection, answers them, and notes how old they are."""

    def __init__(self, port: int, topic: str, channel: str) -> None:
        self.socket = _connect(port, _identify() + wire.sub(topic, channel), 2)
        self.socket.sendall(b"RDY %d\n" % READY)
        self._rest = b""
        self.ages: list[float] = []

    def serve(self, wait: float) -> None:
        """Wait so many seconds at most, and take what has come."""
        if not select.select((self.socket,), (), (), wait)[0]:
            return
        data = self._rest + self.socket.recv(_RECEIVE_BYTES)
        now = time.perf_counter()
        position, fins = 0, []
        while (frame := wire.next_frame(data, position, len(data))) is not None:
            position += 8 + len(frame.data)
            if frame.kind == wire.MESSAGE:
                fins.append(b"FIN %s\n" % frame.data[10:26])
                self.ages.append(now - _STAMP.unpack_from(frame.data, 26)[0])
            elif frame.data == wire.HEARTBEAT:
                fins.append(b"NOP\n")
        self._rest = data[position:]
        if fins:
            self.socket.sendall(b"".join(fins))


class _Writer:
    """Sends messages that say when, and counts what is acknowledged."""

    def __init__(self, port: int, topic: str) -> None:
        self.socket = _connect(port, _identify(), 1)
        self._start = wire.pub(topic, bytes(_STAMP.size) + _BODY_REST)[: -_STAMP.size - len(_BODY_REST)]
        self._replies = wire.FrameReplies()
        self.sent = self.answered = 0

    def send(self) -> None:
        self.take_answers()
        self.socket.sendall(self._start + _STAMP.pack(time.perf_counter()) + _BODY_REST)
        self.sent += 1

    def take_answers(self) -> None:
        with suppress(BlockingIOError):
            self.answered += self._replies.feed(self.socket.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT))


def _moments(seconds: float) -> Iterator[float]:
    start = time.perf_counter()
    for number in range(int(seconds * RATE)):
        yield start + number / RATE


def latencies(port: int, topic: str, channel: str, seconds: float) -> Latencies:
    """
    Publish and consume for so long. Raises `BrokerFailed`, and `WrongCount` when not everything arrives once.
    """
    reader, writer = _Reader(port, topic, channel), _Writer(port, topic)
    for moment in _moments(seconds + _WARM_SECONDS):
        while (wait := moment - time.perf_counter()) > 0:
            reader.serve(wait)
        writer.send()
    end = time.perf_counter() + _PATIENCE_SECONDS
    while (writer.answered < writer.sent or len(reader.ages) < writer.sent) and time.perf_counter() < end:
        reader.serve(0.01)
        writer.take_answers()
    if not writer.answered == len(reader.ages) == writer.sent:
        raise WrongCount(f"{writer.sent} sent, {writer.answered} acknowledged, {len(reader.ages)} delivered")
    for one in (reader.socket, writer.socket):
        one.close()
    return Latencies(tuple(sorted(age * 1e6 for age in reader.ages[int(_WARM_SECONDS * RATE) :])))
