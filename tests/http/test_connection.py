"""Connections: what comes in pieces, too early, too large, twice, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent

from nsqtw.core.broker import Broker
from nsqtw.http.parser import RequestHead
from nsqtw.http.received_request import ReceivedRequest
from tests.http.broker_fixture import DONE, LIMITS, OK, Browser, Log, Web, chunked, request

pytestmark = pytest.mark.usefixtures("heads")

TOO_BIG = (413, "MSG_TOO_BIG")
CONTINUE = (100, "")


class FullTransport(StringTransport):
    """Its socket takes one write whole, and of the next only `taken` bytes, or fails."""

    def __init__(self, taken: int | OSError) -> None:
        super().__init__()
        self.tries = 0
        self._taken = taken

    @property
    def socket(self) -> FullTransport:
        return self

    def send(self, data: bytes) -> int:
        self.tries += 1
        taken = len(data) if self.tries == 1 else self._taken
        if isinstance(taken, OSError):
            raise taken
        self.write(data[:taken])
        return taken


def outcomes(browser: Browser) -> list[tuple[int, str]]:
    return [reply.outcome for reply in browser.read()]


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (request("GET", "/ping"), OK),
        (request("POST", "/pub?topic=t", b"hello"), OK),
        (chunked("POST", "/mpub?topic=t", b"he\nl", b"lo"), OK),
        (request("POST", "/topic/create?topic=t", b"ignored"), DONE),
        (request("POST", "/pub?topic=t", b"x" * 11), TOO_BIG),
        (chunked("POST", "/pub?topic=t", b"x" * 6, b"x" * 6), TOO_BIG),
        (request("POST", "/nothing", b"body"), (404, "NOT_FOUND")),
    ],
)
def test_a_request_may_come_byte_by_byte(data: bytes, outcome: tuple[int, str]) -> None:
    browser = Web(**LIMITS).connect()
    for at in range(len(data)):
        browser.send(data[at : at + 1])
    browser.send(request("GET", "/ping")[:-1])
    assert outcomes(browser) == [outcome]
    browser.send(request("GET", "/ping")[-1:])
    assert outcomes(browser) == [OK]


def test_requests_that_wait_in_line_are_answered_in_order() -> None:
    web = Web(**LIMITS)
    browser = web.connect()
    browser.send(
        request("POST", "/pub?topic=t", b"1")
        + request("GET", "/nothing")
        + request("POST", "/pub?topic=t", b"x" * 11)
        + chunked("POST", "/pub?topic=t", b"2")
        + request("POST", "/topic/create?topic=u")
        + request("GET", "/ping")
    )
    assert outcomes(browser) == [OK, (404, "NOT_FOUND"), TOO_BIG, OK, DONE, OK]
    assert web.bodies() == [b"1", b"2"]


def test_a_request_that_changes_a_topic_can_wait_behind_a_publish_to_it() -> None:
    web = Web()
    browser, other = web.connect(), web.connect()
    browser.send(request("POST", "/pub?topic=a", b"x") + request("POST", "/topic/delete?topic=b"))
    other.send(request("POST", "/pub?topic=b", b"y"))
    assert outcomes(browser) == [OK, DONE]
    assert outcomes(other) == [OK]
    assert list(web.broker.topics) == ["a"]


def test_a_body_that_is_too_large_is_refused_before_it_comes_and_then_read_over() -> None:
    web = Web(**LIMITS)
    browser = web.connect()
    data = request("POST", "/pub?topic=t", b"x" * 1000)
    head = data[:-1000]
    browser.send(head)
    assert outcomes(browser) == [TOO_BIG]
    browser.send(data[len(head) :] + request("GET", "/ping"))
    assert outcomes(browser) == [OK]
    assert web.broker.topics == {}


def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large() -> None:
    browser = Web(**LIMITS).connect()
    data = chunked("POST", "/pub?topic=t", *[b"x" * 8] * 100)
    half = len(data) // 2
    browser.send(data[:half])
    assert outcomes(browser) == [TOO_BIG]
    browser.send(data[half:] + request("GET", "/ping"))
    assert outcomes(browser) == [OK]


def test_what_is_read_over_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[ReceivedRequest] = []
    begin = ReceivedRequest.begin

    def watched(self: ReceivedRequest, head: RequestHead) -> object:
        requests.append(self)
        return begin(self, head)

    monkeypatch.setattr(ReceivedRequest, "begin", watched)
    browser = Web(**LIMITS).connect()
    browser.send(chunked("POST", "/pub?topic=t", *[b"x" * 8] * 100))
    browser.send(request("POST", "/topic/create?topic=t", b"x" * 1000))
    assert outcomes(browser) == [TOO_BIG, DONE]
    assert [len(one.body) for one in requests] == [11, 0]


@pytest.mark.parametrize(
    ("target", "length", "first"),
    [
        ("/pub?topic=t", "10", CONTINUE),
        ("/mpub?topic=t", "40", CONTINUE),
        ("/topic/create?topic=t", "10", CONTINUE),
        ("/pub?topic=t", "11", TOO_BIG),
        ("/mpub?topic=t", "41", (413, "BODY_TOO_BIG")),
        ("/nothing", "10", (404, "NOT_FOUND")),
        ("/ping", "10", (405, "METHOD_NOT_ALLOWED")),
    ],
)
def test_expect_100_continue(target: str, length: str, first: tuple[int, str]) -> None:
    browser = Web(**LIMITS).connect()
    browser.send(request("POST", target, Content_Length=length, Expect="100-Continue"))
    (reply,) = browser.read()
    assert reply.outcome == first
    assert browser.is_closed is (first != CONTINUE)
    assert reply.headers.get("connection") == ("close" if browser.is_closed else None)
    if first == CONTINUE:
        browser.send(b"x" * int(length))
        assert [reply.status for reply in browser.read()] == [413 if target.startswith("/mpub") else 200]


@pytest.mark.parametrize(("method", "length"), [("GET", None), ("POST", "0")])
def test_no_body_is_asked_for_where_there_is_none(method: str, length: str | None) -> None:
    fields = {"Expect": "100-continue"} | ({"Content-Length": length} if length else {})
    browser = Web().connect()
    browser.send(request(method, "/ping", **fields))
    assert [reply.status for reply in browser.read()] == [200 if method == "GET" else 405]
    assert not browser.is_closed


@pytest.mark.parametrize("expected", ["100-continue, foo", "foo,100-Continue"])
def test_a_body_is_one_of_the_things_expected(expected: str) -> None:
    browser = Web().connect()
    browser.send(request("POST", "/pub?topic=t", Content_Length="1", Expect=expected))
    assert outcomes(browser) == [CONTINUE]


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("target", ["/pub?topic=t", "/nothing"])
def test_nothing_else_can_be_expected(target: str, version: str) -> None:
    web = Web()
    browser = web.connect()
    browser.send(request("POST", target, b"x", version, Expect="200-ok"))
    (reply,) = browser.read()
    assert (reply.status, reply.body, reply.headers["content-length"]) == (417, b"", "0")
    assert browser.is_closed
    assert web.broker.topics == {}


def test_nothing_at_all_can_be_expected() -> None:
    assert Web().ask("GET", "/ping", Expect="").outcome == OK


def test_a_field_that_is_repeated_is_one_list() -> None:
    browser = Web().connect()
    browser.send(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n")
    (reply,) = browser.read()
    assert (reply.outcome, reply.headers["connection"]) == (OK, "close")
    assert browser.is_closed


@pytest.mark.parametrize(
    ("version", "field", "is_kept", "says"),
    [
        ("HTTP/1.1", None, True, None),
        ("HTTP/1.1", "keep-alive", True, None),
        ("HTTP/1.1", "close", False, "close"),
        ("HTTP/1.1", "foo, Close", False, "close"),
        ("HTTP/1.0", None, False, None),
        ("HTTP/1.0", "Keep-Alive", True, "keep-alive"),
        ("HTTP/1.0", "keep-alive, close", False, None),
    ],
)
def test_a_connection_is_kept_or_closed_as_asked(
    version: str, field: str | None, is_kept: bool, says: str | None
) -> None:
    browser = Web().connect()
    headers = {} if field is None else {"Connection": field}
    for _ in range(2):
        browser.send(request("POST", "/pub?topic=t", b"x", version, **headers))
        (reply,) = browser.read()
        assert (reply.version, reply.outcome) == (version, OK)
        assert reply.headers.get("connection") == says
        assert browser.is_closed is not is_kept
        if not is_kept:
            break


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /ping\r\n\r\n",
        b"GET /ping HTTP/2.0\r\n\r\n",
        b"GET /pi ng HTTP/1.1\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nbad name: x\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nbad-name : x\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\n: x\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nA: a\x00b\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nA: a\rb\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nA: a\x7fb\r\n\r\n",
        b"POST /pub HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        pytest.param(
            b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", id="5,000 digits"
        ),
        b"POST /pub HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /pub HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /pub HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
)
def test_what_is_no_http_ends_the_connection(data: bytes) -> None:
    browser = Web().connect()
    with Log() as lines:
        browser.send(data)
    (reply,) = browser.read()
    assert (reply.status, reply.body) == (400, b"400 Bad Request")
    assert reply.headers["connection"] == "close"
    assert browser.is_closed
    assert lines == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([], "missing required Host header"),
        (["Host: a b"], "malformed Host header"),
        (["Host: a/b"], "malformed Host header"),
        (["Host: a", "Host: a"], "malformed Host header"),
    ],
)
def test_a_request_names_its_host(fields: list[str], why: str) -> None:
    browser = Web().connect()
    browser.send("\r\n".join(["GET /ping HTTP/1.1", *fields, "", ""]).encode() + request("GET", "/ping"))
    (reply,) = browser.read()
    assert (reply.status, reply.body) == (400, f"400 Bad Request: {why}".encode())
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert browser.is_closed


@pytest.mark.parametrize("host", ["", "[::1]:4151", "a.b-c_d:1"])
def test_hosts_are_all_the_same(host: str) -> None:
    assert Web().ask("GET", "/ping", Host=host).outcome == OK


def test_http_1_0_knows_no_host() -> None:
    browser = Web().connect()
    browser.send(b"GET /ping HTTP/1.0\r\n\r\n")
    assert outcomes(browser) == [OK]


@pytest.mark.parametrize("whole", [True, False])
def test_lines_may_end_without_a_carriage_return(whole: bool) -> None:
    web = Web()
    browser = web.connect()
    data = request("POST", "/pub?topic=t", b"z\r\n")
    head, _, _ = data.partition(b"z\r\n")
    data = head.replace(b"\r\n", b"\n") + b"z\r\n"
    for piece in [data] if whole else [data[at : at + 1] for at in range(len(data))]:
        browser.send(piece)
    assert outcomes(browser) == [OK]
    assert web.bodies() == [b"z\r\n"]
    assert browser.is_closed


def test_behind_lines_without_a_carriage_return_nothing_is_read() -> None:
    """A proxy that knows only CRLF would see one request here."""
    web = Web()
    browser = web.connect()
    browser.send(request("GET", "/ping").replace(b"\r\n", b"\n") + request("POST", "/topic/create?topic=t"))
    assert outcomes(browser) == [OK]
    assert browser.is_closed
    assert web.broker.topics == {}


@pytest.mark.parametrize(
    "data",
    [
        request("GET", "/ping", Transfer_Encoding="identity"),
        request("POST", "/pub?topic=t", b"x", Transfer_Encoding="identity"),
        request("POST", "/pub?topic=t", b"x", Transfer_Encoding="chunked"),
        request("POST", "/pub?topic=t", b"x", Transfer_Encoding="chunked, identity"),
        chunked("POST", "/pub?topic=t", b"x").replace(b"HTTP/1.1", b"HTTP/1.0"),
        chunked("POST", "/pub?topic=t", b"x").replace(b"chunked\r\n", b"chunked\r\nTransfer-Encoding: chunked\r\n"),
        request("POST", "/pub?topic=t", b"x").replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n"),
        b"POST /pub?topic=t HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n1\r\nx\r\n0\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nA: b\n\nGET /stats HTTP/1.1\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length : 1\r\n\r\nx",
    ],
)
def test_what_two_readers_could_understand_in_different_ways_is_refused(data: bytes) -> None:
    web = Web()
    browser = web.connect()
    browser.send(data + request("POST", "/topic/create?topic=smuggled"))
    assert [reply.status for reply in browser.read()] == [400]
    assert browser.is_closed
    assert web.broker.topics == {}


def test_trailers_are_passed_over() -> None:
    web = Web()
    browser = web.connect()
    body = chunked("POST", "/pub?topic=t", b"x")[:-2] + b"A: b\r\nContent-Length: 5\r\n\r\n"
    browser.send(body + request("GET", "/ping"))
    assert outcomes(browser) == [OK, OK]


@pytest.mark.parametrize("size", [1, 1000])
def test_trailers_are_header_fields(size: int) -> None:
    web = Web()
    browser = web.connect()
    body = chunked("POST", "/pub?topic=t", b"x")[:-2] + b"A: b\n\r\n\r\n" + request("POST", "/topic/create?topic=s")
    for start in range(0, len(body), size):
        browser.send(body[start : start + size])
    assert [reply.status for reply in browser.read()] == [400]
    assert browser.is_closed
    assert "s" not in web.broker.topics


@pytest.mark.parametrize(
    "field",
    [
        "connection:close",
        "CONNECTION: \t close \t",
        "Connection: foo,\r\n\tclose",
        "A:\r\nB: \xe9\t\xff\r\nConnection: close",
    ],
)
def test_ways_to_write_a_field(field: str) -> None:
    browser = Web().connect()
    browser.send(f"GET /ping HTTP/1.1\r\nhOST:x\r\n{field}\r\n\r\n".encode("latin-1"))
    assert outcomes(browser) == [OK]
    assert browser.is_closed


def test_header_fields_may_be_long_and_many() -> None:
    many = {f"A{number}": "x" for number in range(2000)}
    assert Web().ask("GET", "/ping?" + "x" * 40_000, Long="x" * 65_536, **many).outcome == OK


@pytest.mark.parametrize("size", [1000, 262_144])
@pytest.mark.parametrize("where", ["line", "field", "fields"])
def test_a_head_of_a_megabyte_is_refused(where: str, size: int) -> None:
    """As soon as it is too long, and with nothing kept."""
    head = {
        "line": b"GET /ping?" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        "field": b"GET /ping HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 1_000_000 + b"\r\n\r\n",
        "fields": b"GET /ping HTTP/1.1\r\nHost: x\r\n" + (b"A: " + b"x" * 1000 + b"\r\n") * 1000 + b"\r\n",
    }[where]
    web = Web()
    browser = web.connect()
    sent = 0
    for start in range(0, len(head), size):
        if not browser.is_closed:
            browser.send(head[start : start + size])
            sent = start
    (reply,) = browser.read()
    assert (reply.status, reply.body) == (431, b"431 Request Header Fields Too Large")
    assert browser.is_closed
    assert sent < 200_000
    browser.lose()
    assert web.site.limits.partial_input.total == 0


@pytest.mark.parametrize(
    "data", [b"GET /", b"GET /ping HTTP/1.1\r\nA: ", b"GET /ping HTTP/1.1\r\n" + b"A: bbbb\r\n" * 200_000]
)
def test_header_fields_that_do_not_end(data: bytes) -> None:
    browser = Web().connect()
    data += b"x" * 1_100_000
    for at in range(0, len(data), 65536):
        if not browser.is_closed:
            browser.send(data[at : at + 65536])
    (reply,) = browser.read()
    assert (reply.status, reply.body) == (431, b"431 Request Header Fields Too Large")
    assert browser.is_closed


@pytest.mark.parametrize(
    ("target", "body", "outcome"),
    [
        ("POST /topic/create?topic=t", b"", DONE),
        ("POST /topic/delete?topic=t", b"", (400, "INVALID_REQUEST")),
        ("GET /ping", b"", OK),
        ("POST /pub?topic=t", b"ab", (400, "INVALID_REQUEST")),
        ("POST /mpub?topic=t", b"a\nb", (400, "INVALID_REQUEST")),
        ("POST /mpub", b"a\nb", (400, "MISSING_ARG_TOPIC")),
        ("POST /mpub?topic=t&binary=1", b"", (413, "BAD_BODY")),
        ("POST /mpub?topic=t&binary=1", b"\0\0\0\1\0\0", (413, "BAD_MESSAGE")),
        ("PUT /config/log_level", b"info", (400, "INVALID_REQUEST")),
    ],
)
@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_body_that_ends_early(target: str, body: bytes, outcome: tuple[int, str], is_chunked: bool) -> None:
    browser = Web().connect()
    head = f"{target} HTTP/1.1\r\nHost: x\r\n".encode()
    if is_chunked:
        chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
        browser.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"nonsense\r\n")
    else:
        browser.send(head + b"Content-Length: 20\r\n\r\n" + body)
        browser.connection.readConnectionLost()
    assert outcomes(browser) == [outcome]
    assert browser.is_closed


def test_chunks_that_break_after_the_answer_only_end_the_connection() -> None:
    browser = Web(**LIMITS).connect()
    browser.send(chunked("POST", "/pub?topic=t", b"x" * 20)[: -len("0\r\n\r\n")] + b"nonsense\r\n")
    assert outcomes(browser) == [TOO_BIG]
    assert browser.is_closed


def test_a_client_that_ends_its_side_still_gets_its_answers() -> None:
    web = Web()
    browser = web.connect()
    browser.send(request("POST", "/pub?topic=t", b"1") + request("POST", "/pub?topic=t", b"2"))
    browser.connection.readConnectionLost()
    assert not browser.is_closed
    assert outcomes(browser) == [OK, OK]
    assert browser.is_closed


@pytest.mark.parametrize("start", [b"", b"POST /pub?to", request("POST", "/pub?topic=t", b"half")[:-8]])
def test_a_client_that_ends_its_side_too_early_is_left(start: bytes) -> None:
    web = Web()
    browser = web.connect()
    browser.send(start)
    browser.connection.readConnectionLost()
    assert browser.is_closed
    browser.lose()
    assert browser.read() == []
    assert web.broker.topics == {}


@pytest.mark.parametrize("taken", [3, 0, BlockingIOError(), BrokenPipeError()])
def test_what_the_socket_does_not_take_at_once_is_left_to_the_transport(taken: int | OSError) -> None:
    transport = FullTransport(taken)
    browser = Browser(Web(), transport)
    browser.send(request("GET", "/ping") * 3)
    assert outcomes(browser) == [OK, OK, OK]
    assert transport.tries == 2


def test_an_unforeseen_error_is_one_failed_request_and_a_log_entry(
    monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    web = Web()

    def broken(broker: Broker, name: str) -> None:
        raise RuntimeError("the unforeseen")

    monkeypatch.setattr(Broker, "topic", broken)
    browser = web.connect()
    with Log() as lines:
        reply = browser.ask("POST", "/topic/create?topic=t")
    assert reply.outcome == (500, "INTERNAL_ERROR")
    assert lines[0] == "error: panic in HTTP handler - RuntimeError: the unforeseen"
    assert browser.ask("GET", "/ping").outcome == OK
    (event,) = logged_failures
    assert event["log_failure"].check(RuntimeError)
    logged_failures.clear()


@given(st.binary(max_size=200), st.sampled_from([b"", request("POST", "/pub?topic=t", Content_Length="5")]))
def test_any_bytes_are_answered_or_waited_for(data: bytes, start: bytes) -> None:
    web = Web(**LIMITS)
    browser = web.connect()
    browser.send(start + data)
    statuses = [reply.status for reply in browser.read()]
    assert set(statuses) <= {200, 400, 404, 405, 413, 417, 431}
    assert web.get("/ping").outcome == OK
