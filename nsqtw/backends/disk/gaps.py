"""
Missing log files, reported at a start.

Sequences have gaps, so a missing file leaves no trace in them. But the header of each file has the number of messages
put before it: where that is more than the file before ends with, something stood between. This holds from the place on
where the slowest channel is; files before it lose messages by trimming. For each file there only its last records are
looked at, from the last one its index knows.
"""

from __future__ import annotations

from itertools import pairwise

from nsqtw.backends.disk.format import HEADER_BYTES, HIGHEST, decode_header
from nsqtw.backends.disk.log import Log
from nsqtw.backends.disk.open_files import LogFile
from nsqtw.backends.disk.scan import Scan


def report_gaps(log: Log, below: int, expected: int) -> bool:
    """
    Report the messages from `below` on that are in no file. At least `expected` should be there. Returns whether a file
    has more messages than the header of the next one counts: those of a commit that failed and could not be undone.
    OSError.
    """
    snapshot = log.snapshot()
    log_files = snapshot.log_files[snapshot.number_of(below) :]
    if len(log_files) > 1 and _ends_by(log, log_files[0], log_files[1], below):
        # What was between it and the next file was freed: no channel wants what is below `below`.
        del log_files[0]
    if not log_files:
        return False
    uncounted = _report_between(log, log_files)
    first = log_files[0]
    if below < first.first:
        before = _put_total_before(log, first) if _counts_are_right(log, snapshot.log_files[-1]) else None
        missing = 0 if before is None else expected - uncounted - (log.put_total - before)
        if missing > 0:
            why = f"some of them are in none of its files, the first of which is {first.path}: {_messages(missing)}"
            log.report(log.topic, log.directory, below, log.end - 1, why)
    return uncounted > 0


def _ends_by(log: Log, file: LogFile, after: LogFile, below: int) -> bool:
    """Return whether a file has nothing from `below` on."""
    ended = _end_of(log, file, after.first)
    return ended is not None and ended[0] <= below


def _report_between(log: Log, log_files: list[LogFile]) -> int:
    """Report what is missing between neighbours. How many messages are in them and in no header's count."""
    uncounted = 0
    for file, after in pairwise(log_files):
        ended = _end_of(log, file, after.first)
        began = _put_total_before(log, after)
        if ended is None or began is None:
            continue
        uncounted += max(0, ended[1] - began)
        if began > ended[1]:
            # Where the file before goes on to this one something was taken out of its middle, by a repair.
            missing_from = ended[0] if ended[0] < after.first else file.first
            _report(log, after, missing_from, began - ended[1], "a file, or a part of the one before, is missing")
    return uncounted


def _report(log: Log, file: LogFile, first: int, count: int, why: str) -> None:
    log.report(log.topic, f"{log.directory} before {file.path}", first, file.first - 1, f"{why}: {_messages(count)}")


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _counts_are_right(log: Log, last: LogFile) -> bool:
    """Return whether the log knows how many messages were put: damage in the last file lets some of them uncounted."""
    return not last.damaged and _put_total_before(log, last) is not None


def _put_total_before(log: Log, file: LogFile) -> int | None:
    """Return the header; None when it is damaged."""
    descriptor = log.descriptor(file)
    if descriptor is None:
        return None
    header = decode_header(descriptor.read(HEADER_BYTES, 0))
    return header.put_total if header is not None and header.first == file.first else None


def _end_of(log: Log, file: LogFile, below: int) -> tuple[int, int] | None:
    """One past the last sequence, and how many messages were put up to there; None when damage keeps that unknown."""
    descriptor = log.descriptor(file)
    before = _put_total_before(log, file)
    if descriptor is None or before is None:
        return None
    log.load_index(file)
    scan = Scan(descriptor, file.entry_at(HIGHEST), file.size, below)
    if scan.position == HEADER_BYTES:
        scan.put_total = before
    while scan.position < scan.size:
        head = scan.head()
        if head is None:
            return None
        scan.skip(head)
    return scan.above, scan.put_total
