"""The answer of GET /v2/topic/log, taken apart."""

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.errors import ReadError
from pyspark_nsq.log.sections import Cut, Section, cut, fit, sections

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
    assert [each[:3] for each in found] == [(FIRST, 2, 0), (FIRST + 5, 3, 0), (FIRST + 9, 1, 77)]
    assert [one, None, frames(FIRST + 9, b"d")] == [each.frames for each in found]


any_bodies = st.lists(st.binary(max_size=20), min_size=1, max_size=10)
bodies_of_one_size = st.integers(0, 20).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=10)
)


def made(first: int, bodies: list[bytes], due_ms: int = 0) -> Section:
    return Section(first, len(bodies), due_ms, frames(first, *bodies))


def part(found: list[Section], low: int, high: int) -> Cut:
    rows = cut(found, low, high)
    assert rows is not None
    return rows


#: Sections, each with its distance from the one before and whether it is deferred.
any_sections = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 5]), any_bodies | bodies_of_one_size, st.sampled_from([0, 77])),
    min_size=1,
    max_size=4,
)


@given(any_sections, st.integers(-3, 60), st.integers(-3, 60))
def test_a_part_of_an_answer(drawn: list[tuple[int, list[bytes], int]], low: int, high: int) -> None:
    low, high = FIRST + min(low, high), FIRST + max(low, high)
    at, found, wanted = FIRST, [], []
    for gap, bodies, due_ms in drawn:
        found += [Section(at, gap, 0, None), made(at + gap, bodies, due_ms)]
        at += gap
        wanted += [(at + number, body, due_ms * 1000 or None) for number, body in enumerate(bodies)]
        at += len(bodies)
    wanted = [each for each in wanted if low <= each[0] < high]
    rows = cut(found, low, high)
    if rows is None:
        assert not wanted
        return
    assert len(wanted) == rows.count
    positions = [position for position, _, _ in wanted]
    assert positions == rows.positions.to_pylist()
    assert positions == [rows.position_of(row) for row in range(rows.count)]
    assert [body for _, body, _ in wanted] == rows.bodies.to_pylist()
    assert [due for _, _, due in wanted] == rows.due_us.to_pylist()
    assert [b"%016x" % position for position in positions] == rows.ids.to_pylist()
    assert [position * 1000 for position in positions] == rows.timestamps_ns.to_pylist()


def test_headers_belong_to_the_next_section() -> None:
    headers = b"\0\0\0\0" + b"\0\0\0\x05\x01k\x00\x01v" + b"\0\0\0\0"
    body = section(3, FIRST, 3, headers) + section(1, FIRST, 3, frames(FIRST, b"a", b"b", b"c"))
    with_headers, without = sections(body + section(1, FIRST + 3, 1, frames(FIRST + 3, b"d")))
    assert part([with_headers], FIRST, FIRST + 3).headers.to_pylist() == [None, [("k", "v")], None]
    assert part([with_headers, without], FIRST + 1, FIRST + 9).headers.to_pylist() == [[("k", "v")], None, None]
    assert part([with_headers, without], FIRST + 3, FIRST + 4).headers.to_pylist() == [None]


@pytest.mark.parametrize("headers", [b"", b"\0\0\0\x01\x01", b"\0\0\0\0\0", b"\0\0\0\x05\x01k\x00\x01\xff"])
def test_damaged_headers(headers: bytes) -> None:
    rows = part([Section(FIRST, 1, 0, frames(FIRST, b"a"), headers)], FIRST, FIRST + 1)
    with pytest.raises(ReadError, match="headers that are damaged"):
        _ = rows.headers


def test_how_far_the_bytes_reach() -> None:
    whole = Section(FIRST, 3, 0, frames(FIRST, b"123456", b"123456", b"123456"))  # 40 bytes each
    assert [fit(whole, FIRST, most) for most in (39, 79, 80, 1000)] == [
        (FIRST, 0),
        (FIRST + 1, 40),
        (FIRST + 2, 80),
        (FIRST + 3, 120),
    ]
    assert fit(whole, FIRST + 1, 79) == (FIRST + 2, 40)


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
        cut([Section(FIRST, count, 0, frames(FIRST, b"ab", b"cd"))], FIRST, FIRST + 1)


@pytest.mark.parametrize("second", [b"cd", b"cde"])
def test_sections_of_other_counts_than_they_say(second: bytes) -> None:
    """The second message of the first section would get the position of the first one of the next section."""
    one = Section(FIRST, 1, 0, frames(FIRST, b"ab", second))
    other = Section(FIRST + 5, 2, 0, frames(FIRST + 5, b"ef"))
    with pytest.raises(ReadError, match="other counts"):
        cut([one, other], FIRST, FIRST + 9)


@pytest.mark.parametrize("said", [-5, 0, 29])
def test_a_frame_too_short_for_its_head(said: int) -> None:
    short = struct.pack(">i", said) + b"x" * max(said, 0)
    with pytest.raises(ReadError, match="without a head"):
        cut([Section(FIRST, 2, 0, short + frames(FIRST, b"ab"))], FIRST, FIRST + 2)
