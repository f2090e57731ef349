"""
Everything in a data path: the topics' directories, positions.db, nsqd.dat, and leftover files.

What is not the broker's is left alone and not mentioned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from attrs import define, field

from nsqtw.backends.disk.backend import PROBE_FILE
from nsqtw.backends.disk.file_check import ReadOnly
from nsqtw.backends.disk.format import first_of_log
from nsqtw.backends.disk.topic_check import TopicLog, check_topic
from nsqtw.backends.files import Files, backend_error
from nsqtw.backends.finding import Finding
from nsqtw.backends.manifest import MANIFEST_FILE
from nsqtw.backends.quarantine import DIRECTORY
from nsqtw.backends.sqlite.database_check import MessagesCheck, check_messages
from nsqtw.backends.sqlite.salvage import FRESH
from nsqtw.backends.sqlite.schema import FILE as SQLITE_FILE
from nsqtw.core.checkpoint import NamedTopic
from nsqtw.errors import MetadataError
from nsqtw.names import is_ephemeral, name_of_directory
from nsqtw.nsqd import nsqd_dat
from nsqtw.nsqd.build import POSITIONS_FILE
from nsqtw.tools.fsck.manifest import ManifestCheck, check_manifest
from nsqtw.tools.fsck.positions import (
    FRESH_FILE,
    PositionsCheck,
    check_positions,
    compare,
    topics_with_class_depths,
)

_DELETED = re.compile(r"(.+)\.deleted\.[0-9]+")
_TEMPORARY = re.compile(rf"({re.escape(nsqd_dat.METADATA_FILE)}|{re.escape(MANIFEST_FILE)})\.[0-9]+\.tmp")


@define
class NamesCheck:
    """The state of nsqd.dat."""

    path: str
    topics: list[NamedTopic] | None = None
    """None: there is no file, or none that can be read."""
    problem: str = ""
    """Why it cannot be read."""
    invalid: list[str] = field(factory=list)
    """The findings of a start about names that it ignores."""

    def findings(self, positions: PositionsCheck) -> Iterator[Finding]:
        """The findings. Without nsqd.dat the names are in positions.db, if that is valid."""
        if self.problem and positions.saved is not None:
            costs = f"{self.problem}; a start fails; all that positions.db names is there without it"
            yield Finding("unreadable names", self.path, costs, "sets it aside")
        elif self.problem:
            costs = f"{self.problem}; a start fails, and without positions.db nothing else names the channels"
            yield Finding("unreadable names", self.path, costs)
        for line in self.invalid:
            yield Finding("invalid name", self.path, f"{line}; the next start writes the file without it")


@define
class DataPathCheck:
    """All findings of one data path."""

    directory: str
    logs: dict[str, TopicLog]
    """By topic, durable ones only."""
    leftovers: list[tuple[str, str]]
    """Directories and files that do not count, and why."""
    positions: PositionsCheck
    names: NamesCheck
    manifest: ManifestCheck
    messages: MessagesCheck | None = None
    """The messages of the backend sqlite."""

    @property
    def every_log(self) -> list[TopicLog]:
        """The logs of both backends."""
        return [*self.logs.values(), *(self.messages.logs.values() if self.messages is not None else ())]

    @property
    def served_logs(self) -> dict[str, TopicLog] | None:
        """The logs that a broker serves; None: those of a backend that is not known here."""
        in_database = self.messages.logs if self.messages is not None else {}
        if self.manifest.manifest is None:
            return {**in_database, **self.logs}
        return {"disk": self.logs, "sqlite": in_database}.get(self.manifest.manifest.backend)

    def findings(self) -> list[Finding]:
        """Everything that is wrong, topic by topic, then the rest."""
        findings_ = [finding for log in self.logs.values() for finding in log.findings()]
        if self.messages is not None:
            findings_ += self.messages.findings
        findings_ += self.manifest.findings()
        logs = self.served_logs
        if logs is not None:
            findings_ += self.positions.findings(any(log.end for log in logs.values()))
            if self.positions.saved is not None and not (self.messages is not None and self.messages.is_foreign):
                findings_ += compare(self.positions.path, self.positions.saved, logs)
        findings_ += self.names.findings(self.positions)
        findings_ += [Finding("leftover", path, why, "removes it") for path, why in self.leftovers]
        return findings_


def is_data_path(directory: str) -> bool:
    """Return whether a directory has anything of a broker, nsqd's `nsqd.dat` included. OSError."""
    entries = os.listdir(directory)
    own = {
        MANIFEST_FILE,
        nsqd_dat.METADATA_FILE,
        POSITIONS_FILE,
        SQLITE_FILE,
        FRESH_FILE,
        SQLITE_FILE + FRESH,
        DIRECTORY,
    }
    files = ReadOnly()
    return any(
        entry in own or (name_of_directory(entry) is not None and _has_log(files, os.path.join(directory, entry)))
        for entry in entries
    )


def check_data_path(directory: str) -> DataPathCheck:
    """Read all of a data path, which is locked. BackendError."""
    files = ReadOnly()
    try:
        entries = sorted(os.listdir(directory))
    except OSError as failure:
        raise backend_error(failure, f"list of {directory}") from failure
    positions = check_positions(directory)
    saved_ends = {topic.name: topic.end for topic in positions.saved.topics} if positions.saved is not None else {}
    by_class = topics_with_class_depths(positions.saved)
    logs: dict[str, TopicLog] = {}
    leftovers = list(_leftovers(directory, entries))
    for entry in entries:
        topic, path = name_of_directory(entry), os.path.join(directory, entry)
        if topic is None or not (topic in saved_ends or _has_log(files, path)):
            continue
        if is_ephemeral(topic):
            leftovers.append((path, "nothing: an ephemeral topic ends with its broker; the next start deletes it"))
        else:
            known_end = saved_ends.get(topic, 0)
            logs[topic] = check_topic(files, topic, path, known_end, by_class=topic in by_class)
    messages = check_messages(directory, by_class)
    manifest = check_manifest(directory, logs, messages.logs if messages is not None else {})
    return DataPathCheck(directory, logs, leftovers, positions, _check_names(directory), manifest, messages)


def _check_names(directory: str) -> NamesCheck:
    names = NamesCheck(os.path.join(directory, nsqd_dat.METADATA_FILE))

    def record(level: str, text: str, /, **fields: object) -> None:
        names.invalid.append(text.format(**fields) if fields else text)

    try:
        names.topics = nsqd_dat.read(names.path, record)
    except MetadataError as error:
        names.problem = str(error)
    return names


def _has_log(files: Files, directory: str) -> bool:
    return any(first_of_log(name) is not None for name in files.names(directory))


def _leftovers(directory: str, entries: list[str]) -> Iterator[tuple[str, str]]:
    for name in entries:
        path = os.path.join(directory, name)
        deleted = _DELETED.fullmatch(name)
        if deleted is not None and name_of_directory(deleted[1]) is not None:
            yield path, "nothing: a deletion of a topic that was interrupted; the next start goes on with it"
        elif written := _TEMPORARY.fullmatch(name):
            yield path, f"nothing: {written[1]} was being written; the next start removes it"
        elif name.startswith(FRESH_FILE) and name[len(FRESH_FILE) :] in ("", "-wal", "-shm"):
            if POSITIONS_FILE in entries:
                yield path, "nothing: positions.db was being set aside"
        elif name.startswith(SQLITE_FILE + FRESH) and SQLITE_FILE in entries:
            yield path, "nothing: messages.db was being set aside"
        elif name == PROBE_FILE:
            yield path, "nothing: a full disk was being tried"
