"""The manifest of a data path, and messages of backends that it does not name: no broker delivers those."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from shlex import quote

from attrs import define

from nsqtw.backends.check import BackendCheck
from nsqtw.backends.finding import Finding
from nsqtw.backends.manifest import MANIFEST_FILE, Manifest, has_interrupted_restore, read_manifest
from nsqtw.errors import BackendError
from nsqtw.plugins import backend_description


@define
class ManifestCheck:
    """The state of the manifest."""

    directory: str
    manifest: Manifest | None = None
    problem: str = ""
    """Why it cannot be read."""
    is_incomplete: bool = False
    """A restore did not end: the rest of the data path is in the backup."""

    @property
    def path(self) -> str:
        """The path of the manifest."""
        return os.path.join(self.directory, MANIFEST_FILE)

    @property
    def recorded(self) -> list[str]:
        """The backends that it names."""
        one = self.manifest
        return [one.backend, one.migrating_to, one.migrated_from] if one is not None else []

    def foreign(self, backends: Mapping[str, BackendCheck]) -> list[str]:
        """Return the backends with messages that the manifest does not know."""
        if self.manifest is None:
            return []
        recorded = {backend_description(backend) for backend in self.recorded}
        return [name for name, content in backends.items() if content.with_messages and name not in recorded]

    def findings(self, backends: Mapping[str, BackendCheck]) -> Iterator[Finding]:
        """The findings, with what each backend has."""
        if self.is_incomplete:
            yield Finding("interrupted restore", self.path, f"{self.problem}; a start fails")
        elif self.problem:
            yield Finding("unreadable manifest", self.path, f"{self.problem}; a start fails", "sets it aside")
        elif self.manifest is None:
            yield from self._of_several_backends(backends)
        else:
            yield from self._interrupted(self.manifest)
            for backend in self.foreign(backends):
                costs = (
                    f"{_count(backends[backend])} of the backend {backend!r}, which a broker with"
                    f" --backend={quote(self.manifest.backend)} never delivers"
                )
                yield Finding("foreign messages", backends[backend].place, costs, "sets them aside")

    def _of_several_backends(self, backends: Mapping[str, BackendCheck]) -> Iterator[Finding]:
        counts = [
            f"{_count(content)} of the backend {backend!r}"
            for backend, content in backends.items()
            if content.with_messages
        ]
        if len(counts) > 1:
            costs = f"{' and '.join(counts)}; a broker delivers those of its --backend, and never the others"
            yield Finding("two backends", self.directory, costs)

    def _interrupted(self, manifest: Manifest) -> Iterator[Finding]:
        source = manifest.migrated_from or manifest.backend
        target = manifest.migrating_to or manifest.backend
        if source != target:
            costs = f"nothing: a migration was interrupted; 'nsqtw migrate-backend {source} {target}' finishes it"
            yield Finding("interrupted migration", self.path, costs)


def check_manifest(directory: str) -> ManifestCheck:
    """Read the manifest of a data path."""
    check = ManifestCheck(directory)
    try:
        check.manifest = read_manifest(directory)
    except BackendError as problem:
        check.problem = str(problem)
        check.is_incomplete = has_interrupted_restore(directory)
    return check


def _count(content: BackendCheck) -> str:
    topics = content.with_messages.values()
    return f"{sum(topic.count for topic in topics)} stored messages of {len(topics)} topics"
