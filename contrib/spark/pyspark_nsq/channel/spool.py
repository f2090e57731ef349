"""
The spool: messages on disk between NSQ and Spark. Spark's offsets are row numbers in it.

Theory of operation. NSQ has no offsets, and does not deliver a finished message again. So every message is appended
here, numbered and synced, before it is finished. Spark reads ranges of numbers, after a crash the same ones again, and
commits the numbers that it does not need any more.

NSQ may deliver a message twice: when its FIN is lost, or when it times out before it is appended. The ids of the window
are known (spool_ids), and another delivery of one is dropped. Each nsqd makes its own ids, so nsqd and id identify a
message.

The spool is a folder of segments, files that are only appended to (spool_format). The messages that came during one
sync are written together, in the frames of nsqd, and synced once. A full segment is followed by another, and is removed
as a whole when Spark needs none of its rows.

One process writes and removes segments (`spool_lock`); any number of processes may read ranges (`read_spans`).
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Self

from pyspark_nsq.channel.segment import REMEDY, Segment, numbered, read_segment_head
from pyspark_nsq.channel.segment_writer import SegmentWriter
from pyspark_nsq.channel.span import Span
from pyspark_nsq.channel.spool_format import FORGOTTEN, IDS_SUFFIX, SEGMENT_SUFFIX, UNFINISHED_SUFFIX, SegmentHead
from pyspark_nsq.channel.spool_ids import KnownIds
from pyspark_nsq.errors import ReadError, SpoolError
from pyspark_nsq.frames import BODY_AT

#: Most rows of a segment, whose ids take about 20 MB of memory while it is written.
_SEGMENT_BYTES = 32 << 20
_SEGMENT_ROWS = 1 << 17


class Spool:
    """
    The spool in the folder at `path`. Two threads may call `append` and `forget`; other threads may read at the same
    time.

    Every method raises SpoolError when a file cannot be read or written, or is damaged. With `skips_damage` rows in
    damaged places are left out instead.
    """

    def __init__(self, path: str, segments: list[Segment], ids: KnownIds, skips_damage: bool) -> None:
        """Read the last of `segments`, which are not empty, to its end."""
        self.path = path
        self.uuid = segments[-1].head.uuid
        self.forgotten = segments[-1].head.forgotten
        """Spark needs nothing up to and with this row."""
        self.end = segments[-1].first - 1
        """The number of the last message that was ever appended."""
        self.processed = self.forgotten
        """Spark has processed the rows up to here. It may ask for those above `forgotten` again, after a crash."""
        self.frame_bytes = 0
        """Bytes of the frames behind `processed`."""
        self._folder = Path(path)
        self._skips_damage = skips_damage
        self._ids = ids
        self._newest = 0
        self._segments = tuple(segments)
        self._writing = threading.Lock()
        self._is_broken = False
        self._recover()
        self._writer = SegmentWriter(segments[-1])
        self.processed = self.forgotten
        _, self.frame_bytes = self.measure(self.processed, self.end)

    @classmethod
    def open(cls, path: str, *, skips_damage: bool = False) -> Self:
        """Return the spool for its writer, a new one if there is none. Convert a spool of the earlier format."""
        from pyspark_nsq.channel.spool_conversion import convert

        with _told(path):
            convert(path)
            folder = Path(path)
            folder.mkdir(parents=True, exist_ok=True)
            segments = list(_segments(folder, skips_damage))
            if len({segment.head.uuid for segment in segments}) > 1:
                raise SpoolError(f"the spool {path} has files of two spools; keep those that belong to the checkpoint")
            if not segments:
                if not skips_damage and any(one.suffix != UNFINISHED_SUFFIX for one in folder.iterdir()):
                    raise SpoolError(f"the folder {path} has other files, and no spool; name a folder of its own")
                create(folder, SegmentHead(uuid.uuid4().hex, 1, 0))
                sync_folder(folder.parent)
                segments = list(_segments(folder, skips_damage))
            return cls(path, segments, _known_ids(folder, segments, skips_damage), skips_damage)

    def _recover(self) -> None:
        """Read the last segment: the rows it has, and their ids."""
        for record, span in self._segments[-1].recover():
            if record.kind == FORGOTTEN:
                self.forgotten = max(self.forgotten, record.first)
            if span is not None:
                self.end = record.end
                self._newest = record.at
                self._ids.add(span.nsqd, self._new(span.nsqd, [span])[1])

    def append(self, spans: Iterable[Span], at: int) -> int:
        """
        Append the messages that are not known, sync them, and return their number. `at`: seconds since 1970. After an
        error the spool accepts no more messages.
        """
        by_nsqd: dict[str, list[Span]] = {}
        for span in spans:
            by_nsqd.setdefault(span.nsqd, []).append(span)
        with self._changing():
            fresh = {nsqd: self._new(nsqd, some) for nsqd, some in by_nsqd.items()}
            end, frame_bytes = self.end, self.frame_bytes
            for nsqd, (some, _) in fresh.items():
                end, frame_bytes = self._writer.add(nsqd, some, end + 1, at), frame_bytes + _size(some)
            self._writer.write()
            for nsqd, (_, ids) in fresh.items():
                self._ids.add(nsqd, ids)
            count = end - self.end
            self.end, self.frame_bytes, self._newest = end, frame_bytes, at
            if self._writer.size >= _SEGMENT_BYTES or end - self._segments[-1].first >= _SEGMENT_ROWS:
                self._begin_segment()
        return count

    def _new(self, nsqd: str, spans: list[Span]) -> tuple[list[Span], list[bytes]]:
        """Return the messages of `spans` that are not known, each once, and their ids."""
        ids = [one for span in spans for one in span.ids]
        if self._ids.are_next(nsqd, ids):
            return spans, ids
        distinct = set(ids)
        known = self._ids.known(nsqd, distinct)
        if not known and len(distinct) == len(ids):
            return spans, ids
        spans = [span.without(known) for span in spans]
        return [span for span in spans if span.count], [one for span in spans for one in span.ids]

    def _begin_segment(self) -> None:
        """Store the ids of the last segment in a file, and begin a new segment."""
        full = self._segments[-1]
        create(self._folder, SegmentHead(self.uuid, self.end + 1, self.forgotten))
        self._ids.store(full.path.with_suffix(IDS_SUFFIX), self._newest)
        [segment] = (one for one in _segments(self._folder, self._skips_damage) if one.first == self.end + 1)
        self._writer.close()
        self._writer = SegmentWriter(segment)
        self._segments = (*self._segments, segment)

    def first(self) -> int:
        """Return the number of the first message that Spark may read; `end` + 1 when there is none."""
        return max(self.forgotten + 1, self._segments[0].first)

    def spans(self, after: int, end: int) -> Iterator[Span]:
        """Return the messages after number `after` up to number `end`."""
        with _told(self.path):
            yield from _complete(self.path, self._segments, after, end, self._skips_damage)

    def fit(self, after: int, end: int, most_bytes: int) -> int:
        """Return the last number up to `end` so that the bodies after `after` have `most_bytes`; at least one row."""
        total, last = 0, after
        with _told(self.path):
            for segment in _with_rows(self._segments, after, end):
                for record, file in segment.records(after, end):
                    body_bytes = record.frame_bytes - BODY_AT * record.rows
                    if record.first > after and record.end <= end and total + body_bytes <= most_bytes:
                        total += body_bytes
                        last = record.end
                        continue
                    span = segment.content(record, file)
                    if span is None:
                        continue
                    span = span.part(max(after + 1 - span.first, 0), min(end + 1 - span.first, span.count))
                    count = span.fit(most_bytes - total)
                    if count < span.count:
                        return max(last, after + 1, span.first + count - 1)
                    total += span.body_bytes
                    last = span.first + count - 1
        return last

    def measure(self, after: int, end: int) -> tuple[int, int]:
        """Return the number of the rows after number `after` up to number `end`, and the bytes of their frames."""
        rows = frame_bytes = 0
        with _told(self.path):
            for segment in _with_rows(self._segments, after, end):
                for record, file in segment.records(after, end):
                    if record.first > after and record.end <= end:
                        rows += record.rows
                        frame_bytes += record.frame_bytes
                    elif (span := segment.content(record, file)) is not None:
                        span = span.part(max(after + 1 - span.first, 0), min(end + 1 - span.first, span.count))
                        rows += span.count
                        frame_bytes += len(span.frames)
        return rows, frame_bytes

    def mark_processed(self, end: int) -> bool:
        """Count the rows up to and with `end` as processed. Return whether they were not. They stay on disk."""
        end = min(end, self.end)
        if end <= self.processed:
            return False
        _, frame_bytes = self.measure(self.processed, end)
        with self._changing():
            self.processed = end
            self.frame_bytes -= frame_bytes
        return True

    def skip_to(self, end: int) -> None:
        """Give the next message the number after `end`, as Spark has seen the numbers up to there."""
        with self._changing():
            if end > self.end:
                self.end = end
                self._begin_segment()

    def forget(self, end: int, before: int) -> None:
        """Forget the rows up to number `end`, and the ids that came before the time `before`."""
        end = min(end, self.end)
        self.mark_processed(end)
        with self._changing():
            if end > self.forgotten:
                self._writer.forget(end)
                self.forgotten = end
            if self.forgotten == self.end >= self._segments[-1].first and self._newest < before:
                self._begin_segment()
            self._remove_segments()
            self._ids.forget(before)

    def _remove_segments(self) -> None:
        segments = self._segments
        gone = [one for one, other in pairwise(segments) if other.first <= self.forgotten + 1]
        if gone:
            self._segments = segments[len(gone) :]
            sync_folder(self._folder)  # the files with their ids are there
            for segment in gone:
                segment.path.unlink()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Run a change: for one thread at a time, and for none after an error."""
        with self._writing, _told(self.path):
            if self._is_broken:
                raise SpoolError(f"the spool {self.path} could not be written before; start the query again")
            self._is_broken = True
            yield
            self._is_broken = False

    def close(self) -> None:
        self._writer.close()


