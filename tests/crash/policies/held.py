"""
Held messages: a death changes nothing about messages that wait for room in the dead-letter topic.

Before clients of a round begin, messages fail for the last time while their dead-letter topic is full, and others wait
up to the bound of the channel. In the next life the former are held, the latter wait, and a bound that drops the oldest
drops of the latter only. Then there is room, and all that was held leaves without a consumer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.crash.checks import name as shown
from tests.crash.harness import Harness
from tests.crash.policies.aside import Aside
from tests.crash.policies.clients import STORED, HttpPublisher, V2Consumer
from tests.crash.policies.dead_letters import DeadLetters
from tests.crash.promises import await_promised, expect

_HELD = 3
_WAITING = 2
_MORE = 1
"""Messages that are held, that wait when the broker dies, and that come in its next life."""
_OK = 200


class Stay(NamedTuple):
    """What /stats says of the channel."""

    held: int
    depth: int
    dropped: int


class Held(DeadLetters):
    """Beside the messages of `DeadLetters`, some that are held when the broker dies."""

    name = "held"

    def __init__(self, house: Harness, seed: str, durability: str) -> None:
        super().__init__(house, seed, durability)
        full, policy = f"{self.name}.full", {"max_attempts": 1, "max_depth": _WAITING, "overflow": "drop_oldest"}
        self._failed = Aside(house, f"{self.name}.failed", {**policy, "dead_letter_topic": full})
        self._full = Aside(house, full, {"max_depth": 1})
        self.asides = (self._failed, self._full)
        self._held: list[bytes] = []
        self._others: list[bytes] = []
        """The messages that wait, and the one in the dead-letter topic."""

    def begin(self) -> None:
        publisher = HttpPublisher(self.house)
        consumer = V2Consumer(self.house, *self._failed.channel, 1)
        try:
            self._others.append(self._publish(publisher, self._full))
            for _ in range(_HELD):
                self._held.append(self._publish(publisher, self._failed))
                message = consumer.next()
                assert message is not None
                consumer.requeue(message, 0)
            consumer.leave()
            consumer.next()
            for _ in range(_WAITING):
                self._others.append(self._publish(publisher, self._failed))
        finally:
            publisher.close()
            consumer.close()
        await_promised(lambda: self._stay().held == _HELD, "holding messages for a dead-letter topic that is full")
        self.house.store()

    def started(self) -> Iterator[str]:
        held, others, self._held, self._others = self._held, self._others, [], []
        if held and not self.notes.excused.intersection(held + others):
            found = [*self.changed(self._stay())]
            if found:
                yield from found
                return
            publisher = HttpPublisher(self.house)
            try:
                for _ in range(_MORE):
                    self._publish(publisher, self._failed)
            finally:
                publisher.close()
            await_promised(lambda: self._stay().dropped, "dropping messages over a bound")
            yield from self.changed(self._stay(), _MORE)
            self._bound_letters(0)
            await_promised(lambda: not self._stay().held, "moving held messages when there is room")
            yield from self.not_left(held, self._letters())
            self._bound_letters(None)
        self._failed.empty()
        self._full.empty()

    def changed(self, stay: Stay, more: int = 0) -> Iterator[str]:
        """All that is wrong with what a new life has, when so many more messages came than the bound allows."""
        if stay != Stay(_HELD, _HELD + _WAITING, more):
            yield f"held: {_HELD} messages were held and {_WAITING} waited, {more} came, and there is {stay}"

    def not_left(self, held: Sequence[bytes], letters: Sequence[bytes]) -> Iterator[str]:
        """All that is wrong with what came to the dead-letter topic when it had room."""
        for body in held:
            if letters.count(body) != 1:
                yield f"held: {shown(body)} was held, and is a dead letter {letters.count(body)} times"

    def _publish(self, publisher: HttpPublisher, aside: Aside) -> bytes:
        body = self.body()
        outcome = publisher.publish(aside.channel.topic, body, {}, 0)
        expect(outcome == STORED, "a publish while nothing fails", outcome)
        return body

    def _stay(self) -> Stay:
        stats = self._failed.stats()
        return Stay(stats.get("held_count", 0), stats["depth"], stats.get("dropped_count", 0))

    def _bound_letters(self, most: int | None) -> None:
        """Change the bound of the dead-letter topic; None: as in the config file."""
        topic, channel = self._full.channel
        path = f"/v2/channel/policy?topic={topic}&channel={channel}"
        answer = self.house.http("PUT", path, json.dumps({"max_depth": most}).encode())
        expect(answer.status == _OK, path, answer)

    def _letters(self) -> list[bytes]:
        """Consume the dead-letter topic. The bodies of what it had."""
        count, bodies = self._full.stats()["depth"], list[bytes]()
        consumer = V2Consumer(self.house, *self._full.channel, 1)
        try:
            for _ in range(count):
                message = consumer.next()
                assert message is not None
                bodies.append(message.body)
                consumer.finish(message)
        finally:
            consumer.close()
        return bodies
