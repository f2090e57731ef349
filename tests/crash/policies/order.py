"""
Order by key: of the messages of a key one is in flight at a time, and in the order of the log.

There is one publisher, which waits for each answer: what was stored is in the log in the order of its publishes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.crash.checks import name as shown
from tests.crash.history import Channel
from tests.crash.policies.notes import Delivered, Finished, Requeued
from tests.crash.policies.row import Row
from tests.crash.policies.threads import Consuming

_KEYS = "abcdef"
_KEY = "key"


class Order(Row):
    """A few keys, and two consumers. They keep messages of fewer keys than there are, and so some go on."""

    name = "ordered"
    channel_policy = {"ordered_by": f"header:{_KEY}", "order_window": 12}
    keeps = 0.3
    most_kept = 3

    def headers(self, chance: random.Random) -> dict[str, str]:
        return {_KEY: chance.choice(_KEYS)}

    @property
    def consumed(self) -> Iterable[Channel]:
        return self.channels * 2

    def drainers(self) -> list[Consuming]:
        return [*super().drainers(), Consuming(self.house, self, self.channels[0], f"{self._seed}.2", tidy=True)]

    def broken(self) -> Iterator[str]:
        stored = self.notes.stored
        of_key: dict[str, list[bytes]] = defaultdict(list)
        for body, message in self.notes.published.items():
            of_key[message.headers[_KEY]].append(body)
        place = {body: number for bodies in of_key.values() for number, body in enumerate(bodies)}
        in_flight: dict[tuple[str, int], bytes] = {}
        finished: set[bytes] = set()
        for event in self.notes.events:
            if isinstance(event, (Finished, Requeued)):
                in_flight.pop((self._key(event.body), event.life), None)
                if isinstance(event, Finished):
                    finished.add(event.body)
            if not isinstance(event, Delivered):
                continue
            key = self._key(event.body)
            what = f"order: {shown(event.body)} was delivered in life {event.life}"
            if (key, event.life) in in_flight:
                yield f"{what} while {shown(in_flight[key, event.life])} of its key was in flight"
            in_flight[key, event.life] = event.body
            for earlier in of_key[key][: place[event.body]]:
                if earlier in stored and earlier not in finished and earlier not in self.notes.excused:
                    yield f"{what} before {shown(earlier)}"

    def _key(self, body: bytes) -> str:
        return self.notes.published[body].headers[_KEY]
