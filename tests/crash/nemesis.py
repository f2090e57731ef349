"""What is done to a broker while clients are at it, and how it dies."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.crash.damage import DAMAGES
from tests.crash.history import KILL, POWER, STOP, Damaged, Died, Journal, Jumped
from tests.crash.house import House

MIDST, SETTLED, DRAINED = "in the midst", "settled", "drained"

_FORWARD_SECONDS = (1.0, 30.0, 3600.0, 86_400.0)
_BACKWARD_SECONDS = (-0.05, -0.3)
"""Small ones: what is deferred waits so much longer after a restart."""
_TAIL_DAMAGE = 0.25
_CLOCK_JUMPS = 0.3


class End(NamedTuple):
    """How a round ends: what the clients have done by then, and how the broker dies."""

    scene: str
    how: str


ENDS = (
    *3 * (End(MIDST, KILL),),
    *2 * (End(SETTLED, KILL),),
    *2 * (End(MIDST, POWER),),
    End(DRAINED, KILL),
    End(MIDST, STOP),
    End(SETTLED, STOP),
)


class Nemesis:
    """Does harm to one broker, at random."""

    def __init__(self, house: House, journal: Journal, backend: str, chance: random.Random) -> None:
        self._house = house
        self._journal = journal
        self._damage = DAMAGES[backend]
        self._chance = chance
        self._windows = 0
        self._deeds: list[Callable[[], None] | None] = []
        self.has_damaged = False

    def begin(self) -> None:
        """
        A new round. The clock jumps in some only: a deferral that lives through a jump and a restart may be as much too
        early, and shows nothing.
        """
        self._deeds = [None, None, None, self._pause, self._fill, self._limit]
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
        return deed in (self._fill, self._limit)

    def kill(self, how: str) -> None:
        """End its life."""
        if how == KILL and self._chance.random() < 0.2:
            self._house.halt()
        life = self._house.life
        self._house.die(how)
        self._journal.note(Died(life, how))

    def spoil(self) -> None:
        """Now and then damage what it left."""
        if self._chance.random() < _TAIL_DAMAGE:
            self.has_damaged = True
            bodies = self._damage(self._house.data_path, self._chance)
            self._journal.note(Damaged(bodies))

    def _pause(self) -> None:
        self._house.halt()
        time.sleep(self._chance.uniform(0.01, 0.15))  # how long it stands still is the deed
        self._house.resume()

    def _jump(self) -> None:
        """Move the wall clock."""
        seconds = self._chance.choice((*_FORWARD_SECONDS, *_BACKWARD_SECONDS))
        began = len(self._journal.events)
        self._house.control.wall_offset_ns += int(seconds * 1e9)
        self._journal.note(Jumped(seconds, began))

    def _fill(self) -> None:
        """A full disk, as the layer of files sees it."""
        self._windows += 1
        self._house.control.fill_disk(self._windows, self._chance.choice((0, 1, 50, 500, 5000)))
        time.sleep(self._chance.uniform(0.01, 0.1))  # how long the disk is full is the deed
        self._house.control.free_disk()

    def _limit(self) -> None:
        """A full disk for everything it writes, the positions too."""
        self._house.limit_files(0)
        time.sleep(self._chance.uniform(0.01, 0.1))  # how long the disk is full is the deed
        self._house.limit_files(None)
