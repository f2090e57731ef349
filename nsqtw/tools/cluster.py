"""Queries to nsqds and nsqlookupds, and statistics of a channel over all nsqds of a topic (suite specification 2.8)."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit, urlunsplit

import attrs
from twisted.internet.defer import Deferred, DeferredList

from nsqtw.client.http import Answer, HttpQuery
from nsqtw.client.lookup import ACCEPT, address_of, answer_of
from nsqtw.client.twisted import TwistedLoop
from nsqtw.errors import LookupFailed
from nsqtw.tools.program import ToolError

T = TypeVar("T")

_FORBIDDEN = 403


@attrs.frozen
class ChannelCounts:
    """Counts of a channel, summed over nsqds. `depth` includes `disk`."""

    depth: int = 0
    disk: int = 0
    in_flight: int = 0
    deferred: int = 0
    requeued: int = 0
    timed_out: int = 0
    messages: int = 0
    clients: int = 0

    @property
    def memory(self) -> int:
        """The messages that wait in memory."""
        return self.depth - self.disk


class Queries:
    """Queries to the HTTP APIs of nsqds and nsqlookupds. Timeouts are seconds."""

    def __init__(self, reactor: Any, connect_timeout: float, request_timeout: float) -> None:
        self._loop = TwistedLoop(reactor)
        self._timeouts = (connect_timeout, request_timeout)

    async def get(self, address: str, path: str, **parameters: str) -> dict[str, Any]:
        """
        Return the answer of a server, whose address is host:port or a URL. One that refuses HTTP is asked over HTTPS.
        LookupFailed, ValueError for a wrong address.
        """
        url = (address if "://" in address else f"http://{address}").rstrip("/") + path
        if parameters:
            url = f"{url}?{urlencode(parameters)}"
        answer = await self._answer(url)
        if answer.status == _FORBIDDEN and url.startswith("http://"):
            url = https_url(url, answer.body) or url
            answer = await self._answer(url)
        return answer_of(answer.status, answer.headers.get("x-nsq-content-type", ""), answer.body)

    async def _answer(self, url: str) -> Answer:
        return await HttpQuery(self._loop, url, headers={"Accept": ACCEPT}).run(*self._timeouts)


def https_url(url: str, body: bytes) -> str:
    """Return the URL over HTTPS that a server refers to when it refuses HTTP, "" for none."""
    try:
        port = int(json.loads(body)["https_port"])
    except (ValueError, TypeError, KeyError):
        return ""
    parts = urlsplit(url)
    return urlunsplit(("https", address_of(parts.hostname or "", port), parts.path, parts.query, ""))


class Cluster:
    """The nsqds at the HTTP addresses `nsqds`, or those that the nsqlookupds at `lookupds` name."""

    def __init__(self, queries: Queries, nsqds: Sequence[str], lookupds: Sequence[str]) -> None:
        self._queries = queries
        self._nsqds = nsqds
        self._lookupds = lookupds

    async def producers(self, topic: str) -> list[str]:
        """Return the HTTP addresses of the nsqds that have the topic. LookupFailed if any server does not answer."""
        if not self._lookupds:
            found = await _all("nsqd", [self._has_topic(address, topic) for address in self._nsqds])
            return [address for address, has_topic in zip(self._nsqds, found, strict=True) if has_topic]
        answers = await _all("nsqlookupd", [self._named_by(address, topic) for address in self._lookupds])
        return [*dict.fromkeys(address for answer in answers for address in answer)]

    async def channel(self, producers: Sequence[str], topic: str, channel: str) -> ChannelCounts:
        """Return the counts of a channel. LookupFailed, ToolError when no nsqd has the channel."""
        if not producers:
            raise LookupFailed(f"failed to query any nsqd: none has topic {topic}")
        answers = await _all("nsqd", [self._counts(address, topic, channel) for address in producers])
        counts = [one for answer in answers for one in answer]
        if not counts:
            raise ToolError(f"ERROR: failed to find channel({channel}) in stats metadata for topic({topic})")
        return ChannelCounts(*map(sum, zip(*map(attrs.astuple, counts), strict=True)))

    async def _has_topic(self, address: str, topic: str) -> bool:
        answer = await self._queries.get(address, "/stats", format="json", topic=topic, include_clients="false")
        with _reading(address):
            return any(found["topic_name"] == topic for found in answer.get("topics") or ())

    async def _named_by(self, address: str, topic: str) -> list[str]:
        answer = await self._queries.get(address, "/lookup", topic=topic)
        with _reading(address):
            producers = answer.get("producers") or ()
            return [address_of(str(one["broadcast_address"]), int(one["http_port"])) for one in producers]

    async def _counts(self, address: str, topic: str, channel: str) -> list[ChannelCounts]:
        named = {"format": "json", "topic": topic, "channel": channel, "include_clients": "false"}
        answer = await self._queries.get(address, "/stats", **named)
        with _reading(address):
            return [_counts_of(found) for found in _channels_of(answer, topic, channel)]


async def _all(kind: str, queries: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Ask several servers of a `kind` at the same time. LookupFailed if one fails, with the reasons of all."""
    answers: list[T] = []
    failures: list[str] = []
    results: list[Any] = await DeferredList(list(map(Deferred.fromCoroutine, queries)), consumeErrors=True)
    for is_answer, result in results:
        if is_answer:
            answers.append(result)
        elif result.check(LookupFailed, ValueError):
            failures.append(str(result.value))
        else:
            result.raiseException()
    if failures:
        prefix = "" if answers else f"failed to query any {kind}: "
        raise LookupFailed(prefix + "; ".join(failures))
    return answers


@contextmanager
def _reading(address: str) -> Iterator[None]:
    """Read an answer. LookupFailed when it has another form than expected."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise LookupFailed(f"{address}: the answer cannot be used: {error!r}") from error


def _channels_of(answer: dict[str, Any], topic: str, channel: str) -> list[dict[str, Any]]:
    return [
        found
        for stats in answer.get("topics") or ()
        if stats["topic_name"] == topic
        for found in stats.get("channels") or ()
        if found["channel_name"] == channel
    ]


def _counts_of(found: dict[str, Any]) -> ChannelCounts:
    def count(key: str) -> int:
        return int(found.get(key) or 0)

    return ChannelCounts(
        count("depth"),
        count("backend_depth"),
        count("in_flight_count"),
        count("deferred_count"),
        count("requeue_count"),
        count("timeout_count"),
        count("message_count"),
        count("client_count"),
    )
