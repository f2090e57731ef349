"""
Rate: in any span of one life of the broker no more deliveries than its bucket holds and is given meanwhile.

When a message was sent is not known here. It was after `since` of its delivery and before it was read: the span between
the two of the first and the last message of a run is longer than what the broker took, so no slow machine is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.crash.policies.clients import Publisher
from tests.crash.policies.notes import Delivered
from tests.crash.policies.row import Row
from tests.crash.policies.threads import Publishing

_RATE = 30
"""Messages a second; as many may be delivered at once after a pause."""
_MOST_WAITING = 30
_PAUSE_SECONDS = 0.05
"""Between two publishes while so many wait: what is left in the end has to be consumed."""


class Rate(Row):
    """A channel whose consumer could have more."""

    name = "paced"
    channel_policy = {"max_rate": _RATE}
    one_at_a_time = True

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        if len(self.notes.stored) - len(self.notes.all(Delivered)) > _MOST_WAITING:
            client.stopping.wait(_PAUSE_SECONDS)
        super().publish_next(client, publisher)

    def broken(self) -> Iterator[str]:
        of_life: dict[int, list[Delivered]] = defaultdict(list)
        for _, event in self.notes.all(Delivered):
            of_life[event.life].append(event)
        for life, events in of_life.items():
            # Of run [first, last]: last - first + 1 <= RATE * (last.when - first.since) + RATE, and one for rounding.
            earliest, begin = float("inf"), events[0]
            for number, event in enumerate(events):
                if (place := number - _RATE * event.since.at) < earliest:
                    earliest, begin = place, event
                if number - _RATE * event.when.at > earliest + _RATE:
                    seconds = event.when.at - begin.since.at
                    count = number + 1 - events.index(begin)
                    yield f"rate: {count} deliveries in {seconds:.3f} s of life {life}, at {_RATE} a second"
                    break
