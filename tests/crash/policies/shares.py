"""
Shares of priorities: in the next life, too, no class starves while all of them wait, and the counts of each are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.crash.harness import Harness
from tests.crash.policies.aside import Aside
from tests.crash.policies.clients import STORED, HttpPublisher, V2Consumer
from tests.crash.policies.priority import CLASSES, PRIORITY, Priority, depths
from tests.crash.promises import await_promised, expect

_WAITING = {"low": 2, "normal": 12, "high": 40}
"""More high and normal ones than are delivered before the last low one."""
_TAKEN = 3
"""Messages that are finished in the first life."""
_MOST_BETWEEN = 30
"""Deliveries of other classes between two low ones."""


class Shares(Priority):
    """Beside the messages of `Priority`, some of all classes that wait when the broker dies."""

    name = "urgent-shares"

    def __init__(self, house: Harness, seed: str, durability: str) -> None:
        super().__init__(house, seed, durability)
        self._waiting = Aside(house, f"{self.name}.waiting", {"priority": True})
        self.asides = (self._waiting,)
        self._classes: dict[bytes, str] = {}

    def begin(self) -> None:
        publisher = HttpPublisher(self.house)
        try:
            for said, count in _WAITING.items():
                for _ in range(count):
                    body = self.body()
                    outcome = publisher.publish(self._waiting.channel.topic, body, {PRIORITY: said}, 0)
                    expect(outcome == STORED, "a publish while nothing fails", outcome)
                    self._classes[body] = said
        finally:
            publisher.close()
        self._finish_first()
        self.house.store()

    def started(self) -> Iterator[str]:
        classes, self._classes = self._classes, {}
        if classes and not self.notes.excused.intersection(classes):
            yield from self.miscounted(classes, self._depths())
            taken = self.take(V2Consumer, self._waiting.channel, len(classes))
            yield from self.starving([classes.get(message.body, "") for message in taken])
        self._waiting.empty()

    def miscounted(self, classes: Mapping[bytes, str], counts: Sequence[int]) -> Iterator[str]:
        """What is wrong with the counts of these messages."""
        expected = [[*classes.values()].count(said) for said in CLASSES]
        if [*counts] != expected:
            yield f"priority: {counts} messages of the classes are said to wait, and {expected} do"

    def starving(self, taken: Sequence[str]) -> Iterator[str]:
        """What is wrong with the classes of deliveries, of which the last ones need not be of all classes."""
        between = 0
        for number, said in enumerate(taken):
            between = 0 if said == "low" else between + 1
            if between > _MOST_BETWEEN and "low" in taken[number:]:
                yield f"priority: {between} deliveries before the next one of class low, which waits"
                return

    def _finish_first(self) -> None:
        """Finish the first messages, and take no others."""
        consumer = V2Consumer(self.house, *self._waiting.channel, _TAKEN)
        try:
            first = [consumer.next() for _ in range(_TAKEN)]
            consumer.pause()
            for message in first:
                assert message is not None
                consumer.finish(message)
                del self._classes[message.body]
            consumer.leave()
            more = consumer.next()
            expect(more is None, f"a consumer that was ready for {_TAKEN} messages", more)
        finally:
            consumer.close()

    def _depths(self) -> list[int]:
        """The depths of the classes, as soon as the broker knows them."""
        await_promised(lambda: f"{CLASSES[0]}_depth" in self._waiting.stats(), "counting the messages of each class")
        return depths(self._waiting.stats())
