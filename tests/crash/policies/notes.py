"""
What is known outside the broker of the messages of one policy, in the order in which it was noted.

Everything that a broker may answer to is noted before it is sent, and what it answered when that is read. So a message
that was delivered after a FIN has a number above that of the FIN. `life` counts the starts of the broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from tests.crash.history import Channel, moment
from tests.crash.policies.clients import STORED

E = TypeVar("E")


class Wall(NamedTuple):
    """A moment: of the monotonic clock, and by how much the wall clock was ahead of it, both in seconds."""

    at: float
    ahead: float

    def __str__(self) -> str:
        return f"{self.at:.3f}{self.ahead:+.3f}"


class Published(NamedTuple):
    """A message that is going to be published."""

    topic: str
    body: bytes
    headers: Mapping[str, str]
    delay_ms: int
    life: int
    when: Wall


class Answered(NamedTuple):
    """The broker answered a publish with one of `clients.STORED` and so on."""

    body: bytes
    outcome: str
    life: int
    when: Wall


class Delivered(NamedTuple):
    """A message was read. `since`: a moment before the broker's turn in which it was sent."""

    channel: Channel
    id: bytes
    attempts: int
    headers: Mapping[str, str]
    body: bytes
    connection: int
    life: int
    when: Wall
    since: Wall


class Finished(NamedTuple):
    """A FIN is going to be sent."""

    channel: Channel
    id: bytes
    body: bytes
    connection: int
    life: int


class Requeued(NamedTuple):
    """A REQ without a delay is going to be sent, for the delivery with so many attempts."""

    channel: Channel
    id: bytes
    body: bytes
    connection: int
    life: int
    attempts: int
    when: Wall


class Abandoned(NamedTuple):
    """A delivery will get no answer: it fails by its timeout or the end of its connection, at `when` or later."""

    channel: Channel
    body: bytes
    life: int
    attempts: int
    when: Wall


class Cancelling(NamedTuple):
    """The broker is going to be asked to cancel a message."""

    body: bytes
    life: int


class Cancelled(NamedTuple):
    """The broker answered that it has cancelled a message in these channels."""

    body: bytes
    channels: frozenset[Channel]
    life: int


class Saved(NamedTuple):
    """The broker knows in its next life all that consumers said before. All of them have left."""

    life: int


class Draining(NamedTuple):
    """From now on everything is finished as it comes, and nothing is published."""

    life: int


Event = Published | Answered | Delivered | Finished | Requeued | Abandoned | Cancelling | Cancelled | Saved | Draining


class Notes:
    """The events of one policy since its messages were drained last. Any thread may note events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.published: dict[bytes, Published] = {}
        """The first publish of each message, in their order."""
        self._answered: dict[str, dict[bytes, Answered]] = defaultdict(dict)
        self.excused: set[bytes] = set()
        """Bodies that may be missing, or may be there twice: their files were damaged, or not on stable storage."""
        self.damaged: set[bytes] = set()
        """Those of them in files that were damaged: what can be kept of such a message may be the body alone."""
        self.past: set[bytes] = set()
        """Bodies of messages that were finished everywhere."""

    def note(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Published):
            self.published.setdefault(event.body, event)
        elif isinstance(event, Answered):
            self._answered[event.outcome].setdefault(event.body, event)

    def all(self, kind: type[E]) -> list[tuple[int, E]]:
        """The events of a kind with their numbers."""
        return [(number, event) for number, event in enumerate(self.events) if isinstance(event, kind)]

    def answered(self, outcome: str) -> dict[bytes, Answered]:
        """The first answer of this kind for each message."""
        return self._answered[outcome]

    @property
    def stored(self) -> dict[bytes, Answered]:
        """The messages that the broker has to keep."""
        return self.answered(STORED)

    @property
    def delivered(self) -> dict[Channel, dict[bytes, list[tuple[int, Delivered]]]]:
        """The deliveries of each message in each channel."""
        found: dict[Channel, dict[bytes, list[tuple[int, Delivered]]]] = defaultdict(lambda: defaultdict(list))
        for number, event in self.all(Delivered):
            found[event.channel][event.body].append((number, event))
        return found

    def finished(self, channel: Channel) -> dict[bytes, int]:
        """The messages for which a FIN was sent, and when first."""
        return {event.body: number for number, event in reversed(self.all(Finished)) if event.channel == channel}

    def excuse_all(self) -> None:
        """What was published so far may be missing."""
        self.excused.update(self.published)

    def archive(self) -> None:
        """All is drained. What was published and not stored may still turn up: a restart may find it."""
        stored = self._answered[STORED]
        self.past.update(stored)
        self.past.update(event.body for _, event in self.all(Delivered))
        self.published = {body: event for body, event in self.published.items() if body not in self.past}
        self.events = []
        self._answered.pop(STORED)


def now(ahead_ns: int) -> Wall:
    """This moment, with the wall clock ahead by so much."""
    return Wall(moment(), ahead_ns / 1e9)
