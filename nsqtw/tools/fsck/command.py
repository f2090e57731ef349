"""`nsqtw fsck DATA_PATH [--repair]`: arguments, output and exit code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from nsqtw.backends.finding import Finding
from nsqtw.core.checkpoint import SavedState
from nsqtw.daemon.data_path import lock_data_path
from nsqtw.errors import NsqtwError
from nsqtw.printing import complain, write_line
from nsqtw.replication.state_file import distrust, read_state
from nsqtw.tools.backend_files import load_backends
from nsqtw.tools.fsck.data_path import DataPathCheck, check_data_path, is_data_path
from nsqtw.tools.fsck.repair import repair
from nsqtw.tools.owner import Owner

CLEAN = 0
FINDINGS = 1
NO_DATA_PATH = 2
REPAIRED = 3


def run(directory: str, must_repair: bool) -> int:
    """
    Check a data path and print a line for each thing that is wrong and a summary; with `must_repair` repair what can
    be, and check again. Root becomes the owner of the data path. Returns the exit code.
    """
    directory = os.path.abspath(directory)
    if not os.path.isdir(directory):
        complain(f"nsqtw fsck: {directory} is no nsqtw data path: it is no directory")
        return NO_DATA_PATH
    try:
        load_backends()
        Owner.of(directory).become()
        if os.access(directory, os.R_OK) and not is_data_path(directory):
            complain(f"nsqtw fsck: {directory} is no nsqtw data path: no broker has stored anything there")
            return NO_DATA_PATH
        lock = lock_data_path(directory)
        try:
            return _run(directory, must_repair)
        finally:
            os.close(lock)
    except (NsqtwError, OSError) as error:
        complain(f"nsqtw fsck: {error}")
        return FINDINGS


def _run(directory: str, must_repair: bool) -> int:
    check = check_data_path(directory)
    findings = check.findings()
    _print(findings)
    if not (must_repair and findings):
        _print_notes(check)
        write_line(f"{_counts(check)}; {_number(len(findings), 'finding')}")
        return FINDINGS if findings else CLEAN
    if read_state(directory) is not None:
        distrust(directory)  # before anything changes
        write_line("the data path is the copy of a data set: the next start with --replicate copies it again")
    quarantine, failures = repair(check)
    for failure in failures:
        write_line(f"not mended: {failure}")
    second_check = check_data_path(directory)
    remaining = second_check.findings()
    if quarantine is not None:
        write_line(f"set aside: {quarantine}")
    if remaining:
        write_line("left:")
        _print(remaining)
    _print_notes(second_check)
    write_line(f"{_counts(second_check)}; {_number(len(findings), 'finding')}, {len(remaining)} left")
    return FINDINGS if remaining else REPAIRED


def _print(findings: Sequence[Finding]) -> None:
    for finding in findings:
        write_line(str(finding))


def _print_notes(check: DataPathCheck) -> None:
    """
    Say what was not checked, and what an nsqtw that knows no headers, no messages for one channel, or no policies
    refuses to open.
    """
    for backend, why in check.unknown.items():
        write_line(f"the messages of the backend {backend!r} are not checked: {why}")
    for content in check.backends.values():
        for line in content.newer:
            write_line(line)
    for content in check.backends.values():
        for topic in content.topics.values():
            if topic.directed:
                counts = ", ".join(f"{count} for {channel}" for channel, count in topic.directed.items())
                write_line(f"topic {topic.topic} has messages for one channel only: {counts}")
    saved = check.positions.saved
    owners = list(_owners_of_policies(saved)) if saved is not None else []
    if owners:
        write_line(f"{check.positions.path} has policies that were set at run time: {', '.join(owners)}")


def _owners_of_policies(saved: SavedState) -> Iterator[str]:
    """Yield the topics and channels of which settings are saved."""
    for topic in saved.topics:
        if topic.policy:
            yield f"topic {topic.name}"
        yield from (f"channel {topic.name}/{cursor.name}" for cursor in topic.cursors if cursor.policy)


def _counts(check: DataPathCheck) -> str:
    """Return how much was looked at."""
    contents = check.backends.values()
    numbers = (
        _number(len(check.topics), "topic"),
        _number(sum(content.file_count for content in contents), "log file"),
        _number(sum(content.records for content in contents), "good record"),
        _number(sum(topic.count for content in contents for topic in content.topics.values()), "message"),
        _number(sum(content.size for content in contents), "byte"),
    )
    return ", ".join(numbers)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
