"""
A publish of a guarded connection: its checks, the command that waits for rights, and its answer.

Bodies may be anything like bytes; what is not `bytes` is copied once, here, because the core and its compiled modules
take `bytes` only.

Performance: called once per publish.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import ne
from typing import Final

from nsqtw.core.topic import Topic
from nsqtw.errors import ClientError, InvalidHeaders
from nsqtw.interfaces import Answered, Assigned, BytesLike
from nsqtw.message_headers import NO_HEADERS, are_plain, check_encoded, encode_headers
from nsqtw.options.broker import Options
from nsqtw.protocols.guarded.commands import Command
from nsqtw.protocols.mpub import SIZE_BYTES, check_count, check_size, check_total
from nsqtw.protocols.session import PublishAnswer, SessionBroker

MAX_DELAY_RUNS: Final = 4096
"""Runs of messages with one delay that a publish may have: each is a segment of its own, which takes 10 us."""

_MANY: Final = 16
"""So many headers are checked together."""

Headers = Mapping[str, str] | bytes
"""The headers of one message, as names and values or encoded."""


Put = Callable[[PublishAnswer, list[bytes], Sequence[int], list[bytes] | None], None]


class Publish(Command):
    """
    Messages for a topic that wait for their turn: `bodies`, the `headers` of each or None, and the delay of each, in
    ms; one delay stands for all. `put` stores them.
    """

    __slots__ = ("_answer", "_bodies", "_delays", "_headers", "_put")

    def __init__(
        self,
        put: Put,
        bodies: list[bytes],
        delays: Sequence[int],
        headers: list[bytes] | None,
        answer: PublishAnswer,
    ) -> None:
        self.verb = answer.verb
        self.topic = answer.topic
        self.channel = ""
        self._put = put
        self._bodies = bodies
        self._delays = delays
        self._headers = headers
        self._answer = answer

    def execute(self) -> None:
        """Command API."""
        self._put(self._answer, self._bodies, self._delays, self._headers)

    def refuse(self, error: ClientError) -> None:
        """Command API."""
        self._answer.answer(error)


class FunctionAnswer(PublishAnswer):
    """The answer of a publish for which a function was given."""

    __slots__ = ("_answered",)

    def __init__(self, answered: Answered) -> None:
        self._answered = answered

    def answer(self, error: ClientError | None) -> None:
        """PublishAnswer API."""
        self._answered(error)


def begin(
    answer: PublishAnswer, broker: SessionBroker, verb: bytes, topic: str, count: int, assigned: Assigned | None
) -> None:
    """Note in the answer what the broker needs to know of a publish of `count` messages."""
    answer.broker = broker
    answer.verb = verb
    answer.topic = topic
    answer.count = count
    answer.assigned = assigned
    answer.held_bytes = 0


class Together:
    """The waiter of several puts that are one publish."""

    def __init__(self, count: int, answer: PublishAnswer) -> None:
        self._missing = count
        self._answer = answer
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
            if self._error is None and self._answer.assigned is not None:
                self._answer.assigned(self._ids)
            self._answer(self._error)


def put_runs(
    topic: Topic, bodies: list[bytes], delays: Sequence[int], headers: list[bytes] | None, answer: PublishAnswer
) -> None:
    """Put messages with different delays into their topic, all or none, in one commit."""
    if topic.bounds is not None:
        overflow = topic.bounds.refusal(bodies, headers, "", is_first=not topic.waiter_count)
        if overflow is not None:
            topic.rejected_count += 1
            answer(overflow)
            return
    runs = _runs(delays)
    waiter = Together(len(runs), answer)
    assigned = None if answer.assigned is None else waiter.on_assigned
    for start, stop in runs:
        of_run = None if headers is None else headers[start:stop]
        topic.put(bodies[start:stop], delays[start], waiter.on_commit, of_run, "", assigned)


def bytes_of(bodies: Sequence[BytesLike]) -> list[bytes]:
    """Return the bodies as `bytes`. TypeError for one that is nothing like it."""
    taken: list[bytes] = []
    for body in bodies:
        if isinstance(body, bytes):
            taken.append(body)
        elif isinstance(body, bytearray | memoryview):
            taken.append(bytes(body))
        else:
            raise TypeError(f"a message body must be bytes, not {type(body).__name__}")
    return taken


def check_bodies(verb: bytes, bodies: list[bytes], options: Options) -> None:
    """Check the sizes of the bodies: of all together for an MPUB, of each by itself otherwise. ClientError."""
    if len(bodies) == 1:
        check_body(verb, len(bodies[0]), options)
        return
    if verb == b"PUB":
        limit = options.max_msg_size
        for body in bodies:
            if not 0 < len(body) <= limit:
                check_body(verb, len(body), options)
        return
    count = len(bodies)
    sizes = [*map(len, bodies)]
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
        plain = [one for one in given if isinstance(one, bytes)] if count >= _MANY else []
        encoded = plain if len(plain) == count and are_plain(plain) else [_encoded(one) for one in given]
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
    delays_ms = [round(one * 1000) for one in seconds]
    if len(delays_ms) > MAX_DELAY_RUNS and (runs := 1 + sum(map(ne, delays_ms, delays_ms[1:]))) > MAX_DELAY_RUNS:
        raise ClientError("E_INVALID", f"DPUB has {runs} runs of equal delays, at most {MAX_DELAY_RUNS} are allowed")
    return delays_ms


def _encoded(headers: Headers) -> bytes:
    encoded = headers if isinstance(headers, bytes) else encode_headers(headers)
    return _checked(encoded) if encoded else NO_HEADERS


_checked = lru_cache(maxsize=1024)(check_encoded)
"""Many messages have equal headers."""


def _runs(delays: Sequence[int]) -> list[tuple[int, int]]:
    """Return the parts with one delay each, as (start, stop)."""
    starts = [index for index in range(len(delays)) if not index or delays[index] != delays[index - 1]]
    return [*zip(starts, [*starts[1:], len(delays)], strict=True)]
