"""
Rewriting a damaged log file: good records as they are, what could be kept of damaged ones as records of its own, and a
tombstone for each run of messages that is lost. So no later read or start finds the damage again, and the numbers of
messages that were put stay right. The file as it was is set aside.

The new file is written beside the old one, synced, and renamed over it: the old one counts until then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from attrs import define, field

from nsqtw.backends.disk.damage import Damage, examine
from nsqtw.backends.disk.format import (
    HEADER_BYTES,
    HEADERS_VERSION,
    VERSION,
    Entry,
    decode_header,
    encode_header,
    encode_record,
    encode_tombstone,
)
from nsqtw.backends.disk.log import TEMPORARY, Log
from nsqtw.backends.disk.open_files import INDEX_BYTES, Descriptor, LogFile
from nsqtw.backends.disk.scan import Scan
from nsqtw.backends.files import Files

_BLOCK_BYTES: Final = 1 << 20
_MAX_SEQUENCES: Final = (1 << 32) - 1
"""The part of one record."""


@define
class Repaired:
    """The contents of a rewritten file."""

    damages: list[Damage] = field(factory=list)
    index: list[Entry] = field(factory=list)
    size: int = HEADER_BYTES
    end: int = 0
    """One past its highest sequence."""
    put_total: int = 0
    version: int = VERSION
    """Its format version."""

    @property
    def lost_count(self) -> int:
        return sum(damage.lost_count for damage in self.damages)

    @property
    def touched(self) -> int:
        return sum(damage.touched for damage in self.damages)

    @property
    def lost(self) -> tuple[int, int]:
        """The first and the last sequence that is lost; an empty range when none is."""
        runs = [run for damage in self.damages for run in damage.lost]
        if not runs:
            first = self.damages[0].first if self.damages else 0
            return first, first - 1
        return runs[0][0], runs[-1][1] - 1

    def summary(self) -> str:
        """Return how many messages the damage cost."""
        kept = sum(segment.count for damage in self.damages for segment in damage.segments)
        bare = sum(damage.without_headers for damage in self.damages)
        text = f"damaged records: {self.lost_count} lost, {kept} of their messages kept"
        return f"{text}, {bare} of these without their headers" if bare else text


def write_repaired(files: Files, old: Descriptor, file: LogFile, stop: int, below: int, temporary: str) -> Repaired:
    """
    Write what can be kept of a log file, looked at up to `stop` and with sequences under `below`, into a new one at the
    path `temporary`. It is on stable storage on return. OSError; then there is no such file.
    """
    with suppress(FileNotFoundError):
        files.unlink(temporary)
    new = Descriptor(files, files.open(temporary, create=True))
    try:
        return _Rewrite(old, new, file, stop, below).run()
    except BaseException:
        with suppress(OSError):
            files.unlink(temporary)
        raise


def repair_file(log: Log, file: LogFile, stop: int, below: int) -> tuple[LogFile, Repaired, str]:
    """
    Let a rewritten file take the place of a damaged one, which is set aside: the new file, what is in it, and where
    the old one is kept. OSError; then nothing is changed.
    """
    descriptor = log.descriptor(file)
    if descriptor is None:
        raise FileNotFoundError(file.path)
    temporary = file.path + TEMPORARY
    repaired = write_repaired(log.files, descriptor, file, stop, below, temporary)
    try:
        kept = log.quarantine.keep(file.path)
        # Its places mean other bytes in the new file.
        log.remove_index(file)
        new = LogFile(file.path, file.first, repaired.size, file.put_total)
        new.index = repaired.index
        new.version, new.is_inherited = repaired.version, file.is_inherited
        log.replace(file, new, temporary)
    except BaseException:
        with suppress(OSError):
            log.files.unlink(temporary)
        raise
    log.files.sync_directory(log.directory)
    log.ledger.add_file(log.quarantine.name_of(kept))
    log.ledger.add(log.topic, set_aside=repaired.lost_count)
    return new, repaired, kept


def repair_closed(log: Log, forget: Callable[[LogFile], None]) -> None:
    """
    Rewrite those damaged files that do not grow any more, in the writer thread; `forget` is told of the old ones. The
    last one has to wait until it is closed. A file that cannot be rewritten stays as it is: reads pass over its damage.
    """
    snapshot = log.snapshot()
    for number, file in enumerate(snapshot.log_files):
        if file is snapshot.log_files[-1] and not file.closed:
            break
        if file.needs_repair and not file.is_removed:
            _repair_if_possible(log, file, snapshot.size_of(number), snapshot.below(number))
            if file.is_removed:
                forget(file)
    log.needs_repair = any(file.needs_repair for file in log.log_files)


def repair_all(log: Log) -> None:
    """Rewrite all damaged files, when nothing is written any more."""
    snapshot = log.snapshot()
    for number, file in enumerate(snapshot.log_files):
        if file.needs_repair and not file.is_removed:
            _repair_if_possible(log, file, snapshot.size_of(number), snapshot.below(number))


def _repair_if_possible(log: Log, file: LogFile, stop: int, below: int) -> None:
    file.needs_repair = False
    try:
        _, repaired, kept = repair_file(log, file, stop, below)
    except OSError as error:
        what = f"its damage cannot be taken out of it: {(error.strerror or str(error)).lower()}"
    else:
        what = f"{repaired.summary()}; the file as it was is {kept}"
    log.report(log.topic, file.path, file.first, file.first - 1, what)


class _Rewrite:
    def __init__(self, old: Descriptor, new: Descriptor, file: LogFile, stop: int, below: int) -> None:
        self._old = old
        self._new = new
        self._index = file.index or []
        self._scan = Scan(old, Entry(file.first, HEADER_BYTES, file.put_total), stop, below, _BLOCK_BYTES)
        self._repaired = Repaired(put_total=file.put_total, end=file.first)
        self._file = file

    def run(self) -> Repaired:
        scan, damages = self._scan, self._repaired
        header = decode_header(self._old.read(HEADER_BYTES, 0))
        damages.version = max(VERSION, self._file.version, header.version if header is not None else 0)
        start = scan.position
        while scan.position < scan.size:
            head = scan.head()
            if head is not None and scan.is_whole(head):
                if head.has_block:
                    damages.version = HEADERS_VERSION
                at = damages.size + scan.position - start
                self._record(head.first, at, scan.put_total)
                scan.skip(head)
                continue
            self._copy(start)
            foreign = scan.is_foreign()
            damage = examine(self._old, scan, self._index)
            start = scan.position
            if foreign and damage.head is None and damage.is_end:
                break
            self._take(damage)
        self._copy(start)
        damages.end, damages.put_total = scan.above, scan.put_total
        self._new.write([encode_header(self._file.first, self._file.put_total, damages.version)], 0)
        self._new.sync()
        return damages

    def _copy(self, start: int) -> None:
        """Copy good records, from `start` up to where the scan is, byte by byte."""
        position = start
        while position < self._scan.position:
            data = self._old.read(min(_BLOCK_BYTES, self._scan.position - position), position)
            if not data:
                raise OSError("the file ends too early")
            self._repaired.size = self._new.write([data], self._repaired.size)
            position += len(data)

    def _take(self, damage: Damage) -> None:
        """Write what is left of damage."""
        damages = self._repaired
        damages.damages.append(damage)
        records: list[tuple[int, list[bytes]]] = [
            (segment.first, [*encode_record(segment)]) for segment in damage.segments
        ]
        if damage.head is not None and damage.head.has_block:
            damages.version = HEADERS_VERSION
        lost = damage.lost
        if damage.head is None and damage.is_end and damage.lost:
            # How far it went is not known, and nothing follows that would tell.
            lost = [(damage.first, damage.first + max(1, damage.lost_count))]
            self._scan.pass_over(self._scan.position, lost[0][1], damage.lost_count)
        for first, end in lost:
            count = end - first if damage.head is not None else damage.lost_count
            records.append((first, [encode_tombstone(max(first, end - _MAX_SEQUENCES), end, count)]))
        for _, buffers in sorted(records, key=lambda record: record[0]):
            damages.size = self._new.write(buffers, damages.size)

    def _record(self, sequence: int, position: int, put_total: int) -> None:
        index = self._repaired.index
        if position - (index[-1].position if index else 0) >= INDEX_BYTES:
            index.append(Entry(sequence, position, put_total))
