"""
Freeing space: unneeded files are unlinked, or kept as one spare file for reuse (overwriting pages that the system has
in memory costs half of appending new ones); closed files with few needed messages are rewritten with those.

A rewritten file keeps name, first sequence and sequences. It is written beside the old one, synced, and renamed over
it: the old one counts until then.

The last file is the one that grows. Once everything in it is finished, or nearly everything, it is closed, so that the
next commit opens a new file, and then freed like the others: an idle topic keeps less than CLOSE_BYTES on disk. A topic
that continues to write would open and free files all the time, so its last file is closed only when it has grown by
less than an eighth since the trim before (`CloseLast`). When the disk is nearly full, a file of any size is closed at
once, and when the broker stops, a file of the later format version, which an older nsqtw does not open.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from nsqtw.backends.disk.format import (
    HEADER_BYTES,
    HEADERS_VERSION,
    RECORD_BYTES,
    VERSION,
    Head,
    decode_header,
    encode_header,
    encode_record,
)
from nsqtw.backends.disk.log import TEMPORARY, Log
from nsqtw.backends.disk.open_files import Descriptor, LogFile
from nsqtw.backends.disk.scan import Scan
from nsqtw.backends.files import backend_error
from nsqtw.backends.trim_throttle import TrimPace
from nsqtw.core.segment import Segment, only

CLOSE_BYTES = 128 * 1024
"""A last file that is smaller is not worth a new one."""
_GROWTH_SHARE = 8
MAX_RECYCLED = 4
_WORTH = 4
"""A file is rewritten when what is wanted is less than its size by this factor."""
_WRITE_BYTES = 1024 * 1024


class RecycledFiles:
    """Sees to it that only the few logs that rolled last keep a spare file."""

    def __init__(self) -> None:
        self._logs: list[Log] = []

    def keep(self, log: Log) -> None:
        """The log has a new spare file. If there are too many, the oldest one is removed."""
        self.forget(log)
        self._logs.append(log)
        if len(self._logs) > MAX_RECYCLED:
            self._logs.pop(0).remove_spare()

    def give_back(self) -> None:
        """Space is short: no log keeps one."""
        while self._logs:
            self._logs.pop().remove_spare()

    def forget(self, log: Log) -> None:
        if log in self._logs:
            self._logs.remove(log)


class CloseLast:
    """Decides when the last file of `log` is closed. `is_short`: whether the disk is nearly full."""

    def __init__(self, log: Log, is_short: Callable[[], bool]) -> None:
        self._log = log
        self._is_short = is_short
        self._file: LogFile | None = None
        self._size = 0
        """The size of that file at the last check."""
        self.needs_another_pass = False
        """The file was growing. If it does not grow any more, it is closed at the next look."""
        self._is_stopping = False

    def begin_stop(self) -> bool:
        """Nothing is written any more. Returns whether a small file is closed for that."""
        self._is_stopping = True
        return self._bars_downgrade

    @property
    def is_worthwhile(self) -> bool:
        """Whether the last file is large enough to close, or the log has a spare file."""
        log_files = self._log.log_files
        if not log_files:
            return self._log.has_spare
        min_size = HEADER_BYTES if self._bars_downgrade or self._is_short() else CLOSE_BYTES
        return log_files[-1].size > min_size or self._log.has_spare

    @property
    def _bars_downgrade(self) -> bool:
        """
        Whether the last file is one with which an older nsqtw opens no log, because of its version, and no small file
        is likely to follow it: the broker stops, or it is of an earlier process.
        """
        log_files = self._log.log_files
        last = log_files[-1] if log_files else None
        return last is not None and (last.is_inherited or self._is_stopping) and last.version != VERSION

    def look(self, below: int) -> LogFile | None:
        """The last file, if it is closed now or has been: nothing in it or behind it is unread from `below` on."""
        log = self._log
        snapshot = log.snapshot()
        self.needs_another_pass = False
        if not snapshot.log_files or below < snapshot.end:
            self._file = None
            return None
        last = snapshot.log_files[-1]
        if not last.closed:
            size, counted = last.size, self._size if last is self._file else 0
            self._file, self._size = last, size
            if not self.is_worthwhile:
                return None
            is_last_chance = self._is_stopping and self._bars_downgrade  # and the save before was synced for it
            if (size - counted) * _GROWTH_SHARE > size and not (is_last_chance or self._is_short()):
                self.needs_another_pass = True
                return None
        closed = log.close_last()
        return closed if closed is last and log.end == snapshot.end else None


class LogTrim:
    """
    Frees space of one log. `forget` is told of every file that is no longer part of it; `is_short` says whether the
    disk is nearly full.
    """

    def __init__(
        self,
        log: Log,
        limit: int,
        recycled: RecycledFiles,
        forget: Callable[[LogFile], None],
        is_short: Callable[[], bool] = lambda: False,
    ) -> None:
        self._log = log
        self._limit = limit
        self._recycled_files = recycled
        self._forget = forget
        self._pace = TrimPace()
        self.last = CloseLast(log, is_short)

    @property
    def may_free(self) -> bool:
        """Whether there is a file that could be freed."""
        return len(self._log.log_files) > 1 or self.last.is_worthwhile

    def trim(self, below: int, keep: Iterable[int]) -> None:
        """See `IBackendQueue.trim`."""
        last = self.last.look(below)
        log_files = self._log.snapshot().log_files
        closed = [(file, after.first) for file, after in pairwise(log_files) if after.first <= below]
        if last is not None and log_files and log_files[-1] is last:
            closed.append((last, self._log.end))
            self._remove_spare()
        if not closed:
            return
        if not self._pace.is_due(len(closed)):
            self.last.needs_another_pass = self.last.needs_another_pass or last is not None
            return
        try:
            wanted_of_each = list(zip(closed, _wanted_of_each(closed, keep), strict=True))
            counts = [len(keep_sequences) for _, keep_sequences in wanted_of_each]
            self._pace.looked_at(sum(counts), sum(map(bool, counts)))
            # Before anything is rewritten: on a full disk this makes the space for it.
            self._free([file for (file, _), keep_sequences in wanted_of_each if not keep_sequences])
            for (file, end), keep_sequences in wanted_of_each:
                if keep_sequences and not self._keep_only(file, end, keep_sequences):
                    self._free([file])
            if last is not None:  # the log is idle, and one of the freed files may be its spare now
                self._remove_spare()
        except OSError as error:
            self.last.needs_another_pass = self.last.needs_another_pass or last is not None
            raise backend_error(error, f"trim of topic {self._log.topic}") from error

    def _remove_spare(self) -> None:
        self._recycled_files.forget(self._log)
        self._log.remove_spare()

    def _free(self, unwanted: Sequence[LogFile]) -> None:
        self._log.drop(unwanted)
        failure: OSError | None = None
        for file in unwanted:
            self._forget(file)
            try:
                self._log.remove_index(file)
                self._remove(file)
            except FileNotFoundError:
                continue
            except OSError as error:
                # The next start finds this file and frees it; the others must not wait for that.
                failure = error
        if failure is not None:
            raise failure

    def _remove(self, file: LogFile) -> None:
        if not self._log.has_spare and not (file.sealed or file.closed) and 2 * file.size >= self._limit:
            self._log.give_spare(file.path)
            self._recycled_files.keep(self._log)
        else:
            self._log.files.unlink(file.path)

    def _keep_only(self, file: LogFile, end: int, keep_sequences: Sequence[int]) -> bool:
        """Rewrite the file if that is worth it. False: what is wanted is not in it."""
        if file.examined is not None and len(keep_sequences) * 4 > file.examined * 3:
            return True
        try:
            wanted_bytes = 0
            for _, head, kept in self._records(file, end, keep_sequences):
                wanted_bytes += RECORD_BYTES + head.length * len(kept) // head.messages
            if not wanted_bytes:
                return False
            if wanted_bytes * _WORTH < file.size:
                self._rewrite(file, end, keep_sequences)
            else:
                file.examined = len(keep_sequences)
        except (FileNotFoundError, _DamagedError):
            # Whoever reads here reports it. The file stays as it is, for a closer look.
            file.examined = 0
        return True

    def _rewrite(self, file: LogFile, end: int, keep_sequences: Sequence[int]) -> None:
        log = self._log
        temporary = file.path + TEMPORARY
        with suppress(FileNotFoundError):
            log.files.unlink(temporary)
        descriptor = Descriptor(log.files, log.files.open(temporary, create=True))
        try:
            buffers = [self._header(file)]
            waiting = size = 0
            for scan, head, kept in self._records(file, end, keep_sequences):
                for segment in _survivors(scan, head, kept):
                    record = encode_record(segment)
                    buffers += record
                    waiting += len(record[1])
                if waiting >= _WRITE_BYTES:
                    size = descriptor.write(buffers, size)
                    buffers, waiting = [], 0
            size = descriptor.write(buffers, size)
            descriptor.sync()
            log.remove_index(file)
        except BaseException:
            with suppress(OSError):
                log.files.unlink(temporary)
            raise
        rewritten = LogFile(file.path, file.first, size, file.put_total)
        rewritten.closed = file.closed
        rewritten.version, rewritten.is_inherited = file.version, file.is_inherited
        log.replace(file, rewritten, temporary)
        self._forget(file)
        log.files.sync_directory(log.directory)

    def _header(self, file: LogFile) -> bytes:
        """The header of a file as it is; a new one only when that is damaged."""
        descriptor = self._log.descriptor(file)
        data = descriptor.read(HEADER_BYTES, 0) if descriptor is not None else b""
        header = decode_header(data)
        if header is not None and header.first == file.first:
            return data
        return encode_header(file.first, file.put_total, HEADERS_VERSION)

    def _records(
        self, file: LogFile, end: int, keep_sequences: Sequence[int]
    ) -> Iterator[tuple[Scan, Head, Sequence[int]]]:
        """The records with wanted sequences, and which these are. `_DamagedError` when that cannot be told."""
        log = self._log
        descriptor = log.descriptor(file)
        if descriptor is None:
            raise FileNotFoundError(file.path)
        log.load_index(file)
        scan = Scan(descriptor, file.entry_at(file.first - 1), file.size, end)
        number = 0
        while number < len(keep_sequences) and scan.position < scan.size:
            entry = file.entry_at(keep_sequences[number])
            if entry.position > scan.position:
                scan.jump(entry)
            if scan.position in file.salvaged:
                raise _DamagedError
            if scan.position in file.damaged:
                scan.position = file.damaged[scan.position]
                continue
            head = scan.head()
            if head is not None and head.is_tombstone:
                scan.skip(head)
                continue
            if head is None or (scan.position == entry.position > HEADER_BYTES and head.first != entry.sequence):
                raise _DamagedError
            number = bisect_left(keep_sequences, head.first, number)
            stop = bisect_left(keep_sequences, head.end, number)
            if stop > number:
                yield scan, head, keep_sequences[number:stop]
                number = stop
            scan.skip(head)


class _DamagedError(Exception):
    """A record that is needed to go on is damaged."""


def _survivors(scan: Scan, head: Head, kept: Sequence[int]) -> list[Segment]:
    segment = scan.segment(head)
    if segment is None:
        raise _DamagedError
    return only(segment, kept)


def _wanted_of_each(closed: Sequence[tuple[LogFile, int]], keep: Iterable[int]) -> list[Sequence[int]]:
    """Return for each file, given with its end, those of the sequences `keep` that may be in it."""
    keep_sequences: list[Sequence[int]] = []
    sequences = iter(keep)
    sequence = next(sequences, None)
    for file, end in closed:
        of_file = array("Q")
        while sequence is not None and sequence < end:
            if sequence >= file.first:
                of_file.append(sequence)
            sequence = next(sequences, None)
        keep_sequences.append(of_file)
    return keep_sequences
