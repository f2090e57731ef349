"""
Requests to nsqds and nsqlookupds over HTTP (suite specification 2.8).

A server that takes HTTPS only answers 403 with its port; the request is repeated there, and later requests go there at
once. A server that answers 401 gets the secret, if it may have it (`nsqtw.cluster.credentials`), and from then on with
each request. Redirects are not followed. The size of an answer, the time for it and the number of simultaneous requests
are limited.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast
from urllib.parse import urlencode, urlsplit

import attrs
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore, FirstError, gatherResults
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.web.client import HTTPConnectionPool

from nsqtw.client.lookup import ACCEPT, base_url, refusal
from nsqtw.cluster.answers import JsonObject, document_in
from nsqtw.cluster.credentials import ClusterCredentials, TlsPolicy
from nsqtw.errors import NoServerAnswered, OutcomeUnknown, ServerFailed, Unsupported
from nsqtw.http.client import BytesBody, make_client, read_body
from nsqtw.options.addresses import MAX_PORT, is_loopback, join_host_port
from nsqtw.rights import authorization
from nsqtw.runtime.reactor import Reactor
from nsqtw.version import VERSION_FIELD

MAX_ANSWER_BYTES = 256 * 1024 * 1024
MAX_REQUESTS = 64
"""Simultaneous requests to all servers together."""
NSQD, NSQLOOKUPD = "nsqd", "nsqlookupd"

_IDLE_SECONDS = 20
_CONNECTIONS_PER_SERVER = 8
_LARGE_BYTES = 256 * 1024
_OF_HTTP = "twisted.web."
"""Modules of errors about HTTP; those of the client have private names."""
_NO_ENDPOINT = "NOT_FOUND"

V = TypeVar("V")
_log = Logger()


@attrs.frozen
class Timeouts:
    """Seconds: until there is a connection, and until the whole answer is there."""

    connect: float = 2.0
    request: float = 5.0


@attrs.frozen
class ServerAnswer:
    """The answer of a server. `nsqtw_version` is empty for another program than ours."""

    body: bytes = attrs.field(repr=False)
    nsqtw_version: str = ""


@attrs.frozen
class _Endpoint:
    """The URL prefix of a server, and whether requests carry the secret."""

    base: str
    is_secret_wanted: bool = False


class ServerRequests:
    """Requests to the servers of a cluster. `trusted` are the addresses that the user gave, host:port or a URL."""

    def __init__(
        self, reactor: Reactor, credentials: ClusterCredentials, timeouts: Timeouts, trusted: Iterable[str] = ()
    ) -> None:
        self._reactor = reactor
        self._timeouts = timeouts
        self._trusted = set(map(base_url, trusted))
        self._endpoints: dict[str, _Endpoint] = {}
        self.counts: Counter[tuple[str, ...]] = Counter()
        """The requests so far, by program and outcome: ok or failed."""
        self._silent_since: float | None = None
        self._semaphore = DeferredSemaphore(MAX_REQUESTS)
        self._pool = HTTPConnectionPool(reactor, persistent=True)  # type: ignore[no-untyped-call]
        self._pool.maxPersistentPerHost = _CONNECTIONS_PER_SERVER
        self._pool.cachedConnectionTimeout = _IDLE_SECONDS
        self._clients: dict[str, HTTPClient] = {}
        self._secrets: dict[str, str] = {}
        self._sends_secrets_in_plain = False
        self.use(credentials, TlsPolicy(credentials))

    async def get(self, program: str, address: str, path: str, parameters: Mapping[str, str]) -> ServerAnswer:
        """Ask the server of `program` at `address`. ServerFailed."""
        return await self._request("GET", program, address, path, parameters, b"")

    async def post(
        self, program: str, address: str, path: str, parameters: Mapping[str, str], body: bytes = b""
    ) -> ServerAnswer:
        """Have the server of `program` at `address` change something. ServerFailed."""
        return await self._request("POST", program, address, path, parameters, body)

    async def read(self, answer: ServerAnswer, reader: Callable[[JsonObject], V]) -> V:
        """Return what `reader` makes of the document of an answer; a large one is read in a thread. ServerFailed."""
        if len(answer.body) < _LARGE_BYTES:
            return reader(document_in(answer.body))
        return await self.in_thread(lambda: reader(document_in(answer.body)))

    async def in_thread(self, work: Callable[[], V]) -> V:
        """Do what takes long in a thread of the reactor."""
        return await deferToThreadPool(IReactorFromThreads(self._reactor), self._reactor.getThreadPool(), work)

    def use(self, credentials: ClusterCredentials, policy: TlsPolicy) -> None:
        """Use other credentials from the next request on. `policy` is made of them."""
        self._secrets = {NSQD: credentials.nsqd_secret, NSQLOOKUPD: credentials.lookupd_secret}
        self._sends_secrets_in_plain = credentials.sends_secrets_in_plain
        self._endpoints.clear()
        connect = self._timeouts.connect
        self._clients = {
            "GET": make_client(self._reactor, connect, policy, self._pool),
            # A change is sent once: on a connection that the server closes at the same time it might be repeated.
            "POST": make_client(self._reactor, connect, policy),
        }

    def trust_addresses(self, addresses: Iterable[str]) -> None:
        """Add addresses that the user gave: they may get the secret over plain HTTP."""
        self._trusted.update(map(base_url, addresses))

    @property
    def silent_seconds(self) -> float:
        """The time for which every request has failed; 0 after an answer."""
        return 0.0 if self._silent_since is None else self._reactor.seconds() - self._silent_since

    async def close(self) -> None:
        """Close the idle connections."""
        await self._pool.closeCachedConnections()  # type: ignore[no-untyped-call]

    # -- inside

    async def _request(
        self, method: str, program: str, address: str, path: str, parameters: Mapping[str, str], body: bytes
    ) -> ServerAnswer:
        def time_out(outcome: object, seconds: float) -> None:
            self._note_silence()
            text = f'{method.capitalize()} "{base_url(address)}{path}": no answer within {seconds:g}s'
            raise ServerFailed(text) if method == "GET" else OutcomeUnknown(text)

        await self._semaphore.acquire()
        try:
            asking = Deferred.fromCoroutine(self._exchange(method, program, address, path, parameters, body))
            asking.addTimeout(self._timeouts.request, self._reactor, time_out)
            answer = await _cancellable(asking)
        except ServerFailed:
            self.counts[program, "failed"] += 1
            raise
        else:
            self.counts[program, "ok"] += 1
            return answer
        finally:
            self._semaphore.release()

    async def _exchange(
        self, method: str, program: str, address: str, path: str, parameters: Mapping[str, str], body: bytes
    ) -> ServerAnswer:
        query = f"?{urlencode(parameters)}" if parameters else ""
        tried: set[_Endpoint] = set()
        while True:
            endpoint = self._endpoints.get(address) or _Endpoint(base_url(address))
            tried.add(endpoint)
            url = f"{endpoint.base}{path}{query}"
            _log.debug("CI: querying {program} {url}", program=program, url=url)
            secret = self._secrets[program] if endpoint.is_secret_wanted or endpoint.base.startswith("https") else ""
            try:
                status, version, answer = await self._send(method, url, body, secret)
            except (ServerFailed, CancelledError):
                raise
            except Exception as error:  # any failure of the connection
                self._endpoints.pop(address, None)
                self._note_silence()
                kind = ServerFailed if method == "GET" or _is_unsent(error) else OutcomeUnknown
                raise kind(f'{method.capitalize()} "{url}": {_reason(error, endpoint.base)}') from error
            self._silent_since = None
            if status == 200:
                return ServerAnswer(answer, version)
            other = self._next_endpoint(program, address, endpoint, status, answer)
            if other is None or other in tried:
                self._endpoints.pop(address, None)
                raise _refused(status, answer)
            self._endpoints[address] = other

    def _note_silence(self) -> None:
        if self._silent_since is None:
            self._silent_since = self._reactor.seconds()

    async def _send(self, method: str, url: str, body: bytes, secret: str) -> tuple[int, str, bytes]:
        headers = {"Accept": ACCEPT}
        if secret:
            headers["Authorization"] = authorization(secret)
        response = await self._clients[method].request(
            method,
            url,
            headers=cast(Any, headers),
            data=cast(Any, BytesBody(body)) if body else None,
            allow_redirects=False,
            unbuffered=True,
            reactor=cast(Any, self._reactor),
        )
        version = response.headers.getRawHeaders(VERSION_FIELD, [""])[0]
        return response.code, version, await read_body(response, MAX_ANSWER_BYTES, ServerFailed)

    def _next_endpoint(
        self, program: str, address: str, endpoint: _Endpoint, status: int, answer: bytes
    ) -> _Endpoint | None:
        """Return the endpoint to try after a server has refused a request; None for no other."""
        if status == 403 and endpoint.base.startswith("http:"):
            host = urlsplit(endpoint.base).hostname or ""
            port = _https_port_in(answer)
            return _Endpoint(f"https://{join_host_port(host, port)}") if port else None
        is_wanted = status == 401 and self._secrets[program] and not endpoint.is_secret_wanted
        if is_wanted and endpoint.base.startswith("http:") and self._may_have_secret(address):
            return attrs.evolve(endpoint, is_secret_wanted=True)
        return None

    def _may_have_secret(self, address: str) -> bool:
        """Return whether the secret may be sent to an address over plain HTTP."""
        url = base_url(address)
        return self._sends_secrets_in_plain or url in self._trusted or is_loopback(urlsplit(url).hostname or "")


async def ask_all(asking: Sequence[Coroutine[Any, Any, V]]) -> list[V | ServerFailed]:
    """Run requests at the same time. Return the result of each, or why it has none, in order."""

    async def outcome(one: Awaitable[V]) -> V | ServerFailed:
        try:
            return await one
        except ServerFailed as error:
            return error

    try:
        return list(await gatherResults([Deferred.fromCoroutine(outcome(one)) for one in asking], consumeErrors=True))
    except FirstError as error:  # it was cancelled, or something unforeseen has happened
        cause: Any = error.subFailure.value
        raise cause from error


def split(program: str, outcomes: Iterable[V | ServerFailed]) -> tuple[list[V], list[ServerFailed]]:
    """Return results and failures of requests to servers of `program`. NoServerAnswered when there is no result."""
    results: list[V] = []
    errors: list[ServerFailed] = []
    for outcome in outcomes:
        if isinstance(outcome, ServerFailed):
            errors.append(outcome)
        else:
            results.append(outcome)
    if not results:
        raise NoServerAnswered(program, errors)
    return results, errors


def _https_port_in(answer: bytes) -> int:
    """Return the port in an answer 403; 0 for none."""
    with suppress(ServerFailed):
        port = document_in(answer).get("https_port")
        if type(port) is int and 0 < port <= MAX_PORT:
            return port
    return 0


def _refused(status: int, answer: bytes) -> ServerFailed:
    code = ""
    with suppress(ServerFailed):
        code = str(document_in(answer).get("message", ""))
    kind = Unsupported if status == 404 and code == _NO_ENDPOINT else ServerFailed
    return kind(refusal(status, answer), code)


def _cancellable(running: Deferred[V]) -> Deferred[V]:
    """
    Return a Deferred with the same outcome. Its cancellation ends it with CancelledError, where Twisted's connections
    end with many other errors.
    """
    is_cancelled = False

    def cancel(_: object) -> None:
        nonlocal is_cancelled
        is_cancelled = True
        running.cancel()

    def pass_on(result: Any) -> None:
        if not is_cancelled:
            outcome.callback(result)

    outcome: Deferred[V] = Deferred(cancel)
    running.addBoth(pass_on)
    return outcome


def _is_unsent(error: Exception) -> bool:
    """Return whether there was no connection to send a request on."""
    return isinstance(error, ConnectError | DNSLookupError)


def _reason(error: Exception, base: str) -> str:
    """Return why there is no answer, for a connection that was refused or timed out in Go's words."""
    reasons = getattr(error, "reasons", None)
    if reasons:
        return _reason(reasons[0].value, base)
    parts = urlsplit(base)
    dial = f"dial tcp {parts.netloc}"
    if isinstance(error, ConnectTimeout):
        return f"{dial}: i/o timeout"
    if isinstance(error, DNSLookupError):
        return f"{dial}: lookup {parts.hostname}: no such host"
    if isinstance(error, ConnectError) and isinstance(error.osError, int):
        return f"{dial}: connect: {os.strerror(error.osError).lower()}"
    if isinstance(error, ConnectionClosed):
        return "the connection was closed before the end of the answer"
    if type(error).__module__.startswith(_OF_HTTP):
        return "the answer is no HTTP"
    return str(error) or type(error).__name__
