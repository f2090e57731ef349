"""
Inspection of messages without consuming them: those that wait in a topic, and the ready, deferred and in-flight ones of
a durable channel. Nothing changes, and no attempt is counted.

The result has three bounds: `limit` messages, MAX_BYTES of them, and MAX_WALKED_BYTES of log that is read to find them.
`more` says that there may be others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from attrs import define, field

from nsqtw.core.channel import Channel
from nsqtw.core.channel_base import ChannelOwner
from nsqtw.core.consumer import Consumer
from nsqtw.core.in_flight import Delivery
from nsqtw.core.policy.priority import PriorityReader
from nsqtw.core.segment import BODY_AT, ID_AT, Segment, sequence_of, timestamp_ns_of
from nsqtw.message_headers import NO_HEADERS

READY, DEFERRED, IN_FLIGHT = STATES = ("ready", "deferred", "in_flight")
MAX_BYTES = 1024 * 1024
MAX_WALKED_BYTES = 8 * MAX_BYTES


@define
class Peeked:
    """One message. Moments are in the clock of `now`."""

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
    """The messages found."""

    messages: list[Peeked] = field(factory=list)
    more: bool = False


def peek_topic(topic: ChannelOwner, limit: int) -> Peek:
    """Return messages that wait in a topic for its channels. BackendError."""
    return _collect(_frames(topic, topic.released, topic.log.end, limit), limit)


def peek_channel(channel: Channel, state: str, limit: int, now: float) -> Peek:
    """
    Return messages of a durable channel in one of STATES: the ready ones in the order of the log, with requeued ones
    first, others in no order. BackendError.
    """
    if state == IN_FLIGHT:
        return _collect(_in_flight(channel), limit)
    if state == DEFERRED:
        return _collect(_pending(channel, now, limit, deferred=True), limit)
    return _collect(_ready(channel, now, limit), limit)


def _collect(messages: Iterator[Peeked | None], limit: int) -> Peek:
    """None stands for what could not be looked at."""
    peek, size = Peek(), 0
    for message in messages:
        if message is None or len(peek.messages) == limit or size >= MAX_BYTES:
            peek.more = True
            break
        peek.messages.append(message)
        size += len(message.frame)
    return peek


def _ready(channel: Channel, now: float, limit: int) -> Iterator[Peeked | None]:
    """Iterate over requeued messages, and then over those that were not delivered yet."""
    cursor, topic = channel.cursor, channel.topic
    assert cursor is not None, "an ephemeral channel is not looked into"
    yield from _pending(channel, now, limit, deferred=False)
    wall_ns = topic.context.timestamp_ns(now)
    priorities = cursor.priorities
    yield from _frames(topic, cursor.next, topic.released, limit, cursor.replays, wall_ns, channel.name, priorities)


def _pending(channel: Channel, now: float, limit: int, *, deferred: bool) -> Iterator[Peeked | None]:
    cursor = channel.cursor
    assert cursor is not None, "an ephemeral channel is not looked into"
    in_flight = set() if deferred else {*channel.sequences_in_flight()}
    for row in cursor.pending_rows(now, deferred=deferred, limit=limit + 1 + len(in_flight)):
        record = None if row.sequence in in_flight else channel.topic.log.find(row.sequence)
        if record is not None:
            yield _peeked(*record, row.attempts, due=cursor.due_at(row) if deferred else None)


def _in_flight(channel: Channel) -> Iterator[Peeked | None]:
    for consumer in channel.consumers + channel.departed:
        for message_id, delivery in consumer.in_flight.items():
            record = channel.topic.log.find(sequence_of(message_id))
            if record is not None:
                yield _peeked(*record, delivery.attempts, delivery=delivery, consumer=consumer)


def _peeked(segment: Segment, index: int, attempts: int, **more: Any) -> Peeked:
    headers = segment.headers_of(index)
    return Peeked(segment.slice(index, index + 1), attempts, headers=headers, channel=segment.channel, **more)


def _frames(
    topic: ChannelOwner,
    start: int,
    stop: int,
    limit: int,
    replays: int | None = None,
    wall_ns: int = 0,
    channel: str = "",
    priorities: PriorityReader | None = None,
) -> Iterator[Peeked | None]:
    """
    Iterate over messages of the log that were not delivered. With `replays`, those that `channel` gets, and deferred
    ones only of a replay and when they are due; with `priorities` none of those that were delivered ahead of `start`.
    """
    walked = 0
    for segment in topic.reader.segments(start, stop):
        if walked >= MAX_WALKED_BYTES:
            yield None
            return
        walked += len(segment.frames)
        if replays is not None and not segment.is_for(channel):
            continue
        if segment.delay_ms and replays is not None and not _is_due_for_replay(segment, replays, wall_ns):
            continue
        waiting: Iterable[int] = range(segment.count)
        if priorities is not None:
            waiting = filter(partial(priorities.waits, segment), waiting)
        for index in islice(waiting, limit + 1):
            yield _peeked(segment, index, 0)


def _is_due_for_replay(segment: Segment, replays: int, wall_ns: int) -> bool:
    return segment.first < replays and segment.timestamp_ns + segment.delay_ms * 10**6 <= wall_ns
