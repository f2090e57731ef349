"""
One publishing connection: send the payload, count the answers, send again.
"""

import socket

from .errors import BrokerFailed
from .plan import Publishing
from .traffic import Traffic

_RECEIVE_BYTES = 262144


class Publisher:
    """
    Keeps ``publishing.window`` payloads unanswered on a blocking socket for as long as `Traffic` lets it.
    """

    def __init__(self, publishing: Publishing, traffic: Traffic) -> None:
        self._publishing = publishing
        self._traffic = traffic
        self._counter = publishing.new_replies()
        self._replies = 0
        self._unanswered = 0
        self.socket = socket.create_connection(("127.0.0.1", publishing.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if publishing.greeting:
            self.socket.sendall(publishing.greeting)
            while not self._receive():
                pass

    def _receive(self) -> int:
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise BrokerFailed("the broker closed a publishing connection")
        return self._counter.feed(data)

    def fill(self) -> None:
        """
        Send payloads until the window is full or the traffic is over or held back.
        """
        publishing = self._publishing
        while self._unanswered < publishing.window and self._traffic.take(publishing.messages):
            self.socket.sendall(publishing.payload)
            self._unanswered += 1

    def on_readable(self) -> None:
        """
        Count answers; each payload that is answered makes room for the next.
        """
        self._replies += self._receive()
        while self._replies >= self._publishing.replies:
            self._replies -= self._publishing.replies
            self._unanswered -= 1
            self._traffic.acknowledged += self._publishing.messages
        self.fill()
