"""Questions to the logs of nsqtw's brokers, over HTTP. For threads that are not the reactor's."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from twisted.internet import task
from twisted.internet.defer import Deferred

from pyspark_nsq.errors import ReadError
from pyspark_nsq.http.attempt import Answered, AttemptFailed, Requester, pause_seconds
from pyspark_nsq.http.lookup import Lookup, LookupFailed
from pyspark_nsq.http.reactor_thread import running_reactor
from pyspark_nsq.log.sections import CONTENT_TYPE, Section, sections
from pyspark_nsq.monitoring.log_lag import Behind
from pyspark_nsq.options.log import LogOptions

_NOT_FOUND = 404

T = TypeVar("T")


class Extent(NamedTuple):
    """Positions from `first` to before `end`, of a log that has those from `earliest` to before `latest`."""

    first: int
    end: int
    earliest: int
    latest: int


NOTHING = Extent(0, 0, 0, 0)


class Part(NamedTuple):
    """What one request brought. `next` is where to go on; `earliest`: older ones are gone."""

    sections: list[Section]
    next: int
    end: int
    earliest: int


class LogClient:
    """
    Asks the nsqds of `options`. Every method raises ReadError when an answer cannot be had, retries included. It counts
    the requests that were answered, those that had to be repeated, and the bytes of the answers.
    """

    def __init__(self, options: LogOptions) -> None:
        self.requests = self.retried = self.body_bytes = 0
        self._options = options
        self._reactor = running_reactor()
        self._requester = Requester(self._reactor, options.security, options.request_timeout_ms, max_in_flight=2)
        self._lookup = Lookup(self._reactor, options.security)

    def addresses(self) -> list[str]:
        """The base URLs of the nsqds that have the topic."""
        if self._options.addresses:
            return list(self._options.addresses)
        found: set[str] = set()
        troubles = []
        for lookupd in self._options.lookupds:
            try:
                producers = self._begin(lambda: self._lookup.producers_of(lookupd, self._options.topic)).result()  # noqa: B023
            except LookupFailed as failed:
                troubles.append(str(failed))
            else:
                found.update(f"http://{one.host}:{one.http_port}" for one in producers)
        if len(troubles) == len(self._options.lookupds):
            raise ReadError(f"no nsqlookupd says who has the topic: {'; '.join(troubles)}")
        return sorted(found)

    def extent(self, address: str, start: str | None = None, end: str | None = None) -> Extent:
        """Between which positions the messages from one moment to another are. NOTHING for an unknown topic."""
        given = {"start": start, "end": end}
        asked = {name: moment for name, moment in given.items() if moment is not None}
        answered = self._begin(lambda: self._ask(address, "/v2/topic/log/range", asked)).result()
        if answered is None:
            return NOTHING
        try:
            found = json.loads(answered.body)
            return Extent(*(int(found[name]) for name in Extent._fields))
        except (ValueError, KeyError, TypeError) as error:
            raise ReadError(f"{address} answered {answered.body[:100]!r} for the extent of a log") from error

    def lag(self, address: str, position: int) -> Future[Behind]:
        """What a reader at `position` has not read; on its way when this returns. Asked once, without retries."""
        return self._begin(lambda: self._lag(address, position))

    async def _lag(self, address: str, position: int) -> Behind:
        answered = await self._ask(address, "/v2/topic/log/lag", {"from": str(position)}, retries=0)
        if answered is None:
            return Behind(0, 0, position)
        try:
            found = json.loads(answered.body)
            return Behind(*(int(found[name]) for name in Behind._fields))
        except (ValueError, KeyError, TypeError) as error:
            raise ReadError(f"{address} answered {answered.body[:100]!r} for the lag of a log") from error

    def read(self, address: str, start: int, limit: int) -> Future[Part]:
        """What is there from a position on, of about `limit` bytes; on its way when this returns."""
        return self._begin(lambda: self._read(address, start, limit))

    async def _read(self, address: str, start: int, limit: int) -> Part:
        answered = await self._ask(address, "/v2/topic/log", {"from": str(start), "limit": str(limit)})
        if answered is None:
            return Part([], start, start, 0)
        if _header(answered, "Content-Type") != CONTENT_TYPE:
            raise ReadError(f"{address} does not answer with a log of this version of the connector")
        numbers = [int(_header(answered, f"X-Nsqtw-{name}") or 0) for name in ("Next", "End", "Earliest")]
        return Part(list(sections(answered.body)), *numbers)

    async def _ask(self, address: str, path: str, given: dict[str, str], retries: int | None = None) -> Answered | None:
        """The answer; None when the topic is not known there. `retries`: fewer than the options allow."""
        most = self._options.retries if retries is None else retries
        url = f"{address}{path}?{urlencode({'topic': self._options.topic} | given)}"
        attempt = 0
        while True:
            try:
                answered = await self._requester.get(url)
                self.requests += 1
                self.body_bytes += len(answered.body)
                return answered
            except AttemptFailed as failed:
                if failed.status == _NOT_FOUND and "TOPIC_NOT_FOUND" in str(failed):
                    return None
                if failed.status == _NOT_FOUND:
                    raise ReadError(f"{address} has no logs to read: it is not nsqtw, or an old one") from None
                if not failed.again or attempt == most:
                    raise ReadError(f"{address}{path}: {failed}") from None
            pause = pause_seconds(attempt, self._options.backoff_ms, self._options.max_backoff_ms)
            await task.deferLater(self._reactor, pause)
            attempt += 1
            self.retried += 1

    def _begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Have the reactor do something; the outcome is for this thread."""
        outcome: Future[T] = Future()

        def begin() -> None:
            done = Deferred.fromCoroutine(work())
            done.addCallbacks(outcome.set_result, lambda failure: outcome.set_exception(failure.value))

        self._reactor.callFromThread(begin)
        return outcome


def _header(answered: Answered, name: str) -> str | None:
    values = answered.headers.getRawHeaders(name)
    return values[0] if values else None
