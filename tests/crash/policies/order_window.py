"""
The window of an ordered channel: so many messages are set aside and no more, nothing behind them is read meanwhile, and
that is so in the next life, too.

There is one message more of one key than the window and its head, and one of another key behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.crash.checks import name as shown
from tests.crash.harness import Harness
from tests.crash.policies.aside import Aside
from tests.crash.policies.clients import STORED, HttpPublisher, V2Consumer
from tests.crash.policies.order import Order
from tests.crash.promises import Broken, await_promised, expect

_WINDOW = 5
_MORE = 3
"""Messages of the key behind the window."""
_KEY, _BUSY, _FREE = "key", "busy", "free"
_CREDIT = 40


class OrderWindow(Order):
    """Beside the messages of `Order`, a window that is full when the broker dies."""

    name = "ordered-window"

    def __init__(self, house: Harness, seed: str, durability: str) -> None:
        super().__init__(house, seed, durability)
        policy = {"ordered_by": f"header:{_KEY}", "order_window": _WINDOW}
        self._waiting = Aside(house, f"{self.name}.waiting", policy)
        self.asides = (self._waiting,)
        self._bodies: list[bytes] = []
        """Those of the busy key, and the one of the free key behind them."""

    def begin(self) -> None:
        keys = [*[_BUSY] * (1 + _WINDOW + _MORE), _FREE]
        publisher = HttpPublisher(self.house)
        try:
            for key in keys:
                self._bodies.append(self.body())
                outcome = publisher.publish(self._waiting.channel.topic, self._bodies[-1], {_KEY: key}, 0)
                expect(outcome == STORED, "a publish while nothing fails", outcome)
        finally:
            publisher.close()
        consumer = V2Consumer(self.house, *self._waiting.channel, _CREDIT)
        try:
            first, set_aside = consumer.next(), self._set_aside()
            consumer.leave()
            got = [message for message in (first, consumer.next()) if message is not None]
        finally:
            consumer.close()
        found = [*self.read_too_far(self._bodies, [message.body for message in got], set_aside)]
        if found:
            raise Broken("\n".join(found))
        self.house.store()

    def started(self) -> Iterator[str]:
        bodies, self._bodies = self._bodies, []
        if bodies and not self.notes.excused.intersection(bodies):
            consumer = V2Consumer(self.house, *self._waiting.channel, _CREDIT)
            try:
                set_aside = self._set_aside()
                got: list[bytes] = []
                while len(got) < len(bodies) and (message := consumer.next()) is not None:
                    got.append(message.body)
                    consumer.finish(message)
            finally:
                consumer.close()
            yield from self.read_too_far(bodies, got, set_aside)
        self._waiting.empty()

    def read_too_far(self, bodies: Sequence[bytes], got: Sequence[bytes], set_aside: int) -> Iterator[str]:
        """
        All that is wrong with what a consumer got of these messages, if it finished each before it read the next one,
        or none. `set_aside`: how many were while it had the first one.
        """
        if set_aside != _WINDOW:
            yield f"order: {set_aside} messages are set aside in a window of {_WINDOW}"
        *busy, free = bodies
        if [body for body in got if body != free] != busy[: len(got) - got.count(free)]:
            yield f"order: the messages of a key came as {[*map(shown, got)]}"
        if free in got[: 1 + _MORE]:
            yield f"order: {shown(free)} was read beyond a full window"

    def _set_aside(self) -> int:
        """Return how many messages are set aside when the window is full."""
        count = 0

        def is_full() -> bool:
            nonlocal count
            count = self._waiting.stats().get("order", {}).get("set_aside", 0)
            return count >= _WINDOW

        await_promised(is_full, "filling the window of an order")
        return count
