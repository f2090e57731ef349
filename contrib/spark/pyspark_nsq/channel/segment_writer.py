"""A file of a spool for writing: records are appended, and are on disk when `write` returns."""

from __future__ import annotations

import os
from pathlib import Path
from zlib import crc32

from pyspark_nsq.channel.segment import Segment
from pyspark_nsq.channel.span import Span
from pyspark_nsq.channel.spool_format import (
    FORGOTTEN,
    MESSAGES,
    RECORD_BYTES,
    UNFINISHED_SUFFIX,
    Record,
    SegmentHead,
    encode_record,
    encode_segment,
    segment_name,
)

#: Most bytes of a record, which is read as a whole.
_RECORD_BYTES = 8 << 20
_MOST_PIECES = 512


class SegmentWriter:
    """Appends to the file of `segment`. Not to be used after an error. For one thread at a time."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._file = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.size = os.fstat(self._file).st_size
        self._synced = self.size
        self._pieces: list[bytes] = []
        self._pending: list[tuple[Record, int]] = []
        self._pending_bytes = 0

    @staticmethod
    def create(folder: Path, head: SegmentHead) -> None:
        """Make an empty segment. Its name is on disk when the folder is synced. Raises OSError."""
        path = folder / segment_name(head.first)
        unfinished = path.with_suffix(UNFINISHED_SUFFIX)
        with unfinished.open("wb") as file:
            file.write(encode_segment(head))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)

    def add(self, nsqd: str, spans: list[Span], first: int, at: int) -> int:
        """Take messages for the next `write`, numbered from `first` on. Return the number of the last one."""
        some: list[Span] = []
        size = 0
        for span in spans:
            if some and size + len(span.frames) > _RECORD_BYTES:
                first = self._add(nsqd, some, first, at) + 1
                some, size = [], 0
            some.append(span)
            size += len(span.frames)
        return self._add(nsqd, some, first, at) if some else first - 1

    def _add(self, nsqd: str, spans: list[Span], first: int, at: int) -> int:
        name = nsqd.encode()
        crc = crc32(name)
        for span in spans:
            crc = crc32(span.frames, crc)
        rows, size = sum(span.count for span in spans), sum(len(span.frames) for span in spans)
        record = Record(MESSAGES, len(name), first, rows, size, at, self._synced, crc)
        self._take(record, [name, *(span.frames for span in spans)])
        return record.end

    def _take(self, record: Record, content: list[bytes]) -> None:
        self._pieces += [encode_record(record), *content]
        self._pending.append((record, self.size + self._pending_bytes))
        self._pending_bytes += RECORD_BYTES + record.content_bytes

    def forget(self, end: int) -> None:
        """Record that Spark needs no row up to number `end`. The next `write` syncs this. Raises OSError."""
        self._take(Record(FORGOTTEN, 0, end, 0, 0, 0, self._synced, 0), [])
        self._append()

    def write(self) -> None:
        """Write the added messages, and sync. After an OSError the file has none of them."""
        if not self._pieces:
            return
        self._append(sync=True)
        self._synced = self.size

    def _append(self, *, sync: bool = False) -> None:
        try:
            _write_all(self._file, self._pieces)
            if sync:
                os.fdatasync(self._file)
        except OSError:
            # A later reader must not take these bytes for synced ones.
            os.ftruncate(self._file, self.size)
            raise
        self.size += self._pending_bytes
        for record, place in self._pending:
            self._segment.add(record, place)
        self._pieces, self._pending, self._pending_bytes = [], [], 0

    def close(self) -> None:
        os.close(self._file)


def _write_all(descriptor: int, pieces: list[bytes]) -> None:
    for low in range(0, len(pieces), _MOST_PIECES):
        some = pieces[low : low + _MOST_PIECES]
        written, total = os.writev(descriptor, some), sum(map(len, some))
        if written < total:
            rest = memoryview(b"".join(some))
            while written < total:
                written += os.write(descriptor, rest[written:])
