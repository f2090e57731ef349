"""The parts of a request's body."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.http.body import LARGE_BYTES, RequestBody

SIZES = st.one_of(st.integers(0, 3), st.integers(LARGE_BYTES - 2, LARGE_BYTES + 2))


@given(st.lists(SIZES, max_size=12), st.integers(0, 12))
def test_the_body_is_its_parts(sizes: list[int], asked_at: int) -> None:
    body, whole = RequestBody(), b""
    for index, size in enumerate(sizes):
        if index == asked_at:
            assert body.join() == whole
        part = b"%c" % index * size
        body.append(part)
        whole += part
        assert body.size == len(whole)
    assert body.join() == whole


def test_tiny_parts_weigh_what_their_bytes_weigh() -> None:
    body = RequestBody()
    tracemalloc.start()
    try:
        for index in range(200_000):
            body.append(b"%03d" % (index % 1000))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 600_000 <= kept < 700_000


def test_a_large_part_is_not_copied() -> None:
    body, part = RequestBody(), b"x" * LARGE_BYTES
    body.append(part)
    assert body.join() is part
