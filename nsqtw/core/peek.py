"""
Inspection of messages without consuming them: those that wait in a topic, and the ready, deferred and in-flight ones of
a durable channel. Nothing changes, and no attempt is counted.

The result has bounds: `limit` messages, MAX_BYTES of them, and the MAX_WALKED_BYTES of log and MAX_ROWS pending rows
that are looked at to find them. `more` says that there may be others, and `next` is the place where a look goes on:

    "<due in ms>-<sequence>"    after a pending row
    "<sequence>"                after a message of the log

Messages in flight have no order, and no such place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import inf
from typing import Any, Final

from attrs import define, evolve, field, frozen

from nsqtw.core.channel import Channel
from nsqtw.core.channel_base import ChannelOwner
from nsqtw.core.consumer import Consumer
from nsqtw.core.due_order import BEFORE_ALL, Key
from nsqtw.core.in_flight import Delivery
from nsqtw.core.policy.priority import PriorityReader
from nsqtw.core.segment import BODY_AT, ID_AT, Segment, sequence_of, timestamp_ns_of
from nsqtw.message_headers import NO_HEADERS, decode_headers

READY, DEFERRED, IN_FLIGHT = STATES = ("ready", "deferred", "in_flight")
MAX_BYTES = 1024 * 1024
MAX_WALKED_BYTES = 8 * MAX_BYTES
MAX_ROWS = 1000
"""Pending rows that a search looks at: each may need a read of the medium."""
AFTER_ALL: Final = (inf, inf)
_PLACE = re.compile(r"(?:([0-9]{1,15})-)?([0-9]{1,16})")


@define
class Peeked:
    """One message. Moments are in the monotonic clock."""

    frame: bytes
    attempts: int
    """Deliveries so far."""
    due: float | None = None
    """When a deferred message becomes ready."""
    delivery: Delivery | None = None
    consumer: Consumer | None = None
    """The consumer of a message in flight."""
    headers: bytes = NO_HEADERS
    """Encoded as in `message_headers`."""
    channel: str = ""
    """The only channel that gets the message; empty for all."""
    place: str = ""
    """Where a look goes on after it."""

    @property
    def id(self) -> bytes:
        return self.frame[ID_AT:BODY_AT]

    @property
    def timestamp_ns(self) -> int:
        return timestamp_ns_of(self.frame)

    @property
    def body(self) -> bytes:
        return self.frame[BODY_AT:]


@define
class Peek:
    """The messages found, and where a look goes on when there may be more."""

    messages: list[Peeked] = field(factory=list)
    more: bool = False
    next: str = ""


@frozen
class Search:
    """
    What is looked for: messages after a place, with a text, of which ASCII letters match in both cases. A text is
    looked for in bodies, and in headers written as `name: value`; it may be the id of a message, too.
    """

    after: str = ""
    text: str = ""

    @property
    def key(self) -> Key:
        """The pending row after which to look."""
        due_ms, sequence = self._place
        return BEFORE_ALL if sequence is None else AFTER_ALL if due_ms is None else (int(due_ms), int(sequence))

    @property
    def start(self) -> int:
        """The sequence in the log from which to look."""
        due_ms, sequence = self._place
        return 0 if sequence is None or due_ms is not None else int(sequence) + 1

    @property
    def _place(self) -> Sequence[str | None]:
        found = _PLACE.fullmatch(self.after)
        return (None, None) if found is None else found.groups()

    @property
    def _parts(self) -> tuple[bytes, ...]:
        """Parts of the text that are together in a message, also in its encoded headers."""
        return tuple(filter(None, self._wanted.split(b": ")))

    @property
    def _wanted(self) -> bytes:
        return self.text.encode("utf-8", "surrogateescape").lower()

    def may_be_in(self, segment: Segment) -> bool:
        """Return whether a message of a segment may match."""
        frames = segment.frames.lower()
        encoded = b"\n".join(segment.headers or ()).lower()
        return all(part in frames or part in encoded for part in self._parts)

    def matches(self, segment: Segment, index: int) -> bool:
        if not self.text:
            return True
        frame = segment.slice(index, index + 1)
        if self._wanted in frame[BODY_AT:].lower() or self._wanted == frame[ID_AT:BODY_AT]:
            return True
        encoded = segment.headers_of(index)
        if not all(part in encoded.lower() for part in self._parts):
            return False
        lines = "\n".join(f"{name}: {value}" for name, value in decode_headers(encoded).items())
        return self._wanted in lines.encode().lower()


ALL: Final = Search()


def is_place(text: str) -> bool:
    """Return whether a text can be a place where a look goes on."""
    return _PLACE.fullmatch(text) is not None


def peek_topic(topic: ChannelOwner, limit: int, search: Search = ALL) -> Peek:
    """Return messages that wait in a topic for its channels. BackendError."""
    return _collect(_frames(topic, topic.released, topic.log.end, limit, search), limit)


def peek_channel(channel: Channel, state: str, limit: int, now: float, search: Search = ALL) -> Peek:
    """
    Return messages of a durable channel in one of STATES: the ready ones in the order of the log, with requeued ones
    first, deferred ones by their time, those in flight in no order. BackendError.
    """
    if state == IN_FLIGHT:
        return _collect(_in_flight(channel, search), limit)
    if state == DEFERRED:
        return _collect(_pending(channel, now, limit, search, deferred=True), limit)
    return _collect(_ready(channel, now, limit, search), limit)


def _collect(messages: Iterator[Peeked | str], limit: int) -> Peek:
    """A place stands for what was not looked at."""
    peek, size = Peek(), 0
    for message in messages:
        if isinstance(message, str):
            return evolve(peek, more=True, next=message)
        if len(peek.messages) == limit or size >= MAX_BYTES:
            return evolve(peek, more=True, next=peek.messages[-1].place)
        peek.messages.append(message)
        size += len(message.frame)
    return peek


def _ready(channel: Channel, now: float, limit: int, search: Search) -> Iterator[Peeked | str]:
    """Iterate over requeued messages, and then over those that were not delivered yet."""
    cursor, topic = channel.cursor, channel.topic
    assert cursor is not None, "an ephemeral channel is not looked into"
    yield from _pending(channel, now, limit, search, deferred=False)
    wall_ns = topic.context.timestamp_ns(now)
    about = cursor.replays, wall_ns, channel.name, cursor.priorities
    yield from _frames(topic, cursor.next, topic.released, limit, search, *about)


def _pending(channel: Channel, now: float, limit: int, search: Search, *, deferred: bool) -> Iterator[Peeked | str]:
    cursor = channel.cursor
    assert cursor is not None, "an ephemeral channel is not looked into"
    if search.key == AFTER_ALL:
        return
    in_flight = set() if deferred else {*channel.sequences_in_flight()}
    count = (MAX_ROWS if search.text else limit + 1) + len(in_flight)
    rows = cursor.pending_rows(now, deferred=deferred, limit=count, after=search.key)
    for row in rows:
        record = None if row.sequence in in_flight else channel.topic.log.find(row.sequence)
        if record is not None and search.matches(*record):
            place = f"{row.due_ms}-{row.sequence}"
            yield _peeked(*record, row.attempts, due=cursor.due_at(row) if deferred else None, place=place)
    if len(rows) == count:
        yield f"{rows[-1].due_ms}-{rows[-1].sequence}"


def _in_flight(channel: Channel, search: Search) -> Iterator[Peeked | str]:
    for consumer in channel.consumers + channel.former_consumers:
        for message_id, delivery in consumer.in_flight.items():
            record = channel.topic.log.find(sequence_of(message_id))
            if record is not None and search.matches(*record):
                yield _peeked(*record, delivery.attempts, delivery=delivery, consumer=consumer)


def _peeked(segment: Segment, index: int, attempts: int, **more: Any) -> Peeked:
    headers = segment.headers_of(index)
    return Peeked(segment.slice(index, index + 1), attempts, headers=headers, channel=segment.channel, **more)


def _frames(
    topic: ChannelOwner,
    start: int,
    stop: int,
    limit: int,
    search: Search,
    replays: int | None = None,
    wall_ns: int = 0,
    channel: str = "",
    priorities: PriorityReader | None = None,
) -> Iterator[Peeked | str]:
    """
    Iterate over messages of the log that were not delivered. With `replays`, those that `channel` gets, and deferred
    ones only of a replay and when they are due; with `priorities` none of those that were delivered ahead of `start`.
    """
    walked = 0
    for segment in topic.reader.segments(max(start, search.start), stop):
        if walked >= MAX_WALKED_BYTES:
            yield str(segment.first - 1)
            return
        walked += len(segment.frames)
        if replays is not None and not segment.is_for(channel):
            continue
        if segment.delay_ms and replays is not None and not _is_due_for_replay(segment, replays, wall_ns):
            continue
        if search.text and not search.may_be_in(segment):
            continue
        waiting: Iterable[int] = range(segment.count)
        if priorities is not None:
            waiting = filter(partial(priorities.waits, segment), waiting)
        for index in islice((each for each in waiting if search.matches(segment, each)), limit + 1):
            yield _peeked(segment, index, 0, place=str(segment.sequence_at(index)))


def _is_due_for_replay(segment: Segment, replays: int, wall_ns: int) -> bool:
    return segment.first < replays and segment.timestamp_ns + segment.delay_ms * 10**6 <= wall_ns
