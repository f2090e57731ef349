"""
The registrations as JSON: the bodies of /topics, /channels, /lookup, /nodes and /debug.

    {"producers":[{"remote_address":...,"topology_region":...,"tombstones":[false,...],"topics":["t",...]},...]}

Names are joined directly, in a fifth of the time that `json` takes: a valid name has nothing to escape. The data that
an nsqd sends about itself is escaped, once. Documents of all topics are built in pieces, because 100,000 registrations
in one turn would delay other clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from nsqtw.gocompat.text import json_text
from nsqtw.lookupd.model import Lookup, Node, Producer
from nsqtw.lookupd.queries import TOPICS_AT_ONCE

_BOOLEANS = ("false", "true")


def topic_pieces(topics: Iterable[str]) -> Iterator[bytes]:
    """The body of /topics."""
    before = b'{"topics":['
    names = iter(topics)
    while some := list(islice(names, TOPICS_AT_ONCE)):
        yield before + _quoted(some)
        before = b","
    yield b"]}" if before == b"," else before + b"]}"


def channels_document(channels: Iterable[str]) -> bytes:
    """The body of /channels."""
    return f'{{"channels":{_names(channels)}}}'.encode()


def lookup_document(result: Lookup) -> bytes:
    """The body of /lookup."""
    producers = b",".join([producer.document for producer in result.producers])
    return b'{"channels":%b,"producers":[%b]}' % (_names(result.channels).encode(), producers)


def lookup_pieces(parts: Iterable[Lookup]) -> Iterator[bytes]:
    """The body of /lookup, built in pieces."""
    producers: dict[int, Producer] = {}
    before = b'{"channels":['
    for part in parts:
        producers.update({producer.peer_id: producer for producer in part.producers})
        if part.channels:
            yield before + _quoted(part.channels)
            before = b","
        else:
            yield b""
    yield b"" if before == b"," else before
    yield b'],"producers":[%b]}' % b",".join([producer.document for producer in producers.values()])


def node_pieces(nodes: Iterable[Node]) -> Iterator[bytes]:
    """The body of /nodes: a piece for each node."""
    before = b'{"producers":['
    for node in nodes:
        is_hidden = True in node.tombstones
        hidden = (
            [_BOOLEANS[is_tombstoned] for is_tombstoned in node.tombstones]
            if is_hidden
            else ["false"] * len(node.tombstones)
        )
        own = f',"tombstones":[{",".join(hidden)}],"topics":{_names(node.topics)}}}'
        yield before + node.producer.document[:-1] + own.encode()
        before = b","
    yield b"]}" if before == b"," else before + b"]}"


def debug_pieces(entries: Iterable[tuple[str, list[dict[str, Any]]]]) -> Iterator[bytes]:
    """The body of /debug: a piece for each key."""
    before = b"{"
    for key, producers in entries:
        yield b'%b"%b":%b' % (before, key.encode(), json_text(producers))
        before = b","
    yield b"}" if before == b"," else b"{}"


def _names(names: Iterable[str]) -> str:
    joined = '","'.join(names)
    return f'["{joined}"]' if joined else "[]"


def _quoted(names: Iterable[str]) -> bytes:
    joined = '","'.join(names)
    return f'"{joined}"'.encode()
