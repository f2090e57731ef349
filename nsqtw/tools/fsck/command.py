"""`nsqtw fsck DATA_PATH [--repair]`: arguments, output and exit code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from nsqtw.backends.disk.format import HEADERS_VERSION
from nsqtw.backends.finding import Finding
from nsqtw.backends.sqlite.schema import HEADERS_VERSION as DATABASE_VERSION
from nsqtw.core.checkpoint import SavedState
from nsqtw.daemon.data_path import lock_data_path
from nsqtw.errors import NsqtwError
from nsqtw.printing import complain, write_line
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
        _print_newer(check)
        write_line(f"{_counts(check)}; {_number(len(findings), 'finding')}")
        return FINDINGS if findings else CLEAN
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
    _print_newer(second_check)
    write_line(f"{_counts(second_check)}; {_number(len(findings), 'finding')}, {len(remaining)} left")
    return FINDINGS if remaining else REPAIRED


def _print(findings: Sequence[Finding]) -> None:
    for finding in findings:
        write_line(str(finding))


def _print_newer(check: DataPathCheck) -> None:
    """Say what an nsqtw that knows no headers, no messages for one channel, or no policies refuses to open."""
    content = "headers or messages for one channel"
    topics = [log.topic for log in check.logs.values() if log.has_headers]
    if topics:
        write_line(f"log files of format version {HEADERS_VERSION}, which has {content}: {', '.join(topics)}")
    if check.messages is not None and check.messages.has_headers:
        write_line(f"{check.messages.path} has version {DATABASE_VERSION}, which has {content}")
    for log in check.every_log:
        if log.directed:
            counts = ", ".join(f"{count} for {channel}" for channel, count in log.directed.items())
            write_line(f"topic {log.topic} has messages for one channel only: {counts}")
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
    log_files = [file for log in check.logs.values() for file in log.every_file]
    rows, in_database, stored = 0, set[str](), 0
    if check.messages is not None:
        rows, in_database = check.messages.records, set(check.messages.logs)
        stored = sum(len(log.at_once) + len(log.deferred) for log in check.messages.logs.values())
    numbers = (
        _number(len(in_database.union(check.logs)), "topic"),
        _number(len(log_files), "log file"),
        _number(sum(file.records for file in log_files) + rows, "good record"),
        _number(sum(len(file.at_once) + len(file.deferred) for file in log_files) + stored, "message"),
        _number(sum(file.size for file in log_files), "byte"),
    )
    return ", ".join(numbers)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
