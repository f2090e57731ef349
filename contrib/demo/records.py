"""The records of the demo: existing data of the machine and of this repository.

Without a file of the user's these are the machine's package database (dpkg's status file: one record for
each installed package and one for each dependency) and the history of this project (one for each commit
and one for each file it changed). What the machine lacks is left out.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from contrib.demo.errors import DemoError

DPKG_STATUS = Path("/var/lib/dpkg/status")

#: Between commits, and between a commit's fields. Neither occurs in a subject line.
COMMIT_SEPARATOR = "\x1e"
FIELD_SEPARATOR = "\x1f"
_GIT_FORMAT = "%x1e%H%x1f%aI%x1f%s%x1f"


@dataclass(frozen=True)
class Records:
    """Files for Spark to read; None for what there is not."""

    events: Path | None = None
    dpkg_status: Path | None = None
    git_log: Path | None = None

    def names(self) -> str:
        parts = []
        if self.events is not None:
            parts.append(str(self.events))
        if self.dpkg_status is not None:
            parts.append(f"the packages in {self.dpkg_status}")
        if self.git_log is not None:
            parts.append("the git history of this project")
        return " and ".join(parts)


def from_file(path: Path) -> Records:
    """The user's own lines of JSON. Raises DemoError for a file that cannot be read, or has something else."""
    count = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    _must_be_json(line, path, number)
                    count += 1
    except OSError as failure:
        raise DemoError(f"cannot read {path}: {failure.strerror}") from None
    if not count:
        raise DemoError(f"{path} is empty")
    return Records(events=path.resolve())


def _must_be_json(line: bytes, path: Path, number: int) -> None:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        raise DemoError(
            f"line {number} of {path} is no JSON; give a file with a JSON value in each line, such as that of: "
            "jq -c . FILE, or jq -c '.[]' FILE for the elements of an array"
        ) from None


def of_this_machine(project: Path, folder: Path, dpkg_status: Path = DPKG_STATUS) -> Records:
    """What the machine has; the git history is put into `folder`. Raises DemoError if there is nothing."""
    git_log = folder / "git-log.txt"
    found = Records(
        dpkg_status=dpkg_status if _has_content(dpkg_status) else None,
        git_log=git_log if _save_history(project, git_log) else None,
    )
    if found == Records():
        raise DemoError(
            f"no records here: {dpkg_status} is not there and {project} has no git history; "
            "give a file of your own: make demo INPUT=events.jsonl"
        )
    return found


def _has_content(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def _save_history(project: Path, path: Path) -> bool:
    command = ["git", "-C", str(project), "log", "--no-color", "--no-renames", "--numstat"]
    with path.open("wb") as file:
        try:
            done = subprocess.run(
                [*command, f"--format={_GIT_FORMAT}"], stdout=file, stderr=subprocess.DEVNULL, check=False
            )
        except OSError:
            return False
    return done.returncode == 0 and _has_content(path)
