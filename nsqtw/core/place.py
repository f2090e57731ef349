"""
Places: where a message of a channel may be, and the transitions between places.

Theory of operation. A released message is in exactly one place of each channel until it is finished there. An unread
message, and one in flight for the first time, has no row: sequences and runs tell where it is (`core.cursor`,
`core.in_flight`). Every other one has a pending row, which has its place: `core.pending` checks each change of a row
against TRANSITIONS. Bulk events (BULK) end or restore whole channels, without a look at single messages.

The model in tests/core/model checks all messages of its histories against the same table, and docs/architecture.md
shows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple


class Place(Enum):
    """A place of a message in a channel. The value is its name in texts."""

    UNREAD = "unread"
    """In the log, at or beyond the position of the channel, or of the message's class."""
    IN_FLIGHT = "in flight"
    """Delivered to a consumer, perhaps one that has left, and not answered."""
    DEFERRED = "deferred"
    """To be delivered when it is due."""
    REQUEUED = "requeued"
    """In the redelivery queue: to be delivered when the cursor has reached its mark."""
    SET_ASIDE = "set aside"
    """Read, in a channel with an order, and waiting for an earlier message of its key."""
    READY_HEAD = "ready head"
    """Read, in a channel with an order, and the first message of its key: to be delivered before the log is read on."""
    HELD = "held"
    """On its way to the dead-letter topic."""
    WITHHELD = "withheld"
    """Read by a redrive that leaves it where it is, until the redrive ends."""
    FINISHED = "finished"
    """In no place of the channel any more."""

    def __init__(self, text: str) -> None:
        self.next: tuple[Place, ...] = ()
        """The places where an event of single messages may move a message from here."""


class Event(Enum):
    """The cause of a transition."""

    DELIVER = "delivery"
    FINISH = "FIN"
    REQUEUE = "REQ, timeout, or disconnect"
    DELAY = "REQ with a delay, or the policy requeue_delay"
    DEFER = "release of a message that its publisher has deferred"
    DUE = "its time has come"
    ENTER = "the order takes it"
    HEAD = "it is the first of its key"
    DISSOLVE = "the order is found anew, or ends"
    FAIL = "max_attempts"
    EXPIRE = "message_ttl"
    STORE = "the dead letter is stored"
    GIVE_BACK = "it becomes no dead letter"
    WITHHOLD = "a redrive reads it"
    END_REDRIVE = "the redrive ends"
    DROP = "a bound"
    SAMPLE = "sample rate of the consumer"
    CANCEL = "cancel"
    LOSE = "damage of the log"
    EMPTY = "empty, deletion, or seek forwards"
    SEEK = "seek back"
    KILL = "end of the process"


BULK: Final = frozenset({Event.EMPTY, Event.SEEK, Event.KILL})
"""Events of all messages of a channel, or of those from a sequence on."""


class Transition(NamedTuple):
    """An event that moves a message from each of some places to another one."""

    event: Event
    before: tuple[Place, ...]
    after: Place


_UNFINISHED: Final = tuple(place for place in Place if place is not Place.FINISHED)
_WAITING: Final = (Place.REQUEUED, Place.READY_HEAD)
TRANSITIONS: Final = (
    Transition(Event.DELIVER, (Place.UNREAD, *_WAITING), Place.IN_FLIGHT),
    Transition(Event.FINISH, (Place.IN_FLIGHT,), Place.FINISHED),
    Transition(Event.REQUEUE, (Place.IN_FLIGHT,), Place.REQUEUED),
    Transition(Event.DELAY, (Place.IN_FLIGHT,), Place.DEFERRED),
    Transition(Event.DEFER, (Place.UNREAD,), Place.DEFERRED),
    Transition(Event.DUE, (Place.DEFERRED,), Place.REQUEUED),
    Transition(Event.ENTER, (Place.UNREAD, Place.REQUEUED), Place.SET_ASIDE),
    Transition(Event.HEAD, (Place.SET_ASIDE,), Place.READY_HEAD),
    Transition(Event.DISSOLVE, (Place.SET_ASIDE, Place.READY_HEAD), Place.REQUEUED),
    Transition(Event.FAIL, (Place.IN_FLIGHT, *_WAITING), Place.HELD),
    Transition(Event.EXPIRE, (Place.UNREAD, *_WAITING), Place.HELD),
    Transition(Event.EXPIRE, (Place.UNREAD, *_WAITING), Place.FINISHED),
    Transition(Event.STORE, (Place.HELD,), Place.FINISHED),
    Transition(Event.GIVE_BACK, (Place.HELD,), Place.REQUEUED),
    Transition(Event.GIVE_BACK, (Place.HELD,), Place.DEFERRED),
    Transition(Event.WITHHOLD, (Place.IN_FLIGHT,), Place.WITHHELD),
    Transition(Event.END_REDRIVE, (Place.WITHHELD,), Place.REQUEUED),
    Transition(Event.DROP, (Place.UNREAD, Place.DEFERRED, Place.SET_ASIDE, *_WAITING), Place.FINISHED),
    Transition(Event.SAMPLE, (Place.UNREAD, *_WAITING), Place.FINISHED),
    Transition(Event.CANCEL, (Place.DEFERRED,), Place.FINISHED),
    Transition(Event.LOSE, (Place.UNREAD, Place.HELD, *_WAITING), Place.FINISHED),
    Transition(Event.EMPTY, _UNFINISHED, Place.FINISHED),
    Transition(Event.SEEK, tuple(Place), Place.UNREAD),
    Transition(Event.KILL, (Place.IN_FLIGHT, Place.SET_ASIDE, Place.READY_HEAD, Place.WITHHELD), Place.REQUEUED),
)
"""All transitions. What has none for an event stays where it is."""


def places_after(before: Iterable[Place], events: Iterable[Event]) -> frozenset[Place]:
    """Return where messages may be after any of these events, in any number and order, that were in these places."""
    found, events = {*before}, {*events}
    while more := {row.after for row in TRANSITIONS if row.event in events and found.intersection(row.before)} - found:
        found |= more
    return frozenset(found)


for _place in Place:
    _moves = (row for row in TRANSITIONS if row.event not in BULK and _place in row.before)
    _place.next = (*dict.fromkeys(row.after for row in _moves),)
WITHOUT_ROW: Final = (*dict.fromkeys(Place.UNREAD.next + Place.IN_FLIGHT.next),)
"""Where a message may move that has no row."""


def check_move(before: Place | None, after: Place) -> None:
    """Assert that a message may move from a place to another one. None: it has no row, and is unread or in flight."""
    assert after in (WITHOUT_ROW if before is None else before.next), f"a message moves from {before} to {after}"
