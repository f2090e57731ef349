"""
A publish of a guarded connection: its checks, the command that waits for rights, and its answer.

Bodies may be anything like bytes; what is not `bytes` is copied once, here, because the core and its compiled modules
take `bytes` only.

Performance: called once per publish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from nsqtw.core.topic import Topic
from nsqtw.errors import ClientError, HeadersRefused, InvalidHeaders
from nsqtw.interfaces import Answered, Assigned, BytesLike
from nsqtw.message_headers import NO_HEADERS, check_encoded, encode_headers
from nsqtw.options.broker import Options
from nsqtw.protocols.guarded.commands import Command
from nsqtw.protocols.mpub import SIZE_BYTES, check_count, check_size, check_total
from nsqtw.protocols.session import PublishAnswer

if TYPE_CHECKING:
    from nsqtw.protocols.guarded.broker import ClientBroker

_ONLY_BYTES = {bytes}

Headers = Mapping[str, str] | bytes
"""The headers of one message, as names and values or encoded."""


class Publish(Command):
    """
    Messages for a topic that wait for their turn: `bodies`, the `headers` of each or None, and the delay of each, in
    ms; one delay stands for all. `stored` is told the result.
    """

    __slots__ = ("_broker", "bodies", "delays", "headers", "stored")

    def __init__(
        self,
        broker: ClientBroker,
        bodies: list[bytes],
        delays: Sequence[int],
        headers: list[bytes] | None,
        stored: Stored,
    ) -> None:
        self.verb = stored.verb
        self.topic = stored.topic
        self.channel = ""
        self._broker = broker
        self.bodies = bodies
        self.delays = delays
        self.headers = headers
        self.stored = stored

    def execute(self) -> None:
        """Command API."""
        self._broker.put(self.stored, self.bodies, self.delays, self.headers)

    def refuse(self, error: ClientError) -> None:
        """Command API."""
        self.stored.answer(error)


class Stored:
    """
    The waiter of a publish of `count` messages: it tells `answered` the result of the commit, and `assigned`, if that
    is not None, the ids of the messages before.
    """

    __slots__ = ("_answered", "_broker", "assigned", "count", "size", "topic", "verb")

    def __init__(
        self,
        broker: ClientBroker,
        verb: bytes,
        topic: str,
        count: int,
        answered: Answered | PublishAnswer,
        assigned: Assigned | None,
    ) -> None:
        self._broker = broker
        self.verb = verb
        self.topic = topic
        self.count = count
        self._answered = answered
        self.assigned = assigned
        self.size = 0
        """The bytes that are held until the answer."""

    def on_commit(self, error: Exception | None) -> None:
        """Answer with the result of the commit."""
        broker = self._broker
        if self.size:
            broker.hold_bytes(-self.size)
        if error is None:
            broker.published.add(self.topic, self.count)
            self.answer(None)
        else:
            failure = failure_of(self.verb.decode(), error)
            broker.refused(failure)
            self.answer(failure)

    def answer(self, error: ClientError | None) -> None:
        """Tell the session the result."""
        tell(self._answered, error)


def tell(answered: Answered | PublishAnswer, error: ClientError | None) -> None:
    """Tell a session the result of a publish."""
    if isinstance(answered, PublishAnswer):
        answered.answer(error)
    else:
        answered(error)


class Together:
    """The waiter of several puts that are one publish."""

    def __init__(self, count: int, stored: Stored) -> None:
        self._missing = count
        self._stored = stored
        self._error: Exception | None = None
        self._ids: list[int] = []

    def on_assigned(self, ids: list[int]) -> None:
        """The ids of the messages of the next put are known."""
        self._ids += ids

    def on_commit(self, error: Exception | None) -> None:
        """One of them is done."""
        self._missing -= 1
        self._error = self._error or error
        if not self._missing:
            if self._error is None and self._stored.assigned is not None:
                self._stored.assigned(self._ids)
            self._stored.on_commit(self._error)


def put_runs(
    topic: Topic, bodies: list[bytes], delays: Sequence[int], headers: list[bytes] | None, stored: Stored
) -> None:
    """Put messages with different delays into their topic, all or none, in one commit."""
    if topic.bounds is not None:
        overflow = topic.bounds.refusal(bodies, "", is_first=not topic.waiter_count)
        if overflow is not None:
            topic.rejected_count += 1
            stored.on_commit(overflow)
            return
    runs = _runs(delays)
    waiter = Together(len(runs), stored)
    assigned = None if stored.assigned is None else waiter.on_assigned
    for start, stop in runs:
        of_run = None if headers is None else headers[start:stop]
        topic.put(bodies[start:stop], delays[start], waiter.on_commit, of_run, "", assigned)


def failure_of(verb: str, error: Exception) -> ClientError:
    """Return what the client is told when a publish could not be stored."""
    code = "E_BAD_HEADERS" if isinstance(error, HeadersRefused) else f"E_{verb}_FAILED"
    return ClientError(code, f"{verb} failed {error}")


def bytes_of(bodies: Sequence[BytesLike]) -> list[bytes]:
    """Return the bodies as `bytes`. TypeError for one that is nothing like it."""
    if set(map(type, bodies)) <= _ONLY_BYTES:
        return [*bodies]  # type: ignore[list-item]
    for body in bodies:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise TypeError(f"a message body must be bytes, not {type(body).__name__}")
    return [bytes(body) for body in bodies]


def check_bodies(verb: bytes, bodies: list[bytes], options: Options) -> None:
    """Check the sizes of the bodies: of all together for an MPUB, of each by itself otherwise. ClientError."""
    if len(bodies) == 1:
        check_body(verb, len(bodies[0]), options)
        return
    count = len(bodies)
    sizes = [*map(len, bodies)]
    if verb == b"PUB":
        for size in {*sizes}:
            check_body(verb, size, options)
        return
    check_count(count, options.max_body_size)
    check_total(SIZE_BYTES + SIZE_BYTES * count + sum(sizes), options.max_body_size)
    if min(sizes) <= 0 or max(sizes) > options.max_msg_size:
        for index, size in enumerate(sizes):
            check_size(index, size, options.max_msg_size)


def check_body(verb: bytes, size: int, options: Options) -> None:
    """Check the size of the body of a single publish. ClientError."""
    if not size:
        raise ClientError("E_BAD_MESSAGE", f"{verb.decode()} invalid message body size 0")
    if size > options.max_msg_size:
        raise ClientError("E_BAD_MESSAGE", f"{verb.decode()} message too big {size} > {options.max_msg_size}")


def checked_headers(verb: bytes, given: Sequence[Headers], count: int) -> list[bytes] | None:
    """Return the encoded headers of `count` messages; None when no message has any. ClientError."""
    name = verb.decode()
    if len(given) != count:
        raise ClientError("E_BAD_HEADERS", f"{name} has headers for {len(given)} of {count} messages")
    try:
        encoded = [_encoded(one) for one in given]
    except InvalidHeaders as error:
        raise ClientError("E_BAD_HEADERS", f"{name} invalid headers: {error}", logged="invalid headers") from None
    return encoded if any(encoded) else None


def checked_delays(delay: float, delays: Sequence[float] | None, count: int, longest: float) -> Sequence[int]:
    """Return the delay of each message, or one for all, in ms. ClientError."""
    if delays is not None and len(delays) not in (1, count):
        raise ClientError("E_INVALID", f"DPUB has {len(delays)} delays for {count} messages")
    seconds = (delay,) if delays is None else delays
    for one in seconds:
        if not 0 <= one <= longest:
            raise ClientError("E_INVALID", f"DPUB timeout {one * 1000:.0f} out of range 0-{longest * 1000:.0f}")
    return [int(one * 1000) for one in seconds]


def _encoded(headers: Headers) -> bytes:
    encoded = headers if isinstance(headers, bytes) else encode_headers(headers)
    return _checked(encoded) if encoded else NO_HEADERS


_checked = lru_cache(maxsize=1024)(check_encoded)
"""Many messages have equal headers."""


def _runs(delays: Sequence[int]) -> list[tuple[int, int]]:
    """Return the parts with one delay each, as (start, stop)."""
    starts = [index for index in range(len(delays)) if not index or delays[index] != delays[index - 1]]
    return [*zip(starts, [*starts[1:], len(delays)], strict=True)]
