"""HTTP requests to the logs of nsqtw's brokers. For other threads than the reactor's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from twisted.internet import task
from twisted.internet.defer import DeferredSemaphore

from pyspark_nsq.errors import ReadError
from pyspark_nsq.http.attempt import Answered, AttemptFailed, Requester, WrongServerError, pause_seconds
from pyspark_nsq.http.lookup import Lookup
from pyspark_nsq.http.reactor_thread import begin, running_reactor
from pyspark_nsq.http.servers import NSQD, answered_instead
from pyspark_nsq.log.positions import Log
from pyspark_nsq.log.sections import CONTENT_TYPE, Section, sections
from pyspark_nsq.monitoring.log_lag import Behind
from pyspark_nsq.options.log import LogOptions

_NOT_FOUND = 404
_MOST_AT_ONCE = 8

T = TypeVar("T")


class Extent(NamedTuple):
    """Positions from `first` to before `end`, of a log that has those from `earliest` to before `latest`."""

    first: int
    end: int
    earliest: int
    latest: int


#: The extents of logs; None if the topic does not exist.
Extents = dict[Log, Extent | None]


class Part(NamedTuple):
    """The content of one answer. `next`: position of the next request; `earliest`: least position that is kept."""

    sections: list[Section]
    next: int
    end: int
    earliest: int
    body_bytes: int


class LogClient:
    """
    Asks the nsqds of `options`. Every method raises ReadError when all retries have failed. It counts the answered
    requests, the repeated ones, and the bytes of the answers.
    """

    def __init__(self, options: LogOptions) -> None:
        self.requests = self.retried = self.body_bytes = 0
        self.lookup = Lookup(running_reactor(), options.security)
        self._options = options
        self._reactor = running_reactor()
        self._requester = Requester(self._reactor, options.security, options.request_timeout_ms, max_in_flight=2)
        self._turns = DeferredSemaphore(_MOST_AT_ONCE)
        #: No micro-batch waits behind questions about the lag.
        self._lag_turns = DeferredSemaphore(_MOST_AT_ONCE)

    def extents(self, logs: Iterable[Log], start_ms: int | None = None, end_ms: int | None = None) -> Extents:
        """Return the range of positions of each log that has the messages from one time to another."""
        moments = {"start": start_ms, "end": end_ms}
        asked = {name: _seconds(moment) for name, moment in moments.items() if moment is not None}
        retries = self._options.retries
        coming = {log: begin(partial(self._extent, log, asked, retries)) for log in logs}
        return {log: each.result() for log, each in coming.items()}

    def extents_of_known(self, logs: Iterable[Log]) -> Extents:
        """Return the extents of logs whose nsqd may be down, without those of unreachable nsqds. Each is asked once."""
        coming = {log: begin(partial(self._extent, log, {}, retries=0)) for log in logs}
        found: Extents = {}
        for log, each in coming.items():
            try:
                found[log] = each.result()
            except ReadError:
                continue
        return found

    def read(self, log: Log, start: int, limit: int) -> Future[Part]:
        """Request the content from a position on, of about `limit` bytes."""
        return begin(lambda: self._read(log, start, limit))

    def document(self, url: str) -> Future[Any]:
        """Request the JSON document at a URL of an nsqd."""
        return begin(lambda: self._document(url))

    async def _extent(self, log: Log, asked: dict[str, str], retries: int) -> Extent | None:
        answered = await self._ask_log(log, "/v2/topic/log/range", asked, retries)
        if answered is None:
            return None
        try:
            found = json.loads(answered.body)
            return Extent(*(int(found[name]) for name in Extent._fields))
        except (ValueError, KeyError, TypeError) as error:
            raise ReadError(f"{log.address}: {answered_instead(answered.body, NSQD)}") from error

    def lag(self, log: Log, position: int) -> Future[Behind]:
        """Request the lag of a reader at `position`, without retries."""
        return begin(lambda: self._lag(log, position))

    async def _lag(self, log: Log, position: int) -> Behind:
        answered = await self._ask_log(log, "/v2/topic/log/lag", {"from": str(position)}, 0, self._lag_turns)
        if answered is None:
            return Behind(0, 0, position)
        try:
            found = json.loads(answered.body)
            return Behind(*(int(found[name]) for name in Behind._fields))
        except (ValueError, KeyError, TypeError) as error:
            raise ReadError(f"{log.address}: {answered_instead(answered.body, NSQD)}") from error

    async def _read(self, log: Log, start: int, limit: int) -> Part:
        asked = {"from": str(start), "limit": str(limit)}
        if self._options.include_headers:
            asked["headers"] = "true"
        answered = await self._ask_log(log, "/v2/topic/log", asked, self._options.retries)
        if answered is None:
            return Part([], start, start, 0, 0)
        if _header(answered, "Content-Type") != CONTENT_TYPE:
            raise ReadError(f"{log.address} does not answer with a log of this version of the connector")
        next_, end, earliest = (int(_header(answered, f"X-Nsqtw-{name}") or 0) for name in ("Next", "End", "Earliest"))
        return Part(list(sections(answered.body)), next_, end, earliest, len(answered.body))

    async def _document(self, url: str) -> Any:
        place = url.partition("?")[0]
        try:
            answered = await self._ask(url, self._options.retries, self._turns)
        except AttemptFailed as failed:
            raise ReadError(f"{place}: {failed}") from None
        try:
            return json.loads(answered.body)
        except ValueError:
            raise ReadError(f"{place}: {answered_instead(answered.body, NSQD)}") from None

    async def _ask_log(
        self, log: Log, path: str, given: dict[str, str], retries: int, turns: DeferredSemaphore | None = None
    ) -> Answered | None:
        """Return the answer; None when the nsqd does not know the topic."""
        url = f"{log.address}{path}?{urlencode({'topic': log.topic} | given)}"
        try:
            return await self._ask(url, retries, turns or self._turns)
        except AttemptFailed as failed:
            if failed.status == _NOT_FOUND and "TOPIC_NOT_FOUND" in str(failed):
                return None
            if failed.status == _NOT_FOUND and not isinstance(failed, WrongServerError):
                raise ReadError(f"{log.address} has no logs to read: it is not nsqtw, or an old one") from None
            raise ReadError(f"{log.address}{path}: {failed}") from None

    async def _ask(self, url: str, retries: int, turns: DeferredSemaphore) -> Answered:
        """Return the answer. Raises AttemptFailed when the last attempt failed."""
        attempt = 0
        while True:
            try:
                answered = await turns.run(self._requester.get, url)
                self.requests += 1
                self.body_bytes += len(answered.body)
                return answered
            except AttemptFailed as failed:
                if not failed.again or attempt == retries:
                    raise
            pause = pause_seconds(attempt, self._options.backoff_ms, self._options.max_backoff_ms)
            await task.deferLater(self._reactor, pause)
            attempt += 1
            self.retried += 1


def _seconds(milliseconds: int) -> str:
    """Return a time in seconds, with a fraction: nsqd reads short numbers as seconds, not as milliseconds."""
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def _header(answered: Answered, name: str) -> str | None:
    values = answered.headers.getRawHeaders(name)
    return values[0] if values else None
