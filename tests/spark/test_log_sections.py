"""The answer of GET /v2/topic/log, taken apart."""

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.errors import ReadError
from pyspark_nsq.log.sections import Section, cut, fit, sections

FIRST = 1 << 40


def frames(first: int, *bodies: bytes) -> bytes:
    return b"".join(
        struct.pack(">iiqH16s", 30 + len(body), 2, (first + at) * 1000, 1, b"%016x" % (first + at)) + body
        for at, body in enumerate(bodies)
    )


def section(kind: int, first: int, count: int, content: bytes = b"", due_ms: int = 0) -> bytes:
    delay = 5 if due_ms else 0
    head = struct.pack(">4sIQIIQQI", b"NSQL", kind, first, count, len(content), delay, due_ms, crc32(content))
    return head + struct.pack(">I", crc32(head)) + content


def test_messages_lost_ones_and_what_a_later_version_may_add() -> None:
    one = frames(FIRST, b"a", b"bc")
    body = section(1, FIRST, 2, one) + section(9, FIRST + 2, 1, b"?") + section(2, FIRST + 5, 3)
    body += section(1, FIRST + 9, 1, frames(FIRST + 9, b"d"), due_ms=77)
    found = list(sections(body))
    assert [(FIRST, 2, 0), (FIRST + 5, 3, 0), (FIRST + 9, 1, 77)] == [each[:3] for each in found]
    assert [one, None, frames(FIRST + 9, b"d")] == [each.frames for each in found]


any_bodies = st.lists(st.binary(max_size=20), min_size=1, max_size=10)
bodies_of_one_size = st.integers(0, 20).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=10)
)


@given(any_bodies | bodies_of_one_size, st.integers(-3, 12), st.integers(-3, 12))
def test_a_part_of_a_section(bodies: list[bytes], low: int, high: int) -> None:
    low, high = min(low, high), max(low, high)
    whole = Section(FIRST, len(bodies), 0, frames(FIRST, *bodies))
    rows = cut(whole, FIRST + low, FIRST + high)
    places = [at for at in range(len(bodies)) if low <= at < high]
    assert [bodies[at] for at in places] == rows.bodies.to_pylist()
    assert [b"%016x" % (FIRST + at) for at in places] == rows.ids.to_pylist()
    assert [(FIRST + at) * 1000 for at in places] == rows.timestamps_ns.to_pylist()


def test_headers_belong_to_the_next_section() -> None:
    headers = b"\0\0\0\0" + b"\0\0\0\x05\x01k\x00\x01v" + b"\0\0\0\0"
    body = section(3, FIRST, 3, headers) + section(1, FIRST, 3, frames(FIRST, b"a", b"b", b"c"))
    with_headers, without = sections(body + section(1, FIRST + 3, 1, frames(FIRST + 3, b"d")))
    assert [None, [("k", "v")], None] == cut(with_headers, FIRST, FIRST + 3).headers.to_pylist()
    assert [[("k", "v")], None] == cut(with_headers, FIRST + 1, FIRST + 9).headers.to_pylist()
    assert [None] == cut(without, FIRST + 3, FIRST + 4).headers.to_pylist()


@pytest.mark.parametrize("headers", [b"", b"\0\0\0\x01\x01", b"\0\0\0\0\0", b"\0\0\0\x05\x01k\x00\x01\xff"])
def test_damaged_headers(headers: bytes) -> None:
    rows = cut(Section(FIRST, 1, 0, frames(FIRST, b"a"), headers), FIRST, FIRST + 1)
    with pytest.raises(ReadError, match="headers that are damaged"):
        _ = rows.headers


def test_how_far_the_bytes_reach() -> None:
    whole = Section(FIRST, 3, 0, frames(FIRST, b"123456", b"123456", b"123456"))  # 40 bytes each
    assert [(FIRST, 0), (FIRST + 1, 40), (FIRST + 2, 80), (FIRST + 3, 120)] == [
        fit(whole, FIRST, most) for most in (39, 79, 80, 1000)
    ]
    assert (FIRST + 2, 40) == fit(whole, FIRST + 1, 79)


@pytest.mark.parametrize("at", range(0, 48 + 36))
def test_a_flipped_bit_is_noticed(at: int) -> None:
    good = section(1, FIRST, 1, frames(FIRST, b"ab"))
    bad = good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]
    with pytest.raises(ReadError):
        list(sections(bad))


@pytest.mark.parametrize("length", [1, 47, 48, 60, 83])
def test_an_answer_that_ends_early(length: int) -> None:
    with pytest.raises(ReadError):
        list(sections(section(1, FIRST, 1, frames(FIRST, b"ab"))[:length]))


@pytest.mark.parametrize("count", [1, 3])
def test_frames_of_other_sizes_than_they_say(count: int) -> None:
    with pytest.raises(ReadError, match="other sizes"):
        cut(Section(FIRST, count, 0, frames(FIRST, b"ab", b"cd")), FIRST, FIRST + 1)


@pytest.mark.parametrize("said", [-5, 0, 29])
def test_a_frame_too_short_for_its_head(said: int) -> None:
    short = struct.pack(">i", said) + b"x" * max(said, 0)
    with pytest.raises(ReadError, match="without a head"):
        cut(Section(FIRST, 2, 0, short + frames(FIRST, b"ab")), FIRST, FIRST + 2)
