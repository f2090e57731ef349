"""
Bounds of a backlog. With `reject` a refused message is not there, and no more wait than the bound says, also after a
start that finds messages waiting. With `drop_oldest` what is missing is older than what waits, as many wait as the
bound says, and all others are counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.crash.checks import name as shown
from tests.crash.history import Channel
from tests.crash.policies.clients import OVER_BOUND, STORED, V2Consumer, V3Publisher
from tests.crash.policies.notes import Delivered, Draining
from tests.crash.policies.row import Row

_MAX_DEPTH = 20
_MORE = 15
_FRAME_BYTES = 150
"""Of a message of `Heavy`: its body and what the broker adds to it."""
_ADDED_BYTES = 34
_TURNS = 10


class Rejecting(Row):
    """Publishes are refused when too many messages wait."""

    name = "rejecting"
    channel_policy = {"max_depth": _MAX_DEPTH}
    keeps = 0.4
    requeues = 0.3
    # What waits when the broker dies has been delivered, and is counted in another way.
    requeues_at_end = True

    def started(self) -> Iterator[str]:
        for _ in range(_TURNS):  # a bound in bytes begins some turns after a start
            before = self.stats(self.channels[0])
        yield from self.fill(before["depth"] + before["deferred_count"], _MAX_DEPTH)

    def fill(self, waiting: int, most: int) -> Iterator[str]:
        """Publish until that is refused, while so many messages wait of the most that may."""
        if self.notes.excused & self.notes.published.keys():
            return  # how many messages are gone from the log is known only when they are read
        outcomes = [STORED]
        publisher = V3Publisher(self.house)
        try:
            while outcomes[-1] == STORED and len(outcomes) <= most + _MORE:
                outcomes.append(self.publish_alone(publisher))
        finally:
            publisher.close()
        if (accepted := outcomes.count(STORED) - 1) != max(0, most - waiting) or outcomes[-1] != OVER_BOUND:
            yield f"bounds: {waiting} messages of {most} wait after a start, and {accepted} more were accepted"

    def probe(self) -> Iterator[str]:
        publisher = V3Publisher(self.house)
        try:
            outcomes = [publisher.publish(self.name, self.body(), {}, 0) for _ in range(_MAX_DEPTH + _MORE)]
        finally:
            publisher.close()
        if outcomes != [STORED] * _MAX_DEPTH + [OVER_BOUND] * _MORE:
            yield f"bounds: {outcomes.count(STORED)} messages of {_MAX_DEPTH} were accepted"
        if (depth := self.stats(self.channels[0])["depth"]) != outcomes.count(STORED):
            yield f"bounds: {outcomes.count(STORED)} messages were accepted, and {depth} wait"
            return
        self.take(V2Consumer, self.channels[0], outcomes.count(STORED))


class Heavy(Rejecting):
    """Publishes are refused when too many bytes wait. All messages have the same size."""

    name = "heavy"
    channel_policy = {"max_bytes": _MAX_DEPTH * _FRAME_BYTES}

    def body(self) -> bytes:
        body = super().body().ljust(_FRAME_BYTES - _ADDED_BYTES, b".")
        assert len(body) == _FRAME_BYTES - _ADDED_BYTES, "a seed that is too long"
        return body


class Dropping(Row):
    """One publisher: messages are in the log in the order in which they were published."""

    name = "dropping"
    channel_policy = {"max_depth": _MAX_DEPTH, "overflow": "drop_oldest"}
    requeues = 0.0

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        """A message was dropped if so many were published after it."""
        published = [*self.notes.published]
        return super().may_be_missing(body, channel) or published.index(body) < len(published) - _MAX_DEPTH

    def broken(self) -> Iterator[str]:
        begun = max(number for number, _ in self.notes.all(Draining))
        stored = [body for body in self.notes.published if body in self.notes.stored]
        delivered = self.notes.delivered[self.channels[0]]
        before = {body for body, deliveries in delivered.items() if deliveries[0][0] < begun}
        # Those that were in flight when the broker died are older, and come again.
        waited = [body for body in stored if body not in before and _first_attempts(delivered.get(body)) == 1]
        if not waited:
            return
        for body in stored[stored.index(waited[0]) :]:
            if body not in delivered and body not in self.notes.excused:
                yield f"bounds: {shown(body)} is missing, and {shown(waited[0])}, which is older, is not"

    def probe(self) -> Iterator[str]:
        channel = self.channels[0]
        before = self.stats(channel)
        publisher = V3Publisher(self.house)
        try:
            bodies = [self.publish_quietly(publisher) for _ in range(_MAX_DEPTH + _MORE)]
        finally:
            publisher.close()
        after = self.stats(channel)
        dropped = after["dropped_count"] - before["dropped_count"]
        if (after["depth"], dropped) != (_MAX_DEPTH, _MORE):
            yield f"bounds: of {len(bodies)} messages {after['depth']} wait, and {dropped} are counted as dropped"
            return
        taken = [message.body for message in self.take(V2Consumer, channel, _MAX_DEPTH)]
        if taken != bodies[_MORE:]:
            yield f"bounds: {sorted({*bodies[_MORE:]} - {*taken})} were dropped, and older ones were not"


def _first_attempts(deliveries: list[tuple[int, Delivered]] | None) -> int:
    return deliveries[0][1].attempts if deliveries else 0
