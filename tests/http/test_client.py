"""Clients of other servers, and bodies of responses: whole, too long, broken off and given up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.ssl import optionsForClientTLS
from twisted.internet.testing import MemoryReactorClock, StringTransportWithDisconnection
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer

from nsqtw.errors import AuthError
from nsqtw.http.client import HttpClient, make_client, read_body


@implementer(IPolicyForHTTPS)
class Policy:
    """Remembers the servers whose certificates it was to check."""

    def __init__(self) -> None:
        self.servers: list[tuple[bytes, int]] = []

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
        self.servers.append((hostname, port))
        return optionsForClientTLS("a.example")


def test_a_client_gives_a_connection_its_time() -> None:
    reactor = MemoryReactorClock()  # type: ignore[no-untyped-call]
    client = make_client(reactor, 3.0)
    asking: Any = [client.request("GET", "http://127.0.0.1:4151/ping") for _ in range(2)]
    assert [(host, port, timeout) for host, port, _, timeout, _ in reactor.tcpClients] == [("127.0.0.1", 4151, 3.0)] * 2
    for one in asking:
        one.addErrback(lambda failure: None)
        one.cancel()


def test_a_client_checks_certificates_by_its_policy() -> None:
    reactor, policy = MemoryReactorClock(), Policy()  # type: ignore[no-untyped-call]
    asking: Any = make_client(reactor, 3.0, policy).request("GET", "https://127.0.0.1:4152/ping")
    assert policy.servers == [(b"127.0.0.1", 4152)]
    asking.addErrback(lambda failure: None)
    asking.cancel()


class Response:
    """One whose body the test sends."""

    def __init__(self) -> None:
        self.transport = StringTransportWithDisconnection()
        self.protocol: Any = None

    def deliverBody(self, protocol: Any) -> None:
        self.protocol = self.transport.protocol = protocol
        protocol.makeConnection(self.transport)

    def sends(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.protocol.dataReceived(piece)

    def ends(self, reason: Exception) -> None:
        self.protocol.connectionLost(Failure(reason))


def reading(response: Response, limit: int = 5) -> tuple[Deferred[bytes], list[Any]]:
    """What reads, and what comes of it."""
    outcomes: list[Any] = []
    body = read_body(response, limit, AuthError)
    body.addCallbacks(outcomes.append, lambda failure: outcomes.append(failure.value))
    return body, outcomes


@pytest.mark.parametrize("end", [ResponseDone(), PotentialDataLoss()])
def test_a_body_may_have_as_much_as_the_limit(end: Exception) -> None:
    response = Response()
    _, outcomes = reading(response)
    response.sends([b"ab", b"", b"cde"])
    assert outcomes == []
    response.ends(end)
    assert outcomes == [b"abcde"]
    assert response.transport.connected


def test_one_that_is_too_long_is_not_read_to_its_end() -> None:
    response = Response()
    _, outcomes = reading(response)
    response.sends([b"ab", b"cdef"])
    (error,) = outcomes
    assert (type(error), str(error)) == (AuthError, "the answer has more than 5 bytes")
    assert not response.transport.connected
    response.sends([b"more", b"than", b"that"])
    assert len(outcomes) == 1
    assert not response.protocol._received


def test_one_that_breaks_off_is_the_error_of_the_connection() -> None:
    response = Response()
    _, outcomes = reading(response)
    response.sends([b"ab"])
    response.ends(ConnectionLost())
    assert [type(error) for error in outcomes] == [ConnectionLost]


def test_one_that_nobody_waits_for_any_more_ends_the_connection() -> None:
    response = Response()
    body, outcomes = reading(response)
    response.sends([b"ab"])
    body.cancel()
    assert not response.transport.connected
    assert len(outcomes) == 1


def test_name_and_password_of_a_url_are_a_field_and_not_on_the_wire() -> None:
    sent: list[tuple[bytes, Any]] = []

    class Agent:
        def request(self, method: bytes, uri: bytes, headers: Any, body: Any) -> Deferred[None]:
            sent.append((uri, headers.getRawHeaders(b"Authorization")))
            return Deferred()

    HttpClient(Agent()).request("GET", "http://user:word@127.0.0.1:1/a?b")  # type: ignore[arg-type]
    assert sent == [(b"http://127.0.0.1:1/a?b", [b"Basic dXNlcjp3b3Jk"])]
