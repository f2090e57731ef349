"""
Opening of a log, also after a crash of the last process that wrote it.

Only the last file is read, from the last record in its index file: a few MB. The first position without a good record
is the end of the log if nothing that can be kept follows, and if positions.db knows of nothing there; else it is
damage: the file is rewritten with everything that can be kept (`repair`), and the original is quarantined.

Bytes behind the end are a torn write and truncated. A last file without any record was being created at a crash, and is
removed. Both are quarantined first where positions.db knows messages at that position.
"""

from __future__ import annotations

import os
from contextlib import suppress

from nsqtw.backends.disk.damage import examine, is_torn_write
from nsqtw.backends.disk.format import (
    HEADER_BYTES,
    HEADERS_VERSION,
    HIGHEST,
    VERSION,
    Entry,
    decode_header,
    first_of_index,
    first_of_log,
)
from nsqtw.backends.disk.log import TEMPORARY, Log
from nsqtw.backends.disk.open_files import AHEAD_FROM, INDEX_BYTES, Descriptor, LogFile
from nsqtw.backends.disk.repair import repair_file
from nsqtw.backends.disk.scan import Scan
from nsqtw.backends.files import backend_error
from nsqtw.core.segment import BODY_AT
from nsqtw.errors import BackendError

_BLOCK_BYTES = 256 * 1024


def open_log(log: Log, known_end: int = 0) -> Log:
    """
    Find the files of a log and its end, so that it can be read and appended to. `known_end`: positions.db knew it up to
    this sequence. BackendError when it cannot be opened.
    """
    try:
        _list_files(log)
        while log.log_files and not _recover(log, log.log_files[-1], known_end):
            _remove_last(log, log.log_files[-1], known_end)
        for last in log.log_files[-1:]:
            last.closed = last.closed or log.files.links(last.path) > 1
    except OSError as error:
        raise backend_error(error, f"open of topic {log.topic}") from error
    return log


def _remove_last(log: Log, file: LogFile, known_end: int) -> None:
    """Take a last file out of the log in which no record is whole."""
    if file.first < known_end:
        try:
            kept = log.quarantine.move(file.path)
            log.ledger.add_file(log.quarantine.name_of(kept))
            what = f"no record is whole in the last file, which is set aside as {kept}"
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            what = f"no record is whole in the last file, which is left where it is, for it cannot be set aside: {why}"
    else:
        log.files.unlink(file.path)
        what = "no record is whole in the last file, which is removed: it was just begun, or all of it is damaged"
    log.report(log.topic, file.path, file.first, file.first - 1, f"{what}; {_number_of_bytes(file.size)}")
    log.drop([file])
    log.remove_index(file)


def _list_files(log: Log) -> None:
    """Find the log files, and remove what an interrupted trim, roll or index left behind."""
    names = log.files.names(log.directory)
    firsts = {first for first in map(first_of_log, names) if first is not None}
    for name in names:
        index_of = first_of_index(name)
        if name.endswith(TEMPORARY) or (index_of is not None and index_of not in firsts):
            log.files.unlink(os.path.join(log.directory, name))
    log.log_files = [LogFile(log.path(first), first, log.files.size(log.path(first)), 0) for first in sorted(firsts)]
    for file in log.log_files:
        file.is_inherited = True


def _recover(log: Log, file: LogFile, known_end: int) -> bool:
    """Find the end of the last file. False when it has no record."""
    descriptor = log.open_files.open(file)
    file.put_total = _put_total_of_header(file, descriptor)
    log.load_index(file)
    file.index = _believable(log, file, descriptor)
    scan = Scan(descriptor, file.entry_at(HIGHEST), file.size, HIGHEST, _BLOCK_BYTES)
    is_damaged = _walk(file, scan, descriptor, known_end)
    if scan.position == HEADER_BYTES:
        return False
    log.end = scan.above
    log.put_total = scan.put_total
    if is_damaged:
        _repair(log, file, scan)
    elif file.size > scan.position:
        _truncate(log, file, scan, descriptor, known_end)
    elif file.size > AHEAD_FROM:
        with suppress(OSError):  # space that was kept ahead, and is not in the way
            descriptor.truncate(file.size)
    return True


