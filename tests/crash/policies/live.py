"""
Policies that are set while the broker runs: what was answered is in force in the next life, in the answers of the
broker and in what it does; what was not answered may be or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from tests.crash.harness import Harness
from tests.crash.policies.bounds import Rejecting
from tests.crash.policies.clients import STORED, HttpPublisher, Publisher
from tests.crash.policies.threads import Publishing
from tests.crash.promises import expect

_CHANGES = 0.05
_OK, _FAILED = 200, 500
Value = str | int | None


class Setting(NamedTuple):
    """A setting, and the query that names its topic or channel."""

    query: str
    name: str


WINDOW = Setting("topic/policy?topic=live", "dedupe_window")
DEPTH = Setting("channel/policy?topic=live&channel=work", "max_depth")
_VALUES: dict[Setting, tuple[Value, ...]] = {WINDOW: ("1000h0m0s", None), DEPTH: (10, 20, 30, None)}


class Knowledge:
    """For each setting the values that may be in force after a crash. None: it is not set."""

    def __init__(self) -> None:
        self._possible: dict[Setting, list[Value]] = {setting: [None] for setting in _VALUES}

    def asked(self, setting: Setting, value: Value) -> None:
        """It is going to be set."""
        self._possible[setting].append(value)

    def answered(self, setting: Setting, value: Value) -> None:
        """It was set, and that is saved."""
        self._possible[setting] = [value]

    def found(self, setting: Setting, value: Value) -> Iterator[str]:
        """A new life has this value. What is wrong with that."""
        if value not in self._possible[setting]:
            yield f"policy: {setting.name} is {value}, and could be {self._possible[setting]}"
        self._possible[setting] = [value]


class Live(Rejecting):
    """A window of publishers' ids and a bound, both switched on, changed and switched off."""

    name = "live"
    channel_policy = {}

    def __init__(self, house: Harness, seed: str, durability: str) -> None:
        super().__init__(house, seed, durability)
        self.knowledge = Knowledge()

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        if client.chance.random() < _CHANGES:
            setting = client.chance.choice([*_VALUES])
            setter = HttpPublisher(self.house)
            try:
                self._set(setter, setting, client.chance.choice(_VALUES[setting]))
            finally:
                setter.close()
        super().publish_next(client, publisher)

    def _set(self, setter: HttpPublisher, setting: Setting, value: Value) -> None:
        self.knowledge.asked(setting, value)
        document = json.dumps({setting.name: value}).encode()
        status, _ = setter.order(f"/v2/{setting.query}", (_OK, _FAILED), "PUT", document)
        if status == _OK:
            self.knowledge.answered(setting, value)

    def started(self) -> Iterator[str]:
        values: dict[Setting, Value] = {}
        for setting in _VALUES:
            document = json.loads(self.house.http("GET", f"/v2/{setting.query}").body)
            values[setting] = document["set"].get(setting.name)
            yield from self.knowledge.found(setting, values[setting])
        most = values[DEPTH]
        if isinstance(most, int):
            if values[WINDOW] and self._waiting() + 1 < most:
                yield from self._repeat()
            yield from self.fill(self._waiting(), most)

    def _waiting(self) -> int:
        stats = self.stats(self.channels[0])
        waiting: int = stats["depth"] + stats["deferred_count"]
        return waiting

    def _repeat(self) -> Iterator[str]:
        """A repeat is not stored. It is noted nowhere: whoever gets it gets what was never sent."""
        publisher, before = HttpPublisher(self.house), self._waiting()
        headers = {"id": self.body().decode()}
        try:
            first, second = self.publish_alone(publisher, headers), publisher.publish(self.name, b"repeat", headers, 0)
            expect(first == second == STORED, "a publish below the bound, and its repeat", (first, second))
        finally:
            publisher.close()
        if (more := self._waiting() - before) != 1:
            yield f"policy: a publish and its repeat are {more} messages, with {WINDOW.name}"

    def probe(self) -> Iterator[str]:
        return iter(())
