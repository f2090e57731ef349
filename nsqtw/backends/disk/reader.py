"""
Reading a log: by sequence, in blocks, always with both checksums.

To find a sequence: the file by its first sequence, the nearest earlier record its index knows, and from there
from head to head. A reader that goes on where it stopped is spared this, because where reads ended is remembered.

Damage is reported once; what can be kept of it (`salvage`) is returned like everything else, and the rest is
passed over. Bad bytes at the end of a file, without a good record behind them, are, in order: older content of a
recycled file or a commit that was undone (nothing is missing), or a record that is lost.
"""

# mypyc: compiled

from __future__ import annotations

from typing import Final

from nsqtw.backends.disk.damage import examine, report
from nsqtw.backends.disk.format import HEADER_BYTES, HEADERS_VERSION, Entry, Head
from nsqtw.backends.disk.log import Log, Snapshot
from nsqtw.backends.disk.open_files import INDEX_BYTES, LogFile
from nsqtw.backends.disk.scan import BLOCK_BYTES, Scan
from nsqtw.backends.files import backend_error
from nsqtw.core.segment import BODY_AT, Segment

MAX_PLACES: Final = 256
"""The number of remembered ends of reads; a channel that reads on needs one."""

_LARGEST_BLOCK: Final = 1024 * 1024
_HEADS: Final = 250
"""Heads of records that `directed` looks at."""


