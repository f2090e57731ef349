"""Messages become request bodies.

A batch is the body of ``POST /mpub?binary=true``, all integers big-endian:

    | count  4 | size  4 | message  size | size  4 | message  size | ...

Batches are cut by count and by bytes, whichever limit comes first. A cut costs nothing but the join: the
messages are collected with their sizes between them.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Request:
    """One POST: where, what, and how many messages of which topic it carries."""

    path: str
    body: bytes
    topic: str
    rows: int


def deferred_request(topic: str, message: bytes, defer_ms: int) -> Request:
    """One deferred message. /mpub takes no delay, so each travels alone."""
    return Request(f"/pub?topic={quote(topic)}&defer={defer_ms}", message, topic, 1)


class TopicPacker:
    """Collects the messages of one topic and cuts them into requests."""

    def __init__(self, topic: str, max_rows: int, max_bytes: int) -> None:
        self._topic = topic
        self._path = f"/mpub?binary=true&topic={quote(topic)}"
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._clear()

    def _clear(self) -> None:
        self._parts: list[bytes] = []
        self._rows = 0
        self.held_bytes = _INT32.size

    def extend(self, messages: Iterable[bytes]) -> Iterator[Request]:
        """Take messages in; yields a request each time one is full. Must be exhausted."""
        pack = _INT32.pack
        for message in messages:
            size = _INT32.size + len(message)
            if self._rows == self._max_rows or (self._rows and self.held_bytes + size > self._max_bytes):
                yield self._cut()
            self._parts.append(pack(len(message)))
            self._parts.append(message)
            self._rows += 1
            self.held_bytes += size

    def flush(self) -> Iterator[Request]:
        """The last, partly filled request, if there is one."""
        if self._rows:
            yield self._cut()

    def _cut(self) -> Request:
        body = b"".join((_INT32.pack(self._rows), *self._parts))
        request = Request(self._path, body, self._topic, self._rows)
        self._clear()
        return request


class Packer:
    """Collects the messages of any number of topics; what is held for all of them is bounded."""

    def __init__(self, max_rows: int, max_bytes: int, max_held_bytes: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._max_held_bytes = max_held_bytes
        self._held_bytes = 0
        self._topics: dict[str, TopicPacker] = {}

    def extend(self, topic: str, messages: Iterable[bytes]) -> Iterator[Request]:
        """Take messages of one topic in; yields what is full. Must be exhausted."""
        packer = self._topics.get(topic)
        if packer is None:
            packer = self._topics[topic] = TopicPacker(topic, self._max_rows, self._max_bytes)
        before = packer.held_bytes
        yield from packer.extend(messages)
        self._held_bytes += packer.held_bytes - before
        if self._held_bytes > self._max_held_bytes:
            yield from self.flush()

    def flush(self) -> Iterator[Request]:
        """Everything that is held, one request for each topic that has some."""
        for packer in self._topics.values():
            yield from packer.flush()
        self._topics.clear()
        self._held_bytes = 0
