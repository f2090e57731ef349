"""
Everything in a data path: the messages of each backend, positions.db, nsqd.dat, and leftover files.

What is not the broker's is left alone and not mentioned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from attrs import define, field

from nsqtw.backends.check import BackendCheck, StoredTopic
from nsqtw.backends.files import Files, backend_error
from nsqtw.backends.finding import Finding
from nsqtw.backends.manifest import MANIFEST_FILE
from nsqtw.backends.quarantine import DIRECTORY
from nsqtw.core.checkpoint import NamedTopic
from nsqtw.errors import MetadataError, NsqtwError
from nsqtw.names import name_of_directory
from nsqtw.nsqd import nsqd_dat
from nsqtw.nsqd.build import POSITIONS_FILE
from nsqtw.plugins import backend_description
from nsqtw.tools.backend_files import known_backends
from nsqtw.tools.fsck.manifest import ManifestCheck, check_manifest
from nsqtw.tools.fsck.positions import (
    FRESH_FILE,
    PositionsCheck,
    check_positions,
    compare,
    topics_with_class_depths,
)

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
    backends: dict[str, BackendCheck]
    """By NAME or NAME:ARGUMENT, in this order."""
    unknown: dict[str, str]
    """Backends whose messages cannot be checked, and why."""
    leftovers: list[tuple[str, str]]
    """Directories and files that do not count, and why."""
    positions: PositionsCheck
    names: NamesCheck
    manifest: ManifestCheck

    @property
    def topics(self) -> dict[str, StoredTopic]:
        """The topics of all backends, by name."""
        found: dict[str, StoredTopic] = {}
        for content in reversed(self.backends.values()):
            found.update(content.topics)
        return found

    @property
    def served_topics(self) -> Mapping[str, StoredTopic] | None:
        """The topics that a broker serves; None: those of a backend that is not known here."""
        if self.manifest.manifest is None:
            return self.topics
        served = self.backends.get(backend_description(self.manifest.manifest.backend))
        return served.topics if served is not None else None

    @property
    def foreign(self) -> list[str]:
        """The backends with messages that no broker delivers."""
        return self.manifest.foreign(self.backends)

    def findings(self) -> list[Finding]:
        """Everything that is wrong, backend by backend, then the rest."""
        findings_ = [finding for content in self.backends.values() for finding in content.findings]
        findings_ += self.manifest.findings(self.backends)
        topics = self.served_topics
        if topics is not None:
            findings_ += self.positions.findings(any(topic.end for topic in topics.values()))
            is_comparable = not any(content.is_unreadable for content in self.backends.values())
            if self.positions.saved is not None and is_comparable:
                findings_ += compare(self.positions.path, self.positions.saved, topics)
        findings_ += self.names.findings(self.positions)
        findings_ += [Finding("leftover", path, why, "removes it") for path, why in self.leftovers]
        return findings_


def is_data_path(directory: str) -> bool:
    """Return whether a directory has anything of a broker, nsqd's `nsqd.dat` included. OSError, NsqtwError."""
    own = {MANIFEST_FILE, nsqd_dat.METADATA_FILE, POSITIONS_FILE, FRESH_FILE, DIRECTORY}
    entries = os.listdir(directory)
    if not own.isdisjoint(entries):
        return True
    names = [*entries]
    for entry in entries:
        with suppress(NsqtwError, OSError):  # a directory of something else
            names += [f"{entry}/{name}" for name in Files().names(os.path.join(directory, entry))]
    return any(known_backends().ask(lambda files: any(map(files.owns, names))).values())


def check_data_path(directory: str) -> DataPathCheck:
    """Read all of a data path, which is locked. NsqtwError."""
    try:
        entries = sorted(os.listdir(directory))
    except OSError as failure:
        raise backend_error(failure, f"list of {directory}") from failure
    positions = check_positions(directory)
    saved_ends = {topic.name: topic.end for topic in positions.saved.topics} if positions.saved is not None else {}
    by_class = topics_with_class_depths(positions.saved)
    manifest = check_manifest(directory)
    recorded = [backend_description(name) for name in manifest.recorded if name]
    files = known_backends(recorded)
    checks = files.ask(lambda one: one.check(directory, saved_ends, by_class), recorded or files.known)
    leftovers = [*_leftovers(directory, entries), *(one for check in checks.values() for one in check.leftovers)]
    leftovers.sort(key=_place_of_leftover)
    names = _check_names(directory)
    return DataPathCheck(directory, checks, files.unknown, leftovers, positions, names, manifest)


def _place_of_leftover(leftover: tuple[str, str]) -> tuple[bool, str]:
    """Topics are behind all others."""
    path, _ = leftover
    return name_of_directory(os.path.basename(path)) is not None, path


def _check_names(directory: str) -> NamesCheck:
    names = NamesCheck(os.path.join(directory, nsqd_dat.METADATA_FILE))

    def record(level: str, text: str, /, **fields: object) -> None:
        names.invalid.append(text.format(**fields) if fields else text)

    try:
        names.topics = nsqd_dat.read(names.path, record)
    except MetadataError as error:
        names.problem = str(error)
    return names


def _leftovers(directory: str, entries: list[str]) -> Iterator[tuple[str, str]]:
    fresh = [FRESH_FILE + suffix for suffix in ("", "-wal", "-shm")]
    for name in entries:
        path = os.path.join(directory, name)
        if written := _TEMPORARY.fullmatch(name):
            yield path, f"nothing: {written[1]} was being written; the next start removes it"
        elif name in fresh and POSITIONS_FILE in entries:
            yield path, "nothing: positions.db was being set aside"