class RecordReader:
    """Reads one log. All calls come from one thread."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._entries: dict[int, tuple[LogFile, Entry]] = {}

    def read(self, start: int, limit: int) -> list[Segment]:
        """See `IBackendQueue.read`."""
        if start >= self._log.end:
            return []
        try:
            while True:
                segments: list[Segment] = []
                if self._read(self._log.snapshot(), start, limit, segments):
                    return segments
        except OSError as error:
            raise backend_error(error, f"read of topic {self._log.topic}") from error

    def directed(self, start: int) -> tuple[list[tuple[int, int, str]], int]:
        """See `IDirectedQueue.directed`. Files of version 2 are passed as a whole, and other records by their heads."""
        segments: list[Segment] = []
        try:
            end = self._look(self._log.snapshot(), start, segments)
        except OSError as error:
            raise backend_error(error, f"read of topic {self._log.topic}") from error
        return [(segment.first, segment.end, segment.channel) for segment in segments if segment.channel], end

    def _look(self, snapshot: Snapshot, start: int, segments: list[Segment]) -> int:
        """Add those to `segments` that `directed` finds, and some others. Returns the end of what was looked at."""
        reached, heads = start, _HEADS
        for number in range(snapshot.number_of(start), len(snapshot.log_files)):
            file, below = snapshot.log_files[number], snapshot.below(number)
            if self._log.version_of(file) < HEADERS_VERSION:
                reached, heads = max(reached, below), heads - 1
                continue
            scan = self._scan(snapshot, number, reached, BLOCK_BYTES)
            while scan is not None and scan.position < scan.size:
                if not heads:
                    self._remember(file, scan.entry_at())
                    return max(reached, scan.above)
                head = scan.head()
                is_wanted = head is not None and head.is_directed and head.end > start
                segment = scan.segment(head) if head is not None and is_wanted else None
                if head is not None and (segment is not None or not is_wanted):
                    segments += [] if segment is None else [segment]
                    self._pass(file, scan, head)
                elif not file.is_removed:
                    self._pass_damage(file, scan, start, segments)
                if file.is_removed:  # it was replaced meanwhile: look again
                    return max(reached, scan.above)
                heads -= 1
            reached = max(reached, below)
        return max(reached, snapshot.end)

    def _read(self, snapshot: Snapshot, start: int, limit: int, segments: list[Segment]) -> bool:
        """Fill `segments`. False when a file was replaced meanwhile, before anything was found: look again."""
        room = limit
        for number in range(snapshot.number_of(start), len(snapshot.log_files)):
            scan = self._scan(snapshot, number, start, limit)
            file = snapshot.log_files[number]
            if scan is not None:
                room = self._collect(file, scan, start, room, segments)
            if file.is_removed:
                return bool(segments)
            if room <= 0:
                break
        return True

    def _collect(self, file: LogFile, scan: Scan, start: int, room: int, segments: list[Segment]) -> int:
        """Add the segments of a file from `start` on. The rest of `room`."""
        while scan.position < scan.size and room > 0:
            room = scan.take(start, room, segments)
            if room <= 0 or scan.position >= scan.size:
                break
            head = scan.head()
            if head is not None and (head.end <= start or head.is_tombstone):
                self._pass(file, scan, head)
                continue
            if head is not None and segments and head.length > room:
                room = 0
                break
            segment = scan.segment(head) if head is not None else None
            if head is not None and segment is not None:
                segments.append(segment)
                room -= head.length
                self._pass(file, scan, head)
            elif file.is_removed:
                return 0
            else:
                room -= self._pass_damage(file, scan, start, segments)
        self._remember(file, scan.entry_at())
        return room

    def _scan(self, snapshot: Snapshot, number: int, start: int, limit: int) -> Scan | None:
        """Stand at or before the record of `start`. None when the file is gone, or missing."""
        file = snapshot.log_files[number]
        try:
            descriptor = self._log.descriptor(file)
        except FileNotFoundError:
            self._pass_missing(file, snapshot.below(number))
            return None
        if descriptor is None:
            return None
        block = min(max(limit, BLOCK_BYTES), _LARGEST_BLOCK)
        size, below = snapshot.size_of(number), snapshot.below(number)
        scan_at, entry = self._entries.get(start, (None, None))
        if scan_at is file and entry is not None:
            return Scan(descriptor, entry, size, below, block)
        self._log.load_index(file)
        entry = file.entry_at(start)
        scan = Scan(descriptor, entry, size, below, block)
        while entry.position > HEADER_BYTES and not self._is_record(scan, entry):
            entry = file.entry_at(entry.sequence - 1)
            scan.jump(entry)
        return scan

    def _is_record(self, scan: Scan, entry: Entry) -> bool:
        head = scan.head()
        return head is not None and head.first == entry.sequence

    def _pass(self, file: LogFile, scan: Scan, head: Head) -> None:
        """Go past a record, and let the index know it when it has none near. The last file's writer always has."""
        index = file.index
        if index is not None and scan.position - (index[-1].position if index else 0) >= INDEX_BYTES:
            index.append(Entry(head.first, scan.position, scan.put_total))
        scan.skip(head)

    def _remember(self, file: LogFile, entry: Entry) -> None:
        self._entries[entry.sequence] = (file, entry)
        if len(self._entries) > MAX_PLACES:
            del self._entries[next(iter(self._entries))]

    def _pass_damage(self, file: LogFile, scan: Scan, start: int, segments: list[Segment]) -> int:
        """Go past what is no good record here, adding what can be kept of it. How many bytes of frames that is."""
        position = scan.position
        if position in file.damaged and position not in file.salvaged:
            scan.position = file.damaged[position]
            return 0
        descriptor = self._log.descriptor(file)
        if descriptor is None:
            scan.position = scan.size
            return 0
        foreign = scan.is_foreign()
        damage = examine(descriptor, scan, file.index or ())
        kept = [segment for segment in damage.segments if segment.end > start]
        segments += kept
        if position not in file.damaged:
            if damage.segments:
                file.salvaged.add(position)
            file.damaged[position] = damage.stop
            if not (foreign and damage.head is None and damage.is_end):
                self._log.needs_repair = file.needs_repair = True
                if file is self._log.log_files[-1]:
                    file.sealed = True  # the next commit begins another one, and then this one can be rewritten
                report(self._log, file, damage)
        return sum([len(segment.frames) for segment in kept])

    def _pass_missing(self, file: LogFile, below: int) -> None:
        if HEADER_BYTES not in file.damaged:
            file.damaged[HEADER_BYTES] = file.size
            self._log.report(self._log.topic, file.path, file.first, below - 1, "the file is missing")
            lost = min(below - file.first, max(0, file.size - HEADER_BYTES) // BODY_AT + 1)
            self._log.ledger.add(self._log.topic, lost=lost, damaged=lost)
