"""Packing of messages into request bodies.

A batch is the body of ``POST /mpub?binary=true``, all integers big-endian:

    | count  4 | size  4 | message  size | size  4 | message  size | ...

If one of the messages has headers, it is that of ``POST /mpub?binary=true&headers=true``, and the entries have the
headers of each message:

    | "NSQH" | count  4 | headers size  4 | headers | size  4 | message  size | ...

A request ends at the limit of messages or of bytes, whichever comes first. Its body is kept in parts: the count, and
slices of entries (`entries`), which are not copied. So the cost is per request, not per message. The memory of a batch
is in use until the requests with its slices are answered.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from pyspark_nsq.sink.entries import Entries

_INT32 = struct.Struct(">i")
_MAGIC = b"NSQH"
#: A body of more slices is joined: each one costs something when it is sent.
_MOST_PARTS = 16
#: The least share of the memory of a batch that a waiting slice may keep in use.
_LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Request:
    """One POST: its path, the parts of its body, and the topic and the number of its messages."""

    path: str
    body: tuple[bytes | memoryview, ...]
    topic: str
    rows: int

    @property
    def body_bytes(self) -> int:
        """The size of the body."""
        return sum(map(len, self.body))


def deferred_request(
    topic: str, message: bytes, defer_ms: int, channel: str | None = None, headers: bytes = b""
) -> Request:
    """Return the request of one deferred message, with its encoded headers: a request has one delay for all."""
    if headers:
        body = (_MAGIC, _INT32.pack(1), _INT32.pack(len(headers)), headers, _INT32.pack(len(message)), message)
        path = f"/mpub?binary=true&headers=true&topic={_target(topic, channel)}&defer={defer_ms}"
        return Request(path, body, topic, 1)
    return Request(f"/pub?topic={_target(topic, channel)}&defer={defer_ms}", (message,), topic, 1)


def _target(topic: str, channel: str | None) -> str:
    return quote(topic) if channel is None else f"{quote(topic)}&channel={quote(channel)}"


class TopicPacker:
    """Collects the messages of one topic and cuts them into requests."""

    def __init__(
        self, topic: str, max_rows: int, max_bytes: int, *, has_headers: bool = False, channel: str | None = None
    ) -> None:
        self.has_headers = has_headers
        self._topic = topic
        self._path = f"/mpub?binary=true{'&headers=true' if has_headers else ''}&topic={_target(topic, channel)}"
        self._magic = _MAGIC if has_headers else b""
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._clear()

    def _clear(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._rows = 0
        self.held_bytes = len(self._magic) + _INT32.size

    def extend(self, entries: Entries) -> Iterator[Request]:
        """Add messages. Yields the requests that are full. Must be exhausted."""
        start = 0
        while start < len(entries):
            stop = entries.fit(start, self._max_bytes - self.held_bytes)
            stop = min(stop, start + self._max_rows - self._rows)
            if stop <= start and self._rows:
                yield self._cut()
                continue
            stop = max(stop, start + 1)  # a message above the limit is sent alone
            self._parts.append(entries.cut(start, stop))
            self._rows += stop - start
            self.held_bytes += entries.bytes_between(start, stop)
            start = stop
        if self._parts:
            waiting = self._parts[-1]
            if len(waiting) < _LEAST_SHARE * len(entries.data):
                # A slice would keep the memory of its whole batch.
                self._parts[-1] = bytes(waiting)

    def flush(self) -> Iterator[Request]:
        """Yield the last, incomplete request, if there is one."""
        if self._rows:
            yield self._cut()

    def _cut(self) -> Request:
        parts = self._parts if len(self._parts) <= _MOST_PARTS else [b"".join(self._parts)]
        request = Request(self._path, (self._magic + _INT32.pack(self._rows), *parts), self._topic, self._rows)
        self._clear()
        return request


class Packer:
    """Collects the messages of any number of topics, within a limit of bytes for all of them.

    With `channel`, only the channels of this name get them.
    """

    def __init__(self, max_rows: int, max_bytes: int, max_held_bytes: int, channel: str | None = None) -> None:
        self._channel = channel
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._max_held_bytes = max_held_bytes
        self._held_bytes = 0
        self._topics: dict[str, TopicPacker] = {}

    def extend(self, topic: str, entries: Entries) -> Iterator[Request]:
        """Add messages of one topic. Yields the requests that are full. Must be exhausted."""
        packer = self._topics.get(topic)
        if packer is not None and packer.has_headers != entries.has_headers:
            before = packer.held_bytes
            yield from packer.flush()
            self._held_bytes += packer.held_bytes - before
            packer = None
        if packer is None:
            packer = self._topics[topic] = TopicPacker(
                topic, self._max_rows, self._max_bytes, has_headers=entries.has_headers, channel=self._channel
            )
        before = packer.held_bytes
        yield from packer.extend(entries)
        self._held_bytes += packer.held_bytes - before
        if self._held_bytes > self._max_held_bytes:
            yield from self.flush()

    def flush(self) -> Iterator[Request]:
        """Yield the remaining messages, one request for each topic."""
        for packer in self._topics.values():
            yield from packer.flush()
        self._topics.clear()
        self._held_bytes = 0
