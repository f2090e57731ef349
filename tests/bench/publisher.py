"""
One publishing connection: send the payload, count the answers, send again.

Theory of operation. What a core of the load process can do must not be what limits a broker, so a message costs few
steps here: bytes that are those which were last found to be all of one answer are not taken apart again. Anything else
is, so every answer is still looked at.
"""

import socket

from .errors import BrokerFailed
from .plan import Publishing
from .traffic import Traffic

_RECEIVE_BYTES = 65536
"""Not more than 128 KiB: glibc maps and unmaps a larger block for each `recv`, which takes 15 to 30 us."""


class Publisher:
    """
    Keeps ``publishing.window`` payloads unanswered on a blocking socket for as long as `Traffic` lets it.
    """

    def __init__(self, publishing: Publishing, traffic: Traffic) -> None:
        self._payload, self._messages = publishing.payload, publishing.messages
        self._replies_wanted, self._window = publishing.replies, publishing.window
        self._traffic = traffic
        self._counter = publishing.new_replies()
        self._replies = 0
        self._unanswered = 0
        self._usual = b""
        """What answered the payload before; nothing while an answer is there in part."""
        self.socket = socket.create_connection(("127.0.0.1", publishing.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._receive, self._send = self.socket.recv, self.socket.sendall
        if publishing.greeting:
            self._send(publishing.greeting)
            while not self._counted(self._receive(_RECEIVE_BYTES)):
                pass

    def fill(self) -> None:
        """
        Send payloads until the window is full or the traffic is over or held back.
        """
        while self._unanswered < self._window and self._traffic.take(self._messages):
            self._send(self._payload)
            self._unanswered += 1

    def on_readable(self) -> None:
        """
        Count answers; each payload that is answered makes room for the next.
        """
        data = self._receive(_RECEIVE_BYTES)
        if data and data == self._usual:
            self._answered()
        else:
            self._look_at(data)
        self.fill()

    def _look_at(self, data: bytes) -> None:
        before, count = self._replies, self._counted(data)
        self._replies += count
        while self._replies >= self._replies_wanted:
            self._replies -= self._replies_wanted
            self._answered()
        is_one_answer = not (before or self._replies or self._counter.rest) and count == self._replies_wanted
        self._usual = data if is_one_answer else b""

    def _answered(self) -> None:
        self._unanswered -= 1
        self._traffic.acknowledged += self._messages

    def _counted(self, data: bytes) -> int:
        if not data:
            raise BrokerFailed("the broker closed a publishing connection")
        return self._counter.feed(data)
