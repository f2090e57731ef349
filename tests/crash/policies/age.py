"""
Age of a backlog: what is delivered for the first time is not older than `max_age`, and what is dropped is.

As for the time to live, a message is only said to be too old when even the shortest time between its publish and its
delivery was too long. It is only said to be dropped too early when a message of its priority behind it was delivered,
in the same life, before it can have been old enough: that one is delivered only when it was delivered or dropped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from tests.crash.checks import SLACK_SECONDS
from tests.crash.checks import name as shown
from tests.crash.history import Channel
from tests.crash.policies.clients import V3Publisher
from tests.crash.policies.notes import Delivered, Wall
from tests.crash.policies.row import Row
from tests.crash.promises import await_promised

_MAX_AGE = 0.15
_LOOK_SECONDS = 0.05
"""The broker looks for old messages so often."""
_PRIORITY = "priority"
_CLASSES = ("low", "normal", "high")


class Aging(Row):
    """A backlog from which one consumer takes one message after the other."""

    name = "aging"
    channel_policy = {"max_age": f"{int(_MAX_AGE * 1000)}ms", "overflow": "drop_oldest"}
    one_at_a_time = True
    requeues = 0.0
    backlog = 30
    probed: Sequence[Mapping[str, str]] = ({}, {}, {})
    """The headers of messages that are left to become old."""

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        """Whether it was old enough `broken` finds out."""
        return True

    def broken(self) -> Iterator[str]:
        first = {e.body: e for _, e in self.notes.all(Delivered) if e.attempts == 1 and e.body in self.notes.published}
        yield from self._too_old(first)
        yield from self._too_young(first)

    def _too_old(self, first: dict[bytes, Delivered]) -> Iterator[str]:
        stored, published = self.notes.stored, self.notes.published
        for body in first.keys() & stored.keys():
            event, sent, answered = first[body], published[body].when, stored[body].when
            age = event.since.at - answered.at
            # What has become old because the wall clock was moved is found when the broker looks next.
            is_moved = len({moment.ahead for moment in (sent, answered, event.since, event.when)}) > 1
            if age > _MAX_AGE + _LOOK_SECONDS + SLACK_SECONDS and not is_moved:
                yield f"age: {shown(body)} was delivered when it was {age:.3f} s old, in life {event.life}"

    def _too_young(self, first: dict[bytes, Delivered]) -> Iterator[str]:
        stored, published = self.notes.stored, self.notes.published
        delivered = {event.body for _, event in self.notes.all(Delivered)}
        soonest: dict[tuple[int, str], tuple[float, bytes]] = {}
        """When a message behind the one that is looked at was delivered, for each life and priority."""
        for body, message in reversed([*published.items()]):
            event = first.get(body)
            place = message.life, message.headers.get(_PRIORITY, "normal")
            if body in stored and body not in delivered and body not in self.notes.excused:
                moment, behind = soonest.get(place, (float("inf"), b""))
                age = moment - _earliest(message.when, stored[body].when)
                if age < _MAX_AGE - SLACK_SECONDS:
                    yield f"age: {shown(body)} is missing, and {shown(behind)} was delivered {age:.3f} s after it"
            if event is not None and event.life == message.life:
                latest = _latest(event.since, event.when)
                soonest[place] = min(soonest.get(place, (float("inf"), b"")), (latest, body))

    def probe(self) -> Iterator[str]:
        """Old messages go while nobody publishes and nobody consumes, and are counted."""
        (channel,) = self.channels
        before = self.stats(channel)["dropped_count"]
        publisher = V3Publisher(self.house)
        try:
            for headers in self.probed:
                self.publish_quietly(publisher, headers)
        finally:
            publisher.close()
        await_promised(lambda: self.stats(channel)["depth"] == 0, "dropping old messages")
        if (dropped := self.stats(channel)["dropped_count"] - before) != len(self.probed):
            yield f"age: {len(self.probed)} messages were dropped, and {dropped} are counted"


class AgingByPriority(Aging):
    """A backlog of all priorities, of which the oldest ones are the last to be delivered."""

    name = "urgent-aging"
    channel_policy = {**Aging.channel_policy, "priority": True}
    probed = tuple({_PRIORITY: said} for said in _CLASSES)

    def headers(self, chance: random.Random) -> dict[str, str]:
        return {_PRIORITY: chance.choice(_CLASSES)}


def _earliest(since: Wall, until: Wall) -> float:
    """The wall clock at `since`, or less if it was put back until the other moment."""
    return since.at + min(since.ahead, until.ahead)


def _latest(since: Wall, until: Wall) -> float:
    """The wall clock at `until`, or more if it was ahead at the other moment."""
    return until.at + max(since.ahead, until.ahead)
