"""
One log file, read from front to back: every record with both checksums, as the broker's recovery and reader do, and the
sequences of its messages.

    last file     `below` is HIGHEST; behind the last good record is the tail, which a start truncates
    older files   `below` is the first sequence of the next file; damage at the end is a loss, because the next file was
                  only begun when this one was complete

A record counts only if its sequences continue the ones before, so the rest of a file that was reused (see disk.format)
ends it without damage.
"""

from __future__ import annotations

import os

from attrs import define, field

from nsqtw.backends.disk.damage import Damage as LogDamage
from nsqtw.backends.disk.damage import examine, is_torn_write
from nsqtw.backends.disk.format import (
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
from nsqtw.backends.disk.open_files import Descriptor
from nsqtw.backends.disk.scan import Scan
from nsqtw.backends.files import FILE_MODE, Files
from nsqtw.backends.sequences import ChannelSequences, ClassSequences
from nsqtw.core.segment import Segment

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
    lost: int = 0
    """How many of them are lost, at most; the others can be kept."""
    kept: list[Segment] = field(factory=list)
    """The messages that can be kept."""
    without_headers: int = 0
    """How many of these have lost their headers."""
    channel: str | None = ""
    """The only channel that gets the messages, "" if all do; None: one does, and it is not known which."""


@define
class LogFileCheck:
    """The contents of one log file."""

    path: str
    first: int
    below: int
    size: int = 0
    header: Header | None = None
    """None: damaged, or that of another file."""
    runs: list[tuple[int, int]] = field(factory=list)
    """The range of good records, by position."""
    damage: list[Damage] = field(factory=list)
    put_count: int = 0
    """The number of messages written to it, as far as known."""
    tail: Damage | None = None
    """The damage behind the last good record."""
    records: int = 0
    end: int = 0
    """One past its highest sequence."""
    at_once: ChannelSequences = field(factory=ChannelSequences)
    deferred: ChannelSequences = field(factory=ChannelSequences)
    """Messages that were published with a delay."""
    classes: ClassSequences | None = None
    """The classes of those without a delay; None: they are not looked at."""
    index: list[Entry] = field(factory=list)
    wrong_index: bool = False

    @property
    def is_last(self) -> bool:
        return self.below == HIGHEST

    @property
    def good_end(self) -> int:
        """The end of its last record that is good, or of which a part can be kept."""
        return max(
            [
                HEADER_BYTES,
                *(stop for _, stop in self.runs[-1:]),
                *(damage.stop for damage in self.damage[-1:]),
            ]
        )

    @property
    def is_whole(self) -> bool:
        """Whether it consists of a header, good records and perhaps a tail."""
        return self.header is not None and not self.damage and len(self.runs) <= 1


def check_log_file(
    files: Files, path: str, first: int, below: int, index: bytes, known_end: int = 0, *, by_class: bool = False
) -> LogFileCheck:
    """
    Read a log file. `index` is what stands in its index file, b"" when there is none; positions.db knows the log up to
    `known_end`. `by_class`: look at the priorities of the messages. OSError.
    """
    check = LogFileCheck(path, first, below, files.size(path), end=first)
    check.classes = ClassSequences() if by_class else None
    descriptor = Descriptor(files, files.open(path))
    header = decode_header(descriptor.read(HEADER_BYTES, 0))
    if header is not None and header.first == first:
        check.header = header
    entries = check.index = decode_entries(index)
    sequence_at = {entry.position: entry.sequence for entry in entries}
    scan = Scan(descriptor, Entry(first, HEADER_BYTES, 0), check.size, below, _BLOCK_BYTES)
    while scan.position < scan.size:
        head = scan.head()
        if head is not None and scan.is_whole(head):
            _take(check, scan, head, sequence_at)
        elif not _pass_damage(descriptor, scan, check, known_end):
            break
    check.put_count = scan.put_total
    check.wrong_index = bool(sequence_at) or len(entries) * ENTRY_BYTES != len(index)
    return check


def _take(check: LogFileCheck, scan: Scan, head: Head, sequence_at: dict[int, int]) -> None:
    """Note a good record and go past it."""
    start = scan.position
    if sequence_at.get(start) == head.first:
        del sequence_at[start]
    if not head.is_tombstone:
        is_read = head.is_directed or (check.classes is not None and head.has_block)
        segment = scan.segment(head) if is_read else None
        channel = segment.channel if segment is not None else ""
        (check.deferred if head.delay_ms else check.at_once).add(head.first, head.end, channel)
        if segment is not None and check.classes is not None:
            check.classes.add(segment)
        check.records += 1
    scan.skip(head)
    check.end = head.end
    if check.runs and check.runs[-1][1] == start:
        check.runs[-1] = (check.runs[-1][0], scan.position)
    else:
        check.runs.append((start, scan.position))


def _pass_damage(descriptor: Descriptor, scan: Scan, check: LogFileCheck, known_end: int) -> bool:
    """Note what is no good record here and go to the next one. False when nothing that can be kept follows."""
    entry = scan.entry_at()
    foreign = scan.is_foreign()
    damage = examine(descriptor, scan, check.index)
    if check.is_last and damage.is_end and is_torn_write(damage, known_end):
        head = _partial_head(descriptor, damage.position, entry.sequence)
        messages = _messages(head.first, head.end) if head is not None else None
        check.tail = Damage(damage.position, check.size, messages, head is None)
        return False
    messages = None if foreign and damage.is_end and damage.head is None else _messages_of(damage)
    damage_ = Damage(
        damage.position,
        damage.stop,
        messages,
        damage.head is None,
        damage.lost_count,
        list(damage.segments),
        damage.without_headers,
        damage.channel,
    )
    if messages is None and damage.is_end and damage.head is None:
        check.tail = damage_
        return False
    check.damage.append(damage_)
    for segment in damage.segments:
        (check.deferred if segment.delay_ms else check.at_once).add(segment.first, segment.end, segment.channel)
        if check.classes is not None:
            check.classes.add(segment)
    if damage.head is not None:
        check.end = damage.head.end
    return not damage.is_end or scan.position < scan.size


def _messages_of(damage: LogDamage) -> tuple[int, int] | None:
    """The first and the last sequence that are lost; those of the record when none is."""
    if damage.lost:
        return damage.lost[0][0], damage.lost[-1][1] - 1
    return _messages(damage.head.first, damage.head.end) if damage.head is not None else None


def _partial_head(descriptor: Descriptor, position: int, above: int) -> Head | None:
    """The head of a record of which the rest was not written."""
    head = decode_head(descriptor.read(RECORD_BYTES, position))
    return head if head is not None and above <= head.first < head.end else None


def _messages(first: int, end: int) -> tuple[int, int] | None:
    return (first, end - 1) if first < end else None
