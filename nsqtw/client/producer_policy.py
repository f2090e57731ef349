"""
A producer without IO: the order of publishes and answers, batches, and which of several nsqds is used (suite
specification 4.8).

Theory of operation. nsqd answers in order, so the publishes without an answer are a queue: each response belongs to its
oldest entry. A lost connection fails exactly the entries of the queue. Publishes while there is no connection wait for
one; when no nsqd can be reached, they fail.

With batches, the publishes of a topic are collected until there are `messages` of them, `bytes` of bodies, or until
`seconds` are over, and sent as one MPUB: its answer is the answer to each.

Performance: `answered_ok` is called once a chunk of responses; `publish` once a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from nsqtw.client import commands
from nsqtw.client.connection import Connection
from nsqtw.client.frames import Frame
from nsqtw.errors import NotConnected, Refused

Future = Any
"""A future of the event loop, which this module only keeps."""


@attrs.frozen(kw_only=True)
class Batching:
    """Limits of a batch: messages, bytes of bodies, and seconds since its first message."""

    messages: int = 100
    bytes: int = 256 * 1024
    seconds: float = 0.005


class _Batch:
    """The publishes of a topic that are collected."""

    __slots__ = ("bodies", "futures", "size")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.futures: list[Future] = []
        self.size = 0


class ProducerPolicy:
    """
    `resolve` and `reject` complete futures; `changed` is called when there are commands to write, `need_connection`
    when there is no connection, `need_timer` when a batch was begun.
    """

    def __init__(
        self,
        batching: Batching | None,
        *,
        resolve: Callable[[Future], object],
        reject: Callable[[Future, Exception], None],
        changed: Callable[[], None],
        need_connection: Callable[[], None],
        need_timer: Callable[[float], None],
    ) -> None:
        self._batching = batching
        self._resolve = resolve
        self._reject = reject
        self._changed = changed
        self._need_connection = need_connection
        self._need_timer = need_timer
        self._connection: Connection | None = None
        self._unanswered: deque[Future | list[Future]] = deque()
        """The future of each command that was sent, or its futures."""
        self._waiting: list[tuple[bytes, list[Future]]] = []
        """Commands that wait for a connection."""
        self._batches: dict[str, _Batch] = {}

    @property
    def pending_count(self) -> int:
        """Commands without an answer, and those of them that are not sent."""
        return len(self._unanswered) + len(self._waiting) + len(self._batches)

    # -- from the application

    def publish(self, topic: str, body: bytes, future: Future) -> None:
        """Publish a message; `future` is completed with nsqd's answer."""
        if self._batching is not None:
            self._collect(self._batching, topic, body, future)
        elif self._connection is None:
            self.send(commands.pub(topic, body), [future])
        else:
            self._unanswered.append(future)
            self._connection.send(commands.pub(topic, body))
            self._changed()

    def send(self, command: bytes, futures: list[Future]) -> None:
        """Send a command behind everything before it. Its answer completes `futures`."""
        if self._connection is None:
            self._waiting.append((command, futures))
            self._need_connection()
            return
        self._unanswered.append(futures)
        self._connection.send(command)
        self._changed()

    def send_batches(self) -> None:
        """Send all collected publishes."""
        batches, self._batches = self._batches, {}
        for topic, batch in batches.items():
            self._send_batch(topic, batch)

    # -- from the connection

    def connected(self, connection: Connection) -> None:
        """Send what waits."""
        self._connection = connection
        waiting, self._waiting = self._waiting, []
        for command, futures in waiting:
            self.send(command, futures)

    def connect_failed(self, error: Exception) -> None:
        """No nsqd can be reached: the publishes that wait fail."""
        waiting, self._waiting = self._waiting, []
        for _, futures in waiting:
            for future in futures:
                self._reject(future, error)

    def lost(self, error: Exception | None = None) -> None:
        """The connection is closed: the publishes without an answer fail."""
        self._connection = None
        unanswered, self._unanswered = self._unanswered, deque()
        for entry in unanswered:
            for future in _futures(entry):
                self._reject(future, error or NotConnected())

    def answered_ok(self, count: int) -> bool:
        """The nsqd answered OK `count` times. False when there were fewer commands: the connection is to be closed."""
        unanswered, resolve = self._unanswered, self._resolve
        if count > len(unanswered):
            return False
        for _ in range(count):
            entry = unanswered.popleft()
            if type(entry) is list:
                for future in entry:
                    resolve(future)
            else:
                resolve(entry)
        return True

    def answered(self, frames: Sequence[Frame]) -> bool:
        """Responses and errors of the nsqd. False for one too many."""
        for frame in frames:
            if not self._unanswered:
                return False
            for future in _futures(self._unanswered.popleft()):
                if frame.is_error:
                    self._reject(future, Refused(frame.data.decode("utf-8", "replace")))
                else:
                    self._resolve(future)
        return True

    # -- inside

    def _collect(self, batching: Batching, topic: str, body: bytes, future: Future) -> None:
        batch = self._batches.get(topic)
        if batch is None:
            batch = self._batches[topic] = _Batch()
            self._need_timer(batching.seconds)
        batch.bodies.append(body)
        batch.futures.append(future)
        batch.size += len(body)
        if len(batch.bodies) >= batching.messages or batch.size >= batching.bytes:
            del self._batches[topic]
            self._send_batch(topic, batch)

    def _send_batch(self, topic: str, batch: _Batch) -> None:
        if len(batch.bodies) == 1:
            self.send(commands.pub(topic, batch.bodies[0]), batch.futures)
        else:
            self.send(commands.mpub(topic, batch.bodies), batch.futures)


def _futures(entry: Future | list[Future]) -> list[Future]:
    return entry if type(entry) is list else [entry]
