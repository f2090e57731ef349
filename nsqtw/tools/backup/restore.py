"""`nsqtw restore BACKUP DATA_PATH`: the words, the lines, and the exit code."""

from __future__ import annotations

import os
import sys
from contextlib import closing

from nsqtw.backends.files import Files, backend_error
from nsqtw.daemon.data_path import lock_data_path
from nsqtw.errors import NsqtwError, OptionError
from nsqtw.nsqd.build import POSITIONS_FILE
from nsqtw.tools.backup.contents import Contents, check_files, read_contents
from nsqtw.tools.backup.copy import DIRECTORY_MODE, copy_file, sync_directories
from nsqtw.tools.backup.progress import ProgressLine
from nsqtw.tools.fsck.data_path import check_data_path
from nsqtw.tools.fsck.finding import Finding

DONE = 0
FAILED = 1
DAMAGED = 3
REPLACED = ".replaced"


def run(backup: str, directory: str, must_replace: bool, must_only_check: bool) -> int:
    """Check a backup, and put it at the place of a data path unless it is only checked. Returns the exit code."""
    try:
        contents = check_backup(backup)
        if must_only_check:
            print(f"{backup}: {len(contents.files)} files are as they were at {contents.created}")
            return DONE
        findings, old = put_in_place(backup, contents, directory, must_replace=must_replace)
    except (NsqtwError, OSError) as error:
        sys.stderr.write(f"nsqtw restore: {error}\n")
        return FAILED
    for finding in findings:
        print(finding)
    if old:
        print(f"what was there is in {old}")
    print(f"{directory}: {len(contents.files)} files of {contents.created}; start it with --backend={contents.backend}")
    return DAMAGED if findings else DONE


def check_backup(backup: str) -> Contents:
    """Read all of a backup. NsqtwError, one line, when it is none, or anything in it has changed."""
    contents = read_contents(backup)
    line = ProgressLine("check", contents.total_bytes)
    with closing(line):
        check_files(backup, contents, line)
    return contents


def put_in_place(backup: str, contents: Contents, directory: str, *, must_replace: bool) -> tuple[list[Finding], str]:
    """
    Copy a checked backup to a data path, which must be empty unless `must_replace`: then what was there is moved beside
    it. Returns what fsck finds, which was damaged before the backup, and where the old data path is. NsqtwError.
    """
    directory = os.path.realpath(directory)  # a symlink stays: systemd's StateDirectory= may be one
    try:
        old = _make_room(directory, must_replace=must_replace)
        lock = lock_data_path(directory)
        try:
            line = ProgressLine("restore", contents.total_bytes)
            with closing(line):
                # Positions last: without them a start would deliver everything again, and lose nothing.
                for name in sorted(contents.files, key=lambda name: (name == POSITIONS_FILE, name)):
                    path = os.path.join(directory, name)
                    os.makedirs(os.path.dirname(path), DIRECTORY_MODE, exist_ok=True)
                    copy_file(os.path.join(backup, name), path, line)
            sync_directories(directory)
            Files().sync_directory(os.path.dirname(directory))
            return check_data_path(directory).findings(), old
        finally:
            os.close(lock)
    except OSError as failure:
        raise backend_error(failure, f"restore to {directory}") from failure


def _make_room(directory: str, *, must_replace: bool) -> str:
    """Have an empty directory there. Returns where the one that was there is now, if it was moved. NsqtwError."""
    old = ""
    if os.path.isdir(directory) and os.listdir(directory):
        if not must_replace:
            raise OptionError(f"{directory} is not empty: --replace moves what is there aside")
        os.close(lock_data_path(directory))  # no broker uses it
        number = 1
        while os.path.lexists(f"{directory}{REPLACED}.{number}"):
            number += 1
        old = f"{directory}{REPLACED}.{number}"
        os.rename(directory, old)
    os.makedirs(directory, DIRECTORY_MODE, exist_ok=True)
    return old
