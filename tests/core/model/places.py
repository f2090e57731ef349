"""Where each unfinished message of a durable channel is, and where an event of the table may move it."""

from __future__ import annotations

from collections.abc import Iterable

from nsqtw.core.channel import Channel
from nsqtw.core.place import BULK, TRANSITIONS, Event, Place, places_after

_ALL = 1 << 30
Census = dict[int, Place]
"""The places of all unfinished messages, by sequence."""
SINGLE = frozenset(Event) - BULK
"""Events of single messages."""


def after_a_start(place: Place, *, has_letters: bool = True) -> frozenset[Place]:
    """Return where a start may find what was saved in a place. `has_letters`: the channel has max_attempts then."""
    killed = {row.after for row in TRANSITIONS if row.event is Event.KILL and place in row.before}
    return places_after(killed or {place}, {Event.DUE} if has_letters else {Event.DUE, Event.GIVE_BACK})


def census(channel: Channel, now: float) -> Census:
    """Find all unfinished messages, between two checkpoints. Each is in one place."""
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
    in_memory = cursor._pending._rows
    for is_deferred, place in ((False, Place.REQUEUED), (True, Place.DEFERRED)):
        for row in cursor.pending_rows(now, deferred=is_deferred, limit=_ALL):
            assert row.sequence not in found or row.sequence < cursor.replays, "it is read twice"
            found[row.sequence] = in_memory[row.sequence][2] if row.sequence in in_memory else place
    for sequence in channel.sequences_in_flight():
        assert found.get(sequence, Place.IN_FLIGHT) is Place.IN_FLIGHT, (sequence, found[sequence])
        found[sequence] = Place.IN_FLIGHT
    return found


def check_moves(before: Census, after: Census, released: int, bulk: Iterable[Event]) -> None:
    """Check that events of single messages, and these bulk ones, may move the messages released before as they did."""
    reachable = {place: places_after({place}, SINGLE | {*bulk}) | {place} for place in Place}
    for sequence in before.keys() | after.keys():
        if sequence < released:
            was, is_ = (one.get(sequence, Place.FINISHED) for one in (before, after))
            assert is_ in reachable[was], (sequence, was, is_)
