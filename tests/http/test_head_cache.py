"""Heads that were read before: what is taken for one of them, and that it is served as if it were read again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.http.head_cache import MAX_HEADS, CachedHead, KnownHeads
from nsqtw.http.parser import RequestHead
from nsqtw.http.received_request import ReceivedRequest
from nsqtw.http.responses import OK as TAKEN
from nsqtw.http.routes import Route
from tests.http.broker_fixture import LIMITS, OK, Browser, Web, chunked, request, teach

START, REST = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: ", b"\r\nAccept: */*\r\n\r\n"
ROUTE = Route(b"POST", b"/pub", lambda request: TAKEN)
HEAD = CachedHead(b"POST", b"/pub?topic=t", b"topic=t", b"HTTP/1.1", {b"Host": b"x"}, ROUTE)
ANY_DATE = re.compile(rb"\r\nDate: [^\r]*")


@pytest.fixture
def heads() -> KnownHeads:
    """One head is known."""
    return knowing(START + b"5" + REST)


def knowing(*known: bytes) -> KnownHeads:
    heads = KnownHeads()
    for data in known:
        heads.learn(data, HEAD)
        heads.learn(data, HEAD)
    return heads


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The targets of the requests whose heads were read."""
    targets: list[bytes] = []
    begin = ReceivedRequest.begin

    def watched(self: ReceivedRequest, head: RequestHead) -> object:
        targets.append(head.target)
        return begin(self, head)

    monkeypatch.setattr(ReceivedRequest, "begin", watched)
    return targets


@pytest.mark.parametrize("body", [b"", b"x", b"x" * 12345, b"\r\nContent-Length: 7\r\n\r\n"])
def test_the_number_and_the_body_may_differ(heads: KnownHeads, body: bytes) -> None:
    assert heads.match(START + b"%d" % len(body) + REST + body) == (HEAD, body)
    assert heads.match(START + b"000%d" % len(body) + REST + body) == (HEAD, body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST /",
        START,
        START + b"5",
        START + b"5" + REST[:-1],
        START + b"5" + REST,
        START + b"5" + REST + b"1234",
        START + b"5" + REST + b"123456",
        START + REST,
        START + b"\r" + REST,
        START + b"+5" + REST + b"12345",
        START + b" 5" + REST + b"12345",
        START + b"5 " + REST + b"12345",
        START + "\u0665".encode() + REST + b"12345",
        START + b"0" * 30 + b"5" + REST + b"12345",
        START.replace(b"topic=t", b"topic=u") + b"5" + REST + b"12345",
        START.lower() + b"5" + REST + b"12345",
        START + b"5" + REST.replace(b"*", b"+") + b"12345",
        START + b"5\r\nContent-Length: 6" + REST + b"12345",
        b"\r\n" + START + b"5" + REST + b"12345",
        START.replace(b"\r\n", b"\n") + b"5" + REST + b"12345",
    ],
)
def test_nothing_else_may_differ(heads: KnownHeads, data: bytes) -> None:
    assert heads.match(data) is None


@given(st.binary(max_size=40), st.sampled_from([b"", START, START + b"3", START + b"3" + REST]))
def test_what_is_taken_for_a_head_has_all_its_bytes(data: bytes, start: bytes) -> None:
    heads = knowing(START + b"5" + REST)
    found = heads.match(start + data)
    if found is not None:
        body = found[1]
        digits = (start + data).removeprefix(START).partition(b"\r")[0]
        assert START + digits + REST + body == start + data
        assert int(digits) == len(body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        START + b"x" + REST,
        START + b"1" * 19 + REST,
        START.replace(b"Content-L", b"X-L") + b"5" + REST,
        START.replace(b"\r\nContent", b"\r\n Content") + b"5" + REST,
        b"POST /pub HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"\r\n" + START + b"5" + REST,
    ],
)
def test_a_head_that_says_no_length_is_not_kept(data: bytes) -> None:
    heads = knowing(data)
    assert [heads.match(piece) for piece in (data, data + b"12345", START + b"5" + REST + b"12345")] == [None] * 3


