"""
Repair of the findings. Every step leaves a data path that a broker can start on, and of which it delivers at least what
it would have delivered before; so a repair may be interrupted anywhere and be run again.

    messages              by their backend
    positions.db          everything that can be read is written into a new one; the old one is moved to damaged.d
    wrong class depths    removed from positions.db
    foreign messages      moved to damaged.d, as is an invalid manifest
    nsqd.dat              moved to damaged.d if positions.db knows the names
    leftovers             removed
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from attrs import evolve

from nsqtw.backends.files import Files, backend_error, unlink_all
from nsqtw.backends.positions.store import Positions
from nsqtw.backends.quarantine import Quarantine
from nsqtw.core.checkpoint import Checkpoint, SavedState
from nsqtw.errors import BackendError, NsqtwError
from nsqtw.tools.fsck.data_path import DataPathCheck
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

    attempt("repair of the manifest", lambda: _set_aside_foreign(files, quarantine, check))
    for backend, content in check.backends.items():
        if backend not in check.foreign:
            for doing, step in content.repairs(files, quarantine):
                attempt(doing, step)
    attempt("repair of positions.db", lambda: _repair_positions(files, quarantine, check))
    attempt("repair of counts in positions.db", lambda: _forget_class_depths(check))
    if check.names.problem and check.positions.saved is not None:
        attempt("repair of nsqd.dat", lambda: quarantine.move(check.names.path))
    for path, _ in check.leftovers:
        attempt(f"removal of {path}", lambda path=path: _remove(files, path))  # type: ignore[misc]
    return (quarantine.directory if quarantine.is_used else None), failures


def _set_aside_foreign(files: Files, quarantine: Quarantine, check: DataPathCheck) -> None:
    """Move the files of backends that the manifest does not know, and a manifest that cannot be read. OSError."""
    if check.manifest.problem and not check.manifest.is_incomplete:
        quarantine.move(check.manifest.path)
    for backend in check.foreign:
        check.backends[backend].set_aside(files, quarantine)


def _repair_positions(files: Files, quarantine: Quarantine, check: DataPathCheck) -> None:
    """Put a damaged positions.db away, and one with all that can be read of it in its place."""
    positions = check.positions
    if not positions.is_there or positions.refusal or (positions.saved is not None and not positions.problems):
        return
    fresh = os.path.join(check.directory, FRESH_FILE)
    if positions.saved is not None:
        unlink_all(files, [fresh + suffix for suffix in ("-wal", "-shm", "")])
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
    saved, logs = check.positions.saved, check.served_topics
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


def _remove(files: Files, path: str) -> None:
    """Remove a file, or a directory of files."""
    if os.path.isdir(path):
        unlink_all(files, [os.path.join(path, name) for name in files.names(path)])
        files.remove_directory(path)
    else:
        files.unlink(path)
