"""What is done to two brokers, their store, and the network between them."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from nsqtw.errors import ReplicaError
from nsqtw.tools.replicate import promote
from tests.crash.history import moment
from tests.crash.promises import Broken, await_promised
from tests.crash.takeover.brokers import PLACES, REPLACED, Brokers, Replica
from tests.crash.takeover.database import Database
from tests.crash.takeover.links import Link

_STAYS_DOWN = 0.7
_PROMOTION_SECONDS = 30.0


class Nemesis:
    """
    Does harm, at random. `store_name`: the store, over a network that nobody breaks. `lease`: that of the brokers, in
    seconds.
    """

    def __init__(
        self,
        brokers: Brokers,
        database: Database,
        links: dict[str, Link],
        store_name: str,
        lease: float,
        chance: random.Random,
    ) -> None:
        self._brokers = brokers
        self._database = database
        self._links = links
        self._store_name = store_name
        self._lease = lease
        self._chance = chance
        self._windows = 0
        self.struck = 0.0
        """When the last deed began."""

    def can(self, deed: str) -> bool:
        """Whether a deed can be done here."""
        return deed != "fill store" or self._database.has_disks

    def do(self, deed: str, owner: Replica) -> None:
        """Do it, and undo what can be undone."""
        self.struck = moment()
        self.DEEDS[deed](self, owner)

    # -- processes

    def _kill_owner(self, owner: Replica) -> None:
        with self._down(owner):
            owner.send(signal.SIGKILL)

    def _stop_owner(self, owner: Replica) -> None:
        """It stands still until another broker serves, and longer; nothing it does then may count."""
        owner.halt()
        self._await_epoch(owner)
        if self._chance.random() < 0.5:
            self._brokers.await_owner(owner.life)
            time.sleep(self._chance.uniform(0, 1))  # the other one has traffic meanwhile
        owner.resume()
        self._await_replaced(owner)

    def _pause_owner(self, owner: Replica) -> None:
        """It stands still for about a lease: another broker may take over, or not."""
        owner.halt()
        time.sleep(self._lease * self._chance.uniform(0.3, 1.5))  # longer than the lease or not: how long is the deed
        owner.resume()

    def _end_owner(self, owner: Replica) -> None:
        owner.send(signal.SIGTERM)
        self._await_epoch(owner)

    def _promote(self, owner: Replica) -> None:
        self._call_promote(must_force=False)

    def _force(self, owner: Replica) -> None:
        self._call_promote(must_force=True)
        self._await_replaced(owner)

    def _kill_standby(self, owner: Replica) -> None:
        standby = self._brokers.standby_of(owner).current
        if standby is not None:
            standby.send(signal.SIGKILL)

    def _kill_both(self, owner: Replica) -> None:
        self._kill_standby(owner)
        owner.send(signal.SIGKILL)
        self._await_epoch(owner)

    # -- the store

    def _lose_primary(self, owner: Replica) -> None:
        with self._forgiving():
            if self._chance.random() < 0.3:
                owner.send(signal.SIGKILL)
            self._database.lose_primary()
            self._brokers.await_owner()

    def _freeze_store(self, owner: Replica) -> None:
        with self._forgiving(), self._database.freeze(primary=self._chance.random() < 0.6):
            time.sleep(self._chance.uniform(0.3, 2 * self._lease))  # how long it is frozen is the deed

    def _fill_store(self, owner: Replica) -> None:
        with self._forgiving():
            self._database.fill()
            time.sleep(self._chance.uniform(0.3, 2))  # how long it is full is the deed
            self._database.repair()

    # -- the network

    def _part_owner(self, owner: Replica) -> None:
        self._part(self._links[owner.place])

    def _part_standby(self, owner: Replica) -> None:
        self._part(*[self._links[place] for place in PLACES if place != owner.place])

    def _part_both(self, owner: Replica) -> None:
        self._part(*self._links.values())

    def _part(self, *links: Link) -> None:
        how = self._chance.choice(("cut", "hold", "hold requests", "hold answers"))
        with self._forgiving():
            for link in links:
                if how == "cut":
                    link.cut()
                else:
                    link.hold(requests=how != "hold answers", answers=how != "hold requests")
            time.sleep(self._chance.uniform(0.3, self._lease + 4))  # how long it is cut off is the deed
            resets = self._chance.random() < 0.5
            for link in links:
                link.heal(resets=resets)

    def _slow_down(self, owner: Replica) -> None:
        seconds = self._chance.uniform(0.002, 0.1)
        for link in self._links.values():
            link.slow(seconds)
        time.sleep(self._chance.uniform(0.5, 2))  # how long it is slow is the deed
        for link in self._links.values():
            link.heal()

    # -- the disks of brokers

    def _fill_owner(self, owner: Replica) -> None:
        self._fill(owner)

    def _fill_standby(self, owner: Replica) -> None:
        standby = self._brokers.standby_of(owner).current
        if standby is not None and standby.runs:
            self._fill(standby)

    def _fill(self, replica: Replica) -> None:
        self._windows += 1
        is_for_all = self._chance.random() < 0.5
        with self._forgiving():
            if is_for_all:
                replica.limit_files(0)
            else:
                replica.control.fill_disk(self._windows, self._chance.choice((0, 1, 50, 500, 5000)))
            time.sleep(self._chance.uniform(0.05, 1.5))  # how long the disk is full is the deed
            replica.control.free_disk()
            if is_for_all and replica.runs:
                replica.limit_files(None)

    DEEDS: ClassVar[dict[str, Callable[[Nemesis, Replica], None]]] = {
        "kill owner": _kill_owner,
        "stop owner": _stop_owner,
        "pause owner": _pause_owner,
        "end owner": _end_owner,
        "promote": _promote,
        "force": _force,
        "kill standby": _kill_standby,
        "kill both": _kill_both,
        "lose primary": _lose_primary,
        "freeze store": _freeze_store,
        "fill store": _fill_store,
        "part owner": _part_owner,
        "part standby": _part_standby,
        "part both": _part_both,
        "slow down": _slow_down,
        "fill owner": _fill_owner,
        "fill standby": _fill_standby,
    }

    # -- inside

    @contextmanager
    def _down(self, owner: Replica) -> Iterator[None]:
        """What is done to the owner; perhaps it stays down until another one has taken over."""
        keeper = self._brokers.keepers[owner.place]
        if self._chance.random() < _STAYS_DOWN:
            keeper.allowed.clear()
        try:
            yield
            self._await_epoch(owner)
        finally:
            keeper.allowed.set()

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        """A broker that cannot begin to serve meanwhile may end with an error."""
        self._brokers.is_forgiving = True
        yield

    def _await_epoch(self, owner: Replica) -> None:
        self._brokers.await_owner(owner.life)

    def _await_replaced(self, owner: Replica) -> None:
        await_promised(lambda: not owner.runs, f"the end of {owner.place}, whose epoch {owner.life} is over")
        if owner.exit_code != REPLACED:
            raise Broken(f"exit: {owner.place}, whose epoch is over, ended with {owner.exit_code}")

    def _call_promote(self, *, must_force: bool) -> None:
        try:
            promote(self._store_name, must_force, _PROMOTION_SECONDS, lambda line: None)
        except ReplicaError as failure:
            raise Broken(f"promote: {failure}") from failure
