"""Events of the request parser, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.http.parser import MAX_HEAD_BYTES, PIECE_BYTES, InvalidRequest, RequestHead, RequestParser, Signal
from nsqtw.http.responses import HEADERS_TOO_LARGE, MALFORMED
from tests.http.broker_fixture import chunked, request

POST = request("POST", "/pub?topic=t", b"hello")
BARE = b"POST /pub HTTP/1.1\nHost: x\nContent-Length: 2\n\nhi"
FOLDED = b"GET /ping HTTP/1.1\r\nHost: x\r\nA: b,\r\n\t c\r\n\r\n"
CHUNKED = chunked("POST", "/pub?topic=t", b"he", b"llo")
TRAILED = chunked("POST", "/pub?topic=t", b"x")[:-2] + b"A: b\r\n\r\n"
VALID = (POST, BARE, FOLDED, CHUNKED, TRAILED, b"\r\n" + POST)


def parts(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def events(pieces: list[bytes]) -> list[object]:
    """The requests of all pieces. Body parts that follow each other are joined, and `raw` is left out."""
    parser, found = RequestParser(), list[object]()
    for piece in pieces:
        parser.receive(piece)
        while (event := parser.next_event()) is not Signal.NEED_INPUT:
            if isinstance(event, bytes) and found and isinstance(found[-1], bytes):
                found[-1] += event
            elif isinstance(event, RequestHead):
                found.append(event._replace(raw=b""))
            elif event is not Signal.PAUSE:
                found.append(event)
            if isinstance(event, InvalidRequest):
                return found
    return found


def test_a_request_with_a_body() -> None:
    parser = RequestParser()
    parser.receive(POST)
    head = parser.next_event()
    assert isinstance(head, RequestHead)
    assert (head.method, head.target, head.version) == (b"POST", b"/pub?topic=t", b"HTTP/1.1")
    assert head.fields == {b"Host": b"localhost", b"Content-Length": b"5"}
    assert (head.length, head.has_bare_lines, head.raw) == (5, False, POST[:-5])
    assert parser.has_begun
    assert [parser.next_event() for _ in range(3)] == [b"hello", Signal.END, Signal.NEED_INPUT]
    assert not parser.has_begun
    assert parser.buffered_bytes == 0


def test_the_next_request_is_read_only_when_asked_for() -> None:
    parser = RequestParser()
    parser.receive(POST + POST)
    assert [parser.next_event() for _ in range(3)][1:] == [b"hello", Signal.END]
    assert parser.pending_bytes == len(POST)
    assert isinstance(parser.next_event(), RequestHead)


@given(st.sampled_from(VALID), st.lists(st.integers(0, 1000), max_size=8))
def test_valid_requests_mean_the_same_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    assert events(parts(data, cuts)) == events([data])
    assert events([data])[-1] is Signal.END


@given(
    st.lists(
        st.sampled_from(
            (b"GET /p HTTP/1.1", b"POST /p HTTP/1.0", b"\r\n", b"\n", b"\r", b"A: b", b"Content-Length: 3", b" c")
            + (b"Transfer-Encoding: chunked", b"0", b"3;x=y", b"abc", b":", b"\0")
        ),
        max_size=14,
    ),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_any_bytes_mean_the_same_however_they_are_cut(words: list[bytes], cuts: list[int]) -> None:
    data = b"".join(words)
    assert events(parts(data, cuts)) == events([data])


@pytest.mark.parametrize(
    "lines",
    [
        b"A: b\n",  # after lines that end with CRLF
        b" folded\r\n",  # without a field before it
        b"A: b\rc\r\n",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: +1\r\n",
    ],
)
def test_what_is_ambiguous_is_refused(lines: bytes) -> None:
    data = b"GET /ping HTTP/1.1\r\n" + lines + b"\r\n"
    assert events([data]) == [InvalidRequest(MALFORMED)]
    assert events(parts(data, list(range(len(data))))) == [InvalidRequest(MALFORMED)]


@pytest.mark.parametrize("size", ["", "0x1", "-1", "+1", "1 ", "g", "1_0", "1;\0", "1;\n", "0" * 1024])
def test_a_chunk_has_a_size(size: str) -> None:
    head = b"POST /pub HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert events([head + size.encode() + b"\r\nx\r\n0\r\n\r\n"])[1:] == [InvalidRequest(MALFORMED)]


def test_the_body_before_an_invalid_chunk_is_an_event() -> None:
    head = b"POST /pub HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert events([head + b"2\r\nhi\r\nnonsense\r\n"])[1:] == [b"hi", InvalidRequest(MALFORMED)]


@pytest.mark.parametrize("step", [1000, 10**7])
def test_a_head_without_an_end_is_refused_at_its_limit(step: int) -> None:
    parser = RequestParser()
    data = b"GET /" + b"x" * 2 * MAX_HEAD_BYTES
    received = 0
    for start in range(0, len(data), step):
        parser.receive(data[start : start + step])
        received += step
        if (event := parser.next_event()) is not Signal.NEED_INPUT:
            break
    assert event == InvalidRequest(HEADERS_TOO_LARGE)
    assert received <= MAX_HEAD_BYTES + max(2 * step, 1000)
    assert parser.buffered_bytes <= MAX_HEAD_BYTES


def test_small_chunks_are_one_event_of_bounded_work() -> None:
    parser = RequestParser()
    parser.receive(chunked("POST", "/pub?topic=t", *[b"x"] * 10_000))
    assert isinstance(parser.next_event(), RequestHead)
    sizes = []
    while isinstance(event := parser.next_event(), bytes):
        sizes.append(len(event))
    assert event is Signal.END
    assert sum(sizes) == 10_000
    assert max(sizes) <= PIECE_BYTES


def test_many_lines_are_read_with_pauses() -> None:
    parser = RequestParser()
    parser.receive(b"GET /ping HTTP/1.1\r\n" + b"A: bbbbbbbb\r\n" * 2000 + b"\r\n")
    signals = 0
    while (event := parser.next_event()) is Signal.PAUSE:
        signals += 1
    assert isinstance(event, RequestHead)
    assert signals >= 5


def test_nothing_of_a_large_body_stays_in_memory() -> None:
    parser = RequestParser()
    parser.receive(request("POST", "/pub", b"x" * 100_000))
    while parser.next_event() is not Signal.END:
        pass
    assert parser._data == b""
