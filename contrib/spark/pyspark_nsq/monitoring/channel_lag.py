"""The lag of a stream from a channel: the messages in the channel on the nsqds, and in the spool.

The nsqds return the depth of the channel over HTTP, with one request to each. Their addresses are those of the option
``nsqdHttpAddresses``, or of the nsqlookupds. Without either only the spool is counted, and each nsqd counts as
unanswered. Messages in flight are not counted: they are on their way into the spool, or in it. With TLS on, a secret is
sent to https:// addresses only.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Future
from typing import Any, NamedTuple
from urllib.parse import urlencode

from pyspark_nsq.errors import ReadError
from pyspark_nsq.http.attempt import AttemptFailed, Requester
from pyspark_nsq.http.lookup import Lookup, LookupFailed
from pyspark_nsq.http.reactor_thread import begin, running_reactor
from pyspark_nsq.http.servers import NSQD, answered_instead
from pyspark_nsq.monitoring.answers import Answers
from pyspark_nsq.monitoring.figures import Lag, reported
from pyspark_nsq.options.channel import ChannelOptions

_TIMEOUT_MS = 10_000
_NS = 10**9


class Waiting(NamedTuple):
    """The messages that wait in a channel of one nsqd. `age_seconds`: of the oldest one; None if unknown."""

    messages: int
    age_seconds: float | None


class ChannelLag:
    """The lag of the channel that `options` name."""

    def __init__(self, options: ChannelOptions) -> None:
        self._options = options
        self._reactor = running_reactor()
        public = options.security.without_secret() if options.tls else options.security
        self._requesters = {
            scheme: Requester(self._reactor, security, _TIMEOUT_MS, max_in_flight=1)
            for scheme, security in (("https", options.security), ("http", public))
        }
        self._lookup = Lookup(self._reactor, options.security)
        self._nsqds: Answers[str, set[str]] = Answers()
        self._nsqds_at = float("-inf")
        self._known: set[str] = set(options.http_addresses)
        self._waiting: Answers[str, Waiting] = Answers()

    def report(self, offset: dict[str, Any], spooled: int, oldest_ns: int | None, repeated: int) -> dict[str, Any]:
        """Return `offset` with the figures of the source.

        `spooled`: rows in the spool that no micro-batch has been planned with; `oldest_ns`: when the first of them was
        published.
        """
        self._look_up()
        answers = self._waiting.get(dict.fromkeys(sorted(self._known)), self._begin)
        messages = spooled + sum(one.messages for one in answers.values())
        unanswered = len(self._known) - len(answers) if self._known else max(1, len(self._options.nsqds))
        lag = Lag(self._options.topic, self._options.channel, messages, _seconds(messages, oldest_ns, answers))
        return reported(offset, [lag], unanswered, repeated=repeated)

    def _look_up(self) -> None:
        """Ask the nsqlookupds for the nsqds, if the last time is `lookupdPollMs` ago."""
        if self._options.http_addresses or not self._options.lookupds:
            return
        if time.monotonic() < self._nsqds_at + self._options.lookupd_poll_ms / 1000:
            return
        self._nsqds_at = time.monotonic()
        found = self._nsqds.get(dict.fromkeys(self._options.lookupds, self._nsqds_at), self._begin_lookup)
        if found:
            self._known = set().union(*found.values())

    def _begin_lookup(self, lookupd: str) -> Future[set[str]]:
        async def ask() -> set[str]:
            try:
                producers = await self._lookup.producers_of(lookupd, self._options.topic)
            except LookupFailed as failed:
                raise ReadError(str(failed)) from failed
            return {one.url for one in producers}

        return begin(ask)

    def _begin(self, address: str) -> Future[Waiting]:
        options = self._options
        named = {"format": "json", "topic": options.topic, "channel": options.channel}
        query = urlencode(named | {"include_clients": "false", "include_mem": "false", "include_ages": "true"})

        async def ask() -> Waiting:
            try:
                answered = await self._requesters[address.partition(":")[0]].get(f"{address}/stats?{query}")
            except AttemptFailed as failed:
                raise ReadError(f"{address}: {failed}") from failed
            return _waiting(address, answered.body)

        return begin(ask)


def _waiting(address: str, body: bytes) -> Waiting:
    """Read an answer to /stats. Raises ReadError."""
    try:
        found = json.loads(body)
        topics = found.get("data", found)["topics"]  # below `data` in old versions
        channels = [one for topic in topics for one in topic["channels"]]
        ages = [one.get("oldest_message_age_seconds") for one in channels]
        return Waiting(
            sum(int(one["depth"]) for one in channels),
            max((float(age) for age in ages if age is not None), default=None),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReadError(f"{address}: {answered_instead(body, NSQD)}") from error


def _seconds(messages: int, oldest_ns: int | None, answers: dict[str, Waiting]) -> float | None:
    """Return the age of the oldest message that waits. None when no nsqd reports it."""
    if not messages:
        return 0.0
    ages = [one.age_seconds for one in answers.values() if one.age_seconds is not None]
    if oldest_ns is not None:
        ages.append(max(0.0, (time.time_ns() - oldest_ns) / _NS))
    return max(ages, default=None)
