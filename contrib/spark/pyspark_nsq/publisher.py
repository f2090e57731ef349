"""Requests go to nsqd through treq: some at a time, again when they fail, and then to the next nsqd.

Two threads meet here. The caller's (Spark's) hands requests in and waits for a free slot, which is the
back-pressure: while `max_in_flight` requests are under way nothing more is pulled out of Spark. The
reactor's thread does everything else. The first failure that no retry heals is raised in the caller's
thread by the next `submit` or `flush`; what is still under way is waited for, but not tried again.

A publisher stays with an nsqd as long as it answers. An attempt that fails moves it to the next address,
where the retry goes, and all later requests too.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from treq.client import HTTPClient
from twisted.internet import error, task
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from twisted.web.client import (
    Agent,
    HTTPConnectionPool,
    PartialDownloadError,
    RequestTransmissionFailed,
    ResponseFailed,
    readBody,
)

from pyspark_nsq.errors import PublishError
from pyspark_nsq.options import Options
from pyspark_nsq.packing import Request
from pyspark_nsq.reactor_thread import running_reactor

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

#: Servers commonly close idle connections after 60 s. A POST on one just closed is a lost answer, so ours go first.
_IDLE_SECONDS = 30
_HEADERS = {"Content-Type": "application/octet-stream"}
_TOO_MANY_REQUESTS = 429


class _AttemptFailed(Exception):
    """One attempt failed. `again` says whether another one may do better."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.again = again


#: The network's failures. Whether nsqd took the request is unknown after some of them: hence at-least-once.
_NETWORK_FAILURES = (
    CancelledError,
    RequestTransmissionFailed,
    ResponseFailed,
    error.ConnectError,
    error.ConnectionClosed,
    error.DNSLookupError,
)


@dataclass
class Tally:
    """What a publisher has done so far; steady once `flush` has returned."""

    rows: int = 0
    requests: int = 0
    retried: int = 0
    body_bytes: int = 0


class Publisher:
    """Publishes requests to the nsqds of `options`; a context manager that leaves nothing in flight.

    `first_address` spreads the tasks of a job over the addresses. All methods are for one thread, which
    must not be the reactor's.
    """

    def __init__(self, options: Options, first_address: int = 0) -> None:
        self.tally = Tally()
        self._options = options
        self._address = first_address % len(options.addresses)
        self._slots = threading.Semaphore(options.max_in_flight)
        self._failure: PublishError | None = None
        self._reactor = running_reactor()
        self._client = _client(self._reactor, options)

    def submit(self, request: Request) -> None:
        """Send `request`, once a slot is free. Raises PublishError for an earlier request that failed."""
        self._slots.acquire()
        if self._failure is not None:
            self._slots.release()
            raise self._failure
        self._reactor.callFromThread(self._start, request)

    def flush(self) -> None:
        """Wait until nothing is in flight. Raises PublishError if any request has failed."""
        self._drain()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if value is None:
            self.flush()
            return
        self._failure = self._failure or PublishError("given up, because the task failed")
        self._drain()

    def _drain(self) -> None:
        slots = self._options.max_in_flight
        for _ in range(slots):
            self._slots.acquire()
        self._slots.release(slots)

    def _start(self, request: Request) -> None:
        delivery = Deferred.fromCoroutine(self._deliver(request))
        delivery.addErrback(self._note_failure)
        delivery.addBoth(lambda _: self._slots.release())

    def _note_failure(self, failure: Failure) -> None:
        if isinstance(failure.value, PublishError):
            self._failure = self._failure or failure.value
        else:
            # A mistake of this module, not of the network: report it whole.
            self._failure = PublishError(failure.getTraceback())

    async def _deliver(self, request: Request) -> None:
        attempt = 0
        while True:
            address = self._address
            try:
                await self._attempt(self._options.addresses[address], request.path, request.body)
                break
            except _AttemptFailed as failed:
                if not failed.again or attempt == self._options.retries or self._failure is not None:
                    raise _refusal(request, self._options.addresses[address], attempt, failed) from None
            if self._address == address:
                self._address = (address + 1) % len(self._options.addresses)
            await task.deferLater(self._reactor, self._pause(attempt))
            attempt += 1
            self.tally.retried += 1
        self.tally.requests += 1
        self.tally.rows += request.rows
        self.tally.body_bytes += len(request.body)

    def _pause(self, attempt: int) -> float:
        """Seconds before retry number `attempt`, from 0. The jitter keeps tasks from coming back in step."""
        # 2**30 is far above any maxBackoffMs; the bound keeps the number small.
        milliseconds = self._options.backoff_ms * 2 ** min(attempt, 30) * random.uniform(0.5, 1.5)
        return min(milliseconds, self._options.max_backoff_ms) / 1000

    def _attempt(self, address: str, path: str, body: bytes) -> Deferred[None]:
        attempt = Deferred.fromCoroutine(self._post(address + path, body))
        milliseconds = self._options.request_timeout_ms

        def timed_out(result: Any, _seconds: float) -> Any:
            if isinstance(result, Failure):
                raise _AttemptFailed(f"no answer within {milliseconds} ms", again=True)
            return result

        return attempt.addTimeout(milliseconds / 1000, self._reactor, timed_out)

    async def _post(self, url: str, body: bytes) -> None:
        try:
            response = await self._client.post(
                url, data=body, headers=_HEADERS, allow_redirects=False, unbuffered=True
            )
            answer = await _read(response)
        except _NETWORK_FAILURES as failure:
            raise _AttemptFailed(_reason(failure), again=True) from failure
        if response.code // 100 != 2:
            again = response.code == _TOO_MANY_REQUESTS or response.code // 100 == 5
            text = answer.decode("utf-8", "replace").strip()
            raise _AttemptFailed(f"{response.code} {text[:200]}", again)


async def _read(response: Any) -> bytes:
    try:
        return await readBody(response)
    except PartialDownloadError as unknown_length:
        # No Content-Length: the connection's end is the body's end.
        return unknown_length.response or b""


def _refusal(request: Request, address: str, attempt: int, failed: _AttemptFailed) -> PublishError:
    tries = "1 attempt" if attempt == 0 else f"{attempt + 1} attempts"
    return PublishError(
        f'topic "{request.topic}": {request.rows} message(s) not published after {tries}; '
        f"the last at {address}: {failed}"
    )


def _reason(failure: BaseException) -> str:
    """A line for people. Twisted wraps what happened in lists of failures."""
    while isinstance(failure, (RequestTransmissionFailed, ResponseFailed)) and failure.reasons:
        failure = failure.reasons[0].value
    return f"{type(failure).__name__}: {failure}"


_pool: HTTPConnectionPool | None = None


def _client(reactor: ReactorBase, options: Options) -> HTTPClient:
    """A client on the process's pool, so that the connections of one task serve the next."""
    global _pool
    if _pool is None:
        _pool = HTTPConnectionPool(reactor, persistent=True)
        _pool.cachedConnectionTimeout = _IDLE_SECONDS
        # Twisted would repeat a request by itself; retries are counted and paced here.
        _pool.retryAutomatically = False
        _pool.maxPersistentPerHost = 0
    _pool.maxPersistentPerHost = max(_pool.maxPersistentPerHost, options.max_in_flight)
    return HTTPClient(Agent(reactor, connectTimeout=options.request_timeout_ms / 1000, pool=_pool))
