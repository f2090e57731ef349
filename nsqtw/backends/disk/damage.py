"""
Damage in a log file: what is between one good record and the next, and what can be kept of it.

A place where no good record stands is one of these:

    a damaged record    its head is intact: `salvage` tells what is left; the next record is behind it
    damaged bytes       up to the next record that is whole, or of which something can be kept: all of it is lost
    the end             nothing of that kind follows: a torn write, older content of a recycled file, or damage
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from nsqtw.backends.disk.format import HIGHEST, Entry, Head
from nsqtw.backends.disk.log import Log
from nsqtw.backends.disk.open_files import Descriptor, LogFile
from nsqtw.backends.disk.salvage import WRONG_FRAMES, WRONG_HEADERS, salvage
from nsqtw.backends.disk.scan import Scan
from nsqtw.core.segment import BODY_AT, Segment

NO_RECORD: Final = "no record where one should start"
_MAX_MISSING: Final = 1 << 20
_MAX_TRIED: Final = 100
"""Heads of incomplete records that are looked for, in one search: a client may have written any number of magics."""


class Damage(NamedTuple):
    """Bytes of a file from `position` up to `stop` that are not all as they were written."""

    position: int
    stop: int
    first: int
    """The first sequence that may be there."""
    head: Head | None
    """None: what was there is not known."""
    segments: list[Segment]
    """The part that can be kept."""
    lost: list[tuple[int, int]]
    """The first sequence of each run that is lost, and one past its last; bounds without a `head`."""
    lost_count: int
    """The maximum number of messages; the exact one with a `head`."""
    is_end: bool
    """Nothing that can be kept follows."""
    without_headers: int = 0
    """How many of the messages that can be kept have lost their headers."""
    channel: str | None = ""
    """The only channel that gets the messages, "" if all do; None: one does, and it is not known which."""

    @property
    def why(self) -> str:
        """The kind of damage, in a few words."""
        if self.head is None:
            return NO_RECORD
        return WRONG_FRAMES if self.lost_count else WRONG_HEADERS

    @property
    def touched(self) -> int:
        """Messages in damaged bytes: those lost, and those that have lost their headers."""
        return self.lost_count + self.without_headers

    @property
    def is_torn(self) -> bool:
        """Whether the file ends before the record does."""
        return self.head is not None and self.position + self.head.size > self.stop


def examine(descriptor: Descriptor, scan: Scan, index: Sequence[Entry]) -> Damage:
    """
    Go past the damage at which `scan` stands, and not past a good record that the `index` of the file knows: where a
    head is damaged the inside of its record is searched, and a client may have written anything there. OSError.
    """
    position, first = scan.position, scan.above
    start = scan.entry_at()
    salvaged = salvage(descriptor, position, scan.size, scan.above, scan.below)
    if salvaged is not None:
        head = salvaged.head
        stop = min(position + head.size, scan.size)
        scan.pass_over(stop, head.end, head.put_count)
        return Damage(
            position,
            stop,
            head.first,
            head,
            salvaged.segments,
            salvaged.lost,
            salvaged.lost_count,
            stop >= scan.size or _next_record(descriptor, scan, stop, scan.above) is None,
            salvaged.without_headers,
            salvaged.channel,
        )
    after = _next_known(scan, start, _next_record(descriptor, scan, position + 1, first), index)
    stop, end = (scan.size, scan.below) if after is None else after
    # Gaps between sequences are normal, but a message has 34 bytes at least. Where the file ends, some may be missing.
    max_missing = (stop - position) // BODY_AT + 1 if after is not None or end == HIGHEST else _MAX_MISSING
    count = min(end - first, max_missing) if first < end else 0
    scan.pass_over(stop, end if after is not None else first, count if after is not None else 0)
    lost = [(first, end)] if first < end else []
    return Damage(position, stop, first, None, [], lost, count, after is None)


def is_torn_write(damage: Damage, known_end: int) -> bool:
    """
    Return whether damage at the end of the last file is taken for a write that was interrupted, and never acknowledged:
    positions.db knew the log up to `known_end`, and nothing of it can be proved to be whole.
    """
    if damage.head is None:
        return True
    return damage.first >= known_end and (damage.is_torn or not damage.segments)


def report(log: Log, file: LogFile, damage: Damage) -> None:
    """Report damage that a read came by, and count it."""
    where = f"{file.path} at {damage.position}"
    for first, end in damage.lost:
        log.report(log.topic, where, first, end - 1, damage.why)
        if damage.head is not None and not damage.head.delay_ms and damage.channel is not None:
            log.ledger.add_lost(log.topic, first, end, damage.channel)
    if damage.lost and damage.without_headers:
        why = f"{damage.without_headers} of the messages that are kept have lost their headers"
        log.report(log.topic, where, damage.first, damage.first - 1, why)
    if not damage.lost and damage.touched:
        log.report(log.topic, where, damage.first, damage.first - 1, f"{damage.why}; no message is lost")
    log.ledger.add(log.topic, lost=damage.lost_count, damaged=damage.touched)


def _next_record(descriptor: Descriptor, scan: Scan, at: int, above: int) -> tuple[int, int] | None:
    """
    The place and the first sequence of the next record, from `at` on, that is whole or of which something can be kept.
    The inside of a record whose head is intact, which a client wrote, is not searched.
    """
    tried = 0
    while at < scan.size:
        head = scan.head_at(at)
        if head is not None and scan.belongs(head):
            if head.is_tombstone or _is_whole_or_kept(descriptor, scan, at, above):
                return at, head.first
        elif head is None and tried < _MAX_TRIED:
            tried += 1
            incomplete = salvage(descriptor, at, scan.size, above, scan.below)
            if incomplete is not None and incomplete.segments:
                return at, incomplete.head.first
        at = scan.next_magic(at) if head is None else at + head.size
    return None


def _next_known(
    scan: Scan, start: Entry, after: tuple[int, int] | None, index: Sequence[Entry]
) -> tuple[int, int] | None:
    """The first good record that the index knows, if it is before the place `after`, which is searched for."""
    for entry in index:
        if start.position < entry.position < (scan.size if after is None else after[0]):
            if entry.sequence < start.sequence:
                continue
            scan.jump(entry)
            head = scan.head()
            is_good = head is not None and head.first == entry.sequence and scan.is_whole(head)
            scan.jump(start)
            if is_good:
                return entry.position, entry.sequence
    return after


def _is_whole_or_kept(descriptor: Descriptor, scan: Scan, at: int, above: int) -> bool:
    salvaged = salvage(descriptor, at, scan.size, above, scan.below)
    return salvaged is not None and bool(salvaged.segments)
