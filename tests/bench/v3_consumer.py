"""
One consuming connection over protocol V3: cut what arrives, answer with one FIN of ranges.

Theory of operation. Messages of a DELIVER are taken as they arrive, before the frame is whole, as a consumer of V2
does. All have one size, so the ids of the first and the last of them tell those between. DELIVER frames of one message
lie at a fixed distance, too, and are taken together: a broker that shares its core with this process gets about as much
of it, so what a message costs here is in the broker's figure of a message.
"""

import socket
import struct

from . import v3_wire, wire
from .errors import BrokerFailed
from .plan import Consuming
from .traffic import Traffic
from .v3_wire import FIN_BYTES

_BUFFER_BYTES = 262144
_HEAD = struct.Struct(">IBBHI")
_LAST_PING = 7


class V3Consumer:
    """
    A subscribed connection on a blocking socket. It gets nothing before `make_ready`.
    """

    def __init__(self, consuming: Consuming, traffic: Traffic, keep_ids: bool) -> None:
        self._consuming = consuming
        self._traffic = traffic
        self._keep_ids = keep_ids
        self._frame_bytes = wire.MESSAGE_HEADER_BYTES + consuming.body_bytes
        self._buffer = bytearray(max(_BUFFER_BYTES, 2 * self._frame_bytes))
        self._view = memoryview(self._buffer)
        self._end = 0
        self._left = 0
        """Bytes of the current DELIVER that were not cut yet."""
        self._ranges: list[tuple[int, int]] = []
        self.channel = consuming.channel
        self.received = 0
        self.requeued = 0
        self.socket = socket.create_connection(("127.0.0.1", consuming.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(v3_wire.hello() + v3_wire.subscribe(consuming.topic, consuming.channel, 0))
        self._await(v3_wire.SUBSCRIBED)

    def make_ready(self) -> None:
        """
        Let messages come.
        """
        self.socket.sendall(v3_wire.credit(self._consuming.ready_count))

    def on_readable(self) -> None:
        """
        Take what has arrived and answer it.
        """
        self._receive()

    def ids(self) -> list[bytes]:
        """
        The ids of all messages, if they were kept.
        """
        return [b"%016x" % number for first, count in self._ranges for number in range(first, first + count)]

    def leave(self) -> None:
        """
        Take no more messages and wait until the broker has seen every FIN.
        """
        self.socket.sendall(v3_wire.credit(0) + v3_wire.frame(v3_wire.PING, _LAST_PING))
        self._await(v3_wire.PONG)

    def _await(self, kind: int) -> None:
        while kind not in self._receive():
            pass

    def _receive(self) -> list[int]:  # noqa: C901  # a call is a cost of each frame
        """
        Wait for bytes, answer the messages in them and return the types of the other frames among them.
        """
        count = self.socket.recv_into(self._view[self._end :])
        if not count:
            raise BrokerFailed("the broker closed a consuming connection")
        end, position = self._end + count, 0
        kinds: list[int] = []
        ranges: list[tuple[int, int]] = []
        while True:
            if self._left:
                messages = min(self._left, end - position) // self._frame_bytes
                if not messages:
                    break
                _add(ranges, self._taken(position, messages, self._frame_bytes))
                position += messages * self._frame_bytes
                self._left -= messages * self._frame_bytes
                continue
            if end - position < _HEAD.size:
                break
            size, kind, flags, _, number = _HEAD.unpack_from(self._buffer, position)
            if kind == v3_wire.DELIVER:
                if flags or (size - 8) % self._frame_bytes:
                    raise BrokerFailed(f"a DELIVER of {size} bytes")
                if size - 8 == self._frame_bytes and (messages := self._single(position, end)) > 1:
                    stride = _HEAD.size + self._frame_bytes
                    _add(ranges, self._taken(position + _HEAD.size, messages, stride))
                    position += messages * stride
                    continue
                self._left = size - 8
                position += _HEAD.size
                continue
            if end - position < 4 + size:
                break
            if kind not in (v3_wire.WELCOME, v3_wire.SUBSCRIBED, v3_wire.PING, v3_wire.PONG):
                raise BrokerFailed(f"the broker sent {bytes(self._buffer[position : position + 4 + size])!r}")
            if kind == v3_wire.PING:
                self.socket.sendall(v3_wire.frame(v3_wire.PONG, number))
            kinds.append(kind)
            position += 4 + size
        if ranges:
            self._answer(ranges)
        self._end = end - position
        self._buffer[: self._end] = self._buffer[position:end]
        return kinds

    def _single(self, start: int, end: int) -> int:
        """
        Return how many frames from `start` on have size and type of a DELIVER of one message. Half of them is tried
        while there are others among them.
        """
        buffer, step = self._buffer, _HEAD.size + self._frame_bytes
        count = (end - start) // step
        while count > 1:
            stop = start + count * step
            if all(buffer[at:stop:step].count(buffer[at]) == count for at in range(start + 4, start - 1, -1)):
                break
            count //= 2
        return count

    def _taken(self, start: int, messages: int, step: int) -> list[tuple[int, int]]:
        """
        Return the ranges of ids of so many messages, of which one begins at every `step` bytes.
        """
        buffer = self._buffer
        stop = start + messages * step
        if buffer[start + 7 : stop : step] != b"\2" * messages:
            raise BrokerFailed("a message of another size")
        first = int(buffer[start + 18 : start + 34], 16)
        last = int(buffer[stop - step + 18 : stop - step + 34], 16)
        if last - first == messages - 1:
            return [(first, messages)]
        return [(int(buffer[at + 18 : at + 34], 16), 1) for at in range(start, stop, step)]

    def _answer(self, ranges: list[tuple[int, int]]) -> None:
        """
        Answer all that came with one read together, as a consumer of V2 does.
        """
        if self._consuming.single_fins:
            fins = b"".join([v3_wire.single_fins(first, count) for first, count in ranges])
            for start in range(0, len(fins), FIN_BYTES):
                self.socket.sendall(fins[start : start + FIN_BYTES])
        else:
            self.socket.sendall(v3_wire.fin(ranges))
        if self._keep_ids:
            self._ranges += ranges
        messages = sum([count for _, count in ranges])
        self.received += messages
        self._traffic.received[self.channel] += messages


def _add(ranges: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    """
    Put other ranges behind these. Those that follow each other are one, whatever frames their messages came in.
    """
    if ranges and sum(ranges[-1]) == others[0][0]:
        (first, count), (_, more) = ranges[-1], others[0]
        ranges[-1] = first, count + more
        others = others[1:]
    ranges += others
