"""
Names of a cluster for shell completion, with the standard library only: importing Twisted would take longer than the
answer. Servers that do not answer at once have no names. A shell puts a name on the command line as it is, so what is
no name or address is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.stdlib_http import get
from nsqtw.cluster.answers import channel_names_in, names_in, nodes_in, topic_names_in
from nsqtw.cluster.fields import JsonObject
from nsqtw.errors import ConnectFailed, ServerFailed
from nsqtw.names import is_valid_name

_SECONDS = 1.0

Reader = Callable[[JsonObject], tuple[str, ...]]


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
            return read(get(self._access, address, path, _SECONDS).document())
        except (ConnectFailed, ServerFailed):
            return ()


def _addresses(document: JsonObject) -> tuple[str, ...]:
    nodes = nodes_in(document)
    return tuple(node.http_address for node in nodes if node.has_address)
