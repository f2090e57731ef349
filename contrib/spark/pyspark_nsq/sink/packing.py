"""Messages become request bodies.

A batch is the body of ``POST /mpub?binary=true``, all integers big-endian:

    | count  4 | size  4 | message  size | size  4 | message  size | ...

Batches are cut by count and by bytes, whichever limit comes first. What is cut is a run of entries (`entries`), so
the cost is per request, not per message.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from pyspark_nsq.sink.entries import Entries

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
        self._parts: list[bytes | memoryview] = []
        self._rows = 0
        self.held_bytes = _INT32.size

    def extend(self, entries: Entries) -> Iterator[Request]:
        """Take messages in; yields a request each time one is full. Must be exhausted."""
        start = 0
        while start < len(entries):
            stop = entries.fit(start, self._max_bytes - self.held_bytes)
            stop = min(stop, start + self._max_rows - self._rows)
            if stop <= start and self._rows:
                yield self._cut()
                continue
            stop = max(stop, start + 1)  # one that is above the limit travels alone
            self._parts.append(entries.cut(start, stop))
            self._rows += stop - start
            self.held_bytes += entries.bytes_between(start, stop)
            start = stop
        if self._parts:
            # What waits for more is a copy: a part of a batch would keep all of its memory.
            self._parts[-1] = bytes(self._parts[-1])

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

    def extend(self, topic: str, entries: Entries) -> Iterator[Request]:
        """Take messages of one topic in; yields what is full. Must be exhausted."""
        packer = self._topics.get(topic)
        if packer is None:
            packer = self._topics[topic] = TopicPacker(topic, self._max_rows, self._max_bytes)
        before = packer.held_bytes
        yield from packer.extend(entries)
        self._held_bytes += packer.held_bytes - before
        if self._held_bytes > self._max_held_bytes:
            yield from self.flush()

    def flush(self) -> Iterator[Request]:
        """Everything that is held, one request for each topic that has some."""
        for packer in self._topics.values():
            yield from packer.flush()
        self._topics.clear()
        self._held_bytes = 0
