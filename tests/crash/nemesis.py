"""What is done to a broker while clients are at it, and how it dies."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.crash.damage import DAMAGES
from tests.crash.failing_calls import Fault
from tests.crash.harness import Harness
from tests.crash.history import KILL, POWER, STOP, Damaged, Died, Journal, Jumped

MIDST, SETTLED, DRAINED, UNREAD = "in the midst", "settled", "drained", "unread"

_FORWARD_SECONDS = (1.0, 30.0, 3600.0, 86_400.0)
_BACKWARD_SECONDS = (-0.05, -0.3)
"""Small ones: what is deferred waits so much longer after a restart."""
_TAIL_DAMAGE = 0.25
_CLOCK_JUMPS = 0.3
_DYING_CALLS = 0.4
"""How often a call fails just before the broker dies."""


class End(NamedTuple):
    """How a round ends: what the clients have done by then, and how the broker dies."""

    scene: str
    how: str


ENDS = (
    *3 * (End(MIDST, KILL),),
    *2 * (End(SETTLED, KILL),),
    *2 * (End(MIDST, POWER),),
    End(DRAINED, KILL),
    End(UNREAD, KILL),
    End(UNREAD, STOP),
    End(UNREAD, POWER),
    End(MIDST, STOP),
    End(SETTLED, STOP),
)


class Nemesis:
    """Does harm to one broker, at random."""

    def __init__(
        self, harness: Harness, journal: Journal, backend: str, chance: random.Random, faults: Sequence[Fault]
    ) -> None:
        self._house = harness
        self._journal = journal
        self._damage = DAMAGES[backend]
        self._chance = chance
        self._faults = faults
        self._windows = 0
        self._deeds: list[Callable[[], None] | None] = []
        self.has_damaged = False

    def begin(self) -> None:
        """
        A new round. The clock jumps in some only: a deferral that lives through a jump and a restart may be as much too
        early, and shows nothing.
        """
        self._deeds = [None, None, None, self._pause, self._fill, self._limit, *2 * (self._fail_call,)]
        if self._chance.random() < _CLOCK_JUMPS:
            self._deeds.append(self._jump)

    def harm(self) -> bool:
        """Do something, or let things go on for a moment. Whether publishers may have been refused meanwhile."""
        # Traffic between two deeds: without any they would all fall on the same moment of the broker's life.
        time.sleep(self._chance.uniform(0.005, 0.05))
        deed = self._chance.choice(self._deeds)
        if deed is None:
            return False
        deed()
        return deed in (self._fill, self._limit, self._fail_call)

    def kill(self, how: str) -> None:
        """End its life."""
        if how == KILL and self._chance.random() < 0.2:
            self._house.halt()
        life = self._house.life
        if self._chance.random() < _DYING_CALLS:
            self._fail_call()
            if how == STOP:  # the stop meets it
                self._house.calls.meet(self._chance.choice(self._faults))
        self._house.die(how)
        self._house.calls.heal()
        self._journal.record(Died(life, how))

    def spoil(self) -> frozenset[bytes] | None:
        """Now and then damage what it left. The bodies of the messages that were hit; None when it did not."""
        if self._chance.random() >= _TAIL_DAMAGE:
            return None
        self.has_damaged = True
        messages = self._damage(self._house.data_path, self._chance)
        bodies, ids = frozenset(message.body for message in messages), frozenset(message.id for message in messages)
        self._journal.record(Damaged(bodies, ids))
        return bodies

    def _pause(self) -> None:
        self._house.halt()
        time.sleep(self._chance.uniform(0.01, 0.15))  # how long it stands still is the deed
        self._house.resume()

    def _jump(self) -> None:
        """Move the wall clock."""
        seconds = self._chance.choice((*_FORWARD_SECONDS, *_BACKWARD_SECONDS))
        began = len(self._journal.events)
        self._house.control.wall_offset_ns += int(seconds * 1e9)
        self._journal.record(Jumped(seconds, began))

    def _fill(self) -> None:
        """A full disk, as the layer of files sees it."""
        self._windows += 1
        self._house.control.fill_disk(self._windows, self._chance.choice((0, 1, 50, 500, 5000)))
        time.sleep(self._chance.uniform(0.01, 0.1))  # how long the disk is full is the deed
        self._house.control.free_disk()

    def _fail_call(self) -> None:
        """A call of the system fails, once or twice."""
        self._house.calls.meet(self._chance.choice(self._faults))
        time.sleep(self._chance.uniform(0.01, 0.1))  # what is done meanwhile decides which call it is
        self._house.calls.heal()

    def _limit(self) -> None:
        """A full disk for everything it writes, the positions too."""
        self._house.limit_files(0)
        time.sleep(self._chance.uniform(0.01, 0.1))  # how long the disk is full is the deed
        self._house.limit_files(None)
