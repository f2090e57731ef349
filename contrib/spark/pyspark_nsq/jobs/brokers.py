"""HTTP requests of a job's driver to nsqds: their topics and channels, and moves of channels."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from twisted.internet.defer import Deferred

from pyspark_nsq.errors import ReadError
from pyspark_nsq.http.attempt import Answered, AttemptFailed, Requester
from pyspark_nsq.http.lookup import Producer
from pyspark_nsq.http.reactor_thread import running_reactor
from pyspark_nsq.http.servers import LOOKUPD, answered_instead
from pyspark_nsq.jobs.connection import Connection
from pyspark_nsq.options.kinds import HttpAddresses, option, read_options
from pyspark_nsq.options.security import Security

_TIMEOUT_MS = 30_000


@dataclass(frozen=True, kw_only=True)
class _Place(Security):
    addresses: tuple[str, ...] = option("nsqdHttpAddresses", HttpAddresses(), ())
    lookupds: tuple[str, ...] = option("lookupdHttpAddresses", HttpAddresses(), ())


class Brokers:
    """The nsqds of a connection. Every method raises ReadError when one of them does not answer, or refuses."""

    def __init__(self, connection: Connection) -> None:
        """Raises OptionError for a bad address or file."""
        self._place = read_options(_Place, connection.options)
        self._reactor = running_reactor()
        self._requester = Requester(self._reactor, self._place.security, _TIMEOUT_MS, max_in_flight=1)
        lookup = self._place.security.without_secret()
        self._lookup_requester = Requester(self._reactor, lookup, _TIMEOUT_MS, max_in_flight=1, wanted=LOOKUPD)

    def addresses(self) -> list[str]:
        """Return the base URLs of the nsqds."""
        if self._place.addresses:
            return list(self._place.addresses)
        found: set[str] = set()
        for lookupd in self._place.lookupds:
            document = self._ask("GET", f"{lookupd}/nodes", self._lookup_requester)
            nodes = document.get("data", document)["producers"]
            found.update(Producer(node["broadcast_address"], node["tcp_port"], node["http_port"]).url for node in nodes)
        if not found:
            raise ReadError(f"{', '.join(self._place.lookupds)} knows no nsqd; check that the nsqds name it")
        return sorted(found)

    def channels(self) -> dict[str, dict[str, list[str]]]:
        """Return the topics, for each the base URLs of the nsqds that have it, and for each of these its channels."""
        found: dict[str, dict[str, list[str]]] = {}
        for address in self.addresses():
            document = self._ask("GET", f"{address}/stats?format=json&include_clients=false&include_mem=false")
            for topic in document.get("data", document)["topics"] or []:
                names = [channel["channel_name"] for channel in topic["channels"] or []]
                found.setdefault(topic["topic_name"], {})[address] = names
        return found

    def seek(self, address: str, topic: str, channel: str, to: str, *, dry_run: bool) -> dict[str, int]:
        """Move a channel in its topic's log, or with `dry_run` compute the result of a move.

        Returns the position, and how many messages are replayed, skipped and in the channel.
        """
        query = urlencode({"topic": topic, "channel": channel, "to": to, "dry_run": str(dry_run).lower()})
        return {name: int(number) for name, number in self._ask("POST", f"{address}/v2/channel/seek?{query}").items()}

    def create(self, address: str, topic: str, channel: str) -> None:
        """Create a topic, unless it exists, and a channel of it."""
        self._ask("POST", f"{address}/topic/create?{urlencode({'topic': topic})}")
        self._ask("POST", f"{address}/channel/create?{urlencode({'topic': topic, 'channel': channel})}")

    def _ask(self, method: str, url: str, requester: Requester | None = None) -> Any:
        chosen = requester or self._requester
        outcome: Future[Answered] = Future()

        def begin() -> None:
            asked: Deferred[Answered] = chosen.get(url) if method == "GET" else chosen.post(url)
            asked.addCallbacks(outcome.set_result, lambda failure: outcome.set_exception(failure.value))

        self._reactor.callFromThread(begin)
        try:
            body = outcome.result().body
        except AttemptFailed as failed:
            raise ReadError(f"{url.partition('?')[0]}: {failed}") from failed
        try:
            return json.loads(body) if body else {}
        except ValueError as error:
            raise ReadError(f"{url.partition('?')[0]}: {answered_instead(body, chosen.wanted)}") from error
