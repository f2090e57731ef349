"""
Requests to nsqds and nsqlookupds over HTTP.

A server that takes HTTPS only answers 403 with its port; the request is repeated there, and later requests go there at
once. A server that may have the secret (`nsqtw.cluster.trust`) gets it with each request over HTTPS; over plain HTTP
when it has answered 401, and from then on with each request. Redirects are not followed. The size of an answer, the
time for it and the number of simultaneous requests are limited; the wait for a turn is part of that time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredLock, DeferredSemaphore, FirstError, gatherResults
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.web.http_headers import Headers

from nsqtw.client.lookup import ACCEPT, base_url, refusal
from nsqtw.cluster.answers import MAX_VALUES, document_in
from nsqtw.cluster.credentials import ClusterCredentials, TlsPolicy
from nsqtw.cluster.fields import JsonObject
from nsqtw.cluster.trust import NOT_NAMED, WITHHELD, Trust
from nsqtw.errors import NoServerAnswered, NsqtwError, OutcomeUnknown, ServerFailed, Unsupported
from nsqtw.http.client import BodyBudget, HttpClient, make_client, read_body
from nsqtw.http.failures import is_unsent, reason_of
from nsqtw.http.kept_connections import IDEMPOTENT, KeptConnections
from nsqtw.options.addresses import MAX_PORT, join_host_port
from nsqtw.rights import authorization
from nsqtw.runtime.reactor import Reactor
from nsqtw.version import VERSION_FIELD

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""Bytes of the largest answer. That of a node with 10,000 topics and channels has 11 MB without clients."""
MAX_BYTES_TOGETHER = 4 * MAX_ANSWER_BYTES
"""Bytes of all answers that were not read yet. One that is read takes up to 25 times its bytes."""
CHANGES, QUERIES, SAMPLES = "changes", "queries", "samples"
TURNS = {CHANGES: 64, QUERIES: 128, SAMPLES: 128}
"""Simultaneous requests of each kind to all servers together. Samples are what `Queries.stats` asks every node for."""
NSQD, NSQLOOKUPD = "nsqd", "nsqlookupd"

_IDLE_SECONDS = 20
_CONNECTIONS_PER_SERVER = 8
_LARGE_BYTES = 256 * 1024
_MAX_SILENT = 10_000
_LATEST_TURN = 0.9
"""The part of the time for an answer after which a request is not made any more."""
_NO_ENDPOINT = "NOT_FOUND"
_DETAIL_FIELD = "X-Nsqtw-Detail"
_MAX_FIELD_BYTES = 1000

V = TypeVar("V")
_log = Logger()


@attrs.frozen
class Timeouts:
    """Seconds: until there is a connection, and until the whole answer is there."""

    connect: float = 2.0
    request: float = 5.0


@attrs.frozen
class ServerAnswer:
    """
    The answer of a server of `program`. `request` is what it was asked, for errors; `nsqtw_version` is empty for
    another program than ours; `kept` are the bytes that the budget counts until it is read.
    """

    program: str
    request: str
    body: bytes = attrs.field(repr=False)
    nsqtw_version: str = ""
    kept: int = 0


@attrs.frozen
class _Endpoint:
    """The URL prefix of a server, and whether requests carry the secret."""

    base: str
    is_secret_wanted: bool = False


