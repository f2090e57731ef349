"""An HTTP client whose servers are functions of the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IResponse
from zope.interface import implementer

from nsqtw.auth.http import HttpAuthorizer
from nsqtw.http.client import HttpClient
from nsqtw.options.broker import Options


class Sent(NamedTuple):
    """A request as it was sent."""

    method: bytes
    uri: bytes
    headers: Headers
    body: bytes


@implementer(IResponse)
class Response:
    """A response. Its body comes at once, in pieces, and does not end when `is_endless`."""

    version = (b"HTTP", 1, 1)
    phrase = b"phrase"
    previousResponse = request = None

    def __init__(self, code: int, body: bytes, headers: dict[str, str], is_endless: bool) -> None:
        self.code = code
        self.headers = Headers({name: [value] for name, value in headers.items()})
        self.length = len(body)
        self.transport = StringTransport()
        self._body = body
        self._is_endless = is_endless

    def deliverBody(self, protocol: Any) -> None:
        protocol.makeConnection(self.transport)
        for start in range(0, len(self._body), 4096):
            if not self.is_broken_off:
                protocol.dataReceived(self._body[start : start + 4096])
        if not self._is_endless:
            protocol.connectionLost(Failure(ResponseDone()))

    def setPreviousResponse(self, response: Any) -> None:
        """IResponse API."""

    @property
    def is_broken_off(self) -> bool:
        return self.transport.disconnecting or self.transport.disconnected


def answered(code: int, document: Any = b"", *, is_endless: bool = False, **headers: str) -> Response:
    """A response; what is no bytes is sent as JSON."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Response(code, body, {name.replace("_", "-"): value for name, value in headers.items()}, is_endless)


@implementer(IAgent)
class FakeAgent:
    """`serve` gives what is answered to a request: a Response, a Deferred of one, or an exception."""

    def __init__(self, serve: Callable[[Sent], Any]) -> None:
        self._serve = serve
        self.sent: list[Sent] = []

    def request(self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None) -> Deferred[Any]:
        body = b""
        if bodyProducer is not None:
            written: list[bytes] = []
            bodyProducer.startProducing(SimpleNamespace(write=written.append))
            body = b"".join(written)
        self.sent.append(Sent(method, uri, headers or Headers(), body))
        served = self._serve(self.sent[-1])
        if isinstance(served, Exception):
            return Deferred.fromCoroutine(_raise(served))
        return served if isinstance(served, Deferred) else succeed(served)


async def _raise(failure: Exception) -> None:
    raise failure


def authorizer_with(agent: FakeAgent, *addresses: str, clock: Clock | None = None, **options: Any) -> HttpAuthorizer:
    return HttpAuthorizer(clock or Clock(), addresses or ("auth:80",), Options(**options), HttpClient(agent))


def rights_document(**fields: Any) -> dict[str, Any]:
    """What an auth server says of somebody who may do everything."""
    everything = {"topic": ".*", "channels": [".*"], "permissions": ["publish", "subscribe"]}
    return {"ttl": 60, "authorizations": [everything], **fields}