@pytest.mark.parametrize("name", [b"Content-Length", b"content-length", b"Content-length"])
def test_the_name_of_the_field_may_be_written_in_several_ways(name: bytes) -> None:
    data = START.replace(b"Content-Length", name) + b"2" + REST
    assert knowing(data).match(data + b"ab") == (HEAD, b"ab")


def test_a_head_that_came_once_is_not_kept(heads: KnownHeads) -> None:
    data = START.replace(b"=t", b"=u") + b"0" + REST
    heads.learn(data, HEAD)
    assert heads.match(data) is None
    heads.learn(data, HEAD)
    assert heads.match(data) == (HEAD, b"")


def test_digits_to_the_end_are_no_head() -> None:
    """`rest` is not there at all, and where it was looked for, taken for a place, would let the sizes agree."""
    for rest in (REST, b"\r\n\r\n"):
        heads = knowing(START + b"5" + rest)
        for digits in range(1, 10**3):
            data = START + b"%d" % digits + b"x"
            assert heads.match(data) is None


def test_what_is_remembered_has_a_bound() -> None:
    heads = KnownHeads()
    known = []
    for number in range(2 * MAX_HEADS + 10):
        data = START.replace(b"=t", b"=%d" % number) + b"0" + REST
        heads.learn(data, HEAD)
        heads.learn(data, HEAD)
        assert heads.match(data) == (HEAD, b"")
        known.append(data)
    assert sum(heads.match(data) is not None for data in known) == 10


def test_what_came_once_is_not_remembered_for_ever() -> None:
    heads = KnownHeads()
    data = START + b"0" + REST
    heads.learn(data, HEAD)
    for number in range(MAX_HEADS):
        heads.learn(START.replace(b"=t", b"=%d" % number) + b"0" + REST, HEAD)
    heads.learn(data, HEAD)
    assert heads.match(data) is None


def test_a_head_is_read_twice_by_all_connections_together(begun: list[bytes]) -> None:
    web = Web()
    for browser in (web.connect(), web.connect()):
        for body in (b"x", b"y", b"longer"):
            assert browser.ask("POST", "/pub?topic=t", body).outcome == OK
            assert browser.ask("POST", "/mpub?topic=u", body).outcome == OK
    assert begun == [b"/pub?topic=t", b"/mpub?topic=u"] * 2
    assert web.bodies("t") == web.bodies("u") == [b"x", b"y", b"longer"] * 2


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request("POST", "/topic/create?topic=t", b"x"), 200),
        (request("POST", "/pub?topic=t", b"x", Origin="http://elsewhere.example"), 403),
        (request("POST", "/pub?topic=t", b"x", Expect="100-continue"), 100),
        (request("POST", "/pub?topic=t", Expect="100-continue"), 400),
        (request("POST", "/pub?topic=t", b"x", Connection="close"), 200),
        (request("POST", "/pub?topic=t", b"x", "HTTP/1.0"), 200),
        (request("POST", "/pub?topic=t", b"x", Content_Length="2000000", Host="/"), 400),
        (chunked("POST", "/pub?topic=t", b"x"), 200),
    ],
)
def test_heads_that_mean_more_than_a_publish_are_read_each_time(begun: list[bytes], data: bytes, status: int) -> None:
    web = Web()
    for count in (1, 2):
        browser = web.connect()
        browser.send(data)
        assert browser.read()[0].status == status
        assert len(begun) in (0, count)


def test_half_a_request_behind_a_known_head_waits_for_its_rest() -> None:
    web = Web()
    browser = web.connect()
    data = request("POST", "/pub?topic=t", b"0123456789")
    for cut in range(1, len(data)):
        browser.send(data[:cut])
        assert browser.read() == []
        browser.send(data[cut:])
        assert [reply.outcome for reply in browser.read()] == [OK]
    assert web.bodies() == [b"0123456789"] * (len(data) - 1)


