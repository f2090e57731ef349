"""Where each unfinished message of a durable channel is, and where a restart may find it."""

from __future__ import annotations

from enum import Enum, auto

from nsqtw.core.channel import Channel


class Place(Enum):
    """The place of a message in a channel."""

    UNREAD = auto()
    """In the log, not delivered yet."""
    WAITING = auto()
    """It has a pending row and is to be delivered: requeued, due, set aside for its key, or withheld by a redrive."""
    DEFERRED = auto()
    IN_FLIGHT = auto()
    HELD = auto()
    """On its way to the dead-letter topic."""


_ALL = 1 << 30
Census = dict[int, Place]
"""The places of all unfinished messages, by sequence."""

AFTER_A_START: dict[Place, frozenset[Place]] = {
    Place.UNREAD: frozenset({Place.UNREAD}),
    Place.WAITING: frozenset({Place.WAITING}),
    Place.DEFERRED: frozenset({Place.DEFERRED, Place.WAITING}),
    Place.IN_FLIGHT: frozenset({Place.WAITING}),
    Place.HELD: frozenset({Place.HELD}),
}
"""Where a start may find what was saved in a place."""


def census(channel: Channel, now: float) -> Census:
    """Find all unfinished messages, between two checkpoints."""
    cursor, topic = channel.cursor, channel.topic
    assert cursor is not None
    found: Census = {}
    for segment in topic.reader.segments(cursor.next, topic.released):
        if segment.is_for(channel.name):
            for index in range(segment.count):
                sequence = segment.sequence_at(index)
                is_read = segment.delay_ms and sequence >= cursor.replays
                if not is_read and (cursor.priorities is None or cursor.priorities.waits(segment, index)):
                    found[sequence] = Place.UNREAD
    for is_deferred, place in ((False, Place.WAITING), (True, Place.DEFERRED)):
        rows = cursor.pending_rows(now, deferred=is_deferred, limit=_ALL)
        found.update(dict.fromkeys((row.sequence for row in rows), place))
    found.update(dict.fromkeys(channel.leaving, Place.HELD))
    found.update(dict.fromkeys(channel.sequences_in_flight(), Place.IN_FLIGHT))
    return found
