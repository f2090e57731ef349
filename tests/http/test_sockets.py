"""HTTP over real sockets: what only a kernel's buffers and other people's clients can show."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

import pytest

from tests.http.broker_fixture import Reply, chunked, replies, request
from tests.process import NsqdProcess
from tests.wire import ANSWER_SECONDS, HOST

MAX_MSG, MAX_BODY = 1_048_576, 5_242_880
MANY = 2000


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
    """A running broker with default flags; every test has its own topic."""
    process = NsqdProcess(tmp_path_factory.mktemp("http"))
    try:
        process.start()
        yield process
        process.stop()
    finally:
        process.close()


@pytest.fixture
def connection(nsqd: NsqdProcess) -> Iterator[http.client.HTTPConnection]:
    """Python's own client, on one connection: it fails when that is closed in between."""
    client = http.client.HTTPConnection(HOST, nsqd.http_port, timeout=ANSWER_SECONDS)
    client.connect()
    client.auto_open = 0
    yield client
    client.close()


@pytest.fixture
def raw(nsqd: NsqdProcess) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, nsqd.http_port), timeout=ANSWER_SECONDS) as client:
        yield client


def ask(client: http.client.HTTPConnection, method: str, target: str, body: object = None) -> tuple[int, bytes]:
    client.request(method, target, body, encode_chunked=True)  # type: ignore[arg-type]
    response = client.getresponse()
    return response.status, response.read()


def read_replies(client: socket.socket, count: int) -> list[Reply]:
    """Read just so many responses."""
    data, found = b"", list[Reply]()
    while len(found) < count:
        data += receive(client)
        while (size := size_of_first(data)) is not None:
            found += replies(data[:size])
            data = data[size:]
    assert (len(found), data) == (count, b"")
    return found


def size_of_first(data: bytes) -> int | None:
    """The bytes of the first response in `data`, None while it is not complete."""
    head, end, _ = data.partition(b"\r\n\r\n")
    if not end:
        return None
    _, announced, rest = head.partition(b"Content-Length: ")
    size = len(head) + len(end) + (int(rest.split(b"\r\n")[0]) if announced else 0)
    return size if len(data) >= size else None


def receive(client: socket.socket) -> bytes:
    data = client.recv(1 << 20)
    assert data, "closed too early"
    return data


def test_one_connection_serves_many_requests(connection: http.client.HTTPConnection) -> None:
    for _ in range(3):
        assert ask(connection, "GET", "/ping") == (200, b"OK")
        assert ask(connection, "POST", "/pub?topic=kept", b"x") == (200, b"OK")
        assert ask(connection, "POST", "/topic/create?topic=kept") == (200, b"")
        assert ask(connection, "GET", "/nothing")[0] == 404
        assert ask(connection, "POST", "/pub?topic=kept", b"")[0] == 400


def test_a_chunked_body(connection: http.client.HTTPConnection, nsqd: NsqdProcess) -> None:
    assert ask(connection, "POST", "/mpub?topic=chunked", iter([b"a\nb", b"c\n", b"d"])) == (200, b"OK")
    nsqd.create("chunked", "c")
    assert [message.body for message in nsqd.drain("chunked", "c", 3)] == [b"a", b"bc", b"d"]


def test_the_largest_bodies_there_may_be(connection: http.client.HTTPConnection, nsqd: NsqdProcess) -> None:
    line = b"x" * (MAX_MSG - 1) + b"\n"
    assert ask(connection, "POST", "/mpub?topic=large", line * (MAX_BODY // MAX_MSG)) == (200, b"OK")
    assert ask(connection, "POST", "/pub?topic=large", b"y" * MAX_MSG) == (200, b"OK")
    (topic,) = nsqd.stats("large")
    assert (topic["message_count"], topic["message_bytes"]) == (6, 5 * (MAX_MSG - 1) + MAX_MSG)


def test_a_client_that_sends_all_before_it_reads_gets_its_refusal(connection: http.client.HTTPConnection) -> None:
    assert ask(connection, "POST", "/pub?topic=refused", b"x" * (MAX_MSG + 1)) == (413, b'{"message":"MSG_TOO_BIG"}')
    assert ask(connection, "POST", "/mpub?topic=refused", b"x" * 4 * MAX_BODY) == (413, b'{"message":"BODY_TOO_BIG"}')
    too_many = iter([b"x" * 65536] * 100)
    assert ask(connection, "POST", "/pub?topic=refused", too_many) == (413, b'{"message":"MSG_TOO_BIG"}')
    assert ask(connection, "GET", "/ping") == (200, b"OK")


def test_a_body_that_is_wanted_is_asked_for(raw: socket.socket) -> None:
    raw.sendall(request("POST", "/pub?topic=expected", Content_Length="5", Expect="100-continue"))
    assert [reply.status for reply in read_replies(raw, 1)] == [100]
    raw.sendall(b"hello")
    assert [reply.outcome for reply in read_replies(raw, 1)] == [(200, "OK")]


def test_a_body_that_is_not_wanted_is_not_waited_for(raw: socket.socket) -> None:
    raw.sendall(request("POST", "/pub?topic=expected", Content_Length=str(MAX_MSG + 1), Expect="100-continue"))
    (reply,) = read_replies(raw, 1)
    assert (reply.outcome, reply.headers["connection"]) == ((413, "MSG_TOO_BIG"), "close")
    assert raw.recv(1) == b""


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_a_client_that_ends_its_side_gets_its_answer(raw: socket.socket, version: str) -> None:
    raw.sendall(request("POST", "/pub?topic=half", b"x", version))
    raw.shutdown(socket.SHUT_WR)
    assert [reply.outcome for reply in read_replies(raw, 1)] == [(200, "OK")]
    assert raw.recv(1) == b""


def test_what_is_no_http_is_told_so(raw: socket.socket) -> None:
    raw.sendall(b"  V2")
    raw.sendall(b"PUB topic\r\n\r\n")
    (reply,) = read_replies(raw, 1)
    assert (reply.status, reply.body) == (400, b"400 Bad Request")
    assert raw.recv(1) == b""


def test_answers_wait_for_a_client_that_does_not_read(raw: socket.socket) -> None:
    """Many requests at once, then answers of more bytes than a kernel keeps: they come whole and in order."""
    raw.sendall(b"".join(request("POST", f"/topic/create?topic=many{n}%23ephemeral") for n in range(MANY)))
    assert [reply.status for reply in read_replies(raw, MANY)] == [200] * MANY
    asked = ["/stats?format=json&include_mem=0", "/ping", "/stats"] * 40
    raw.sendall(b"".join(request("GET", target) for target in asked) + chunked("POST", "/pub?topic=last", b"x"))
    found = read_replies(raw, len(asked) + 1)
    assert [reply.status for reply in found] == [200] * len(found)
    assert sum(len(reply.body) for reply in found) > 16 * 1024 * 1024
    for reply, target in zip(found, asked, strict=False):
        if "json" in target:
            assert len([one for one in reply.json["topics"] if one["topic_name"].startswith("many")]) == MANY
        else:
            assert reply.body.startswith(b"OK" if target == "/ping" else b"nsqd v1.3.0")
