"""Garbage collection: what stays is not looked at again, until there is nothing else to do."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock

from nsqtw.runtime import memory
from nsqtw.runtime.memory import MAX_DEAD, MAX_FROZEN_BYTES, ROUND_SECONDS, Garbage, undisturbed


@pytest.fixture
def clock() -> Iterator[Clock]:
    """A reactor; afterwards the collector of the tests' process is what it was."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield Clock()
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_survived_a_full_collection_is_not_looked_at_again(clock: Clock) -> None:
    stays = Node()
    Garbage(clock).start()
    assert not any(one is stays for one in gc.get_objects())
    comes = Node()
    assert any(one is comes for one in gc.get_objects())
    gc.collect()
    assert not any(one is comes for one in gc.get_objects())


def test_garbage_that_was_frozen_is_found_when_there_is_nothing_else_to_do(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = 0.0
    monkeypatch.setattr(time, "process_time", lambda: computed)
    Garbage(clock).start()
    circle = Node()
    seen = weakref.ref(circle)
    gc.collect()
    del circle
    computed += ROUND_SECONDS / 10
    clock.advance(ROUND_SECONDS)
    gc.collect()
    assert seen() is not None
    computed += ROUND_SECONDS / 1000
    clock.advance(ROUND_SECONDS)
    assert seen() is None


def test_an_idle_broker_with_nothing_new_is_left_alone(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    looks: list[None] = []
    monkeypatch.setattr(memory, "check_all", lambda: looks.append(None))
    Garbage(clock).start()
    clock.advance(ROUND_SECONDS)
    assert looks == []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 2)
    for _ in range(10):
        clock.advance(ROUND_SECONDS)
    assert len(looks) == 1


def test_a_broker_that_is_never_idle_bounds_what_is_frozen_and_of_no_use(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "process_time", clock.seconds)
    frozen, used = 0, 0
    looks: list[int] = []

    def check_all() -> None:
        nonlocal frozen
        looks.append(frozen)
        frozen = used

    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    monkeypatch.setattr(memory, "check_all", check_all)
    monkeypatch.setattr(memory, "resident_bytes", lambda: None)
    Garbage(clock).start()
    used = 1000
    for count in (1000, MAX_DEAD, MAX_DEAD + 1):
        frozen = count
        clock.advance(ROUND_SECONDS)
    assert looks == [MAX_DEAD + 1]
    for count in (1000, 1000, 2000 + MAX_DEAD, 2001 + MAX_DEAD):
        frozen = count
        clock.advance(ROUND_SECONDS)
    assert looks == [MAX_DEAD + 1, 2001 + MAX_DEAD]


def test_what_dead_cycles_hold_has_a_bound_in_bytes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is looked at in the turn after the collection that finds the process too large, not after minutes."""
    monkeypatch.setattr(time, "process_time", clock.seconds)
    sizes, looks = [MAX_FROZEN_BYTES], list[int]()
    monkeypatch.setattr(memory, "resident_bytes", lambda: sizes[-1])
    monkeypatch.setattr(memory, "check_all", lambda: looks.append(sizes[-1]))
    Garbage(clock).start()
    for size in (
        MAX_FROZEN_BYTES,
        2 * MAX_FROZEN_BYTES,
        2 * MAX_FROZEN_BYTES + 1,
        3 * MAX_FROZEN_BYTES,
        4 * MAX_FROZEN_BYTES,
        8 * MAX_FROZEN_BYTES,
    ):
        sizes.append(size)
        gc.collect()
        clock.advance(0)
    assert looks == [2 * MAX_FROZEN_BYTES + 1, 4 * MAX_FROZEN_BYTES, 8 * MAX_FROZEN_BYTES]


def test_a_busy_broker_that_only_grows_looks_at_all_more_and_more_seldom(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "process_time", clock.seconds)
    looks: list[float] = []
    monkeypatch.setattr(memory, "resident_bytes", lambda: None)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: int(clock.seconds() / ROUND_SECONDS * MAX_DEAD / 2))
    monkeypatch.setattr(memory, "check_all", lambda: looks.append(clock.seconds() / ROUND_SECONDS))
    Garbage(clock).start()
    for _ in range(100):
        clock.advance(ROUND_SECONDS)
    assert looks == [3, 9, 21, 45, 93]


def test_a_circle_that_was_frozen_is_found_by_a_busy_broker(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "process_time", clock.seconds)
    size = 1
    monkeypatch.setattr(memory, "resident_bytes", lambda: size)
    Garbage(clock).start()
    circle = Node()
    seen = weakref.ref(circle)
    gc.collect()
    del circle
    gc.collect()
    assert seen() is not None
    size += MAX_FROZEN_BYTES + 1
    clock.advance(ROUND_SECONDS)
    assert seen() is None


def test_undisturbed_work_is_done_without_collections() -> None:
    with undisturbed(), undisturbed():
        assert not gc.isenabled()
    assert gc.isenabled()
