"""One request to one nsqd. Its result is a good answer, or `AttemptFailed` with the cause."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from twisted.web.client import Agent, RequestTransmissionFailed, ResponseFailed
from twisted.web.http_headers import Headers

from pyspark_nsq.http.causes import Cause
from pyspark_nsq.http.client import HttpClient, Part, read_body
from pyspark_nsq.http.connections import Endpoints, shared_connections
from pyspark_nsq.http.failures import cause_of
from pyspark_nsq.http.servers import GIVE, NSQD, has_no_path, no_answer, page_of, server_of
from pyspark_nsq.http.tls import NOT_TRUSTED
from pyspark_nsq.options.security import Security

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

_TOO_MANY_REQUESTS = 429
_UNAVAILABLE = 503
_SERVER_ERRORS = 5
_SHOWN_CHARACTERS = 200

#: Failures of the network. After some of them it is unknown whether nsqd has the request: hence at-least-once.
_NETWORK_FAILURES = (
    CancelledError,
    RequestTransmissionFailed,
    ResponseFailed,
    error.ConnectError,
    error.ConnectionClosed,
    error.DNSLookupError,
)

#: Failures of the network before a request is sent.
_NOT_CONNECTED = (error.ConnectError, error.DNSLookupError, *NOT_TRUSTED)


class AttemptFailed(Exception):
    """One attempt failed. `cause` is None when a retry cannot help, `status` is that of an answer of nsqd."""

    def __init__(self, reason: str, cause: Cause | None, status: int | None = None) -> None:
        super().__init__(reason)
        self.cause = cause
        self.status = status

    @property
    def again(self) -> bool:
        """Whether another attempt may succeed."""
        return self.cause is not None


class WrongServerError(AttemptFailed):
    """Another server answers at the address of the wanted one."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason, None, status)


class Answered(NamedTuple):
    """A good answer."""

    headers: Headers
    body: bytes


def pause_seconds(attempt: int, backoff_ms: int, max_backoff_ms: int) -> float:
    """Return the pause before retry number `attempt`, from 0. The jitter keeps tasks from retrying at the same time."""
    # 2**30 is far above any maxBackoffMs; the bound keeps the number small.
    milliseconds = backoff_ms * (1 << min(attempt, 30)) * random.uniform(0.5, 1.5)
    return min(milliseconds, max_backoff_ms) / 1000


class Requester:
    """Sends requests on the process's pool of connections, which the tasks of the process share.

    For the reactor's thread, but may be made in any thread. `wanted` is the server that it sends them to.
    """

    def __init__(
        self, reactor: ReactorBase, security: Security, timeout_ms: int, max_in_flight: int, wanted: str = NSQD
    ) -> None:
        """Raises OptionError when a file of `security` cannot be used."""
        self._reactor = reactor
        self.wanted = wanted
        self._timeout_ms = timeout_ms
        self._headers = {"Content-Type": "application/octet-stream"}
        secret = security.secret()
        if secret is not None:
            self._headers["Authorization"] = f"Bearer {secret}"
        pool, policy = shared_connections(reactor, security)
        pool.maxPersistentPerHost = max(pool.maxPersistentPerHost, max_in_flight)
        endpoints = Endpoints(reactor, policy, connect_seconds=timeout_ms / 1000)
        agent = Agent.usingEndpointFactory(reactor, endpoints, pool)  # type: ignore[no-untyped-call]
        self._client = HttpClient(agent)

    def post(self, url: str, *body: Part) -> Deferred[Answered]:
        """Send the parts of a body. Fires when nsqd has accepted it. Fails with AttemptFailed.

        The time limit is that of the whole attempt: connecting, sending, and reading the answer.
        """
        return self._attempt("POST", url, body)

    def get(self, url: str) -> Deferred[Answered]:
        """Request `url`. Fires with the answer. Fails with AttemptFailed; the time limit is as for `post`."""
        return self._attempt("GET", url, None)

    def _attempt(self, method: str, url: str, body: Sequence[Part] | None) -> Deferred[Answered]:
        attempt = Deferred.fromCoroutine(self._ask(method, url, body))

        def timed_out(result: Any, _seconds: float) -> Any:
            if isinstance(result, Failure):
                said = f"no answer within {self._timeout_ms} ms; check the address, and the load of the {self.wanted}"
                raise AttemptFailed(said, Cause.TIMEOUT)
            return result

        return attempt.addTimeout(self._timeout_ms / 1000, self._reactor, timed_out)

    async def _ask(self, method: str, url: str, body: Sequence[Part] | None) -> Answered:
        if body is not None and url.startswith("https:"):
            body = [b"".join(body)]  # Twisted's TLS takes no views
        try:
            code, headers, answer = await self._send(method, url, body)
        except _NETWORK_FAILURES as failure:
            raise AttemptFailed(no_answer(cause_of(failure), self.wanted), _cause(failure)) from failure
        if code // 100 != 2:
            raise await self._refusal(url, code, answer)
        return Answered(headers, answer)

    async def _send(self, method: str, url: str, body: Sequence[Part] | None) -> tuple[int, Headers, bytes]:
        response = await self._client.request(method, url, self._headers, body)
        return response.code, response.headers, await read_body(response, inf, ValueError)

    async def _refusal(self, url: str, code: int, answer: bytes) -> AttemptFailed:
        """Return the failure for an answer that is not good."""
        cause = _status_cause(code)
        page = page_of(answer)
        if page is not None:
            said = f"{code} with {page}: a proxy or another server answers; {GIVE[self.wanted]}"
            return AttemptFailed(said, cause, code) if cause is not None else WrongServerError(said, code)
        text = _one_line(answer)
        if has_no_path(code, answer):
            found = await self._server(url)
            if found not in (None, self.wanted):
                return WrongServerError(f"this is an {found}; {GIVE[self.wanted]}", code)
        if code == _UNAVAILABLE and "EXITING" in text:
            text += await self._health(url)
        if "HTTPS server" in text:
            text = f"{text.rstrip('.')}; write https:// before the address"
        return AttemptFailed(f"{code} {text}", cause, code)

    async def _health(self, url: str) -> str:
        """Return what explains EXITING: what the nsqd at a URL says of its health."""
        try:
            _, _, said = await self._send("GET", f"{_base_of(url)}/ping", None)
        except _NETWORK_FAILURES:
            said = b""
        if said.startswith(b"NOK"):
            return f": it cannot store messages, /ping says {_one_line(said)}"
        return (
            ": it is stopping, the topic is being deleted, or it could not store the messages; its log has the reason"
        )

    async def _server(self, url: str) -> str | None:
        """Return the name of the server of NSQ at a URL; None when it is unknown."""
        try:
            answers = [(await self._send("GET", _base_of(url) + path, None))[2] for path in ("/info", "/")]
        except _NETWORK_FAILURES:
            return None
        return server_of(*answers)


def _base_of(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


def _one_line(answer: bytes) -> str:
    return " ".join(answer.decode("utf-8", "replace").split())[:_SHOWN_CHARACTERS]


def _cause(failure: BaseException) -> Cause:
    return Cause.REFUSED if isinstance(cause_of(failure), _NOT_CONNECTED) else Cause.LOST


def _status_cause(status: int) -> Cause | None:
    if status == _TOO_MANY_REQUESTS:
        return Cause.BUSY
    return Cause.SERVER if status // 100 == _SERVER_ERRORS else None
