"""Runs of sequences against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.backends.sequences import Sequences

RUNS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=12)


@given(runs=RUNS, low=st.integers(0, 100), high=st.integers(0, 100))
def test_they_are_what_was_added(runs: list[tuple[int, int]], low: int, high: int) -> None:
    sequences, model, end = Sequences(), set(), 0
    for gap, length in runs:
        first, end = end + gap, end + gap + length
        sequences.add(first, end)
        model.update(range(first, end))
    assert len(sequences) == len(model)
    assert sequences.count(low, high) == len(model & set(range(low, high)))
    assert [sequence for sequence in range(110) if sequences.has(sequence)] == sorted(model)
    assert {s for first, stop in sequences.runs() for s in range(first, stop)} == model
    assert all(before[1] < after[0] for before, after in zip(sequences.runs(), sequences.runs()[1:], strict=False))


def test_the_highest_there_can_be() -> None:
    sequences = Sequences()
    sequences.add((1 << 53) - 2, 1 << 53)
    assert sequences.has((1 << 53) - 1)
    assert sequences.count(0, 1 << 53) == 2
