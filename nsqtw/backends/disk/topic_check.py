"""
The directory of one topic: its log files in the order in which a start opens them, and its other files.

A start removes last files without a record until it finds one with records; that one is the last, and the only one
that may end in a torn record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from attrs import define, evolve, field

from nsqtw.backends.check import StoredTopic
from nsqtw.backends.disk.file_check import Damage, LogFileCheck, check_log_file
from nsqtw.backends.disk.format import (
    HEADERS_VERSION,
    HIGHEST,
    first_of_index,
    first_of_log,
    index_name,
    log_name,
)
from nsqtw.backends.disk.log import TEMPORARY
from nsqtw.backends.files import Files
from nsqtw.backends.finding import Finding
from nsqtw.backends.sequences import ClassSequences


@define
class LogCheck(StoredTopic):
    """The contents of the directory of a topic."""

    log_files: list[LogFileCheck] = field(factory=list)
    """Ascending, as far as they belong to the log."""
    without_records: list[LogFileCheck] = field(factory=list)
    """Last files in which nothing is, the very last first."""
    strays: list[str] = field(factory=list)
    """Paths of files that do not count."""
    unreadable: list[Finding] = field(factory=list)
    """Why some of its files cannot be told, if so: then nothing of it is touched."""

    @property
    def has_headers(self) -> bool:
        """Whether a file of it may have headers."""
        return any(file.header is not None and file.header.version == HEADERS_VERSION for file in self.every_file)

    @property
    def every_file(self) -> list[LogFileCheck]:
        return self.log_files + self.without_records

    def findings(self) -> list[Finding]:
        """The findings."""
        findings_ = [*self.unreadable, *self._findings()]
        return findings_ if self.is_known else [evolve(finding, remedy=None) for finding in findings_]

    def _findings(self) -> Iterator[Finding]:
        for file in self.log_files:
            yield from _findings_of(self.topic, file)
        for file in self.without_records:
            yield Finding(
                "no record",
                file.path,
                "a file that was just begun when the broker died, or whose records are all damaged;"
                " the next start deletes it",
                "sets it aside",
                self.topic,
            )
        for path in self.strays:
            yield Finding("stray file", path, "nothing", "removes it", self.topic)


def check_topic(files: Files, topic: str, directory: str, known_end: int = 0, *, by_class: bool = False) -> LogCheck:
    """
    Read all of a topic's log, which positions.db knows up to `known_end`. `by_class`: look at the priorities of its
    messages.
    """
    log = LogCheck(topic, directory, classes=ClassSequences() if by_class else None)
    try:
        names = sorted(files.names(directory))
        firsts = sorted({first for first in map(first_of_log, names) if first is not None})
        log.strays = [os.path.join(directory, name) for name in names if _is_stray(name, firsts)]
        for number in reversed(range(len(firsts))):
            below = firsts[number + 1] if log.log_files or log.unreadable else HIGHEST
            checked = _check_file(files, log, firsts[number], below, index_name(firsts[number]) in names, known_end)
            if checked is None:
                continue
            if checked.is_last and not (checked.runs or checked.damage):
                log.without_records.append(checked)
            else:
                log.log_files.insert(0, checked)
    except OSError as failure:
        log.unreadable.append(_cannot_read(topic, failure.filename or directory, failure))
    for file in log.log_files:
        log.at_once.update(file.at_once)
        log.deferred.update(file.deferred)
        if log.classes is not None and file.classes is not None:
            log.classes.update(file.classes)
        log.end = file.end
    log.is_known = not log.unreadable
    return log


def _is_stray(name: str, firsts: list[int]) -> bool:
    index_of = first_of_index(name)
    return name.endswith(TEMPORARY) or (index_of is not None and index_of not in firsts)


def _check_file(
    files: Files, log: LogCheck, first: int, below: int, has_index: bool, known_end: int
) -> LogFileCheck | None:
    """None, and `unreadable` says why, when the file cannot be told."""
    path = os.path.join(log.place, log_name(first))
    index = b""
    if has_index:
        index = _content(files, os.path.join(log.place, index_name(first)))
    try:
        checked = check_log_file(files, path, first, below, index, known_end, by_class=log.classes is not None)
    except OSError as failure:
        log.unreadable.append(_cannot_read(log.topic, path, failure))
        return None
    if checked.header is not None and checked.header.version > HEADERS_VERSION:
        costs = (
            f"it has format version {checked.header.version}, this nsqtw knows {HEADERS_VERSION}: a start with it as"
            " the last file fails"
        )
        log.unreadable.append(Finding("newer format", path, costs, None, log.topic))
        return None
    return checked


def _content(files: Files, path: str) -> bytes:
    fd = files.open(path)
    try:
        return files.read(fd, files.size(path), 0)
    finally:
        files.close(fd)


def _cannot_read(topic: str, path: str, failure: OSError) -> Finding:
    why = (failure.strerror or str(failure)).lower()
    return Finding(
        "unreadable", path, f"{why}; what is in it cannot be told, and nothing of this topic is mended", None, topic
    )


def _findings_of(topic: str, file: LogFileCheck) -> Iterator[Finding]:
    if file.header is None:
        costs = "nothing, the name and the records say the same"
        yield Finding("damaged header", file.path, costs, "writes it anew", topic, offset=0)
    for damage in file.damage:
        yield Finding(
            "damaged record",
            file.path,
            f"{_costs(damage)}; the broker takes it out of the file when it comes by",
            "takes it out of the file, which is set aside as it was",
            topic,
            damage.channel or None,
            offset=damage.position,
            messages=damage.messages,
        )
    if file.tail is not None:
        yield _finding_of_tail(topic, file, file.tail)
    if file.wrong_index:
        path = f"{file.path.removesuffix('.log')}.index"
        yield Finding("wrong index", path, "nothing, reading is slower", "removes it", topic)


def _costs(damage: Damage) -> str:
    if not damage.messages:
        return "nothing, none is missing"
    if damage.without_headers and damage.lost == 0:
        return f"the headers of {damage.without_headers} messages, which are delivered without them"
    if damage.in_head:
        return "these messages, at most"
    if damage.channel is None:
        return "these messages, of one channel, and nothing tells which"
    kept = sum(segment.count for segment in damage.kept)
    if not kept:
        return "these messages"
    bare = f", {damage.without_headers} without their headers" if damage.without_headers else ""
    return f"{damage.lost} of its messages, {kept} can be kept{bare}"


def _finding_of_tail(topic: str, file: LogFileCheck, tail: Damage) -> Finding:
    length = tail.stop - tail.position
    if not file.is_last:
        what, costs = "leftover bytes", f"nothing: {length} bytes that belong to no message"
    elif tail.messages is not None:
        what, costs = "torn tail", f"these messages: their record is not whole, {length} bytes"
    else:
        what = "torn tail"
        costs = f"what was being written when the broker died, if anything: {length} bytes that are no record"
    return Finding(
        what,
        file.path,
        f"{costs}; the next start cuts them off" if file.is_last else costs,
        "cuts them off and keeps them",
        topic,
        offset=tail.position,
        messages=tail.messages,
    )
