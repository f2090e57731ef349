"""Statistics of a channel over all nsqds of a topic (suite specification 2.8)."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any
from urllib.parse import urlencode

import attrs
from twisted.internet.defer import Deferred, gatherResults

from nsqtw.client.http import HttpQuery
from nsqtw.client.lookup import ACCEPT, address_of, answer_of
from nsqtw.client.twisted import TwistedLoop
from nsqtw.errors import LookupFailed
from nsqtw.tools.program import ToolError


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


class Cluster:
    """
    The nsqds at the HTTP addresses `nsqds`, or those that the nsqlookupds at `lookupds` name. Timeouts are seconds.
    """

    def __init__(
        self,
        reactor: Any,
        nsqds: Sequence[str],
        lookupds: Sequence[str],
        connect_timeout: float,
        request_timeout: float,
    ) -> None:
        self._loop = TwistedLoop(reactor)
        self._nsqds = nsqds
        self._lookupds = lookupds
        self._timeouts = (connect_timeout, request_timeout)

    async def producers(self, topic: str) -> list[str]:
        """Return the HTTP addresses of the nsqds that have the topic. LookupFailed if any server does not answer."""
        if not self._lookupds:
            found = await _all([self._has_topic(address, topic) for address in self._nsqds])
            return [address for address, has_topic in zip(self._nsqds, found, strict=True) if has_topic]
        answers = await _all([self._get(address, "/lookup", topic=topic) for address in self._lookupds])
        addresses: dict[str, None] = {}
        for answer in answers:
            for producer in answer.get("producers") or ():
                addresses[address_of(str(producer["broadcast_address"]), int(producer["http_port"]))] = None
        return [*addresses]

    async def channel(self, producers: Sequence[str], topic: str, channel: str) -> ChannelCounts:
        """Return the counts of a channel. LookupFailed, ToolError when no nsqd has the channel."""
        parameters = {"format": "json", "topic": topic, "channel": channel, "include_clients": "false"}
        answers = await _all([self._get(address, "/stats", **parameters) for address in producers])
        total = ChannelCounts()
        is_found = False
        for answer in answers:
            for found in _channels_of(answer, topic, channel):
                is_found = True
                total = _sum(total, found)
        if not is_found:
            raise ToolError(f"ERROR: failed to find channel({channel}) in stats metadata for topic({topic})")
        return total

    async def _has_topic(self, address: str, topic: str) -> bool:
        answer = await self._get(address, "/stats", format="json", topic=topic, include_clients="false")
        return any(found.get("topic_name") == topic for found in answer.get("topics") or ())

    async def _get(self, address: str, path: str, **parameters: str) -> dict[str, Any]:
        url = f"http://{address}{path}?{urlencode(parameters)}"
        answer = await HttpQuery(self._loop, url, headers={"Accept": ACCEPT}).run(*self._timeouts)
        return answer_of(answer.status, answer.headers.get("x-nsq-content-type", ""), answer.body)


async def _all(queries: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run queries at the same time. LookupFailed for the first that fails."""
    if not queries:
        return []
    running: list[Deferred[Any]] = [Deferred.fromCoroutine(query) for query in queries]
    try:
        return await gatherResults(running, consumeErrors=True)
    except Exception as error:
        cause = getattr(getattr(error, "subFailure", None), "value", error)
        if isinstance(cause, LookupFailed):
            raise cause from error
        raise


def _channels_of(answer: dict[str, Any], topic: str, channel: str) -> list[dict[str, Any]]:
    return [
        found
        for stats in answer.get("topics") or ()
        if stats.get("topic_name") == topic
        for found in stats.get("channels") or ()
        if found.get("channel_name") == channel
    ]


def _sum(total: ChannelCounts, found: dict[str, Any]) -> ChannelCounts:
    def plus(count: int, key: str) -> int:
        return count + int(found.get(key) or 0)

    return ChannelCounts(
        plus(total.depth, "depth"),
        plus(total.disk, "backend_depth"),
        plus(total.in_flight, "in_flight_count"),
        plus(total.deferred, "deferred_count"),
        plus(total.requeued, "requeue_count"),
        plus(total.timed_out, "timeout_count"),
        plus(total.messages, "message_count"),
        plus(total.clients, "client_count"),
    )
