"""Limits on connections, on the time for a request, and on the bodies of users without a right."""

from __future__ import annotations

import http.client
import socket
from contextlib import ExitStack
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from nsqtw.admin.connections import BODY_SECONDS, HEAD_SECONDS
from nsqtw.admin.server import MAX_SMALL_BODY_BYTES, AdminSite
from tests.admin.conftest import StartAdmin
from tests.admin.process import AdminProcess
from tests.process import wait_until
from tests.wire import ANSWER_SECONDS, HOST


class Slow(Resource):
    """Answers when the test does."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.requests: list[Any] = []

    def render(self, request: Any) -> int:
        self.requests.append(request)
        return NOT_DONE_YET


class Bench:
    """A connection in a time that is a number."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.resource = Slow()
        site: Any = AdminSite(self.resource, self.clock, lambda request: 100)  # type: ignore[arg-type]
        self.channel: Any = site.buildProtocol(None)
        self.transport = StringTransport()
        self.channel.makeConnection(self.transport)

    @property
    def is_ended(self) -> bool:
        return self.transport.disconnecting

    def trickle(self, data: bytes, seconds: float) -> None:
        """Send a byte each second."""
        for number in range(int(seconds)):
            self.channel.dataReceived(data[number : number + 1])
            self.clock.advance(1)

    def end(self) -> None:
        self.channel.connectionLost()


@pytest.fixture
def bench() -> Any:
    made = Bench()
    yield made
    made.end()
    assert not made.clock.getDelayedCalls()


def test_a_head_that_comes_byte_by_byte(bench: Bench) -> None:
    bench.trickle(b"GET / HTTP/1.1\r\nX: " + b"x" * 100, HEAD_SECONDS - 1)
    assert not bench.is_ended
    bench.trickle(b"x", 1)
    assert bench.is_ended


def test_no_head_at_all(bench: Bench) -> None:
    bench.clock.advance(HEAD_SECONDS)
    assert bench.is_ended


def test_a_body_that_comes_byte_by_byte(bench: Bench) -> None:
    bench.channel.dataReceived(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\n")
    bench.trickle(b"x" * 99, BODY_SECONDS - 1)
    assert not bench.is_ended
    bench.trickle(b"x", 1)
    assert bench.is_ended


def test_an_answer_has_no_deadline_and_the_next_request_has(bench: Bench) -> None:
    bench.channel.dataReceived(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    bench.clock.pump([BODY_SECONDS] * 10)
    assert not bench.is_ended
    bench.resource.requests[0].finish()
    bench.trickle(b"GET / HTTP/1.1", HEAD_SECONDS)
    assert bench.is_ended


def test_connections_over_the_limit_are_refused(start: StartAdmin) -> None:
    admin = start("--max-connections=2")
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(socket.create_connection((HOST, admin.http_port), ANSWER_SECONDS))
        wait_until(lambda: admin.get("/ping").status == 503, "the limit is reached")
        assert "LIMIT: client(" in admin.said() and "is over --max-connections" in admin.said()
    wait_until(lambda: admin.get("/ping").status == 200, "the connections are closed")


def claim(admin: AdminProcess, size: int, user: str) -> int:
    """Send the head of a request with a body of `size`; the status of the answer that comes before the body."""
    connection = http.client.HTTPConnection(HOST, admin.http_port, timeout=ANSWER_SECONDS)
    try:
        connection.putrequest("POST", "/actions/publish?topic=t")
        connection.putheader("Content-Length", str(size))
        connection.putheader("X-Forwarded-User", user)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_large_body_needs_the_right_to_publish(start: StartAdmin) -> None:
    admin = start("--admin-user=boss", "--publish-user=paul", "--read-user=rita")
    for user in ("rita", "nobody", ""):
        assert claim(admin, MAX_SMALL_BODY_BYTES + 1, user) == 413, user
    body = b"x" * (MAX_SMALL_BODY_BYTES + 1)
    assert admin.ask("POST", "/actions/publish?topic=t", body, {"X-Forwarded-User": "paul"}).status == 403
    assert admin.ask("POST", "/api/topics", b"x", {"X-Forwarded-User": "rita"}).status == 403
