"""
One log file, read from front to back: every record with both checksums, as the broker's recovery and reader walk it.

    last file     `below` is HIGHEST; behind the last good record is the tail, which a start cuts off
    older files   `below` is the first sequence of the next file; what is bad at the end is lost, because the next
                  file was only begun when this one was whole

A record counts only if its sequences go on, so the rest of a file that was written over (see disk_format) ends it
without damage.
"""

from __future__ import annotations

import os

from attrs import define, field

from nsqtw.backends.disk_file import Descriptor
from nsqtw.backends.disk_format import (
    ENTRY_BYTES,
    HEADER_BYTES,
    HIGHEST,
    RECORD_BYTES,
    Entry,
    Head,
    Header,
    decode_entries,
    decode_head,
    decode_header,
)
from nsqtw.backends.disk_scan import Scan
from nsqtw.backends.files import FILE_MODE, Files
from nsqtw.core.segment import Segment
from nsqtw.fsck.sequences import Sequences

_BLOCK_BYTES = 1 << 20


class ReadOnly(Files):
    """Files that cannot be changed: what checks goes through these."""

    def open(self, path: str, *, create: bool = False, mode: int = FILE_MODE) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


@define
class Damage:
    """Bytes of a file from `position` up to `stop` in which no good record is."""

    position: int
    stop: int
    messages: tuple[int, int] | None
    """First and last sequence that were, or may have been, there; None: none is missing."""
    in_head: bool
    """The place and number of its messages are not known exactly, because the head of the record is damaged too."""


@define
class LogFileCheck:
    """What is in one log file."""

    path: str
    first: int
    below: int
    size: int = 0
    header: Header | None = None
    """None: damaged, or that of another file."""
    runs: list[tuple[int, int]] = field(factory=list)
    """Where good records are: from a position up to another."""
    damage: list[Damage] = field(factory=list)
    tail: Damage | None = None
    """What is behind the last good record, and not damage before good ones."""
    records: int = 0
    end: int = 0
    """One past its highest sequence."""
    at_once: Sequences = field(factory=Sequences)
    deferred: Sequences = field(factory=Sequences)
    """Messages that were published with a delay."""
    wrong_index: bool = False

    @property
    def is_last(self) -> bool:
        return self.below == HIGHEST

    @property
    def good_end(self) -> int:
        """Where its last good record ends."""
        return self.runs[-1][1] if self.runs else HEADER_BYTES

    @property
    def is_whole(self) -> bool:
        """Whether it is a header and good records and perhaps a tail."""
        return self.header is not None and not self.damage and len(self.runs) <= 1


def check_log_file(files: Files, path: str, first: int, below: int, index: bytes) -> LogFileCheck:
    """Read a log file. `index` is what stands in its index file, b"" when there is none. OSError."""
    found = LogFileCheck(path, first, below, files.size(path), end=first)
    descriptor = Descriptor(files, files.open(path))
    header = decode_header(descriptor.read(HEADER_BYTES, 0))
    if header is not None and header.first == first:
        found.header = header
    entries = decode_entries(index)
    known = {entry.position: entry.sequence for entry in entries}
    scan = Scan(descriptor, Entry(first, HEADER_BYTES, 0), found.size, below, _BLOCK_BYTES)
    while scan.position < scan.size:
        position = scan.position
        segments = _good_records(scan)
        if segments:
            _take(found, position, segments, known)
        elif not _pass_damage(descriptor, scan, found, entries):
            break
    found.wrong_index = bool(known) or len(entries) * ENTRY_BYTES != len(index)
    return found


def _good_records(scan: Scan) -> list[Segment]:
    """Some records from here on, as far as they are good."""
    segments: list[Segment] = []
    scan.take(0, _BLOCK_BYTES, segments)
    if not segments:
        head = scan.head()
        frames = scan.frames(head) if head is not None else None
        if head is not None and frames is not None:
            segments.append(Segment(head.first, head.messages, head.delay_ms, frames))
            scan.skip(head)
    return segments


def _take(found: LogFileCheck, position: int, segments: list[Segment], known: dict[int, int]) -> None:
    start = position
    for segment in segments:
        if known.get(position) == segment.first:
            del known[position]
        position += RECORD_BYTES + len(segment.frames)
        (found.deferred if segment.delay_ms else found.at_once).add(segment.first, segment.end)
    found.records += len(segments)
    found.end = segments[-1].end
    if found.runs and found.runs[-1][1] == start:
        found.runs[-1] = (found.runs[-1][0], position)
    else:
        found.runs.append((start, position))


def _pass_damage(descriptor: Descriptor, scan: Scan, found: LogFileCheck, entries: list[Entry]) -> bool:
    """Note what is no good record here and go to the next one. False when there is none."""
    position, above = scan.position, scan.above
    head = scan.head()
    first = above if head is None else head.first
    foreign = head is None and scan.is_foreign()
    after = _next_good(scan, entries)
    if after is not None:
        end = head.end if head is not None and scan.position == position + head.size else after.first
        found.damage.append(Damage(position, scan.position, _messages(first, end), head is None))
        return True
    if found.is_last:
        begun = head or _begun(descriptor, position, above)
        messages = _messages(begun.first, begun.end) if begun is not None else None
        found.tail = Damage(position, found.size, messages, begun is None)
        return False
    end = scan.below if head is None else head.end
    messages = None if foreign else _messages(first, end)
    lost = Damage(position, found.size, messages, head is None)
    if messages is None:
        found.tail = lost
    else:
        found.damage.append(lost)
    return False


def _next_good(scan: Scan, entries: list[Entry]) -> Head | None:
    """
    Go to the next good record, but not past one that the index knows: a reader may start there. The inside of a record
    whose head is damaged is searched, and what a client wrote there may look like a head with a long record.
    """
    start = scan.place()
    after = scan.search()
    found = scan.place()
    stop = scan.size if after is None else found.position
    for entry in entries:
        if start.position < entry.position < stop and entry.sequence >= start.sequence:
            scan.jump(entry)
            head = scan.head()
            if head is not None and head.first == entry.sequence and scan.frames(head) is not None:
                return head
    scan.jump(found)
    return after


def _begun(descriptor: Descriptor, position: int, above: int) -> Head | None:
    """The head of a record of which the rest was not written."""
    head = decode_head(descriptor.read(RECORD_BYTES, position))
    return head if head is not None and above <= head.first < head.end else None


def _messages(first: int, end: int) -> tuple[int, int] | None:
    return (first, end - 1) if first < end else None
