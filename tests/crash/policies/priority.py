"""Priorities: nothing is lost, and while all classes wait, most deliveries are of the highest."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.crash.policies.clients import HttpPublisher, V2Consumer
from tests.crash.policies.row import Row

_CLASSES = ("high", "normal", "low")
_PRIORITY = "priority"
_EACH = 16
_HIGH, _LOW = 12, 1
"""Of so many deliveries while all classes wait: at least, and at most."""


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
        said = chance.choice((*_CLASSES, ""))
        return {_PRIORITY: said} if said else {}

    def probe(self) -> Iterator[str]:
        of_class: dict[str, list[bytes]] = {}
        publisher = HttpPublisher(self.house)
        try:
            for said in reversed(_CLASSES):
                bodies = [self.publish_quietly(publisher, {_PRIORITY: said}) for _ in range(_EACH)]
                of_class[said] = bodies
        finally:
            publisher.close()
        taken = [message.body for message in self.take(V2Consumer, self.channels[0], _EACH * len(_CLASSES))]
        first = {said: len({*bodies} & {*taken[:_EACH]}) for said, bodies in of_class.items()}
        if first["high"] < _HIGH or first["low"] > _LOW:
            yield f"priority: the first {_EACH} deliveries were {first}"
        for said, bodies in of_class.items():
            if [body for body in taken if body in bodies] != bodies:
                yield f"priority: those of class {said} were not in the order of their publishes"
