"""Requests to nsqlookupds for nsqds and topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pyspark_nsq.http.attempt import Answered, AttemptFailed, Requester
from pyspark_nsq.http.servers import LOOKUPD, answered_instead
from pyspark_nsq.options.addresses import join_host_port
from pyspark_nsq.options.security import Security

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

_TIMEOUT_MS = 10_000
_NOT_FOUND = 404
_UNKNOWN_TOPIC = "TOPIC_NOT_FOUND"


class LookupFailed(Exception):
    """An nsqlookupd did not answer, or answered with an error."""


class Producer(NamedTuple):
    """An nsqd, as nsqlookupd describes it."""

    host: str
    tcp_port: int
    http_port: int

    @property
    def url(self) -> str:
        """The base URL for HTTP. nsqlookupd does not know ports for HTTPS."""
        return f"http://{join_host_port(self.host, self.http_port)}"


class Lookup:
    """Asks nsqlookupds. `security` has the authorities for https:// addresses; its secret is not sent."""

    def __init__(self, reactor: ReactorBase, security: Security) -> None:
        """Raises OptionError when a file of `security` cannot be used."""
        self._requester = Requester(reactor, security.without_secret(), _TIMEOUT_MS, max_in_flight=1, wanted=LOOKUPD)

    async def producers_of(self, lookupd: str, topic: str) -> set[Producer]:
        """Return the nsqds that `lookupd` names for the topic. Raises LookupFailed."""
        return {_producer(one) for one in await self._ask(lookupd, f"/lookup?topic={quote(topic)}")}

    async def nodes(self, lookupd: str) -> set[Producer]:
        """Return all nsqds that `lookupd` knows. Raises LookupFailed."""
        return {_producer(one) for one in await self._ask(lookupd, "/nodes")}

    async def topics(self, lookupd: str) -> list[tuple[Producer, str]]:
        """Return the nsqds that `lookupd` knows, with each of their topics without a tombstone. Raises LookupFailed."""
        return [(_producer(one), topic) for one in await self._ask(lookupd, "/nodes") for topic in one["topics"]]

    async def _ask(self, lookupd: str, path: str) -> list[dict[str, Any]]:
        """Return the producers of an answer, each with its `topics` that have no tombstone."""
        try:
            answered = await self._requester.get(lookupd + path)
        except AttemptFailed as failed:
            if failed.status == _NOT_FOUND and _UNKNOWN_TOPIC in str(failed):
                return []  # nobody has published to the topic yet
            raise LookupFailed(f"{lookupd}: {failed}") from failed
        try:
            return [_checked(one) for one in _producers(answered)]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LookupFailed(f"{lookupd}: {answered_instead(answered.body, LOOKUPD)}") from error


def _producers(answered: Answered) -> list[dict[str, Any]]:
    found = json.loads(answered.body)
    named: list[dict[str, Any]] = found.get("data", found)["producers"]  # below `data` in old versions
    return named


def _producer(one: dict[str, Any]) -> Producer:
    return Producer(str(one["broadcast_address"]), int(one["tcp_port"]), int(one["http_port"]))


def _checked(one: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a producer with its topics. Raises ValueError, KeyError or TypeError when it is none."""
    _producer(one)
    topics, tombstones = one.get("topics") or [], one.get("tombstones") or []
    alive = [str(topic) for at, topic in enumerate(topics) if not (at < len(tombstones) and tombstones[at])]
    return one | {"topics": alive}
