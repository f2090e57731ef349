"""The common bound of what has come in part."""

from __future__ import annotations

from nsqtw.net.partial_input import SMALL_BYTES, PartialInput

KB = 1024


class Part:
    def __init__(self) -> None:
        self.is_gone = False

    def evict(self) -> None:
        self.is_gone = True


def test_who_keeps_little_is_not_counted() -> None:
    unfinished = PartialInput(100 * KB)
    for _ in range(1000):
        unfinished.hold(Part(), SMALL_BYTES)
    assert unfinished.total == 0


def test_the_one_that_waits_longest_goes() -> None:
    unfinished = PartialInput(100 * KB)
    old, middle, young = Part(), Part(), Part()
    for part in (old, middle, young):
        unfinished.hold(part, 30 * KB)
    unfinished.hold(young, 45 * KB)
    assert (old.is_gone, middle.is_gone, young.is_gone) == (True, False, False)
    assert unfinished.total == 75 * KB


def test_but_not_if_it_keeps_less_than_its_share() -> None:
    unfinished = PartialInput(100 * KB)
    modest, greedy = Part(), Part()
    unfinished.hold(modest, 20 * KB)
    unfinished.hold(greedy, 90 * KB)
    assert (modest.is_gone, greedy.is_gone) == (False, True)
    assert unfinished.total == 20 * KB


def test_who_is_done_and_begins_again_is_young() -> None:
    unfinished = PartialInput(100 * KB)
    busy, stuck = Part(), Part()
    unfinished.hold(busy, 40 * KB)
    unfinished.hold(stuck, 40 * KB)
    unfinished.hold(busy, 30 * KB)
    unfinished.hold(busy, 61 * KB)
    assert (busy.is_gone, stuck.is_gone) == (False, True)


def test_what_is_done_is_forgotten() -> None:
    unfinished = PartialInput(100 * KB)
    part = Part()
    unfinished.hold(part, 90 * KB)
    unfinished.hold(part, 0)
    assert unfinished.total == 0
    unfinished.hold(part, 90 * KB)
    unfinished.drop(part)
    unfinished.drop(part)
    assert (unfinished.total, part.is_gone) == (0, False)


def test_without_a_limit_nobody_goes() -> None:
    unfinished = PartialInput(0)
    part = Part()
    unfinished.hold(part, 10**12)
    assert not part.is_gone
