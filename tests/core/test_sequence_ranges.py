"""How many messages are between two sequences, and which a hole in the log had."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.core.sequence_ranges import SequenceRanges


def runs() -> SequenceRanges:
    """10 to 15, 15 to 18, 30 to 32."""
    found = SequenceRanges(10)
    for first, count in ((10, 5), (15, 3), (30, 2)):
        found.add(first, count)
    return found


def test_what_follows_without_a_gap_is_one_run() -> None:
    assert runs().state() == [(10, 0), (30, 8), (32, 10)]


def test_messages_are_counted_between_any_two_places() -> None:
    found = runs()
    assert [found.before(sequence) for sequence in (10, 12, 18, 25, 30, 31, 32, 99)] == [0, 2, 8, 8, 8, 9, 10, 10]


def test_of_what_is_under_the_first_run_nothing_is_known() -> None:
    assert runs().before(9) is None
    assert SequenceRanges(10).before(9) is None
    assert SequenceRanges(10).before(10) == 0


def test_a_gap_starts_behind_the_message_before_it() -> None:
    found = [runs().gap_start(sequence) for sequence in (9, 10, 12, 18, 25, 30, 31, 32, 99)]
    assert found == [9, 10, 12, 18, 18, 18, 31, 32, 32]
    assert SequenceRanges(10).gap_start(12) == 12


def test_the_parts_of_a_hole_that_had_messages() -> None:
    assert list(runs().parts(0, 99)) == [(10, 18), (30, 32)]
    assert list(runs().parts(16, 31)) == [(16, 18), (30, 31)]
    assert list(runs().parts(18, 30)) == []


def test_forgotten_runs_change_no_difference() -> None:
    found = runs()
    assert found.forget_below(17) is False, "it is in the first run"
    assert found.forget_below(30) is True
    assert found.before(17) is None
    assert found.before(32) - found.before(31) == 1


def test_a_log_that_ends_earlier_than_was_saved() -> None:
    for end, left in ((31, [(10, 0), (30, 8), (31, 9)]), (20, [(10, 0), (20, 8)]), (12, [(10, 0), (12, 2)])):
        found = SequenceRanges(10, runs().state())
        found.truncate(end)
        assert found.state() == left
        found.add(50, 1)
        assert found.before(51) - found.before(11) == left[-1][1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=12), st.integers(0, 80), st.integers(0, 80))
def test_it_counts_as_a_list_of_all_sequences_does(steps: list[tuple[int, int]], one: int, other: int) -> None:
    found, known, end = SequenceRanges(0), [], 0
    for gap, count in steps:
        found.add(end + gap, count)
        known += range(end + gap, end + gap + count)
        end += gap + count
    start, stop = sorted((max(one, known[0] if known else 0), other))
    inside = [sequence for sequence in known if start <= sequence < stop]
    assert [sequence for low, high in found.parts(start, stop) for sequence in range(low, high)] == inside
    again = SequenceRanges(0, found.state())
    if again.before(start) is not None:
        assert again.before(stop) - again.before(start) == len(inside)
