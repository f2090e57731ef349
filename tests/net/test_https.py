"""HTTPS: the HTTP API behind a handshake, and plain HTTP where TLS is required."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from nsqtw.api.site import refusing_site
from nsqtw.net.admission import RejectedConnection
from nsqtw.net.https import TlsFactory
from nsqtw.net.tls_settings import TlsSettings
from nsqtw.net.tls_transport import HANDSHAKE_SECONDS
from nsqtw.options.broker import Options
from tests.certificates import Certificates, Pair
from tests.http.broker_fixture import Browser, Log, Reply, Web, replies, request
from tests.net.tls_client import TlsClient, context

PEER = IPv4Address("TCP", "127.0.0.1", 5)
WARNING = "warn: http: TLS handshake error from 127.0.0.1:5: "


class Socket:
    """Nothing goes into it past the transport: that would be in plain text."""

    def send(self, data: bytes) -> int:
        raise AssertionError("past TLS")


class OpenSocket:
    """Takes plain text for a transport."""

    def __init__(self, transport: StringTransport) -> None:
        self._transport = transport

    def send(self, data: bytes) -> int:
        self._transport.write(data)
        return len(data)


class Transport(StringTransport):
    """A socket's. It has what Twisted's have."""

    def __init__(self) -> None:
        super().__init__(hostAddress=IPv4Address("TCP", "127.0.0.1", 4152), peerAddress=PEER)
        self.keep_alive = self.aborting = False
        self.socket: Socket | OpenSocket = Socket()

    def setTcpKeepAlive(self, on: bool) -> None:
        self.keep_alive = on

    def abortConnection(self) -> None:
        self.aborting = True


class SafeWeb(Web):
    """A broker whose HTTP edge is behind TLS."""

    def __init__(self, pair: Pair, **options: Any) -> None:
        given = {"tls_cert": pair.certificate, "tls_key": pair.key, **options}
        super().__init__(**given)
        self.tls = TlsSettings(Options(**given), self.clock)
        self.factory = TlsFactory(self.site, self.tls)

    def accept(self) -> Transport:
        """A connection on which nothing was said yet."""
        transport = Transport()
        transport.protocol = self.factory.buildProtocol(PEER)
        transport.protocol.makeConnection(transport)
        return transport

    def meet(self, wants: ssl.SSLContext | None = None) -> tuple[TlsClient, Transport]:
        transport = self.accept()
        client = TlsClient(transport, wants)
        client.shake()
        return client, transport

    def answers(self, client: TlsClient) -> list[Reply]:
        self.turn()
        return list(replies(client.read()))


@pytest.fixture
def web(certificates: Certificates) -> SafeWeb:
    return SafeWeb(certificates.server)


def test_the_api_is_served(web: SafeWeb, certificates: Certificates) -> None:
    client, transport = web.meet(context(authority=certificates.authority.certificate))
    assert transport.keep_alive
    for method, target, body, outcome in (
        ("GET", "/ping", b"", (200, "OK")),
        ("POST", "/pub?topic=t", b"hello", (200, "OK")),
        ("GET", "/nothing", b"", (404, "NOT_FOUND")),
    ):
        client.send(request(method, target, body))
        assert [answer.outcome for answer in web.answers(client)] == [outcome]
    assert web.bodies() == [b"hello"]


def test_large_bodies_and_answers(web: SafeWeb) -> None:
    client, _ = web.meet()
    client.send(request("POST", "/pub?topic=t", b"x" * 500_000))
    assert [answer.outcome for answer in web.answers(client)] == [(200, "OK")]
    for number in range(200):
        web.broker.topic(f"topic-{number}")
    client.send(request("GET", "/stats?format=json"))
    (answer,) = web.answers(client)
    assert len(answer.json["topics"]) == 201


def test_a_client_that_says_goodbye_is_still_answered(web: SafeWeb) -> None:
    client, transport = web.meet()
    client.tls.write(request("POST", "/pub?topic=t", b"last"))
    client.end()
    assert [answer.outcome for answer in web.answers(client)] == [(200, "OK")]
    assert client.has_been_ended
    assert transport.disconnecting


def test_a_connection_is_closed_when_the_answer_says_so(web: SafeWeb) -> None:
    client, transport = web.meet()
    client.send(request("GET", "/ping", Connection="close"))
    assert [answer.outcome for answer in web.answers(client)] == [(200, "OK")]
    assert client.has_been_ended
    assert transport.disconnecting


def test_a_handshake_has_a_deadline(web: SafeWeb) -> None:
    silent, slow = web.accept(), web.accept()
    slow.protocol.dataReceived(TlsClient(slow).hello()[:100])
    _, transport = web.meet()
    with Log() as lines:
        web.clock.advance(HANDSHAKE_SECONDS)
    timed_out = f"{WARNING}read tcp 127.0.0.1:4152->127.0.0.1:5: i/o timeout"
    assert lines == [timed_out, timed_out]
    assert (silent.disconnecting, slow.disconnecting, transport.disconnecting) == (True, True, False)
    assert (silent.value(), slow.value()) == (b"", b"")


def test_plain_http_gets_an_answer_it_understands(web: SafeWeb) -> None:
    transport = web.accept()
    with Log() as lines:
        transport.protocol.dataReceived(request("GET", "/ping"))
    assert transport.value().startswith(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS")
    assert transport.disconnecting
    assert lines == [f"{WARNING}tls: first record does not look like a TLS handshake"]


def test_anything_else_gets_none(web: SafeWeb) -> None:
    transport = web.accept()
    with Log() as lines:
        transport.protocol.dataReceived(b"  V2IDENTIFY\n")
    assert transport.value() == b""
    assert transport.disconnecting
    assert len(lines) == 1


def test_a_connection_lost_in_the_middle_of_a_handshake_is_no_error(web: SafeWeb) -> None:
    first, second = web.accept(), web.accept()
    first.protocol.dataReceived(TlsClient(first).hello())
    with Log() as lines:
        first.protocol.readConnectionLost()
        assert first.disconnecting
        for transport in (first, second):
            transport.protocol.connectionLost(Failure(ConnectionDone()))
        web.clock.advance(HANDSHAKE_SECONDS)
    assert lines == []


@pytest.mark.parametrize(
    ("policy", "nobody", "stranger", "friend"),
    [("", True, True, True), ("require", False, True, True), ("require-verify", False, False, True)],
)
def test_the_policy_for_client_certificates_holds_here_too(
    certificates: Certificates, policy: str, nobody: bool, stranger: bool, friend: bool
) -> None:
    authority = certificates.authority.certificate
    web = SafeWeb(certificates.server, tls_client_auth_policy=policy, tls_root_ca_file=authority)
    found = []
    for pair in (None, certificates.stranger, certificates.client):
        try:
            client, _ = web.meet(context(certificate=pair))
            client.send(request("POST", "/pub?topic=t", b"x"))
            found.append([answer.status for answer in web.answers(client)] == [200])
        except ssl.SSLError:
            found.append(False)
    assert found == [nobody, stranger, friend]
    assert len(web.bodies()) == sum(found)


def test_who_the_client_is_can_be_asked(certificates: Certificates) -> None:
    """For whoever decides what it may."""
    web = SafeWeb(certificates.server, tls_client_auth_policy="require")
    _, transport = web.meet(context(certificate=certificates.client))
    connection = transport.protocol._application
    assert connection.transport.secured.common_name == "friend"


# -- where TLS is required


class BarredWeb(Web):
    """A broker whose plain HTTP serves nothing."""

    def __init__(self, https_port: int) -> None:
        super().__init__()
        self.site = refusing_site(self.site, https_port)


@pytest.mark.parametrize("port", [4152, 0])
@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/ping"), ("POST", "/pub?topic=t"), ("GET", "/nothing"), ("PUT", "/config/log_level"), ("OPTIONS", "*")],
)
def test_plain_http_says_where_https_is(port: int, method: str, target: str) -> None:
    web = BarredWeb(port)
    reply = web.ask(method, target)
    assert (reply.status, reply.body) == (403, b'{"message": "TLS_REQUIRED", "https_port": %d}' % port)
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert reply.headers["x-nsq-content-type"] == "nsq; version=1.0"
    assert not web.broker.topics


def test_a_body_that_nobody_wants_is_read_past() -> None:
    browser: Browser = BarredWeb(4152).connect()
    browser.send(request("POST", "/pub?topic=t", b"x" * 5000) + request("GET", "/ping"))
    assert [reply.status for reply in browser.read()] == [403, 403]
    browser.send(b"no http\r\n\r\n")
    assert [reply.status for reply in browser.read()] == [400]


class SharedWeb(SafeWeb):
    """A broker whose HTTP edge takes TLS and plain connections on one port."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        self.factory = TlsFactory(self.site, self.tls, plain_limits=self.site.limits)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / self.site.limits.sweeper.seconds)):
            self.core.now += self.site.limits.sweeper.seconds
            self.clock.advance(self.site.limits.sweeper.seconds)


