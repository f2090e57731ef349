"""Discovery of logs: the topics that the options select, and the nsqds that have them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from pyspark_nsq.errors import ReadError
from pyspark_nsq.http.lookup import LookupFailed
from pyspark_nsq.http.reactor_thread import begin
from pyspark_nsq.log.client import LogClient
from pyspark_nsq.log.positions import Log
from pyspark_nsq.options.log import LogOptions

_log = logging.getLogger("pyspark_nsq")
_STATS = "/stats?format=json&include_clients=false&include_mem=false"


class Discovery:
    """The logs of `options`. Brokers and nsqlookupds are asked at most every `topicDiscoveryMs`.

    An nsqd of `nsqdHttpAddresses` is asked for its topics only with a pattern. nsqlookupds are asked for the nsqds of
    each topic, and with a pattern for all nsqds and their topics.
    """

    def __init__(self, client: LogClient, options: LogOptions) -> None:
        self._client, self._options = client, options
        self._found: list[Log] = []
        self._asked_at: float | None = None

    def logs(self) -> tuple[list[Log], bool]:
        """Return the logs, and whether they come from a new search. Raises ReadError."""
        now = time.monotonic()
        if self._asked_at is not None and now - self._asked_at < self._options.topic_discovery_ms / 1000:
            return self._found, False
        self._found = sorted(set(self._ask()))
        self._asked_at = now
        return self._found, True

    def _ask(self) -> Iterable[Log]:
        topics = self._options.topics
        if topics is None:
            return self._matching()
        if self._options.lookupds:
            return [log for topic in topics for log in self._producers(topic)]
        return [Log(topic, address) for topic in topics for address in self._options.addresses]

    def _matching(self) -> list[Log]:
        if self._options.lookupds:
            found = self._nodes()
        else:
            coming = {address: self._client.document(address + _STATS) for address in self._options.addresses}
            found = [
                (address, name) for address, each in coming.items() for name in _topic_names(address, each.result())
            ]
        return [Log(topic, address) for address, topic in found if self._options.selects(topic)]

    def _nodes(self) -> list[tuple[str, str]]:
        """Return each nsqd with each of its topics, by any nsqlookupd. Raises ReadError when none answers."""
        found: list[tuple[str, str]] = []
        troubles = []
        for lookupd in self._options.lookupds:
            try:
                nodes = begin(partial(self._client.lookup.topics, lookupd)).result()
            except LookupFailed as failed:
                troubles.append(str(failed))
            else:
                found += [(node.url, topic) for node, topic in nodes]
        self._check(troubles)
        return found

    def _producers(self, topic: str) -> list[Log]:
        found: list[Log] = []
        troubles = []
        for lookupd in self._options.lookupds:
            try:
                producers = begin(partial(self._client.lookup.producers_of, lookupd, topic)).result()
            except LookupFailed as failed:
                troubles.append(str(failed))
            else:
                found += [Log(topic, one.url) for one in producers]
        self._check(troubles)
        return found

    def _check(self, troubles: list[str]) -> None:
        """Log the nsqlookupds that did not answer. Raise ReadError if none did."""
        if len(troubles) == len(self._options.lookupds):
            raise ReadError(f"no nsqlookupd answers: {'; '.join(troubles)}")
        for trouble in troubles:
            _log.warning("nsqds that only this nsqlookupd knows are left out: %s", trouble)


def _topic_names(address: str, document: Any) -> list[str]:
    try:
        found = document.get("data", document)["topics"] or []  # below `data` in old versions
        return [str(each["topic_name"]) for each in found]
    except (KeyError, TypeError, AttributeError):
        raise ReadError(f"{address}/stats does not list topics") from None
