"""
Names of a cluster for shell completion, with the standard library only: importing Twisted would take longer than the
answer. Servers that do not answer at once have no names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.stdlib_http import get
from nsqtw.errors import ConnectFailed
from nsqtw.options.addresses import join_host_port

_SECONDS = 1.0


class ClusterNames:
    """The names of topics, channels and nodes."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access

    def topics(self) -> Iterator[str]:
        """Yield names of topics."""
        for document in self._lookupd_answers("/topics"):
            yield from document.get("topics") or ()
        for topic in self._nsqd_topics():
            yield topic["topic_name"]

    def channels(self, topic: str) -> Iterator[str]:
        """Yield names of channels of a topic."""
        for document in self._lookupd_answers(f"/channels?topic={quote(topic)}"):
            yield from document.get("channels") or ()
        for found in self._nsqd_topics():
            if found["topic_name"] == topic:
                yield from (channel["channel_name"] for channel in found["channels"])

    def nodes(self) -> Iterator[str]:
        """Yield HTTP addresses of nodes."""
        yield from self._access.nsqd_http_addresses if not self._access.lookupd_http_addresses else ()
        for document in self._lookupd_answers("/nodes"):
            for producer in document.get("producers") or ():
                yield join_host_port(producer["broadcast_address"], producer["http_port"])

    def _lookupd_answers(self, path: str) -> Iterator[dict[str, Any]]:
        for address in self._access.lookupd_http_addresses:
            yield self._get(address, path)

    def _nsqd_topics(self) -> Iterator[dict[str, Any]]:
        if not self._access.lookupd_http_addresses:
            for address in self._access.nsqd_http_addresses:
                yield from self._get(address, "/stats?format=json&include_clients=false").get("topics") or ()

    def _get(self, address: str, path: str) -> dict[str, Any]:
        """Return the object of an answer; an empty one without an answer."""
        try:
            return get(self._access, address, path, _SECONDS).document()
        except ConnectFailed:
            return {}
