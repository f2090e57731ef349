"""
One consuming connection: cut what arrives, answer with one run of FINs.
"""

import socket

from . import wire
from .errors import BrokerFailed
from .plan import Consuming
from .traffic import Traffic

_BUFFER_BYTES = 262144
_FIN_BYTES = len(b"FIN \n") + wire.ID_BYTES


class Consumer:
    """
    A subscribed connection on a blocking socket. It gets nothing before `make_ready`.
    """

    def __init__(self, consuming: Consuming, traffic: Traffic, keep_fins: bool) -> None:
        self._consuming = consuming
        self._traffic = traffic
        self._keep_fins = keep_fins
        size = max(_BUFFER_BYTES, 2 * (wire.MESSAGE_HEADER_BYTES + consuming.body_bytes))
        self._buffer = bytearray(size)
        self._view = memoryview(self._buffer)
        self._end = 0
        self._cutter = wire.MessageCutter(consuming.body_bytes, size)
        self._poison_fin = b"FIN %s\n" % consuming.poison_id if consuming.poison_id else b""
        self._poison_requeue = b"REQ %s 0\n" % consuming.poison_id
        self.channel = consuming.channel
        self.fins: list[bytes] = []
        self.received = 0
        self.requeued = 0
        self.socket = socket.create_connection(("127.0.0.1", consuming.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(wire.identify() + wire.sub(consuming.topic, consuming.channel))
        greetings = 0
        while greetings < 2:
            greetings += self.receive().count(b"OK")

    def make_ready(self) -> None:
        """
        Let messages come.
        """
        self.socket.sendall(b"RDY %d\n" % self._consuming.ready_count)

    def on_readable(self) -> None:
        """
        Take what has arrived and answer it.
        """
        self.receive()

    def receive(self) -> tuple[bytes, ...]:
        """
        Wait for bytes, answer the messages in them and return the responses among them.
        """
        count = self.socket.recv_into(self._view[self._end :])
        if not count:
            raise BrokerFailed("the broker closed a consuming connection")
        end = self._end + count
        cut = self._cutter.cut(self._buffer, end)
        if cut.messages:
            self._answer(cut.fins, cut.messages)
        if cut.heartbeats:
            self.socket.sendall(b"NOP\n" * cut.heartbeats)
        self._end = end - cut.consumed
        self._buffer[: self._end] = self._buffer[cut.consumed : end]
        return cut.responses

    def _answer(self, fins: bytes, messages: int) -> None:
        poisoned = fins.count(self._poison_fin) if self._poison_fin else 0
        answers = fins.replace(self._poison_fin, self._poison_requeue) if poisoned else fins
        if self._consuming.single_fins:
            for start in range(0, len(answers), _FIN_BYTES):
                self.socket.sendall(answers[start : start + _FIN_BYTES])
        else:
            self.socket.sendall(answers)
        if self._keep_fins:
            self.fins.append(fins.replace(self._poison_fin, b"") if poisoned else fins)
        self.requeued += poisoned
        self.received += messages - poisoned
        self._traffic.received[self._consuming.channel] += messages - poisoned

    def ids(self) -> list[bytes]:
        """
        The ids of all messages, if they were kept.
        """
        return wire.finished_ids(b"".join(self.fins))

    def leave(self) -> None:
        """
        Take no more messages and wait until the broker has seen every FIN.

        The broker takes commands in order, so its CLOSE_WAIT says that all FINs before it are done.
        """
        self.socket.sendall(b"CLS\n")
        while wire.CLOSE_WAIT not in self.receive():
            pass
