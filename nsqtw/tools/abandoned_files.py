"""
Files that a killed nsq_to_file left in --work-dir: the next one moves them to --output-dir.

A file is abandoned when it has a name of the topic and no process has it locked. Nobody continues or replaces it. Its
last message may be cut off; nsqd delivers that again, because it was not finished.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from nsqtw.tools.file_names import FileNames
from nsqtw.tools.output_file import FileRules, lock, move


def recover(
    rules: FileRules, names: FileNames, moved: Callable[[str, str], None], failed: Callable[[str, OSError], None]
) -> None:
    """
    Move the abandoned files of a topic; empty ones are removed. `moved` is told the old and the new path, `failed` of a
    file that stays where it is.
    """
    if not rules.has_work_dir:
        return
    for name in sorted(_names_in(rules, names)):
        path = os.path.join(rules.work_dir, name)
        try:
            target = _recover(rules, names, name, path)
        except OSError as error:
            failed(path, error)
        else:
            if target:
                moved(path, target)


def _recover(rules: FileRules, names: FileNames, name: str, path: str) -> str:
    """Move a file if it is abandoned. Returns its new path, or "". OSError."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    try:
        if not lock(fd, path):
            return ""
        if not os.fstat(fd).st_size:
            os.unlink(path)
            return ""
        os.fsync(fd)
        return move(path, lambda more: os.path.join(rules.output_dir, names.renumbered(name, more)), 0)
    finally:
        os.close(fd)


def _names_in(rules: FileRules, names: FileNames) -> Iterator[str]:
    """Yield the names of the topic's files, relative to the work directory."""
    has_directories = "/" in names.pattern or "/" in names.datetime_pattern
    output_dir = os.path.realpath(rules.output_dir)
    for directory, below, files in os.walk(rules.work_dir):
        for file in files:
            name = os.path.relpath(os.path.join(directory, file), rules.work_dir)
            if names.expression.fullmatch(name):
                yield name
        if has_directories:
            below[:] = [one for one in below if os.path.realpath(os.path.join(directory, one)) != output_dir]
        else:
            below.clear()