@pytest.fixture
def shared(certificates: Certificates) -> SharedWeb:
    return SharedWeb(certificates.server)


def test_the_first_byte_says_whether_it_is_tls(shared: SharedWeb) -> None:
    client, _ = shared.meet()
    client.send(request("GET", "/ping"))
    assert [reply.body for reply in shared.answers(client)] == [b"OK"]
    plain = shared.accept()
    plain.socket = OpenSocket(plain)
    for byte in request("GET", "/ping"):
        plain.protocol.dataReceived(bytes([byte]))
    assert plain.value().endswith(b"OK")
    assert shared.site.limits.connection_limiter.count == 2


def test_a_connection_that_says_nothing_is_neither(shared: SharedWeb) -> None:
    silent, gone = shared.accept(), shared.accept()
    assert shared.site.limits.connection_limiter.count == 2
    gone.protocol.connectionLost(Failure(ConnectionDone()))
    assert shared.site.limits.connection_limiter.count == 1
    shared.pass_time(HANDSHAKE_SECONDS * 2)
    assert silent.aborting
    silent.protocol.connectionLost(Failure(ConnectionDone()))
    assert shared.site.limits.connection_limiter.count == 0
    assert not gone.aborting


def test_one_too_many_is_told_on_a_shared_port_too(shared: SharedWeb) -> None:
    shared.broker.options.max_connections = 1
    shared.accept()
    assert isinstance(shared.factory.buildProtocol(PEER), RejectedConnection)
