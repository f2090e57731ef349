"""Segments: what is encoded once is what a consumer reads, and every slice of it is right."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.core.segment import (
    SEGMENT_BYTES,
    SEQUENCE_BITS,
    Segment,
    consecutive_ids,
    cuts,
    encode,
    id_of,
    joined_ids,
    merge,
    only,
    sequence_of,
    sizes_of,
)

NODE = 617
BODIES = st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=40)
SEQUENCES = st.one_of(st.integers(0, 1 << 52), st.just((1 << 20) - 3), st.just(4096 - 2))


def by_hand(bodies: list[bytes], first: int, timestamp_ns: int) -> bytes:
    """The frames as the specification draws them, one at a time."""
    return b"".join(
        struct.pack(">iiqH", 30 + len(body), 2, timestamp_ns, 1) + b"%016x" % (NODE << 53 | first + n) + body
        for n, body in enumerate(bodies)
    )


@given(BODIES, SEQUENCES, st.integers(0, 1 << 62))
def test_encoding_is_that_of_the_specification(bodies: list[bytes], first: int, timestamp_ns: int) -> None:
    segment = encode(bodies, first, NODE, timestamp_ns)
    assert segment.frames == by_hand(bodies, first, timestamp_ns)
    assert segment.timestamp_ns == timestamp_ns
    assert segment.ids == [id_of(NODE, first + n) for n in range(len(bodies))]


@pytest.mark.parametrize("bodies", [[b"x"] * 7000, [b"x", b"yy"] * 3500])
def test_a_segment_may_have_more_ids_than_differ_in_three_digits_only(bodies: list[bytes]) -> None:
    assert encode(bodies, 4000, NODE, 1).frames == by_hand(bodies, 4000, 1)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 3)), min_size=1), st.data())
def test_runs_that_were_published_together(published: list[tuple[bytes, int]], data: st.DataObject) -> None:
    """Their timestamps need not ascend: what was imported, and a clock that was set back."""
    frames = b"".join(by_hand([body], n, timestamp_ns) for n, (body, timestamp_ns) in enumerate(published))
    start = data.draw(st.integers(0, len(published) - 1))
    stop = data.draw(st.integers(start + 1, len(published)))
    runs = list(Segment(0, len(published), 0, frames).published_together(start, stop))
    if published[start][1] == published[stop - 1][1]:  # then it is one publish, and nothing is looked through
        assert runs == [(published[start][1], start, stop)]
    else:
        told = [timestamp_ns for timestamp_ns, first, end in runs for _ in range(first, end)]
        assert told == [timestamp_ns for _, timestamp_ns in published[start:stop]]
        assert runs[0][1] == start
        assert all(before[2] == run[1] and before[0] != run[0] for before, run in pairwise(runs))


@given(BODIES, SEQUENCES, st.data())
def test_cuts_of_a_segment_that_came_from_storage(bodies: list[bytes], first: int, data: st.DataObject) -> None:
    segment = Segment(first, len(bodies), 0, by_hand(bodies, first, 7))
    start = data.draw(st.integers(0, len(bodies) - 1))
    stop = data.draw(st.integers(start + 1, len(bodies)))
    assert segment.slice(start, stop) == by_hand(bodies[start:stop], first + start, 7)
    limit = data.draw(st.integers(1, 3000))
    fitting = segment.fit(start, stop, limit)
    assert start < fitting <= stop
    assert len(segment.slice(start, fitting)) <= limit or fitting == start + 1
    if fitting < stop:
        assert len(segment.slice(start, fitting + 1)) > limit


def test_a_redelivery_differs_in_its_attempts_alone() -> None:
    segment = encode([b"a", b"bb"], 5, NODE, 99)
    again = segment.redelivery_frame(1, 3)
    assert again == struct.pack(">iiqH", 32, 2, 99, 3) + id_of(NODE, 6) + b"bb"
    assert struct.unpack_from(">H", segment.redelivery_frame(1, 65536), 16) == (0,)


@pytest.mark.parametrize("sequence", [0, 4095, 4096, (1 << SEQUENCE_BITS) - 1])
def test_an_id_is_node_and_sequence(sequence: int) -> None:
    assert len(id_of(1023, sequence)) == 16
    assert sequence_of(id_of(1023, sequence)) == sequence
    assert int(id_of(1023, sequence), 16) < 1 << 63, "clients read ids as positive int64"


@given(st.integers(0, 1 << 62), st.integers(0, 9000))
def test_consecutive_ids(first: int, count: int) -> None:
    assert consecutive_ids(first, count) == [b"%016x" % (first + n) for n in range(count)]
    assert joined_ids(first, count, b", ") == b", ".join(consecutive_ids(first, count))


SIZES = st.integers(1, SEGMENT_BYTES * 2)


@given(
    st.one_of(
        st.lists(SIZES, min_size=1, max_size=30),
        st.builds(lambda size, count: [size] * count, SIZES, st.integers(1, 30)),
    )
)
def test_bodies_are_cut_into_runs_that_fit_or_are_alone(sizes: list[int]) -> None:
    bodies = [b"x" * size for size in sizes]
    runs = list(cuts(bodies, sizes_of(bodies)))
    assert [body for run in runs for body in run] == bodies
    for run in runs:
        assert run
        assert len(run) == 1 or sum(len(body) + 34 for body in run) <= SEGMENT_BYTES


@given(BODIES, st.sets(st.integers(0, 60)))
def test_only_what_is_wanted_is_left(bodies: list[bytes], wanted: set[int]) -> None:
    segment = encode(bodies, 10, NODE, 1)
    left = only(segment, sorted(wanted))
    kept = [sequence for part in left for sequence in range(part.first, part.end)]
    assert kept == sorted(sequence for sequence in wanted if 10 <= sequence < 10 + len(bodies))
    for part in left:
        assert part.frames == by_hand(bodies[part.first - 10 : part.end - 10], part.first, 1)


def test_neighbours_are_merged_and_others_are_not() -> None:
    one, two = encode([b"a"], 1, NODE, 1), encode([b"b", b"c"], 2, NODE, 2)
    gap = encode([b"d"], 9, NODE, 3)
    deferred = encode([b"e"], 10, NODE, 3, delay_ms=5)
    other_node = encode([b"f"], 11, 5, 3)
    after = encode([b"g"], 12, 5, 3)
    merged = merge([one, two, gap, deferred, other_node, after])
    assert [(s.first, s.count, s.delay_ms) for s in merged] == [(1, 3, 0), (9, 1, 0), (10, 1, 5), (11, 2, 0)]
    assert merged[0].frames == one.frames + two.frames
    assert merged[0].ids == one.ids + two.ids


def test_merging_stops_at_the_size_of_a_segment() -> None:
    large = [encode([b"x" * (SEGMENT_BYTES // 2)], n, NODE, 1) for n in range(4)]
    assert [s.count for s in merge(large)] == [1, 1, 1, 1]
