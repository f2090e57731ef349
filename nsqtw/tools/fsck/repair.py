"""
Repair of the findings. Every step leaves a data path that a broker can start on, and of which it delivers at least what
it would have delivered before; so a repair may be interrupted anywhere and be run again.

    torn tail             copied, then truncated
    damaged records       the good ones are copied into another file, byte by byte, and what can be kept of the others
                          (`disk.repair`); synced; the old file gets a second name under damaged.d; the new one gets its
                          name
    files without record  moved to damaged.d, the very last first, as a start deletes them
    messages.db, positions.db
                          everything that can be read is written into a new one; the old one is moved to damaged.d
    wrong class depths    removed from positions.db
    foreign messages      moved to damaged.d, as is an invalid manifest
    nsqd.dat              moved to damaged.d if positions.db knows the names
    strays                removed

A topic with an unreadable file, or one of a newer format, is left as it is.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress

from attrs import evolve

from nsqtw.backends.disk.file_check import LogFileCheck
from nsqtw.backends.disk.format import index_name
from nsqtw.backends.disk.log import TEMPORARY
from nsqtw.backends.disk.open_files import Descriptor, LogFile
from nsqtw.backends.disk.repair import write_repaired
from nsqtw.backends.disk.topic_check import TopicLog
from nsqtw.backends.files import Files, backend_error
from nsqtw.backends.positions.store import Positions
from nsqtw.backends.quarantine import Quarantine
from nsqtw.backends.sqlite.salvage import FRESH, rebuild
from nsqtw.core.checkpoint import Checkpoint, SavedState
from nsqtw.errors import BackendError, NsqtwError
from nsqtw.tools.fsck.data_path import DataPathCheck
from nsqtw.tools.fsck.manifest import quarantine_foreign
from nsqtw.tools.fsck.positions import FRESH_FILE, miscounted


def repair(check: DataPathCheck) -> tuple[str | None, list[str]]:
    """
    Mend what `check` found in a data path, which is locked. Where things were set aside, if any were, and a line for
    each thing that could not be mended.
    """
    files = Files()
    quarantine = Quarantine(check.directory, files)
    failures: list[str] = []

    def attempt(doing: str, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as failure:
            failures.append(str(backend_error(failure, doing)))
        except NsqtwError as failure:
            failures.append(f"{doing}: {failure}")

    attempt("repair of the manifest", lambda: quarantine_foreign(check.manifest, files, quarantine))
    on_disk = {} if "disk" in check.manifest.foreign else check.logs
    for log in on_disk.values():
        if log.is_known:
            attempt(f"repair of topic {log.topic}", lambda log=log: _repair_log(files, quarantine, log))  # type: ignore[misc]
    if "sqlite" not in check.manifest.foreign:
        attempt("repair of messages.db", lambda: _repair_messages(files, quarantine, check))
    attempt("repair of positions.db", lambda: _repair_positions(files, quarantine, check))
    attempt("repair of counts in positions.db", lambda: _forget_class_depths(check))
    if check.names.problem and check.positions.saved is not None:
        attempt("repair of nsqd.dat", lambda: quarantine.move(check.names.path))
    for path, _ in check.leftovers:
        attempt(f"removal of {path}", lambda path=path: _remove(files, path))  # type: ignore[misc]
    return (quarantine.directory if quarantine.is_used else None), failures


def _repair_log(files: Files, quarantine: Quarantine, log: TopicLog) -> None:
    for path in log.strays:
        files.unlink(path)
    for file in log.without_records:
        _remove_index(files, file)
        quarantine.move(file.path)
    put_total = version = 0
    for file in log.log_files:
        put_total = max(put_total, file.header.put_total if file.header is not None else 0)
        version = max(version, file.header.version if file.header is not None else 0)
        if file.wrong_index:
            _remove_index(files, file)
        if not file.is_whole:
            version = _rewrite(files, quarantine, file, put_total, version)
        elif file.tail is not None:
            _truncate(files, quarantine, file)
        put_total += file.put_count


def _truncate(files: Files, quarantine: Quarantine, file: LogFileCheck) -> None:
    """Cut off what is behind the last good record."""
    quarantine.keep_part(file.path, file.good_end, file.size)
    descriptor = Descriptor(files, files.open(file.path))
    descriptor.truncate(file.good_end)
    descriptor.sync()


def _rewrite(files: Files, quarantine: Quarantine, file: LogFileCheck, put_total: int, version: int) -> int:
    """
    Let a header, the good records and what can be kept of others be all there is in a file, of at least the format
    `version`. Returns the version it has.
    """
    temporary = file.path + TEMPORARY
    old = Descriptor(files, files.open(file.path))
    source = LogFile(file.path, file.first, file.good_end, put_total)
    source.index, source.version = file.index, version
    repaired = write_repaired(files, old, source, file.good_end, file.below, temporary)
    try:
        quarantine.keep(file.path)
        # Its places mean other bytes in the new file.
        _remove_index(files, file)
    except BaseException:
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.rename(temporary, file.path)
    files.sync_directory(os.path.dirname(file.path))
    return repaired.version


def _repair_messages(files: Files, quarantine: Quarantine, check: DataPathCheck) -> None:
    """Put a damaged messages.db away, and one with all that can be read of it in its place."""
    messages = check.messages
    if messages is None or not messages.can_be_repaired:
        return
    fresh = messages.path + FRESH
    _remove_all(files, [fresh + suffix for suffix in ("-wal", "-shm", "")])
    if not messages.is_foreign:
        try:
            rebuild(messages.path, fresh, lambda *damage: None)
        except sqlite3.Error as error:
            raise BackendError(str(error)) from error
    # The database goes first: without its log of changes it would lack what is in there.
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            quarantine.move(messages.path + suffix)
    if not messages.is_foreign:
        files.rename(fresh, messages.path)
        files.sync_directory(check.directory)


def _repair_positions(files: Files, quarantine: Quarantine, check: DataPathCheck) -> None:
    """Put a damaged positions.db away, and one with all that can be read of it in its place."""
    positions = check.positions
    if not positions.is_there or positions.refusal or (positions.saved is not None and not positions.problems):
        return
    fresh = os.path.join(check.directory, FRESH_FILE)
    if positions.saved is not None:
        _remove_all(files, [fresh + suffix for suffix in ("-wal", "-shm", "")])
        _write(positions.saved, fresh)
    # Its log of changes goes first: beside the new database it would be taken for that one's.
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            quarantine.move(positions.path + suffix)
    if positions.saved is not None:
        files.rename(fresh, positions.path)
        files.sync_directory(check.directory)


def _forget_class_depths(check: DataPathCheck) -> None:
    """Remove wrong counts of the messages of each class from positions.db. BackendError."""
    saved, logs = check.positions.saved, check.served_logs
    if saved is None or logs is None or not (topics := miscounted(saved, logs)):
        return
    counted_anew = [
        evolve(topic, cursors=[evolve(cursor, class_depths=[], pending=[]) for cursor in topic.cursors])
        for topic in topics
    ]
    positions = Positions(check.positions.path)
    positions.load()
    try:
        positions.save(Checkpoint(topics=counted_anew, durable=True))
    finally:
        positions.close(saved.clean_stop)


def _write(saved: SavedState, path: str) -> None:
    """A database with all that was saved. BackendError."""
    positions = Positions(path)
    positions.load()
    try:
        if saved.next_block is not None:
            positions.reserve(saved.next_block)
        positions.save(Checkpoint(topics=saved.topics, wall_shift_ms=saved.wall_shift_ms))
        # A durable note: with it everything before is on stable storage.
        positions.close(True)
    except BaseException:
        with suppress(BackendError):
            positions.close(False)
        raise


def _remove_index(files: Files, file: LogFileCheck) -> None:
    with suppress(FileNotFoundError):
        files.unlink(os.path.join(os.path.dirname(file.path), index_name(file.first)))


def _remove(files: Files, path: str) -> None:
    """Remove a file, or a directory of files."""
    if os.path.isdir(path):
        _remove_all(files, [os.path.join(path, name) for name in files.names(path)])
        files.remove_directory(path)
    else:
        files.unlink(path)


def _remove_all(files: Files, paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            files.unlink(path)
