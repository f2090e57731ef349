"""Requests go to nsqd: some at a time, again when they fail, and then to the next nsqd.

Two threads meet here. The caller's (Spark's) hands requests in and waits for a free slot, which is the
back-pressure: while `max_in_flight` requests are under way nothing more is pulled out of Spark. The
reactor's thread does everything else. The first failure that no retry heals is raised in the caller's
thread by the next `submit` or `flush`; what is still under way is waited for, but not tried again.

A publisher stays with an nsqd as long as it answers. An attempt that fails moves it to the next address,
where the retry goes, and all later requests too.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from pyspark_nsq.errors import PublishError
from pyspark_nsq.http.attempt import AttemptFailed, Requester, pause_seconds
from pyspark_nsq.http.reactor_thread import running_reactor
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.packing import Request


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

    def __init__(self, options: SinkOptions, first_address: int = 0) -> None:
        self.tally = Tally()
        self._options = options
        self._address = first_address % len(options.addresses)
        self._slots = threading.Semaphore(options.max_in_flight)
        self._failure: PublishError | None = None
        self._reactor = running_reactor()
        self._requester = Requester(self._reactor, options.security, options.request_timeout_ms, options.max_in_flight)

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
        if not isinstance(failure.value, PublishError):
            # A mistake in the connector, not the network's doing: report it whole.
            self._failure = PublishError(failure.getTraceback())
        elif self._failure is None:
            self._failure = failure.value

    async def _deliver(self, request: Request) -> None:
        attempt = 0
        while True:
            number = self._address
            address = self._options.addresses[number]
            try:
                await self._requester.post(address + request.path, request.body)
                break
            except AttemptFailed as failed:
                if not failed.again or attempt == self._options.retries or self._failure is not None:
                    raise _not_published(request, address, attempt, failed) from None
            if self._address == number:
                self._address = (number + 1) % len(self._options.addresses)
            await task.deferLater(
                self._reactor, pause_seconds(attempt, self._options.backoff_ms, self._options.max_backoff_ms)
            )
            attempt += 1
            self.tally.retried += 1
        self.tally.requests += 1
        self.tally.rows += request.rows
        self.tally.body_bytes += len(request.body)


def _not_published(request: Request, address: str, attempt: int, failed: AttemptFailed) -> PublishError:
    attempts = "1 attempt" if attempt == 0 else f"{attempt + 1} attempts"
    return PublishError(
        f'topic "{request.topic}": {request.rows} message(s) not published after {attempts}; '
        f"the last at {address}: {failed}"
    )
