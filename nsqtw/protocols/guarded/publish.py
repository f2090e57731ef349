"""
A publish of a guarded connection: its checks, and its answer.

Bodies may be anything like bytes; what is not `bytes` is copied once, here, because the core and its compiled modules
take `bytes` only.

Performance: called once per publish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from nsqtw.core.headers import NO_HEADERS, check_encoded, encode_headers
from nsqtw.core.topic import Topic
from nsqtw.errors import ClientError, InvalidHeaders
from nsqtw.interfaces import Answered, BytesLike, Waiter
from nsqtw.options.broker import Options
from nsqtw.protocols.guarded.commands import Command
from nsqtw.protocols.mpub import SIZE_BYTES, check_count, check_size, check_total

if TYPE_CHECKING:
    from nsqtw.protocols.guarded.broker import ClientBroker

_ONLY_BYTES = {bytes}

Headers = Mapping[str, str] | bytes
"""The headers of one message, as names and values or encoded."""


class Publish(Command):
    """
    Messages for a topic: `bodies`, the `headers` of each or None, and the delay of each, in ms; one delay stands for
    all. As a waiter it is told the result of the commit.
    """

    __slots__ = ("_answered", "_broker", "bodies", "delays", "headers", "size")

    def __init__(
        self,
        broker: ClientBroker,
        verb: bytes,
        topic: str,
        bodies: list[bytes],
        delays: Sequence[int],
        headers: list[bytes] | None,
        answered: Answered,
    ) -> None:
        self.verb = verb
        self.topic = topic
        self.channel = ""
        self._broker = broker
        self._answered = answered
        self.bodies = bodies
        self.delays = delays
        self.headers = headers
        self.size = 0
        """The bytes that are held until the answer."""

    def execute(self) -> None:
        """Command API."""
        self._broker.put(self)

    def put_into(self, topic: Topic) -> None:
        """Put the messages into their topic, in one commit."""
        delays = self.delays
        if len(delays) == 1:
            topic.put(self.bodies, delays[0], self.on_commit, self.headers)
            return
        runs = _runs(delays)
        waiter = _Together(len(runs), self.on_commit)
        for start, stop in runs:
            headers = None if self.headers is None else self.headers[start:stop]
            topic.put(self.bodies[start:stop], delays[start], waiter.on_commit, headers)

    def on_commit(self, error: Exception | None) -> None:
        """Answer with the result of the commit."""
        if error is None:
            self._broker.published(self)
            self._answered(None)
        else:
            verb = self.verb.decode()
            failure = ClientError(f"E_{verb}_FAILED", f"{verb} failed {error}")
            self._broker.publish_failed(self, failure)
            self._answered(failure)

    def refuse(self, error: ClientError) -> None:
        """Command API."""
        self._answered(error)


class _Together:
    """A waiter of `count` puts, which tells `done` the result of all."""

    def __init__(self, count: int, done: Waiter) -> None:
        self._missing = count
        self._done = done
        self._error: Exception | None = None

    def on_commit(self, error: Exception | None) -> None:
        """One of them is done."""
        self._missing -= 1
        self._error = self._error or error
        if not self._missing:
            self._done(self._error)


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
    if isinstance(headers, bytes):
        return _checked(headers) if headers else NO_HEADERS
    return encode_headers(headers)


@lru_cache(maxsize=1024)
def _checked(encoded: bytes) -> bytes:
    """Cached: many messages have equal headers."""
    return check_encoded(encoded)


def _runs(delays: Sequence[int]) -> list[tuple[int, int]]:
    """Return the parts with one delay each, as (start, stop)."""
    starts = [index for index in range(len(delays)) if not index or delays[index] != delays[index - 1]]
    return [*zip(starts, [*starts[1:], len(delays)], strict=True)]
