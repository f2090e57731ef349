"""
Opening a log after whatever happened to the last process that wrote it.

Only the last file is looked into, from the last record its index file knows: a few MB. The first place where
no good record stands is the end of the log if no good record with a larger sequence comes behind; else it is
damage, which is reported and skipped. What stands behind the end is cut off. A last file without any record is
what a crash left of a roll, and is removed.
"""

from __future__ import annotations

import os
from contextlib import suppress

from nsqtw.backends.disk_file import AHEAD_FROM, INDEX_BYTES, Descriptor, LogFile, OpenFiles
from nsqtw.backends.disk_format import (
    HEADER_BYTES,
    HIGHEST,
    VERSION,
    Entry,
    decode_header,
    first_of_index,
    first_of_log,
)
from nsqtw.backends.disk_log import TEMPORARY, Log
from nsqtw.backends.disk_scan import Scan
from nsqtw.backends.files import Files, backend_error
from nsqtw.errors import BackendError
from nsqtw.interfaces import Report

_BLOCK_BYTES = 256 * 1024


def open_log(topic: str, directory: str, files: Files, open_files: OpenFiles, report: Report) -> Log:
    """The log of a topic, ready to be read and appended to. BackendError when it cannot be opened."""
    log = Log(topic, directory, files, open_files, report)
    try:
        _list_files(log)
        while log.log_files and not _recover(log, log.log_files[-1]):
            file = log.log_files[-1]
            note = "no record is whole in the last file, which is removed: it was just begun, or all of it is damaged"
            log.report(topic, file.path, file.first, file.first - 1, f"{note}; {_number_of_bytes(file.size)}")
            log.drop([file])
            log.remove_index(file)
            files.unlink(file.path)
    except OSError as error:
        raise backend_error(error, f"open of topic {topic}") from error
    return log


def _list_files(log: Log) -> None:
    """Find the log files, and remove what an interrupted trim, roll or index left behind."""
    names = log.files.names(log.directory)
    firsts = {first for first in map(first_of_log, names) if first is not None}
    for name in names:
        index_of = first_of_index(name)
        if name.endswith(TEMPORARY) or (index_of is not None and index_of not in firsts):
            log.files.unlink(os.path.join(log.directory, name))
    log.log_files = [LogFile(log.path(first), first, log.files.size(log.path(first)), 0) for first in sorted(firsts)]


def _recover(log: Log, file: LogFile) -> bool:
    """Find the end of the last file. False when it has no record."""
    descriptor = log.open_files.open(file)
    file.put_total = _put_total_of_header(log, file, descriptor)
    log.load_index(file)
    file.index = _believable(log, file, descriptor)
    scan = Scan(descriptor, file.place(HIGHEST), file.size, HIGHEST, _BLOCK_BYTES)
    _walk(log, file, scan)
    if scan.position == HEADER_BYTES:
        return False
    log.end = scan.above
    log.put_total = scan.put_total
    if file.size > scan.position:
        what = "older content of a file that was used again" if scan.has_older() else "no whole record"
        why = f"the last {_number_of_bytes(file.size - scan.position)} are {what} and are cut off"
        log.report(log.topic, f"{file.path} at {scan.position}", scan.above, scan.above - 1, why)
        file.size = scan.position
        try:
            descriptor.truncate(file.size)
        except OSError:
            file.sealed = True
    elif file.size > AHEAD_FROM:
        with suppress(OSError):  # space that was kept ahead, and is not in the way
            descriptor.truncate(file.size)
    return True


def _number_of_bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _walk(log: Log, file: LogFile, scan: Scan) -> None:
    """Go to the end of the last file, and let its index be complete."""
    index = file.index = file.index or []
    while True:
        head = scan.head()
        if head is None or scan.frames(head) is None:
            position = scan.position
            first = scan.above if head is None else head.first
            after = scan.search()
            if after is None:
                return
            end = head.end if head is not None and scan.position == position + head.size else after.first
            file.damaged[position] = scan.position
            log.report(log.topic, f"{file.path} at {position}", first, end - 1, "a damaged record before good ones")
            continue
        if scan.position - (index[-1].position if index else 0) >= INDEX_BYTES:
            index.append(Entry(head.first, scan.position, scan.put_total))
        scan.skip(head)


def _put_total_of_header(log: Log, file: LogFile, descriptor: Descriptor) -> int:
    header = decode_header(descriptor.read(HEADER_BYTES, 0))
    if header is None or header.first != file.first:
        # A damaged header, or that of the file that was recycled for this one: the records speak for themselves.
        return 0
    if header.version != VERSION:
        raise BackendError(f"{file.path} has format version {header.version}; this nsqtw knows {VERSION}")
    return header.put_total


def _believable(log: Log, file: LogFile, descriptor: Descriptor) -> list[Entry]:
    """The index as far as there is a good record where its last entry says so."""
    index = file.index or []
    while index:
        scan = Scan(descriptor, index[-1], file.size, HIGHEST, _BLOCK_BYTES)
        head = scan.head()
        if head is not None and head.first == index[-1].sequence and scan.frames(head) is not None:
            break
        index = index[:-1]
    file.saved = len(index)
    return index
