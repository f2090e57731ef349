"""What a connection reads, split into spans: the same messages as the codec of our client finds, however it is cut."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.channel.span import Span, joined
from pyspark_nsq.channel.v2_frames import Frame, FrameReader, InvalidFrame
from pyspark_nsq.channel.v2_spans import SpanReader

from tests.spark.spans import bodies_of, frame, rows_of, span_of

MOST = 1 << 20
Message = tuple[int, int, bytes, bytes]


def other(kind: int, data: bytes) -> bytes:
    return struct.pack(">iI", 4 + len(data), kind) + data


messages = st.builds(
    frame,
    st.binary(min_size=16, max_size=16),
    st.binary(max_size=40) | st.sampled_from([b"", b"same", b"size"]),
    st.integers(0, 1 << 62),
    st.integers(0, 65535),
)
same_size = st.lists(st.binary(min_size=5, max_size=5), min_size=1, max_size=9).map(
    lambda some: b"".join(frame(b"%016d" % at, body) for at, body in enumerate(some))
)
anything = messages | same_size | st.builds(other, st.sampled_from([0, 1]), st.binary(max_size=20))


def feed(data: bytes, cuts: list[int]) -> tuple[list[Span], list[Frame]]:
    reader = SpanReader("a:1", MOST)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    spans: list[Span] = []
    frames: list[Frame] = []
    for low, high in pairwise(edges):
        some, others = reader.feed(data[low:high])
        spans += some
        frames += others
    return spans, frames


@given(st.lists(anything, max_size=12), st.lists(st.integers(0, 800), max_size=6))
def test_all_messages_and_frames_however_they_come(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    expected, frames = FrameReader(MOST).feed(data, lambda *fields: fields)
    spans, others = feed(data, cuts)
    assert expected == [(row.timestamp_ns, row.attempts, row.id, row.body) for row in rows_of(spans)]
    assert frames == others
    for span in spans:
        assert [row.id for row in rows_of([span])] == span.ids
        assert b"".join(b"FIN %b\n" % one for one in span.ids) == span.fins
        assert list(span.starts) == list(Span("", span.count, span.frames).starts)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HTTP/1.1 400", "unexpected HTTP response"),
        (struct.pack(">iI", -2, 2), "negative"),
        (struct.pack(">iI", MOST + 1, 2), "exceeds"),
        (struct.pack(">iI", 12, 2), "invalid frame of type 2 and size 12"),
        (struct.pack(">iI", 12, 7), "invalid frame of type 7"),
    ],
)
@pytest.mark.parametrize("before", [b"", frame(b"0" * 16, b"x"), other(0, b"OK")])
def test_what_is_no_frame(before: bytes, data: bytes, said: str) -> None:
    with pytest.raises(InvalidFrame, match=said):
        SpanReader("a:1", MOST).feed(before + data)


def test_a_large_message_is_not_joined_for_each_piece() -> None:
    whole = frame(b"0" * 16, b"x" * 100_000)
    reader = SpanReader("a:1", MOST)
    for at in range(0, len(whole) - 1_000, 1_000):
        assert reader.feed(whole[at : at + 1_000]) == ([], [])
    assert len(reader._rest) <= 1_000
    [span], _ = reader.feed(whole[100_000:] + whole[:0])
    assert whole == span.frames


@given(st.lists(messages, min_size=1, max_size=9), st.integers(0, 9), st.integers(0, 9))
def test_parts(frames: list[bytes], low: int, high: int) -> None:
    low, high = (min(at, len(frames)) for at in sorted((low, high)))
    span = span_of("a:1", frames)
    span.first = 5
    part = span.part(low, high)
    assert rows_of([span])[low:high] == rows_of([part])
    sizes = [len(body) for body in bodies_of([span])]
    for most in (0, 4, 50, 1000):
        assert max(at for at in range(len(sizes) + 1) if sum(sizes[:at]) <= most) == span.fit(most)


@given(st.lists(st.tuples(st.sampled_from(["a:1", "b:1"]), st.integers(1, 4)), max_size=8), st.integers(1, 300))
def test_joined_spans_are_the_same_rows(parts: list[tuple[str, int]], most: int) -> None:
    spans = []
    first = 1
    for nsqd, count in parts:
        spans.append(span_of(nsqd, [frame(b"%016d" % (first + at), b"body") for at in range(count)]))
        spans[-1].first = first
        first += count
    found = list(joined(spans, most))
    assert rows_of(spans) == rows_of(found)
    assert all(
        one.nsqd != other.nsqd or len(one.frames) + len(other.frames) > most
        for one, other in pairwise(found)
        if len(spans) == len(found)
    )
