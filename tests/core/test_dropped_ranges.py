"""Ranges of sequences that were dropped, as cursors and readers ask for them."""

from __future__ import annotations

from nsqtw.core.dropped_ranges import DroppedRanges

TWO = [(10, 20), (30, 35)]


def test_the_range_at_a_sequence_or_the_next_one() -> None:
    dropped = DroppedRanges(TWO)
    asked = {sequence: dropped.at_or_above(sequence, end=50) for sequence in (0, 10, 19, 20, 34, 35, 60)}
    assert asked == {0: (10, 20), 10: (10, 20), 19: (10, 20), 20: (30, 35), 34: (30, 35), 35: (50, 50), 60: (50, 50)}


def test_ranges_between_two_sequences_are_cut_to_them() -> None:
    dropped = DroppedRanges(TWO)
    assert list(dropped.between(0, 100)) == TWO
    assert list(dropped.between(15, 31)) == [(15, 20), (30, 31)]
    assert list(dropped.between(20, 30)) == []


def test_what_lies_below_is_forgotten_and_a_range_it_cuts_stays_whole() -> None:
    dropped = DroppedRanges(TWO)
    dropped.add(40, 41)
    dropped.forget_below(20)
    assert dropped.state() == [(30, 35), (40, 41)]
    dropped.forget_below(34)
    assert dropped.state() == [(30, 35), (40, 41)]
