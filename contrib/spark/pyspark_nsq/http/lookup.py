"""Which nsqds have a topic, as the nsqlookupds know."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pyspark_nsq.http.attempt import Answered, AttemptFailed, Requester
from pyspark_nsq.options.security import Security

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

_TIMEOUT_MS = 10_000
_NOT_FOUND = 404


class LookupFailed(Exception):
    """One nsqlookupd did not say."""


class Producer(NamedTuple):
    """An nsqd that has the topic."""

    host: str
    tcp_port: int
    http_port: int


class Lookup:
    """Asks nsqlookupds. `security` says whom to trust at https:// ones; its secret is for nsqds, and not sent."""

    def __init__(self, reactor: ReactorBase, security: Security) -> None:
        """Raises OptionError when a file of `security` is of no use."""
        self._requester = Requester(reactor, replace(security, auth_secret=None), _TIMEOUT_MS, max_in_flight=1)

    async def producers_of(self, lookupd: str, topic: str) -> set[Producer]:
        """The nsqds that `lookupd` names for the topic. Raises LookupFailed."""
        try:
            answered = await self._requester.get(f"{lookupd}/lookup?topic={quote(topic)}")
        except AttemptFailed as failed:
            if failed.status == _NOT_FOUND:
                return set()  # nobody has published to it yet
            raise LookupFailed(f"{lookupd}: {failed}") from failed
        try:
            return {_producer(one) for one in _producers(answered)}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LookupFailed(f"{lookupd}: it answered {answered.body[:100]!r}") from error

    async def nodes(self, lookupd: str) -> list[tuple[Producer, str]]:
        """Return the nsqds that `lookupd` knows, with each of their topics without a tombstone. Raises LookupFailed."""
        try:
            answered = await self._requester.get(f"{lookupd}/nodes")
        except AttemptFailed as failed:
            raise LookupFailed(f"{lookupd}: {failed}") from failed
        try:
            return [(_producer(one), topic) for one in _producers(answered) for topic in _topics(one)]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LookupFailed(f"{lookupd}: it answered {answered.body[:100]!r}") from error


def _producers(answered: Answered) -> list[dict[str, Any]]:
    found = json.loads(answered.body)
    named: list[dict[str, Any]] = found.get("data", found)["producers"]  # below `data` in old versions
    return named


def _producer(one: dict[str, Any]) -> Producer:
    return Producer(str(one["broadcast_address"]), int(one["tcp_port"]), int(one["http_port"]))


def _topics(one: dict[str, Any]) -> list[str]:
    topics, tombstones = one["topics"] or [], one.get("tombstones") or []
    return [str(topic) for at, topic in enumerate(topics) if not (at < len(tombstones) and tombstones[at])]
