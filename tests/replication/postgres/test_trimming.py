"""Which segments a trim removes, against a list of them; and how often it asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.replication.postgres import trimming
from nsqtw.replication.postgres.trimming import Span, Trimmed


class Segments:
    """The segments of a topic in a store."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = list(spans)
        self.reads = 0
        self.trimmed = Trimmed()

    def trim(self, below: int, keep: Iterable[int]) -> None:
        self.trimmed.trim(below, keep, self.read, self.remove)

    def read(self, start: int, below: int) -> Sequence[Span]:
        self.reads += 1
        return [span for span in self.spans if start <= span[0] < below][: trimming.PAGE]

    def remove(self, spans: Sequence[Span]) -> None:
        gone = {*spans}
        assert gone <= {*self.spans}
        self.spans = [span for span in self.spans if span not in gone]


def never() -> Iterator[int]:
    raise AssertionError("nobody should ask")
    yield 0


def in_tens(start: int, end: int) -> list[Span]:
    return [(first, first + 10) for first in range(start, end, 10)]


def test_nothing_is_read_while_nothing_can_be_free() -> None:
    segments = Segments(in_tens(0, 100))
    segments.trim(35, [])
    assert segments.spans == in_tens(30, 100) and segments.reads == 1
    for below in (35, 36, 39):
        segments.trim(below, never())
    assert segments.reads == 1
    segments.trim(40, [])
    assert segments.spans == in_tens(40, 100)
    segments.trim(100, [])
    assert segments.spans == []
    reads = segments.reads
    segments.trim(100, never())
    assert segments.reads == reads
    segments.spans = in_tens(100, 120)
    segments.trim(120, [])
    assert segments.spans == []


def test_what_is_kept_is_known_without_reading() -> None:
    segments = Segments(in_tens(0, 1000))
    segments.trim(1000, [5, 6, 777])
    assert segments.spans == [(0, 10), (770, 780)]
    reads = segments.reads
    segments.trim(1000, [5, 777])
    segments.trim(1000, [777])
    assert segments.spans == [(770, 780)]
    segments.trim(1000, [])
    assert segments.spans == [] and segments.reads == reads


def test_the_more_a_trim_reads_the_more_are_skipped() -> None:
    segments = Segments(in_tens(0, 1_000_000))
    segments.trim(1_000_000, iter(range(0, 1_000_000, 20)))
    while len(segments.spans) > 50_000:
        segments.trim(1_000_000, iter(range(0, 1_000_000, 20)))
    skipped = 0
    reads = segments.reads
    while segments.reads == reads:
        segments.trim(1_000_000, iter(range(0, 1_000_000, 20)))
        skipped += 1
    assert skipped >= 5
    assert segments.spans == in_tens(0, 1_000_000)[::2]
    for _ in range(500):
        segments.trim(1_000_000, [])
    assert segments.spans == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=30),
    st.lists(st.tuples(st.integers(0, 130), st.sets(st.integers(0, 130)), st.integers(0, 3)), max_size=8),
)
def test_a_trim_removes_what_nobody_needs(gaps: list[tuple[int, int]], trims: list[tuple[int, set[int], int]]) -> None:
    """Also in small pages, and when few segments can be remembered; in the end it has removed all of it."""
    spans = []
    at = 0
    for gap, count in gaps:
        spans.append((at + gap, at + gap + count))
        at += gap + count
    segments = Segments(spans)
    below, keep = 0, {*range(131)}
    sizes = trimming.PAGE, trimming._MAX_KEPT, trimming._SKIPPED_BEFORE_ALL
    trimming.PAGE, trimming._MAX_KEPT, trimming._SKIPPED_BEFORE_ALL = 3, 4, 1
    try:
        for end, needed, repeats in [*trims, (131, {7, 50, 99}, 60)]:
            below, keep = max(below, end), keep & needed
            for _ in range(repeats + 1):
                segments.trim(below, iter(sorted(keep)))
            wanted = [span for span in spans if span[1] > below or not keep.isdisjoint(range(*span))]
            assert {*wanted} <= {*segments.spans}
        assert segments.spans == wanted
    finally:
        trimming.PAGE, trimming._MAX_KEPT, trimming._SKIPPED_BEFORE_ALL = sizes
