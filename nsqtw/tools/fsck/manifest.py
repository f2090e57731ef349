"""The manifest of a data path, and messages of backends that it does not name: no broker delivers those."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from shlex import quote

from attrs import define, field

from nsqtw.backends.disk.topic_check import TopicLog
from nsqtw.backends.files import Files
from nsqtw.backends.finding import Finding
from nsqtw.backends.manifest import MANIFEST_FILE, Manifest, has_interrupted_restore, read_manifest
from nsqtw.backends.quarantine import Quarantine
from nsqtw.backends.spare_space import SUFFIX
from nsqtw.backends.sqlite.schema import FILE as SQLITE_FILE
from nsqtw.errors import BackendError
from nsqtw.names import directory_name

Logs = Mapping[str, TopicLog]


@define
class ManifestCheck:
    """The state of the manifest, and the contents of each backend."""

    directory: str
    present: dict[str, Logs]
    """By backend, disk and sqlite, the topics that have messages there."""
    manifest: Manifest | None = None
    problem: str = ""
    """Why it cannot be read."""
    is_incomplete: bool = False
    """A restore did not end: the rest of the data path is in the backup."""
    foreign: list[str] = field(factory=list)
    """Backends with messages that the manifest does not know."""

    @property
    def path(self) -> str:
        """The path of the manifest."""
        return os.path.join(self.directory, MANIFEST_FILE)

    def findings(self) -> Iterator[Finding]:
        """The findings."""
        if self.is_incomplete:
            yield Finding("interrupted restore", self.path, f"{self.problem}; a start fails")
        elif self.problem:
            yield Finding("unreadable manifest", self.path, f"{self.problem}; a start fails", "sets it aside")
        elif self.manifest is None:
            yield from self._of_two_backends()
        else:
            yield from self._interrupted(self.manifest)
            for backend in self.foreign:
                costs = (
                    f"{_count(self.present[backend])} of the backend {backend!r}, which a broker with"
                    f" --backend={quote(self.manifest.backend)} never delivers"
                )
                yield Finding("foreign messages", self._where(backend), costs, "sets them aside")

    def _of_two_backends(self) -> Iterator[Finding]:
        counts = [f"{_count(logs)} of the backend {backend!r}" for backend, logs in self.present.items() if logs]
        if len(counts) > 1:
            costs = f"{' and '.join(counts)}; a broker delivers those of its --backend, and never the others"
            yield Finding("two backends", self.directory, costs)

    def _interrupted(self, manifest: Manifest) -> Iterator[Finding]:
        source = manifest.migrated_from or manifest.backend
        target = manifest.migrating_to or manifest.backend
        if source != target:
            costs = f"nothing: a migration was interrupted; 'nsqtw migrate-backend {source} {target}' finishes it"
            yield Finding("interrupted migration", self.path, costs)

    def _where(self, backend: str) -> str:
        return os.path.join(self.directory, SQLITE_FILE) if backend == "sqlite" else self.directory


def check_manifest(directory: str, on_disk: Logs, in_sqlite: Logs) -> ManifestCheck:
    """Compare the manifest with the topics that have messages on disk and in messages.db."""
    check = ManifestCheck(directory, {"disk": _with_messages(on_disk), "sqlite": _with_messages(in_sqlite)})
    try:
        check.manifest = read_manifest(directory)
    except BackendError as problem:
        check.problem = str(problem)
        check.is_incomplete = has_interrupted_restore(directory)
    if check.manifest is not None:
        recorded = (check.manifest.backend, check.manifest.migrating_to, check.manifest.migrated_from)
        check.foreign = [backend for backend, logs in check.present.items() if logs and backend not in recorded]
    return check


def quarantine_foreign(check: ManifestCheck, files: Files, quarantine: Quarantine) -> None:
    """Move the files of backends that the manifest does not know, and a manifest that cannot be read. OSError."""
    if check.problem and not check.is_incomplete:
        quarantine.move(check.path)
    if "sqlite" in check.foreign:
        path = os.path.join(check.directory, SQLITE_FILE)
        # The database goes first: without its log of changes it would lack what is in there.
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                quarantine.move(path + suffix)
        with suppress(FileNotFoundError):
            files.unlink(path + SUFFIX)
    if "disk" in check.foreign:
        for topic in check.present["disk"]:
            directory = os.path.join(check.directory, directory_name(topic))
            for name in files.names(directory):
                quarantine.move(os.path.join(directory, name))
            files.remove_directory(directory)


def _with_messages(logs: Logs) -> Logs:
    return {topic: log for topic, log in logs.items() if len(log.at_once) or len(log.deferred)}


def _count(logs: Logs) -> str:
    messages = sum(len(log.at_once) + len(log.deferred) for log in logs.values())
    return f"{messages} stored messages of {len(logs)} topics"
