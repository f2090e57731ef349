"""Which nsqds have a topic, as the nsqlookupds know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from treq.client import HTTPClient
from twisted.web.client import Agent

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

_SECONDS = 10.0
_NOT_FOUND = 404


class LookupFailed(Exception):
    """One nsqlookupd did not say."""


class Producer(NamedTuple):
    """An nsqd that has the topic."""

    host: str
    tcp_port: int
    http_port: int


async def producers_of(reactor: ReactorBase, lookupd: str, topic: str) -> set[Producer]:
    """The nsqds that `lookupd` names for the topic. Raises LookupFailed."""
    client = HTTPClient(Agent(reactor, connectTimeout=_SECONDS))  # type: ignore[no-untyped-call]
    url = f"{lookupd}/lookup?topic={quote(topic)}"
    try:
        response = await client.get(url, timeout=_SECONDS)
        text = await response.text("utf-8")
    except Exception as error:  # whatever the network, or an answer that is no HTTP, comes up with
        raise LookupFailed(f"{lookupd}: {error or type(error).__name__}") from error
    if response.code == _NOT_FOUND:
        return set()  # nobody has published to it yet
    try:
        found = json.loads(text)
        producers = found.get("data", found)["producers"]  # below `data` in old versions
        return {
            Producer(str(one["broadcast_address"]), int(one["tcp_port"]), int(one["http_port"])) for one in producers
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LookupFailed(f"{lookupd}: {response.code} {text[:100]!r}") from error
