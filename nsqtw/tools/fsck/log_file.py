"""
One log file, read from front to back: every record with both checksums, as the broker's recovery and reader do, and the
sequences of its messages: runs of consecutive ones, a few numbers for a million messages of the same channels and
priority.

    last file     `below` is HIGHEST; behind the last good record is the tail, which a start truncates
    older files   `below` is the first sequence of the next file; damage at the end is a loss, because the next file was
                  only begun when this one was complete

A record counts only if its sequences continue the ones before, so the rest of a file that was reused (see disk.format)
ends it without damage.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from itertools import groupby

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
from nsqtw.core.policy.priority import HIGH, LOW, class_of
from nsqtw.core.segment import Segment

_BLOCK_BYTES = 1 << 20


class Sequences:
    """A set of sequences that is filled in ascending order."""

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._ends = array("Q")
        self._before = array("Q")
        """The number of sequences in the runs before."""

    def __len__(self) -> int:
        return self._before[-1] + self._ends[-1] - self._firsts[-1] if self._firsts else 0

    def add(self, first: int, end: int) -> None:
        """Add those from `first` up to `end`, which is not one of them."""
        if self._ends and self._ends[-1] == first:
            self._ends[-1] = end
        else:
            self._before.append(len(self))
            self._firsts.append(first)
            self._ends.append(end)

    def count(self, low: int, high: int) -> int:
        """Return how many are at least `low` and below `high`."""
        return max(0, self._below(high) - self._below(low))

    def has(self, sequence: int) -> bool:
        return self.count(sequence, sequence + 1) == 1

    def runs(self) -> list[tuple[int, int]]:
        """The runs: the first sequence of each, and one past its last."""
        return list(zip(self._firsts, self._ends, strict=True))

    def _below(self, sequence: int) -> int:
        run = bisect_left(self._firsts, sequence) - 1
        return self._before[run] + min(sequence, self._ends[run]) - self._firsts[run] if run >= 0 else 0


@define
class ChannelSequences:
    """Sequences of messages, apart by the channel that gets them; "" for all channels."""

    of: dict[str, Sequences] = field(factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.of.values()))

    def add(self, first: int, end: int, channel: str) -> None:
        """Add those from `first` up to `end`, which is not one of them."""
        self.of.setdefault(channel, Sequences()).add(first, end)

    def update(self, other: ChannelSequences) -> None:
        """Add all of another, which are behind these."""
        for channel, sequences in other.of.items():
            for first, end in sequences.runs():
                self.add(first, end, channel)

    def count(self, low: int, high: int) -> int:
        """Return how many are at least `low` and below `high`."""
        return sum(sequences.count(low, high) for sequences in self.of.values())

    def count_for(self, channel: str, low: int, high: int) -> int:
        """Return how many of these a channel gets."""
        return sum(self.of[name].count(low, high) for name in ("", channel) if name in self.of)

    def has(self, sequence: int, channel: str) -> bool:
        """Return whether a channel gets a message."""
        return self.count_for(channel, sequence, sequence + 1) == 1


@define
class ClassSequences:
    """Sequences of messages that have a priority other than normal, apart by their class."""

    of: dict[int, ChannelSequences] = field(factory=lambda: {HIGH: ChannelSequences(), LOW: ChannelSequences()})

    def add(self, segment: Segment) -> None:
        """Add the messages of a segment. Those that were published with a delay have no class."""
        if segment.headers is None or segment.delay_ms:
            return
        end = segment.first
        for number, run in groupby(map(class_of, segment.headers)):
            start, end = end, end + len([*run])
            if number in self.of:
                self.of[number].add(start, end, segment.channel)

    def update(self, other: ClassSequences) -> None:
        """Add all of another, which are behind these."""
        for number, sequences in other.of.items():
            self.of[number].update(sequences)


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
