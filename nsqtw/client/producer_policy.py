"""
A producer without IO: the order of publishes and answers, batches, and which of several nsqds is used.

Theory of operation. nsqd answers in order, so the publishes without an answer are a queue: each response belongs to its
oldest entry, over protocol V3 to the one that it names. A lost connection fails exactly the entries of the queue.
Publishes while there is no connection wait for one; when no nsqd can be reached, they fail.

With batches, the publishes of a topic are collected until there are `messages` of them, `bytes` of bodies, or until
`seconds` are over, and sent as one MPUB: its answer is the answer to each. Every other command for the topic sends its
batch first, so the order of a topic is that of the calls. A publish that is cancelled before it is sent is dropped.

Performance: `answered_ok` is called once a chunk of responses; `publish` once a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from nsqtw.client.frames import Frame
from nsqtw.client.wire import WireCommands, WireConnection
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

    __slots__ = ("bodies", "due", "futures", "size")

    def __init__(self, due: float) -> None:
        self.bodies: list[bytes] = []
        self.futures: list[Future] = []
        self.size = 0
        self.due = due
        """When the batch is sent at the latest."""


class _WantIds(list[Future]):
    """The future of a command, whose result is the ids of its messages."""


class ProducerPolicy:
    """
    `resolve` and `reject` complete futures, and `is_done` says whether one is complete, which before its answer means
    cancelled. `changed` is called when there are commands to write, `need_connection` when there is no connection,
    `need_timer` when a batch was begun that is to be sent (`send_due`) at a time of `clock`.
    """

    def __init__(
        self,
        batching: Batching | None,
        commands: WireCommands,
        *,
        resolve: Callable[..., object],
        reject: Callable[[Future, Exception], None],
        is_done: Callable[[Future], bool],
        clock: Callable[[], float],
        changed: Callable[[], None],
        need_connection: Callable[[], None],
        need_timer: Callable[[float], None],
    ) -> None:
        self._batching = batching
        self.commands = commands
        self._resolve = resolve
        self._reject = reject
        self._is_done = is_done
        self._clock = clock
        self._changed = changed
        self._need_connection = need_connection
        self._need_timer = need_timer
        self._connection: WireConnection | None = None
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
            self._send(self.commands.pub(topic, body), [future])
        else:
            self._unanswered.append(future)
            self._connection.send(self.commands.pub(topic, body))
            self._changed()

    def send(self, topic: str, command: bytes, future: Future, *, wants_ids: bool = False) -> None:
        """
        Send a command behind everything before it for its topic. Its answer completes `future`, with the ids of the
        messages if `wants_ids`.
        """
        if self._batches:
            self._send_batch(topic)
        self._send(command, _WantIds([future]) if wants_ids else [future])

    def send_batches(self) -> None:
        """Send all collected publishes."""
        for topic in list(self._batches):
            self._send_batch(topic)

    def send_due(self, now: float) -> float | None:
        """Send the batches that are due. Returns when the next one is, None without one."""
        for topic, batch in list(self._batches.items()):
            if batch.due <= now:
                self._send_batch(topic)
        return min((batch.due for batch in self._batches.values()), default=None)

    # -- from the connection

    def connected(self, connection: WireConnection) -> None:
        """Send what waits."""
        self._connection = connection
        waiting, self._waiting = self._waiting, []
        for command, futures in waiting:
            if not all(map(self._is_done, futures)):
                self._send(command, futures)

    def hold(self) -> None:
        """Send nothing more over this connection: publishes wait for the next one."""
        self._connection = None

    @property
    def is_answered(self) -> bool:
        """Whether all that was sent is answered."""
        return not self._unanswered

    @property
    def is_waiting(self) -> bool:
        """Whether publishes wait for a connection."""
        return bool(self._waiting)

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
            entry = self._unanswered[frame.at]
            del self._unanswered[frame.at]
            for future in _futures(entry):
                if frame.is_error:
                    self._reject(future, Refused(frame.data.decode("utf-8", "replace")))
                else:
                    self._resolve(future, frame.ids if type(entry) is _WantIds else None)
        return True

    # -- inside

    def _collect(self, batching: Batching, topic: str, body: bytes, future: Future) -> None:
        batch = self._batches.get(topic)
        if batch is not None and batch.size + len(body) > batching.bytes:
            self._send_batch(topic)
            batch = None
        if batch is None:
            batch = self._batches[topic] = _Batch(self._clock() + batching.seconds)
            self._need_timer(batch.due)
        batch.bodies.append(body)
        batch.futures.append(future)
        batch.size += len(body)
        if len(batch.bodies) >= batching.messages or batch.size >= batching.bytes:
            self._send_batch(topic)

    def _send_batch(self, topic: str) -> None:
        batch = self._batches.pop(topic, None)
        if batch is None:
            return
        bodies, futures = batch.bodies, batch.futures
        if any(map(self._is_done, futures)):
            kept = [(body, future) for body, future in zip(bodies, futures, strict=True) if not self._is_done(future)]
            bodies, futures = [body for body, _ in kept], [future for _, future in kept]
        if len(bodies) > 1:
            self._send(self.commands.publish(topic, bodies), futures)
        elif bodies:
            self._send(self.commands.pub(topic, bodies[0]), futures)

    def _send(self, command: bytes, futures: list[Future]) -> None:
        if self._connection is None:
            self._waiting.append((command, futures))
            self._need_connection()
            return
        self._unanswered.append(futures)
        self._connection.send(command)
        self._changed()


def _futures(entry: Future | list[Future]) -> list[Future]:
    return entry if isinstance(entry, list) else [entry]
