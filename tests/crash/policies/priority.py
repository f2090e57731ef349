"""
Priorities: nothing is lost, and while all classes wait, most deliveries are of the highest. With a bound, the lowest
class loses messages first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from tests.crash.history import Channel
from tests.crash.policies.clients import HttpPublisher, V2Consumer
from tests.crash.policies.row import Row
from tests.crash.promises import await_promised

CLASSES = ("high", "normal", "low")
PRIORITY = "priority"
_EACH = 16
_HIGH, _LOW = 12, 1
"""Of so many deliveries while all classes wait: at least, and at most."""
_MAX_DEPTH = 20
_PROBED = 15
"""Messages of each class, of which not all are kept."""


class Priority(Row):
    """Messages of all classes, and some that say nothing."""

    name = "urgent"
    channel_policy = {"priority": True}
    # Consumers begin behind a backlog, and stop when they have as many messages as they have credit for. So the broker
    # is ahead in one class when it dies.
    backlog = 30
    keeps = 0.9
    most_kept = 1000

    def headers(self, chance: random.Random) -> dict[str, str]:
        said = chance.choice((*CLASSES, ""))
        return {PRIORITY: said} if said else {}

    def probe(self) -> Iterator[str]:
        of_class: dict[str, list[bytes]] = {}
        publisher = HttpPublisher(self.house)
        try:
            for said in reversed(CLASSES):
                bodies = [self.publish_quietly(publisher, {PRIORITY: said}) for _ in range(_EACH)]
                of_class[said] = bodies
        finally:
            publisher.close()
        taken = [message.body for message in self.take(V2Consumer, self.channels[0], _EACH * len(CLASSES))]
        first = {said: len({*bodies} & {*taken[:_EACH]}) for said, bodies in of_class.items()}
        if first["high"] < _HIGH or first["low"] > _LOW:
            yield f"priority: the first {_EACH} deliveries were {first}"
        for said, bodies in of_class.items():
            if [body for body in taken if body in bodies] != bodies:
                yield f"priority: those of class {said} were not in the order of their publishes"


class DroppingByPriority(Priority):
    """With a bound the oldest messages of the lowest class are dropped."""

    name = "urgent-dropping"
    channel_policy = {"priority": True, "max_depth": _MAX_DEPTH, "overflow": "drop_oldest"}
    backlog = 0

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        """Those that were in flight when the broker died have no class any more: any one may be dropped."""
        return super().may_be_missing(body, channel) or len(self.notes.published) > _MAX_DEPTH

    def started(self) -> Iterator[str]:
        channel = self.channels[0]
        # What was in flight waits again. It is dropped when its rows are saved.
        await_promised(lambda: self.stats(channel)["depth"] <= _MAX_DEPTH, "dropping down to the bound")
        stats = self.stats(channel)
        if sum(depths(stats)) > stats["depth"]:
            yield f"priority: {depths(stats)} messages of the classes wait, and {stats['depth']} in all"

    def probe(self) -> Iterator[str]:
        channel = self.channels[0]
        before = self.stats(channel)["dropped_count"]
        publisher = HttpPublisher(self.house)
        try:
            high, low, normal = (
                [self.publish_quietly(publisher, {PRIORITY: said}) for _ in range(_PROBED)]
                for said in ("high", "low", "normal")
            )
        finally:
            publisher.close()
        stats = self.stats(channel)
        expected = [_PROBED, _MAX_DEPTH - _PROBED, 0]
        if [*depths(stats), stats["dropped_count"] - before] != [*expected, 3 * _PROBED - _MAX_DEPTH]:
            yield f"priority: {depths(stats)} messages of the classes are left, and not {expected}"
            return
        taken = {message.body for message in self.take(V2Consumer, channel, _MAX_DEPTH)}
        if taken != {*high, *normal[_PROBED - expected[1] :]}:
            yield f"priority: {sorted({*high, *normal, *low} - taken)} were dropped"


def depths(stats: Mapping[str, Any]) -> list[int]:
    return [stats[f"{said}_depth"] for said in CLASSES]
