"""A file of a spool for reading: its records one by one, and the detection of an incomplete end."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from pyspark_nsq.channel.span import Span
from pyspark_nsq.channel.spool_format import (
    MESSAGES,
    RECORD_BYTES,
    SEGMENT_BYTES,
    Record,
    SegmentHead,
    decode_record,
    decode_segment,
    next_record,
)
from pyspark_nsq.errors import SpoolError

_READ_BYTES = 1 << 14
#: The index has an offset for each so many bytes of records, so it stays small when records are small.
_INDEX_STEP = 1 << 16
REMEDY = 'set the option "failOnDataLoss" to "false" to go on with what there is'


class Segment:
    """
    The file at `path`, whose `head` was read. The writer calls `add` for each record that it has appended; other
    threads may read at the same time. `skips_damage`: damaged records are skipped; otherwise they raise SpoolError.
    """

    def __init__(self, path: Path, head: SegmentHead, skips_damage: bool) -> None:
        self.path, self.head, self.first = path, head, head.first
        self._skips_damage = skips_damage
        # The offset first: another thread searches the row numbers, and then takes the offset.
        self._places, self._rows = array("Q", [SEGMENT_BYTES]), array("Q", [head.first])

    def add(self, record: Record, place: int) -> None:
        """Add a record to the index. It is in the file at the offset `place`."""
        if record.kind == MESSAGES and place - self._places[-1] >= _INDEX_STEP:
            self._places.append(place)
            self._rows.append(record.first)

    def records(self, after: int, end: int) -> Iterator[tuple[Record, BinaryIO]]:
        """
        Yield the heads of the records with rows after number `after` up to number `end`. At each of them the file is at
        the content of the record, which the caller may read. Raises SpoolError and OSError.
        """
        at = max(0, bisect_right(self._rows, after + 1) - 1)
        place, row = self._places[at], self._rows[at]
        with self.path.open("rb", buffering=_READ_BYTES) as file:
            file.seek(place)
            while True:
                record = decode_record(file.read(RECORD_BYTES))
                if record is None or (record.kind == MESSAGES and record.first < row):
                    if not self._pass_over(file, place):
                        return
                    place = file.tell()
                    continue
                if record.kind == MESSAGES:
                    row = record.end + 1
                    if record.first > end:
                        return
                    if record.end > after:
                        yield record, file
                    if record.end >= end:
                        return
                place += RECORD_BYTES + record.content_bytes
                file.seek(place)

    def _pass_over(self, file: BinaryIO, place: int) -> bool:
        """Go to the next good record behind the damage at the offset `place`. Return False at the end of the file."""
        file.seek(place)
        rest = file.read()
        if not rest:
            return False
        if not self._skips_damage:
            raise self.damaged(place)
        skip = next_record(rest, 1)
        file.seek(place + max(skip, 0))
        return skip >= 0

    def damaged(self, place: int) -> SpoolError:
        return SpoolError(f"the spool has a damaged file, {self.path}, at byte {place}; {REMEDY}")

    def content(self, record: Record, file: BinaryIO) -> Span | None:
        """Return the messages of a record; None when they are damaged, and `skips_damage` is set."""
        place = file.tell()
        data = file.read(record.content_bytes)
        if len(data) != record.content_bytes or crc32(data) != record.crc:
            if self._skips_damage:
                return None
            raise self.damaged(place)
        nsqd = data[: record.nsqd_bytes].decode("utf-8")
        return Span(nsqd, record.rows, data[record.nsqd_bytes :], record.first)

    def spans(self, after: int, end: int) -> Iterator[Span]:
        """Return the messages after number `after` up to number `end`."""
        for record, file in self.records(after, end):
            span = self.content(record, file)
            if span is not None:
                yield span.part(max(after + 1 - span.first, 0), min(end + 1 - span.first, span.count))

    def recover(self) -> Iterator[tuple[Record, Span | None]]:
        """
        Return all records with their messages, for the writer, and cut off an incomplete end. Sync the file afterwards.
        Raises SpoolError for damage to a record that was synced.
        """
        data = self.path.read_bytes()
        place, row = SEGMENT_BYTES, self.first
        while place < len(data):
            record = decode_record(data, place)
            content = place + RECORD_BYTES
            if (
                record is None
                or (record.kind == MESSAGES and record.first < row)
                or crc32(data[content : content + record.content_bytes]) != record.crc
            ):
                if not self._was_synced(data, place):
                    break
                if not self._skips_damage:
                    raise self.damaged(place)
                place = next_record(data, place + 1)
                continue
            frames = content + record.nsqd_bytes
            span = None
            if record.kind == MESSAGES:
                nsqd = data[content:frames].decode("utf-8")
                span = Span(nsqd, record.rows, data[frames : frames + record.frame_bytes], record.first)
                if record.first != row and not self._skips_damage:
                    raise self.damaged(place)
                row = record.end + 1
            self.add(record, place)
            yield record, span
            place = content + record.content_bytes
        with self.path.open("r+b") as file:
            file.truncate(place)
            os.fsync(file.fileno())

    def _was_synced(self, data: bytes, place: int) -> bool:
        """Return whether a later good record was written after the damaged one at the offset `place` was synced."""
        at = place
        while (at := next_record(data, at + 1)) >= 0:
            record = decode_record(data, at)
            assert record is not None
            content = data[at + RECORD_BYTES : at + RECORD_BYTES + record.content_bytes]
            if record.synced > place and crc32(content) == record.crc:
                return True
        return False


def read_segment_head(path: Path) -> SegmentHead | None:
    """Raises OSError."""
    with path.open("rb") as file:
        return decode_segment(file.read(SEGMENT_BYTES))


def numbered(folder: Path, suffix: str) -> list[Path]:
    """Return the files of a spool whose names end so, in order. Raises OSError."""
    return sorted(path for path in folder.iterdir() if path.name.endswith(suffix) and path.name[:20].isdecimal())
