"""The publishing of requests: several at a time, with retries at the next nsqd.

Two threads are involved. Spark's thread submits requests and waits for a free slot, which is the back-pressure: while
`max_in_flight` requests are under way, no more rows are taken from Spark. The reactor's thread does everything else.
The first failure that no retry resolves is raised in Spark's thread by the next `submit` or `flush`, which waits for
the requests under way; these are not retried.

A publisher stays with an nsqd as long as it answers. An attempt that fails moves it to the next one, where the retry
goes, and all later requests, too (`nsqds`).

Errors in the reactor's thread always reach Spark's thread: any exception becomes a PublishError, and the end of the
reactor a ReactorStoppedError.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from pyspark_nsq.errors import PublishError, ReactorStoppedError
from pyspark_nsq.http.attempt import AttemptFailed, Requester, WrongServerError, pause_seconds
from pyspark_nsq.http.description import DESCRIPTION_PATH, has_parameter
from pyspark_nsq.http.reactor_thread import running_reactor, wait_for
from pyspark_nsq.http.servers import NSQD, answered_instead
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.nsqds import Nsqds, shared_discovery
from pyspark_nsq.sink.packing import Request
from pyspark_nsq.sink.tally import Tally

#: The answer of nsqd to a publish. A proxy or another server may answer 200 with another body.
_OK = b"OK"

#: What to do about refusals of nsqd, by its words.
_REMEDIES = {
    "INVALID_DEFER": 'the column "defer" has a longer delay than the --max-defer-timeout or --max-req-timeout of nsqd',
    "MSG_TOO_BIG": "a message has more bytes than the --max-msg-size of nsqd",
    "BAD_MESSAGE": "a message has more bytes than the --max-msg-size of nsqd",
    "BODY_TOO_BIG": 'set the option "batchBytes" below the --max-body-size of nsqd',
}


class Publisher:
    """Publishes requests to the nsqds of `options`; a context manager that leaves nothing in flight.

    `first_address` distributes the tasks of a job over the nsqds. All methods are for one thread, which must not be the
    reactor's. `tally` does not change after `flush` has returned.
    """

    def __init__(self, options: SinkOptions, first_address: int = 0) -> None:
        """Raises OptionError when a file of `options` cannot be used."""
        self.tally = Tally()
        self._options = options
        self._nsqds = Nsqds(options.addresses, first_address)
        self._slots = threading.Semaphore(options.max_in_flight)
        self._failure: PublishError | None = None
        self._reactor = running_reactor()
        self._requester = Requester(self._reactor, options.security, options.request_timeout_ms, options.max_in_flight)
        self._checked: set[str] = set()
        self._discovery = shared_discovery(self._reactor, options) if options.lookupds else None

    def submit(self, request: Request) -> None:
        """Send `request`, once a slot is free. Raises PublishError for an earlier request that failed."""
        self._acquire()
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
        with suppress(ReactorStoppedError):  # then nothing is in flight, and the task fails in any case
            self._drain()

    def _drain(self) -> None:
        slots = self._options.max_in_flight
        for _ in range(slots):
            self._acquire()
        self._slots.release(slots)

    def _acquire(self) -> None:
        if self._slots.acquire(blocking=False):
            return
        start = time.perf_counter()
        wait_for(lambda seconds: self._slots.acquire(timeout=seconds))
        self.tally.waited_ms += (time.perf_counter() - start) * 1000

    def _start(self, request: Request) -> None:
        Deferred.fromCoroutine(self._deliver(request)).addBoth(self._ended)

    def _ended(self, outcome: Failure | None) -> None:
        if isinstance(outcome, Failure) and self._failure is None:
            self._failure = _publish_error(outcome.value)
        self._slots.release()

    async def _deliver(self, request: Request) -> None:
        attempt = 0
        while True:
            address = None
            try:
                if self._discovery is not None:
                    self._nsqds.update(await self._discovery.addresses())
                address = self._nsqds.current
                if self._options.channel is not None:
                    await self._check_channels(address)
                answered = await self._requester.post(address + request.path, *request.body)
                if answered.body != _OK:
                    raise WrongServerError(answered_instead(answered.body, NSQD))
                break
            except AttemptFailed as failed:
                if failed.cause is None or attempt == self._options.retries or self._failure is not None:
                    raise _not_published(request, address, attempt, failed) from None
                self.tally.retries[failed.cause] += 1
            if address is not None:
                self._nsqds.leave(address)
                if self._discovery is not None:
                    self._discovery.ask()
            await task.deferLater(
                self._reactor, pause_seconds(attempt, self._options.backoff_ms, self._options.max_backoff_ms)
            )
            attempt += 1
        self.tally.requests += 1
        self.tally.rows += request.rows
        self.tally.body_bytes += request.body_bytes

    async def _check_channels(self, address: str) -> None:
        """Raise AttemptFailed for an nsqd that would ignore the option "channel", and publish to all channels."""
        if address in self._checked:
            return
        try:
            described = (await self._requester.get(address + DESCRIPTION_PATH)).body
        except AttemptFailed as failed:
            if failed.status is None or failed.again:
                raise
            described = b""
        if not has_parameter(described, "/mpub", "channel"):
            raise AttemptFailed('the option "channel" needs an nsqd of nsqtw that publishes to one channel', None)
        self._checked.add(address)


def _publish_error(failure: BaseException | None) -> PublishError:
    if isinstance(failure, PublishError):
        return failure
    # An error of the connector, not of the network. Its traceback is that of the cause.
    error = PublishError(f"the connector failed: {failure!r}")
    error.__cause__ = failure
    return error


def _not_published(request: Request, address: str | None, attempt: int, failed: AttemptFailed) -> PublishError:
    attempts = "1 attempt" if attempt == 0 else f"{attempt + 1} attempts"
    where = f"the last at {address}: {failed}" if address is not None else str(failed)
    remedies = [f"; {remedy}" for word, remedy in _REMEDIES.items() if word in str(failed)]
    return PublishError(
        f'topic "{request.topic}": {request.rows} message(s) not published after {attempts}; {where}{"".join(remedies)}'
    )
