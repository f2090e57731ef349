"""
Time to live: a message is not delivered after its end, and is missing for no other reason.

When a message was delivered is not known here. It was after `since` of its delivery, and it was published before its
publish was answered: so nothing is said that a slow machine could make wrong. The wall clock may be moved by then, and
what moves it within a broker's turn is taken as if it had been before or after, whichever is the better for the broker.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.crash.checks import SLACK_SECONDS
from tests.crash.checks import name as shown
from tests.crash.history import Channel
from tests.crash.policies.notes import Delivered, Wall
from tests.crash.policies.row import Row

_SHORT_MS = (1, 20, 100, 300)
_LONG_MS = 1000 * 86_400_000
"""Longer than what the wall clock may be moved by."""
_TTL = "ttl"


class Expiry(Row):
    """A part of the messages expires soon."""

    name = "expiring"
    one_at_a_time = True

    def headers(self, chance: random.Random) -> dict[str, str]:
        share = chance.random()
        if share < 0.5:
            return {_TTL: str(chance.choice(_SHORT_MS))}
        return {_TTL: str(_LONG_MS)} if share < 0.7 else {}

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        return super().may_be_missing(body, channel) or self._ttl(body) in _SHORT_SECONDS

    def broken(self) -> Iterator[str]:
        stored = self.notes.stored
        for _, event in self.notes.all(Delivered):
            ttl = self._ttl(event.body)
            if ttl and event.body in stored:
                sent, answered = self.notes.published[event.body].when, stored[event.body].when
                published = answered.at + max(sent.ahead, answered.ahead)
                late = _earliest(event.since, event.when) - published - ttl
                if late > SLACK_SECONDS:
                    yield f"expired: {shown(event.body)} was delivered {late:.3f} s too late, in life {event.life}"

    def _ttl(self, body: bytes) -> float:
        return int(self.notes.published[body].headers.get(_TTL, 0)) / 1000


_SHORT_SECONDS = {milliseconds / 1000 for milliseconds in _SHORT_MS}


def _earliest(since: Wall, until: Wall) -> float:
    """The wall clock at `since`, or less if it was put back until the other moment."""
    return since.at + min(since.ahead, until.ahead)
