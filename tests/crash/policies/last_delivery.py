"""
Last deliveries: the death of the broker is no failure of a consumer, and no message lives forever by it.

When the broker dies, messages are in flight on the only delivery that is allowed. In the next life they come once more.
Another message is never answered and is in flight in each life, as if it were what kills the broker: it becomes a dead
letter after some more deliveries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nsqtw.core.policy.undelivered import MAX_INTERRUPTIONS
from tests.crash.checks import name as shown
from tests.crash.harness import Harness
from tests.crash.policies.aside import Aside
from tests.crash.policies.clients import STORED, Got, HttpPublisher, V2Consumer
from tests.crash.policies.dead_letters import DeadLetters
from tests.crash.promises import Broken, expect

_COUNT = 3
_CREDIT = 40
MOST = 1 + MAX_INTERRUPTIONS
"""Deliveries of a message that always interrupts the broker."""


class LastDelivery(DeadLetters):
    """Beside the messages of `DeadLetters`, some that are in flight on their last delivery when the broker dies."""

    name = "last"

    def __init__(self, house: Harness, seed: str, durability: str) -> None:
        super().__init__(house, seed, durability)
        self._aside = Aside(house, f"{self.name}.aside", {"max_attempts": 1})
        self.asides = (self._aside,)
        self._in_flight: list[bytes] = []
        self._unanswered = b""
        """The message that is never answered,"""
        self._attempts = 0
        """and how often it was delivered."""
        self._consumer: V2Consumer | None = None

    def begin(self) -> None:
        self._consumer = V2Consumer(self.house, *self._aside.channel, _CREDIT)
        found = [*self._interrupted(self._consumer)]
        if found:
            raise Broken("\n".join(found))
        if not self._unanswered:
            self._unanswered, self._attempts = self._publish(), 1
        self._in_flight = [self._publish() for _ in range(_COUNT)]
        self._take(self._consumer, self._in_flight[-1])
        self.house.store()

    def started(self) -> Iterator[str]:
        self.close()
        if self.notes.excused.intersection((*self._in_flight, self._unanswered)):
            self._in_flight, self._unanswered = [], b""
            self._aside.empty()
        yield from ()

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def changed(self, bodies: Sequence[bytes], got: Mapping[bytes, int]) -> Iterator[str]:
        """All that is wrong with messages that were in flight at a death. `got`: the attempts of what came after it."""
        for body in bodies:
            if got.get(body) != 2:
                yield f"last delivery: {shown(body)} was in flight at a death, and came back with {got.get(body)}"

    def kept(self, attempts: int, now: int | None) -> Iterator[str]:
        """All that is wrong with a message that is never answered. Its attempts before and now; None: it is gone."""
        if now != (None if attempts == MOST else attempts + 1):
            yield f"last delivery: what is never answered was delivered {attempts} times, and in the next life {now}"

    def _interrupted(self, consumer: V2Consumer) -> Iterator[str]:
        """Have delivered, and finish, what was in flight when the broker died. All that is wrong with it."""
        end = self._publish()
        got = self._take(consumer, end)
        for body, message in got.items():
            if body != self._unanswered:
                consumer.finish(message)
        attempts = {body: message.attempts for body, message in got.items()}
        yield from self.changed(self._in_flight, attempts)
        if self._unanswered:
            now = attempts.get(self._unanswered)
            yield from self.kept(self._attempts, now)
            self._unanswered, self._attempts = (b"", 0) if now is None else (self._unanswered, now)

    def _take(self, consumer: V2Consumer, last: bytes) -> dict[bytes, Got]:
        """Return what is delivered up to a message, by body."""
        got: dict[bytes, Got] = {}
        while last not in got:
            message = consumer.next()
            assert message is not None
            got[message.body] = message
        return got

    def _publish(self) -> bytes:
        """Publish a message. Its body."""
        body, publisher = self.body(), HttpPublisher(self.house)
        try:
            outcome = publisher.publish(self._aside.channel.topic, body, {}, 0)
        finally:
            publisher.close()
        expect(outcome == STORED, "a publish while nothing fails", outcome)
        return body