def read_spans(path: str, spool: str, after: int, end: int, *, skips_damage: bool = False) -> Iterator[Span]:
    """
    Yield rows of a spool that another process writes, and whose uuid is `spool`. For tasks. Raises SpoolError, also at
    the end when rows are missing.
    """
    with _told(path):
        segments = list(_segments(Path(path), skips_damage))
        if not segments:
            raise SpoolError(f"the spool {path} is empty")
        if any(segment.head.uuid != spool for segment in segments):
            raise SpoolError(f"the spool {path} is another one than the driver's")
        yield from _complete(path, tuple(segments), after, end, skips_damage)


def create(folder: Path, head: SegmentHead) -> None:
    """Make an empty segment. Raises OSError."""
    SegmentWriter.create(folder, head)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _complete(path: str, segments: tuple[Segment, ...], after: int, end: int, skips_damage: bool) -> Iterator[Span]:
    count = 0
    for segment in _with_rows(segments, after, end):
        for span in segment.spans(after, end):
            count += span.count
            yield span
    if count != end - after and not skips_damage:
        raise SpoolError(f"the spool {path} has {count} of the {end - after} rows {after + 1} to {end}; {REMEDY}")


def _with_rows(segments: tuple[Segment, ...], after: int, end: int) -> Iterator[Segment]:
    """Return the segments that may have rows after number `after` up to number `end`."""
    if after >= end:
        return
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if segment.first <= end and (is_last or segments[number + 1].first > after + 1):
            yield segment


