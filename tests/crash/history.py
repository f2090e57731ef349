"""
What is known outside the broker of all that happened to it: a list of events, in the order in which they were noted.

An event that depends on the broker is noted when it is known: a publish before it is sent and again when it is
answered, a delivery when it is read, a REQ before it is sent, a FIN after it. `life` counts the broker's starts: what
a client reads belongs to the life of its connection, even when it is read after the death. Times are seconds of the
monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from attrs import define, field

MEMORY, OS, FSYNC = CLASSES = ("memory", "os", "fsync")
"""Durability classes. A topic is called after its class."""

KILL, STOP, POWER = "SIGKILL", "SIGTERM", "power loss"
START, DRAINED = "start", "drained"


class Channel(NamedTuple):
    """One channel of a topic."""

    topic: str
    name: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"


class Began(NamedTuple):
    """The broker listens."""

    life: int


class Died(NamedTuple):
    """The broker is gone."""

    life: int
    how: str


class Stored(NamedTuple):
    """What was done before the event number `covers` is saved: an order that was begun then is answered."""

    life: int
    covers: int


class Jumped(NamedTuple):
    """The wall clock was moved, some time after the event number `began`."""

    seconds: float
    began: int


class Damaged(NamedTuple):
    """While the broker was down, stored messages were destroyed."""

    bodies: frozenset[bytes]
    ids: frozenset[bytes] = frozenset()


class Found(NamedTuple):
    """While the broker was down, the files of a topic had whole messages with these ids."""

    topic: str
    ids: frozenset[bytes]


class Sent(NamedTuple):
    """A message that is going to be published."""

    topic: str
    body: bytes
    delay_ms: int
    life: int
    at: float


class Answered(NamedTuple):
    """The broker said OK, or refused it."""

    body: bytes
    good: bool
    life: int


class Connected(NamedTuple):
    """A consumer. Nothing ever times out with one that is `prompt`."""

    channel: Channel
    connection: int
    prompt: bool
    life: int


class Left(NamedTuple):
    """A consumer is gone; `settled`: after the broker had done all it was told by it, and all it sent was read."""

    channel: Channel
    connection: int
    settled: bool
    life: int


class Delivered(NamedTuple):
    channel: Channel
    id: bytes
    body: bytes
    attempts: int
    connection: int
    life: int
    at: float


class Finished(NamedTuple):
    """A FIN was sent, for the delivery with so many attempts. Noted when the system has taken it."""

    channel: Channel
    id: bytes
    attempts: int
    connection: int
    life: int


class Requeued(NamedTuple):
    """A REQ is going to be sent."""

    channel: Channel
    id: bytes
    attempts: int
    delay_ms: int
    connection: int
    life: int
    at: float


class Failed(NamedTuple):
    """The broker answered E_FIN_FAILED, E_REQ_FAILED or E_TOUCH_FAILED."""

    channel: Channel
    id: bytes
    verb: str
    connection: int
    life: int


class Counted(NamedTuple):
    """
    What /stats says, while nobody publishes or consumes: at a START, or when everything is DRAINED. `held` messages
    were taken by a consumer and are not finished.
    """

    when: str
    channel: Channel
    depth: int
    in_flight: int
    deferred: int
    topic_depth: int
    message_count: int
    topic_message_count: int
    life: int
    held: int = 0

    @property
    def waiting(self) -> int:
        return self.depth + self.deferred


Event = (
    Began
    | Died
    | Stored
    | Jumped
    | Damaged
    | Found
    | Sent
    | Answered
    | Connected
    | Left
    | Delivered
    | Finished
    | Requeued
    | Failed
    | Counted
)


@define
class Past:
    """What is over: these messages were finished in every channel, and that was stored."""

    bodies: set[bytes] = field(factory=set)
    ids: set[bytes] = field(factory=set)
    highest: dict[Channel, bytes] = field(factory=dict)
    """The highest id that was delivered to each channel."""


@define
class Tally:
    """What a campaign comes to."""

    rounds: int = 0
    acknowledged: int = 0
    delivered: int = 0
    repeats: int = 0
    lost: int = 0
    failed_calls: int = 0

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds survived, {self.acknowledged} acknowledged, {self.delivered} delivered, "
            f"{self.repeats} repeats, {self.lost} lost, {self.failed_calls} system calls failed"
        )


class Journal:
    """The events since all was drained last, and what is left of those before. Any thread may note events."""

    def __init__(self, channels: Iterable[Channel] = ()) -> None:
        self.channels = tuple(channels)
        self.events: list[Event] = []
        self.past = Past()

    def record(self, *events: Event) -> None:
        """These happened, in this order."""
        self.events.extend(events)

    def archive(self) -> None:
        """
        All is drained, and that is stored. What was published and not answered with OK may still turn up: a restart may
        find what was refused.
        """
        events, self.events = self.events, []
        delivered = {event.body for event in events if isinstance(event, Delivered)}
        good = {event.body for event in events if isinstance(event, Answered) and event.good}
        self.past.bodies |= delivered | good
        for event in events:
            if isinstance(event, Delivered):
                self.past.highest[event.channel] = max(event.id, self.past.highest.get(event.channel, b""))
        self.past.ids.update(event.id for event in events if isinstance(event, Delivered))
        open_ends = [e for e in events if isinstance(e, (Sent, Answered)) and e.body not in self.past.bodies]
        self.events.extend([*open_ends, *[e for e in events if isinstance(e, Began)][-1:]])


def moment() -> float:
    """Now, as events have it."""
    return time.monotonic()
