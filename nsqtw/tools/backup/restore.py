"""
`nsqtw restore BACKUP DATA_PATH`: arguments, output and exit code.

The files are copied to `DATA_PATH.partial`, which takes the place of the data path when it is complete. Where that
cannot be, at a mount point or in a directory that may not be written to, they are copied into the data path: it must be
empty, and until all of it is there, its manifest keeps a broker from starting with it. Each file is checked again while
it is copied.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import closing, suppress
from hashlib import sha256
from shlex import quote

from attrs import frozen

from nsqtw.backends.files import DIRECTORY_MODE, Files, backend_error, replace_file
from nsqtw.backends.finding import Finding
from nsqtw.backends.manifest import MANIFEST_FILE, has_interrupted_restore, write_restore_mark
from nsqtw.daemon.data_path import lock_data_path
from nsqtw.errors import BackendError, NsqtwError, OptionError
from nsqtw.printing import complain, write_line
from nsqtw.tools.backup.contents import DEFAULT_BACKEND, Contents, StoredFile, check_file, check_files, read_contents
from nsqtw.tools.backup.copy import (
    ProgressLine,
    copy_file,
    only_one,
    partial_directory,
    sync_directories,
)
from nsqtw.tools.fsck.data_path import check_data_path
from nsqtw.tools.owner import Owner, open_regular

DONE = 0
FAILED = 1
DAMAGED = 3
REPLACED = ".replaced"
_MOUNTS = "/proc/self/mountinfo"
_PROGRAM = "nsqtw restore"


def run(backup: str, directory: str, must_replace: bool, must_only_check: bool) -> int:
    """Check a backup, and put it at the place of a data path unless it is only checked. Returns the exit code."""
    try:
        contents = check_backup(backup)
        if must_only_check:
            write_line(f"{backup}: {len(contents.files)} files are as they were at {contents.created}")
            return DONE
        findings, old = put_in_place(backup, contents, directory, must_replace=must_replace)
    except (NsqtwError, OSError) as error:
        complain(f"nsqtw restore: {error}")
        return FAILED
    for finding in findings:
        write_line(str(finding))
    if old:
        write_line(f"what was there is in {old}")
    backend = "" if contents.backend == DEFAULT_BACKEND else f" --backend={quote(contents.backend)}"
    flags = f"--data-path={quote(directory)}{backend}"
    write_line(f"{directory}: {len(contents.files)} files of {contents.created}; start nsqd with {flags}")
    return DAMAGED if findings else DONE


def check_backup(backup: str) -> Contents:
    """Read all of a backup. NsqtwError, one line, when it is none, or anything in it has changed."""
    contents = read_contents(backup)
    line = ProgressLine("check", contents.total_bytes)
    with closing(line), Owner.of(backup).rights():
        check_files(backup, contents, line)
    return contents


def put_in_place(backup: str, contents: Contents, directory: str, *, must_replace: bool) -> tuple[list[Finding], str]:
    """
    Copy a checked backup to a data path, which must be empty unless `must_replace`: then what was there is moved beside
    it. Returns what fsck finds, which was damaged before the backup, and where the old data path is. NsqtwError: the
    data path is what it was, or the error says where that is, or no broker starts with it.
    """
    directory = os.path.realpath(directory)  # a symlink stays: systemd's StateDirectory= may be one
    try:
        source = _Source(backup, Owner.of(backup), contents)
        if not os.path.isdir(directory):
            if os.path.exists(directory):
                raise OptionError(f"{directory} is no directory")
            return _make(source, directory)
        lock = lock_data_path(directory)  # no broker uses it
        owner = Owner.of(directory)
        try:
            with owner.rights():
                is_empty = not os.listdir(directory) or has_interrupted_restore(directory)
            if not is_empty and not must_replace:
                raise OptionError(f"{directory} is not empty: --replace renames it to {_free_name(directory)}")
            why_not = _why_not_renamed(directory)
            if not why_not:
                return _make(source, directory)
            if not is_empty:
                raise OptionError(f"{directory} cannot be moved aside, for {why_not}: move what is in it elsewhere")
            _fill(source, directory, owner)
            with owner.rights():
                return check_data_path(directory).findings(), ""
        finally:
            os.close(lock)
    except OSError as failure:
        raise backend_error(failure, f"restore to {directory}") from failure


@frozen
class _Source:
    """A backup: its path, its owner, and its contents."""

    path: str
    owner: Owner
    contents: Contents

    def copy(self, directory: str, writer: Owner, names: list[str]) -> None:
        """
        Copy files with the rights of `writer`, and check them again; they are on stable storage on return. BackendError
        when the backup has changed meanwhile. OSError.
        """
        line = ProgressLine("restore", self.contents.total_bytes)
        with closing(line):
            for name in names:
                path, there = os.path.join(directory, name), os.path.join(self.path, name)
                with writer.rights():
                    os.makedirs(os.path.dirname(path), DIRECTORY_MODE, exist_ok=True)
                check_file(there, copy_file(there, path, self.owner, line, writer), self.contents.files[name])
        with writer.rights():
            sync_directories(directory)

    def copy_manifest(self, path: str, writer: Owner) -> None:
        """Let the manifest of the backup take the place of the mark at `path`. BackendError, OSError."""
        there = os.path.join(self.path, MANIFEST_FILE)
        with self.owner.rights(), open(open_regular(there), "rb") as file:
            data = file.read()
        found = StoredFile(len(data), sha256(data).hexdigest())
        check_file(there, found, self.contents.files[MANIFEST_FILE])
        with writer.rights():
            replace_file(Files(), path, data)


def _why_not_renamed(directory: str) -> str:
    """Return why no other directory can take the place of one; "" when it can."""
    parent = os.path.dirname(directory)
    if os.path.ismount(directory) or _is_bind_mount(directory):
        return "it is a mount point"
    if not os.access(parent, os.W_OK | os.X_OK, effective_ids=True):
        return f"this user may not write to {parent}"
    return ""


def _is_bind_mount(directory: str) -> bool:
    """Return whether a directory of the same file system is mounted there. Only Linux tells."""
    escaped = "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in directory)
    with suppress(OSError), open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
        return any(line.split(" ")[4] == escaped for line in file)
    return False


def _make(source: _Source, directory: str) -> tuple[list[Finding], str]:
    """
    Copy a backup beside a data path, and let it take its place. It belongs to the owner of the data path, or of the
    directory that it is in. NsqtwError, OSError.
    """
    beside, owner = Owner.of(os.path.dirname(directory)), Owner.of(directory)
    with only_one(directory, beside), partial_directory(directory, beside, owner) as partial:
        lock = lock_data_path(partial, _PROGRAM)  # until it is checked in its place
        try:
            source.copy(partial, owner, list(source.contents.files))
            if os.path.isdir(directory):
                mode = stat.S_IMODE(os.stat(directory).st_mode)
                with owner.rights():
                    os.chmod(partial, mode)
            with beside.rights():
                old = _swap(partial, directory)
            try:
                with owner.rights():
                    return check_data_path(directory).findings(), old
            except NsqtwError as error:
                raise BackendError(f"{error}{_where(old)}") from error
        finally:
            os.close(lock)


def _free_name(directory: str) -> str:
    """Return the name that a data path gets when another one takes its place."""
    number = 1
    while os.path.lexists(f"{directory}{REPLACED}.{number}"):
        number += 1
    return f"{directory}{REPLACED}.{number}"


def _swap(partial: str, directory: str) -> str:
    """
    Let a complete copy take the place of a data path. Returns where that is now, "" if nothing was in it. BackendError,
    OSError.
    """
    old = ""
    if os.path.isdir(directory) and os.listdir(directory):
        old = _free_name(directory)
        os.rename(directory, old)
    try:
        os.rename(partial, directory)
    except OSError as failure:
        error = backend_error(failure, f"rename of {partial}")
        try:
            if old:
                os.rename(old, directory)
        except OSError:
            raise BackendError(f"{error}{_where(old)}") from failure
        raise error from failure
    Files().sync_directory(os.path.dirname(directory))
    return old


def _where(old: str) -> str:
    """Return where an old data path is, as the end of a line."""
    return f"; what was there is in {old}" if old else ""


def _fill(source: _Source, directory: str, owner: Owner) -> None:
    """Copy a backup into an empty data path, with which no broker starts until all of it is there. OSError."""
    with owner.rights():
        write_restore_mark(directory)
        for entry in list(os.scandir(directory)):  # of a restore that was interrupted
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != MANIFEST_FILE:
                os.unlink(entry.path)
    manifest, files = os.path.join(directory, MANIFEST_FILE), source.contents.files
    source.copy(directory, owner, [name for name in files if name != MANIFEST_FILE])
    if MANIFEST_FILE in files:
        source.copy_manifest(manifest, owner)
    with owner.rights():
        if MANIFEST_FILE not in files:
            os.unlink(manifest)
        Files().sync_directory(directory)