def test_what_comes_while_a_request_is_served_waits_for_its_answer() -> None:
    web = Web()
    browser = web.connect()
    data = request("POST", "/pub?topic=t", b"x")
    teach(web, data)
    for _ in range(3):
        browser.send(data)
    browser.send(request("GET", "/nothing"))
    browser.send(data[:10])
    assert [reply.status for reply in browser.read()] == [200, 200, 200, 404]
    browser.send(data[10:])
    assert [reply.status for reply in browser.read()] == [200]
    assert web.bodies() == [b"x"] * 4


def test_a_line_that_is_empty_may_stand_before_a_request() -> None:
    browser = Web().connect()
    data = request("POST", "/pub?topic=t", b"x")
    for piece in (data, b"\r\n", data, b"\r\n" + data, data):
        browser.send(piece)
    assert [reply.outcome for reply in browser.read()] == [OK] * 4
    browser.send(b"\r\n\r\n" + data)
    assert [reply.status for reply in browser.read()] == [400]


HEADS = [
    START + b"%d" + REST,
    b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\ncontent-length: %d\r\n\r\n",
    b"POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nUser-Agent: y\r\n\r\n",
    b"POST /mpub?topic=t&binary=1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
    b"POST /pub?topic=t HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n",
    b"POST /pub HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
    b"POST /pub?topic=t;u HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
    b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
    b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
    b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
]
BODIES = st.sampled_from([b"", b"x", b"a\nb\n\nc", b"x" * 10, b"y" * 11, b"z" * 41, b"\0\0\0\1\0\0\0\1x"])
REQUESTS = st.builds(lambda head, body: head % len(body) + body, st.sampled_from(HEADS), BODIES)
ODD_REQUESTS = st.builds(
    lambda data, at, odd: data[: at % len(data)] + odd + data[at % len(data) + 1 :],
    REQUESTS,
    st.integers(0, 200),
    st.sampled_from([b"", b"\r\n", b"\n", b" ", b"0", b"9", b"\xff", b"\r\nExpect: 100-continue\r\n"]),
)
LINE = st.just(b"\r\n")
CHUNKS = st.one_of(
    REQUESTS,
    ODD_REQUESTS,
    LINE,
    st.builds(lambda one, two: one + two, st.one_of(REQUESTS, LINE), st.one_of(REQUESTS, LINE)),
)


class NoHeads(KnownHeads):
    """Knows none, whatever it learns."""

    def match(self, data: bytes) -> None:
        return None


def said(browser: Browser) -> tuple[bytes, bool]:
    """What was written since the last time, whatever the time, and whether the connection is closed."""
    browser.web.turn()
    data = browser.transport.value()
    browser.transport.clear()
    return ANY_DATE.sub(b"", data), browser.is_closed


@given(st.lists(st.tuples(CHUNKS, st.booleans()), max_size=8))
def test_nobody_can_tell_whether_a_head_is_known(chunks: list[tuple[bytes, bool]]) -> None:
    """Two brokers get the same bytes. One knows the usual heads, the other reads every one."""
    knows, reads = Web(**LIMITS), Web(**LIMITS)
    reads.site.heads = NoHeads()
    for head in HEADS:
        teach(knows, head % 1)
    browsers = knows.connect(), reads.connect()
    for chunk, is_read in chunks:
        for browser in browsers:
            if not browser.is_closed:
                browser.send(chunk)
        if is_read:
            first, second = map(said, browsers)
            assert first == second
    first, second = map(said, browsers)
    assert first == second
    assert browsers[0].connection.stage == browsers[1].connection.stage
    assert list(knows.broker.topics) == list(reads.broker.topics)
    assert knows.bodies() == reads.bodies()
