"""
Settings of Python's garbage collector that avoid long pauses with ten thousand channels.

Theory of operation. Objects without references are freed at once; the collector only searches for cycles. It scans
young objects often and all objects now and then, and that takes 100 ms with ten thousand channels, none of which is
garbage. So objects that survived a full collection are frozen: they are not scanned again while the broker is busy. A
full collection then scans what was created since the last one. To keep that small, it runs after fewer young
collections than usual. Code that creates many temporary objects, like /stats, is `undisturbed`: a scan would find all
of them in use.

A cycle that is frozen and then dropped stays in memory. A closed connection leaves none, so this is rare. Everything is
scanned again when the process has grown by MAX_FROZEN_BYTES, or by half if that is more, since the last time. So the
memory of dead cycles has a bound in bytes, and a process that only grows is scanned less and less often. The size is
read after each full collection, which runs after some thousand new objects. A broker that has been idle for a minute
also scans everything, if something was frozen since.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nsqtw.runtime.process_memory import resident_bytes
from nsqtw.runtime.reactor import Reactor

YOUNG_OBJECTS = 700
"""So many more are made than freed before young ones are looked at."""
LOOKS = 2
"""At young ones before one at those that survived them, too; and of those before one at all. An object takes 1 us."""
MAX_FROZEN_BYTES = 32 * 1024 * 1024
"""Growth that dead cycles may be the cause of."""
MAX_DEAD = 100_000
"""Objects that may be frozen beyond twice what was left, where the system does not tell the size of the process."""
ROUND_SECONDS = 60.0
_IDLE_SHARE = 0.01
"""An idle broker computes for less than this part of the time."""


class Garbage:
    """Looks after the collector of this process, from `start` on, for as long as `reactor` runs."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._computed = 0.0
        self._is_due = False
        self._left_bytes = 0
        self._left = 0
        """Objects that the last look at all has left, or the start."""

    def start(self) -> None:
        """Freeze what the start has created. Takes little time: clients wait for a start."""
        gc.set_threshold(YOUNG_OBJECTS, LOOKS, LOOKS)
        gc.callbacks.append(_freeze_survivors)
        gc.freeze()
        _forget_size()
        self._record()
        gc.callbacks.append(self._collected)
        self._wait()

    def _wait(self) -> None:
        self._computed = time.process_time()
        self._reactor.callLater(ROUND_SECONDS, self._round)

    def _round(self) -> None:
        is_idle = time.process_time() - self._computed < _IDLE_SHARE * ROUND_SECONDS
        if (is_idle and gc.get_freeze_count() != self._left) or self._has_grown():
            self._check()
        self._wait()

    def _collected(self, phase: str, about: dict[str, int]) -> None:
        """Called by the collector. A look at everything has to wait until it is done."""
        if phase == "stop" and about["generation"] == 2 and not self._is_due and self._has_grown():
            self._is_due = True
            self._reactor.callLater(0, self._check)

    def _has_grown(self) -> bool:
        size = resident_bytes()
        if size is None:
            return gc.get_freeze_count() > 2 * self._left + MAX_DEAD
        return size > self._left_bytes + max(MAX_FROZEN_BYTES, self._left_bytes // 2)

    def _check(self) -> None:
        self._is_due = True  # the collections that this makes ask for no other
        check_all()
        _forget_size()
        self._is_due = False
        self._record()

    def _record(self) -> None:
        self._left = gc.get_freeze_count()
        self._left_bytes = resident_bytes() or 0


def check_all() -> None:
    """A full collection, of what is frozen too."""
    gc.unfreeze()
    gc.collect()


def all_objects() -> list[Any]:
    """
    Return the number of objects that the collector knows, frozen or not. Frozen ones stay frozen, and young ones become
    so.
    """
    are_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    objects = gc.get_objects()
    if are_frozen:
        gc.freeze()
    return objects


@contextmanager
def undisturbed() -> Iterator[None]:
    """A context without collections, for short work in the reactor thread."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _forget_size() -> None:
    """After a full collection the next one is not before there are a quarter as many new objects: look at nothing."""
    gc.collect()


def _freeze_survivors(phase: str, about: dict[str, int]) -> None:
    if phase == "stop" and about["generation"] == 2:
        gc.freeze()
