"""
What servers answer without Twisted: names of a cluster for shell completion, and the program that is at an address.

Importing Twisted would take longer than the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import quote

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.stdlib_http import get
from nsqtw.cluster.answers import channel_names_in, names_in, nodes_in, topic_names_in
from nsqtw.cluster.fields import JsonObject
from nsqtw.errors import CommandError, ConnectFailed, ServerFailed
from nsqtw.names import is_valid_name

_NAMES_SECONDS = 1.0

Reader = Callable[[JsonObject], tuple[str, ...]]
_PROGRAM_SECONDS = 2.0


class ClusterNames:
    """The names of topics, channels and nodes."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access

    def topics(self) -> Iterator[str]:
        yield from filter(is_valid_name, self._lookupd_names("/topics", lambda document: names_in(document, "topics")))
        yield from filter(is_valid_name, self._nsqd_names(topic_names_in))

    def channels(self, topic: str) -> Iterator[str]:
        path = f"/channels?topic={quote(topic)}"
        yield from filter(is_valid_name, self._lookupd_names(path, lambda document: names_in(document, "channels")))
        yield from filter(is_valid_name, self._nsqd_names(lambda stats: channel_names_in(stats, topic)))

    def nodes(self) -> Iterator[str]:
        """Yield HTTP addresses of nodes."""
        yield from self._access.nsqd_http_addresses if not self._access.lookupd_http_addresses else ()
        yield from self._lookupd_names("/nodes", _addresses)

    def _lookupd_names(self, path: str, read: Reader) -> Iterator[str]:
        for address in self._access.lookupd_http_addresses:
            yield from self._names(address, path, read)

    def _nsqd_names(self, read: Reader) -> Iterator[str]:
        if not self._access.lookupd_http_addresses:
            for address in self._access.nsqd_http_addresses:
                yield from self._names(address, "/stats?format=json&include_clients=false", read)

    def _names(self, address: str, path: str, read: Reader) -> tuple[str, ...]:
        """Return the names that a server answers; none without a usable answer."""
        try:
            return read(get(self._access, address, path, _NAMES_SECONDS).document())
        except (ConnectFailed, ServerFailed):
            return ()


def _addresses(document: JsonObject) -> tuple[str, ...]:
    nodes = nodes_in(document)
    return tuple(node.http_address for node in nodes if node.has_address)


def wrong_program(access: ClusterAccess) -> CommandError | None:
    """Ask each given address what runs there. Return the error for the first one of the other program, if any."""
    for address in (*access.lookupd_http_addresses, *access.nsqd_http_addresses):
        if "nodes" in _document(access, address, "/api/nodes"):
            return CommandError(f"{address} is an nsqadmin; give the HTTP address of an nsqd or nsqlookupd")
    for address in access.lookupd_http_addresses:
        if "tcp_port" in _info(access, address):
            return CommandError(f"{address} is an nsqd, not an nsqlookupd; give it as --nsqd-http-address")
    for address in access.nsqd_http_addresses:
        info = _info(access, address)
        if "version" in info and "tcp_port" not in info:
            return CommandError(f"{address} is an nsqlookupd, not an nsqd; give it as --lookupd-http-address")
    return None


def _info(access: ClusterAccess, address: str) -> JsonObject:
    """Return the answer to /info, empty without one. An nsqlookupd's has only its version."""
    return _document(access, address, "/info")


def _document(access: ClusterAccess, address: str, path: str) -> JsonObject:
    with suppress(ConnectFailed, ServerFailed):
        return get(access, address, path, _PROGRAM_SECONDS).document()
    return {}