class _Turns:
    """
    Requests of one kind that are made at the same time. Servers that did not answer the last time have turns of their
    own, so that many of them do not keep the others waiting.
    """

    def __init__(self, count: int) -> None:
        self.all = DeferredSemaphore(count)
        self.silent = DeferredSemaphore(max(1, count // 2))


class ServerRequests:
    """Requests to the servers of a cluster."""

    def __init__(self, reactor: Reactor, credentials: ClusterCredentials, timeouts: Timeouts) -> None:
        self._reactor = reactor
        self.timeouts = timeouts
        self._given: dict[str, tuple[str, ...]] = {NSQD: (), NSQLOOKUPD: ()}
        self._endpoints: dict[tuple[str, str], _Endpoint] = {}
        self.counts: Counter[tuple[str, ...]] = Counter()
        """The requests so far, by program and outcome: ok or failed."""
        self._silent_since: float | None = None
        self.budget = BodyBudget(MAX_BYTES_TOGETHER)
        """The bytes of answers until they were read."""
        self._large = DeferredLock()
        self._turns = {kind: _Turns(count) for kind, count in TURNS.items()}
        self._silent: set[tuple[str, str]] = set()
        """The servers, as program and address, that did not answer the last request."""
        self._pool = self._make_pool()
        self._pool_closed: Deferred[object]
        """The end of the pool before."""
        self._clients: dict[str, HttpClient] = {}
        self.credentials = credentials
        self._secrets: dict[str, str] = {}
        self.use(credentials, TlsPolicy(credentials))

    async def get(
        self, program: str, address: str, path: str, parameters: Mapping[str, str], *, kind: str = QUERIES
    ) -> ServerAnswer:
        """Ask the server of `program` at `address`. The answer counts until it is read. ServerFailed."""
        answer = await self._request(kind, "GET", program, address, path, parameters, b"")
        self.budget.keep(len(answer.body))
        return attrs.evolve(answer, kept=len(answer.body))

    async def post(
        self, program: str, address: str, path: str, parameters: Mapping[str, str], body: bytes = b""
    ) -> ServerAnswer:
        """Have the server of `program` at `address` change something. ServerFailed."""
        return await self._request(CHANGES, "POST", program, address, path, parameters, body)

    async def put(
        self, program: str, address: str, path: str, parameters: Mapping[str, str], body: bytes
    ) -> ServerAnswer:
        """Have the server of `program` at `address` set something. ServerFailed."""
        return await self._request(CHANGES, "PUT", program, address, path, parameters, body)

    async def read(self, answer: ServerAnswer, reader: Callable[[JsonObject], V]) -> V:
        """
        Return what `reader` makes of the document of an answer to `get`. Large ones are read in a thread, one after the
        other. ServerFailed.
        """

        def read() -> V:
            return reader(document_in(answer.body, MAX_VALUES if answer.program == NSQD else None))

        try:
            if len(answer.body) < _LARGE_BYTES:
                return read()
            await self._large.acquire()
            try:
                return await self.in_thread(read)
            finally:
                self._large.release()
        except ServerFailed as error:
            raise ServerFailed(f"{answer.request}: {error}", error.code) from error
        finally:
            self.budget.free(answer.kept)

    async def in_thread(self, work: Callable[[], V]) -> V:
        """Do what takes long in a thread of the reactor."""
        return await deferToThreadPool(IReactorFromThreads(self._reactor), self._reactor.getThreadPool(), work)

    def use(self, credentials: ClusterCredentials, policy: TlsPolicy) -> None:
        """Use other credentials from the next request on, on new connections. `policy` is made of them."""
        self.credentials = credentials
        self._secrets = {NSQD: credentials.nsqd_secret, NSQLOOKUPD: credentials.lookupd_secret}
        self._trust = {program: self._trust_in(program) for program in self._given}
        self._endpoints.clear()
        # A connection is good for as long as it is used: the server on an old one was verified by the policy before.
        self._pool_closed = self._pool.closeCachedConnections()  # type: ignore[no-untyped-call]
        self._pool = self._make_pool()
        connect = self.timeouts.connect
        # A change is sent once: on a connection that the server closes at the same time it might be repeated.
        changes = make_client(self._reactor, connect, policy)
        self._clients = {
            "GET": make_client(self._reactor, connect, policy, self._pool),
            "POST": changes,
            "PUT": changes,
        }

    def trust_addresses(self, program: str, addresses: Iterable[str]) -> None:
        """Let only these addresses, host:port or a URL, get the secret for the servers of `program`."""
        self._given[program] = tuple(addresses)
        self._trust[program] = self._trust_in(program)

    @property
    def silent_seconds(self) -> float:
        """The time for which every request has failed; 0 after an answer."""
        return 0.0 if self._silent_since is None else self._reactor.seconds() - self._silent_since

    async def close(self) -> None:
        """Close the idle connections."""
        await self._pool_closed
        await self._pool.closeCachedConnections()  # type: ignore[no-untyped-call]

    # -- inside

    def _trust_in(self, program: str) -> Trust:
        return self.credentials.trust_in(self._given[program], is_strict=program == NSQLOOKUPD)

    async def _request(
        self,
        kind: str,
        method: str,
        program: str,
        address: str,
        path: str,
        parameters: Mapping[str, str],
        body: bytes,
    ) -> ServerAnswer:
        server = program, address
        turns = self._turns[kind].silent if server in self._silent else self._turns[kind].all
        what = f'{method.capitalize()} "{base_url(address)}{path}"'
        latest = self._reactor.seconds() + self.timeouts.request * _LATEST_TURN
        is_asked = False

        async def ask() -> ServerAnswer:
            nonlocal is_asked
            await turns.acquire()
            try:
                is_asked = self._reactor.seconds() < latest
                if not is_asked:
                    raise not_asked()
                return await self._exchange(method, program, address, path, parameters, body)
            finally:
                turns.release()

        def not_asked() -> ServerFailed:
            # Its turn comes with those of the others, so that it is not left out each time.
            self._silent.discard(server)
            return ServerFailed(f"{what}: not asked within {self.timeouts.request:g}s, because others do not answer")

        def time_out(outcome: object, seconds: float) -> None:
            if not is_asked:
                raise not_asked()
            self._note_silence(server)
            failure = ServerFailed if method == "GET" else OutcomeUnknown
            raise failure(f"{what}: no answer within {seconds:g}s")

        try:
            asking = Deferred.fromCoroutine(ask())
            asking.addTimeout(self.timeouts.request, self._reactor, time_out)
            answer = await _cancellable(asking)
        except ServerFailed:
            self.counts[program, "failed"] += 1
            raise
        else:
            self.counts[program, "ok"] += 1
            return answer

    async def _exchange(
        self, method: str, program: str, address: str, path: str, parameters: Mapping[str, str], body: bytes
    ) -> ServerAnswer:
        _check_address(address)
        query = f"?{urlencode(parameters)}" if parameters else ""
        tried: set[_Endpoint] = set()
        while True:
            endpoint = self._endpoints.get((program, address)) or _Endpoint(base_url(address))
            tried.add(endpoint)
            url = f"{endpoint.base}{path}{query}"
            _log.debug("CI: querying {program} {url}", program=program, url=url)
            secret = self._secret_for(program, address, endpoint)
            try:
                status, fields, answer = await self._send(method, url, body, secret)
            except (ServerFailed, CancelledError):
                raise
            except Exception as error:  # any failure of the connection
                self._endpoints.pop((program, address), None)
                self._note_silence((program, address))
                failure = ServerFailed if method == "GET" or is_unsent(error) else OutcomeUnknown
                raise failure(f'{method.capitalize()} "{url}": {reason_of(error, endpoint.base)}') from error
            self._silent_since = None
            self._silent.discard((program, address))
            if status == 200:
                return ServerAnswer(program, f'{method.capitalize()} "{url}"', answer, _field(fields, VERSION_FIELD))
            other = self._next_endpoint(program, address, endpoint, status, answer)
            if other is None or other in tried:
                self._endpoints.pop((program, address), None)
                refused = self._failure(program, address, endpoint, status, answer)
                refused.detail = _field(fields, _DETAIL_FIELD)
                raise refused
            self._endpoints[program, address] = other

    def _make_pool(self) -> KeptConnections:
        return KeptConnections(self._reactor, _CONNECTIONS_PER_SERVER, _IDLE_SECONDS, IDEMPOTENT)

    def _note_silence(self, server: tuple[str, str]) -> None:
        if len(self._silent) >= _MAX_SILENT:  # nsqlookupds name new ones again and again
            self._silent.clear()
        self._silent.add(server)
        if self._silent_since is None:
            self._silent_since = self._reactor.seconds()

    async def _send(self, method: str, url: str, body: bytes, secret: str) -> tuple[int, Headers, bytes]:
        headers = {"Accept": ACCEPT}
        if secret:
            headers["Authorization"] = authorization(secret)
        response = await self._clients[method].request(method, url, headers, body or None)
        return (
            response.code,
            response.headers,
            await read_body(response, MAX_ANSWER_BYTES, ServerFailed, self.budget),
        )

    def _next_endpoint(
        self, program: str, address: str, endpoint: _Endpoint, status: int, answer: bytes
    ) -> _Endpoint | None:
        """Return the endpoint to try after a server has refused a request; None for no other."""
        if status == 403 and endpoint.base.startswith("http:"):
            host = urlsplit(endpoint.base).hostname or ""
            port = _https_port_in(answer)
            return _Endpoint(f"https://{join_host_port(host, port)}") if port else None
        if status == 401 and endpoint.base.startswith("http:") and not endpoint.is_secret_wanted:
            wanted = attrs.evolve(endpoint, is_secret_wanted=True)
            return wanted if self._secret_for(program, address, wanted) else None
        return None

    def _secret_for(self, program: str, address: str, endpoint: _Endpoint) -> str:
        """Return the secret to send to an endpoint of a server; "" for none."""
        is_https = endpoint.base.startswith("https:")
        if not (is_https or endpoint.is_secret_wanted):
            return ""
        return self._secrets[program] if self._trust[program].covers(address, is_https=is_https) else ""

    def _failure(self, program: str, address: str, endpoint: _Endpoint, status: int, answer: bytes) -> ServerFailed:
        """Return the failure of a request that a server has refused."""
        is_https = endpoint.base.startswith("https:")
        if status != 401 or not self._secrets[program] or self._trust[program].covers(address, is_https=is_https):
            return _refused(status, answer)
        # Without the answer's words, of which the command makes another remedy.
        why = NOT_NAMED if program == NSQLOOKUPD else WITHHELD
        return ServerFailed(f"{address}: got response 401 Unauthorized: {why}")


async def ask_all(asking: Sequence[Coroutine[Any, Any, V]]) -> list[V | ServerFailed]:
    """
    Run requests at the same time. Return the result of each, or why it has none, in order. An error that nothing has
    foreseen is logged, and concerns the one server alone.
    """

    async def outcome(one: Awaitable[V]) -> V | ServerFailed:
        try:
            return await one
        except ServerFailed as error:
            return error
        except (NsqtwError, CancelledError):
            raise
        except Exception as error:
            _log.failure("a server could not be asked")
            return OutcomeUnknown(f"unforeseen {type(error).__name__}: the log says more")

    try:
        return list(await gatherResults([Deferred.fromCoroutine(outcome(one)) for one in asking], consumeErrors=True))
    except FirstError as error:
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


def _check_address(address: str) -> None:
    """Check that URLs can be made of an address, which may be what a node says of itself. ServerFailed."""
    try:
        host, port = urlsplit(base_url(address)).hostname, urlsplit(base_url(address)).port
    except ValueError:  # brackets without an IPv6 address, or a port out of range
        host = port = None
    if not host or not port:
        raise ServerFailed(f"{address!r} is no address of a server, host:port")


def _https_port_in(answer: bytes) -> int:
    """Return the port in an answer 403; 0 for none."""
    with suppress(ServerFailed):
        port = document_in(answer).get("https_port")
        if type(port) is int and 0 < port <= MAX_PORT:
            return port
    return 0


def _field(fields: Headers, name: str) -> str:
    """Return a header field, empty without one; bytes that are no text are replaced, the end of a long one is cut."""
    first: bytes = fields.getRawHeaders(name.encode(), [b""])[0]
    return first[:_MAX_FIELD_BYTES].decode("utf-8", "replace")


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
