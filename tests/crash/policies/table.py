"""The rows of a campaign."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from tests.crash.harness import Harness
from tests.crash.history import Channel
from tests.crash.policies.age import Aging, AgingByPriority
from tests.crash.policies.bounds import Dropping, Heavy, Rejecting
from tests.crash.policies.dead_letters import DeadLetters, ExpiredLetters
from tests.crash.policies.deduplication import Deduplication, DirectedDeduplication
from tests.crash.policies.delay import Delay
from tests.crash.policies.directed import Directed
from tests.crash.policies.expiry import Expiry
from tests.crash.policies.headers import Headers
from tests.crash.policies.held import Held
from tests.crash.policies.last_delivery import LastDelivery
from tests.crash.policies.live import Live
from tests.crash.policies.long_delay import LongDelay
from tests.crash.policies.notes import Delivered, Event, Saved
from tests.crash.policies.order import Order
from tests.crash.policies.order_window import OrderWindow
from tests.crash.policies.priority import DroppingByPriority, Priority
from tests.crash.policies.rate import Rate
from tests.crash.policies.row import Row
from tests.crash.policies.schedule import Schedule
from tests.crash.policies.shares import Shares
from tests.crash.policies.threads import Consuming, Publishing

ROWS: dict[str, type[Row]] = {
    row.name: row
    for row in (
        *(
            Headers,
            Directed,
            DeadLetters,
            Held,
            LastDelivery,
            ExpiredLetters,
            Expiry,
            Rejecting,
            Heavy,
            Dropping,
            Aging,
        ),
        *(Rate, Delay, LongDelay, Deduplication, DirectedDeduplication, Order, OrderWindow),
        *(Priority, Shares, DroppingByPriority, AgingByPriority, Schedule, Live),
    )
}
AT_ONCE = 3
"""Rows with traffic in a round: more would be work for this process, and not for the broker."""


class Rows:
    """The rows of these names on one broker. Some of them, by chance, have clients in a round."""

    def __init__(self, house: Harness, names: Iterable[str], seed: str, durability: str, chance: random.Random) -> None:
        self._all = [ROWS[name](house, seed, durability) for name in names]
        self._used: list[Row] = []
        """Those with messages since all was drained last."""
        self._chance = chance
        self._durability = durability

    def config(self) -> str:
        """Tables of the config file."""
        return "".join(row.config() for row in self._all)

    def create(self) -> None:
        """Create all topics and channels."""
        for row in self._all:
            row.create()

    def move(self, house: Harness) -> None:
        """Another broker has the topics now."""
        for row in self._all:
            row.house = house

    def clients(self) -> tuple[list[Publishing], list[Consuming]]:
        """Begin the next round, which has these clients."""
        publishing: list[Publishing] = []
        consuming: list[Consuming] = []
        for row in self._chance.sample(self._all, min(AT_ONCE, len(self._all))):
            if row not in self._used:
                self._used.append(row)
            row.begin()
            more = row.clients()
            publishing += more[0]
            consuming += more[1]
        return publishing, consuming

    def excuse(self, bodies: Iterable[bytes]) -> None:
        """These messages were in files that were damaged."""
        for row in self._all:
            row.notes.excused.update(bodies)
            row.notes.damaged.update(bodies)

    def lose_power(self) -> None:
        """What is not on stable storage is gone."""
        for row in self._all if self._durability != "fsync" else ():
            row.notes.excuse_all()

    def saved(self, life: int) -> None:
        """All that consumers said before is saved."""
        for row in self._used:
            row.notes.note(Saved(life))

    def started(self) -> Iterator[str]:
        """All that is wrong with what a new life has of the one before."""
        for row in self._used:
            yield from row.started()

    def close(self) -> None:
        """Leave no connection behind."""
        for row in self._all:
            row.close()

    # -- the end of a chapter

    def drainers(self) -> list[Consuming]:
        """Consumers for all that is left."""
        return [consuming for row in self._used for consuming in row.drainers()]

    def settle(self, await_empty: Callable[[Sequence[Channel]], None]) -> None:
        """Return when consumers have taken everything."""
        for row in self._used:
            await_empty(row.all_channels)
            row.settle(partial(await_empty, row.all_channels))

    def wrongs(self) -> Iterator[str]:
        """All that is wrong. Everything is drained, and nobody is connected."""
        for row in self._used:
            yield from [*row.wrongs()] or row.probe()

    def archive(self) -> None:
        """A new chapter begins."""
        for row in self._used:
            row.notes.archive()
        self._used = []

    def events(self) -> Iterator[Event]:
        """All that was noted, for a report."""
        for row in self._used:
            yield from row.notes.events

    def counts(self) -> tuple[int, int]:
        """Messages that were stored, and deliveries, since the last chapter."""
        notes = [row.notes for row in self._used]
        return sum(len(one.stored) for one in notes), sum(len(one.all(Delivered)) for one in notes)
