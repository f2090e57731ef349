"""
The migration of a data path from one storage backend to another, while no broker uses it.

Theory of operation. The messages keep their sequences, so nothing in positions.db changes. A migration is three steps,
and the manifest of the data path says which one is next, so that a run that was killed is finished by another:

    migrating_to = TO      the messages are copied, topic by topic; what an earlier run copied is deleted first
    backend = TO           one rename switches, when all copies are on stable storage, read back and counted
    migrated_from = FROM   the old messages are deleted

Until the switch a broker starts with FROM and has lost nothing; from then on it starts with TO.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

from attrs import frozen

from nsqtw.backends.manifest import Manifest, backends_with_messages, read_manifest, write_manifest
from nsqtw.daemon.data_path import lock_data_path
from nsqtw.errors import BackendError, NsqtwError, OptionError
from nsqtw.interfaces import IBackend, IBackendQueueFactory, IDamagedBackend, IHeaderBackend, IRemovableBackend
from nsqtw.options.broker import Options
from nsqtw.plugins import backend_description, find_backend
from nsqtw.printing import complain, write_line
from nsqtw.tools.backend_files import DUMMY
from nsqtw.tools.fsck.positions import check_positions
from nsqtw.tools.owner import Owner

_COPIED_BYTES = 4 << 20

Say = Callable[[str], None]
_Found = tuple[IBackendQueueFactory, str]


@frozen
class Stored:
    """The size of a topic."""

    messages: int
    bytes: int


def migrate_backend(directory: str, source: str, target: str, say: Say) -> None:
    """
    Move all messages of a data path from the backend `source` to the backend `target`, both as `--backend` takes them.
    `say` gets a line for each topic and for each thing that was found damaged, and a summary. Root becomes the owner of
    the data path. NsqtwError: the messages are where the manifest says, and the migration may be run again. OSError.
    """
    source, target = backend_description(source), backend_description(target)
    if source == target:
        raise OptionError(f"FROM and TO are the same backend, {source!r}")
    directory = os.path.abspath(directory)
    found = {backend: find_backend(backend) for backend in (source, target)}  # while root can read the code
    Owner.of(directory).become()
    lock = lock_data_path(directory)
    try:
        migration = _Migration(directory, source, target, found, say)
        manifest = migration.manifest()
        if manifest.backend == source:
            migration.copy(manifest)
        migration.delete_source()
    finally:
        os.close(lock)


def run(data_path: str, source: str, target: str) -> int:
    """The command `nsqtw migrate-backend`. The exit code."""
    try:
        migrate_backend(data_path, source, target, write_line)
    except (NsqtwError, OSError) as error:
        complain(f"nsqtw migrate-backend: {error}")
        return 1
    return 0


class _Migration:
    def __init__(self, directory: str, source: str, target: str, found: Mapping[str, _Found], say: Say) -> None:
        self._found = found
        self._directory = directory
        self._source = source
        self._target = target
        self._say = say
        saved = check_positions(directory).saved
        self._ends = {topic.name: topic.end for topic in saved.topics} if saved is not None else {}

    def manifest(self) -> Manifest:
        """Return the recorded or detected backend. OptionError when there is nothing to migrate."""
        manifest = read_manifest(self._directory)
        if manifest is None:
            present = backends_with_messages(self._directory)
            if len(present) > 1:
                names = " and ".join(map(repr, present))
                raise OptionError(
                    f"{self._directory} has messages of the backends {names}, and no manifest says which are the"
                    " broker's: start a broker once with the right --backend, or write the manifest"
                    " (docs/how-to/recovery.md)"
                )
            manifest = Manifest(present[0] if present else self._source)
        if manifest.backend == self._target:
            if manifest.migrated_from not in ("", self._source):
                raise OptionError(self._is_interrupted(manifest.migrated_from, self._target))
            return manifest
        if manifest.backend != self._source:
            raise OptionError(
                f"the messages of {self._directory} are kept by the backend {manifest.backend!r}, not {self._source!r}"
            )
        if manifest.migrated_from:
            raise OptionError(self._is_interrupted(manifest.migrated_from, manifest.backend))
        return manifest

    def copy(self, manifest: Manifest) -> None:
        """Copy everything and switch."""
        with self._opened(self._source) as source:
            topics = source.topics()
            if topics and self._target.partition(":")[0] == DUMMY:
                raise OptionError(f"the backend {self._target!r} keeps no messages, and there are some to keep")
            self._clear_target(manifest)
            write_manifest(self._directory, Manifest(self._source, migrating_to=self._target))
            with self._opened(self._target) as target:
                copied = {topic: self._copy_topic(source, target, topic) for topic in topics}
                for failure in target.commit([], True).values():
                    raise failure
        with self._opened(self._target) as target:
            for topic, stored in copied.items():
                kept = Stored(*map(sum, zip((0, 0), *_sizes(target, topic), strict=True)))
                if kept != stored:
                    raise BackendError(f"topic {topic}: {stored.messages} messages were copied, {kept.messages} found")
        write_manifest(self._directory, Manifest(self._target, migrated_from=self._source))
        messages = sum(stored.messages for stored in copied.values())
        size = sum(stored.bytes for stored in copied.values())
        self._say(
            f"moved from {self._source} to {self._target}:"
            f" {len(copied)} topics, {messages} stored messages, {size} bytes"
        )

    def delete_source(self) -> None:
        """Delete what the switch made superfluous."""
        manifest = read_manifest(self._directory)
        if manifest is None or not manifest.migrated_from:
            self._say(f"the backend is {self._target} already")
            return
        self._remove(self._source)
        write_manifest(self._directory, Manifest(self._target))

    def _clear_target(self, manifest: Manifest) -> None:
        """Delete what an interrupted run has copied. OptionError for messages that none has."""
        if manifest.migrating_to:
            self._remove(manifest.migrating_to)
            return
        with self._opened(self._target) as target:
            foreign = target.topics()
        if foreign:
            raise OptionError(
                f"the backend {self._target!r} has messages of {len(foreign)} topics already that are not copies:"
                f" 'nsqtw fsck --repair {self._directory}' sets them aside"
            )

    def _copy_topic(self, source: IBackend, target: IBackend, topic: str) -> Stored:
        old, new = source.queue(topic), target.queue(topic)
        messages = size = 0
        following = old.first
        stores_headers = IHeaderBackend.providedBy(target)
        while segments := old.read(following, _COPIED_BYTES):
            if not stores_headers and any(segment.headers is not None or segment.channel for segment in segments):
                raise OptionError(
                    f"topic {topic} has messages with headers, which the backend {self._target!r} does not store"
                )
            for failure in target.commit([(new, segments)], False).values():
                raise failure
            messages += sum(segment.count for segment in segments)
            size += sum(segment.size for segment in segments)
            following = segments[-1].end
        self._say(f"topic {topic}: {messages} stored messages")
        return Stored(messages, size)

    def _remove(self, backend: str) -> None:
        with self._opened(backend) as opened:
            for topic in opened.topics():
                opened.queue(topic).delete()
            if IRemovableBackend.providedBy(opened):
                opened.remove()

    @contextmanager
    def _opened(self, backend: str) -> Iterator[IBackend]:
        factory, argument = self._found.get(backend) or find_backend(backend)
        opened = factory.open(argument, self._directory, Options(backend=backend), self._report)
        with closing(opened):
            if IDamagedBackend.providedBy(opened):
                opened.expect(self._ends)
            yield opened

    def _report(self, topic: str, where: str, first: int, last: int, why: str) -> None:
        costs = f"messages {first} to {last} are lost: " if first <= last else ""
        self._say(f"topic {topic}: {where}: {costs}{why}")

    def _is_interrupted(self, source: str, target: str) -> str:
        return f"a migration was interrupted: run 'nsqtw migrate-backend {source} {target}' first"


def _sizes(backend: IBackend, topic: str) -> Iterator[tuple[int, int]]:
    """The messages and bytes of each part of a topic, read with its checksums."""
    queue = backend.queue(topic)
    following = queue.first
    while segments := queue.read(following, _COPIED_BYTES):
        for segment in segments:
            yield segment.count, segment.size
        following = segments[-1].end