def _repair(log: Log, file: LogFile, scan: Scan) -> None:
    """Let the last file, which is damaged before the place of `scan`, be one without damage."""
    log.is_damaged = True
    try:
        new, repaired, kept = repair_file(log, file, scan.position, HIGHEST)
    except OSError as error:
        # Reads report the damage and pass over it. What comes next must stand behind what is left here.
        why = f"the file is damaged, and cannot be rewritten: {(error.strerror or str(error)).lower()}"
        log.report(log.topic, file.path, scan.above, scan.above - 1, why)
        file.size = scan.position
        log.needs_repair = file.needs_repair = file.sealed = True
        return
    log.end, log.put_total = repaired.end, repaired.put_total
    log.ledger.add(log.topic, lost=repaired.lost_count, damaged=repaired.touched)
    log.report(log.topic, file.path, *repaired.lost, f"{repaired.summary()}; the file as it was is {kept}")
    log.open_files.forget(new)


def _truncate(log: Log, file: LogFile, scan: Scan, descriptor: Descriptor, known_end: int) -> None:
    """Cut off what is behind the last record."""
    is_older = scan.has_older()
    what = "older content of a file that was used again" if is_older else "no whole record"
    why = f"the last {_number_of_bytes(file.size - scan.position)} are {what} and are cut off"
    head = scan.head()
    file_size, file.size = file.size, scan.position
    try:
        # A record of full length may have been acknowledged since positions.db was saved last.
        if head is not None or (scan.above < known_end and not is_older):
            kept = log.quarantine.keep_part(file.path, scan.position, file_size)
            log.ledger.add_file(log.quarantine.name_of(kept))
            # Losses are counted by core/recovery, which knows how many messages there were.
            max_count = (file_size - scan.position) // BODY_AT + 1
            expected = head.messages if head is not None else known_end - scan.above
            log.ledger.add(log.topic, set_aside=min(expected, max_count))
            why = f"{why}, and kept as {kept}"
        descriptor.truncate(file.size)
    except OSError:
        file.sealed = True
    log.report(log.topic, f"{file.path} at {scan.position}", scan.above, scan.above - 1, why)


def _number_of_bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _walk(file: LogFile, scan: Scan, descriptor: Descriptor, known_end: int) -> bool:
    """Go to the end of the last file, and let its index be complete. Whether there is damage before the end."""
    index = file.index = file.index or []
    is_damaged = False
    while True:
        head = scan.head()
        if head is not None and scan.is_whole(head):
            if scan.position - (index[-1].position if index else 0) >= INDEX_BYTES:
                index.append(Entry(head.first, scan.position, scan.put_total))
            scan.skip(head)
            continue
        if scan.position >= scan.size:
            return is_damaged
        entry = scan.entry_at()
        damage = examine(descriptor, scan, index)
        if damage.is_end and is_torn_write(damage, known_end):
            scan.jump(entry)
            return is_damaged
        is_damaged = True


def _put_total_of_header(file: LogFile, descriptor: Descriptor) -> int:
    header = decode_header(descriptor.read(HEADER_BYTES, 0))
    if header is None or header.first != file.first:
        # A damaged header, or that of the file that was recycled for this one: the records speak for themselves.
        file.version = HEADERS_VERSION
        return 0
    if header.version > HEADERS_VERSION:
        raise BackendError(f"{file.path} has format version {header.version}; this nsqtw knows {HEADERS_VERSION}")
    file.version = header.version
    # An older nsqtw, which would take records of this version for damage, refuses files that say so.
    file.sealed = header.version < VERSION
    return header.put_total


def _believable(log: Log, file: LogFile, descriptor: Descriptor) -> list[Entry]:
    """The index as far as there is a good record where its last entry says so."""
    index = file.index or []
    while index:
        scan = Scan(descriptor, index[-1], file.size, HIGHEST, _BLOCK_BYTES)
        head = scan.head()
        if head is not None and head.first == index[-1].sequence and scan.is_whole(head):
            break
        index = index[:-1]
    file.saved = len(index)
    return index