def _segments(folder: Path, skips_damage: bool) -> Iterator[Segment]:
    for path in numbered(folder, SEGMENT_SUFFIX):
        try:
            head = read_segment_head(path)
        except FileNotFoundError:  # the writer removes files while tasks list them
            continue
        if head is None and not skips_damage:
            raise SpoolError(f"{path} is damaged, or of a later version of the connector; {REMEDY}")
        if head is not None:
            yield Segment(path, head, skips_damage)


def _known_ids(folder: Path, segments: list[Segment], skips_damage: bool) -> KnownIds:
    """Load the ids from the files, and from full segments that have no file because of a crash."""
    ids = KnownIds()
    last = segments[-1].path
    if last.with_suffix(IDS_SUFFIX).exists():
        # Its ids are stored when the next segment exists.
        if not skips_damage:
            raise SpoolError(f"the spool lacks the file behind {last}; {REMEDY}")
        last.with_suffix(IDS_SUFFIX).unlink()
    stored = set()
    for path in numbered(folder, IDS_SUFFIX):
        if ids.load(path):
            stored.add(path.stem)
        elif not skips_damage:
            raise SpoolError(f"the spool has a damaged file, {path}; {REMEDY}")
    for segment in segments[:-1]:
        if segment.path.stem not in stored:
            newest = 0
            for record, file in segment.records(0, segment.first + (1 << 32)):
                span = segment.content(record, file)
                if span is not None:
                    ids.add(span.nsqd, span.ids)
                    newest = record.at
            ids.store(segment.path.with_suffix(IDS_SUFFIX), newest)
    return ids


def _size(spans: list[Span]) -> int:
    return sum(len(span.frames) for span in spans)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Convert errors of the system to SpoolError with the spool's name."""
    try:
        yield
    except OSError as error:
        raise SpoolError(f"the spool {path}: {error.strerror or error}: {error.filename or path}") from error
    except ReadError as error:
        raise SpoolError(f"the spool {path}: {error}") from error
