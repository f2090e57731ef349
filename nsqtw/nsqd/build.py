"""The parts of a broker and how they are put together: storage, broker, writer thread, pump, TCP edge."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import attrs
from twisted.logger import Logger

from nsqtw import nsqd_import
from nsqtw.auth.authorization import PluginAuthorizations
from nsqtw.backends.files import Files, remove_temporaries
from nsqtw.backends.manifest import MANIFEST_FILE, check_backend
from nsqtw.backends.positions.store import Positions
from nsqtw.core.broker import Broker
from nsqtw.core.checkpoint import NamedTopic, SavedState
from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.core.group_commit import CommitBatch
from nsqtw.core.latency import Measure
from nsqtw.core.positions import IPositions
from nsqtw.core.recovery import load
from nsqtw.daemon.operator_log import log
from nsqtw.errors import AuthError, BackendError, OptionError
from nsqtw.interfaces import IAuthorizer, IBackend, IBackendQueue, IProtocolFactory, IReleasingBackend, Report
from nsqtw.net.descriptors import Descriptors
from nsqtw.net.limits import Limits
from nsqtw.net.tcp_factory import BrokerFactory
from nsqtw.nsqd import nsqd_dat
from nsqtw.options.broker import Options
from nsqtw.plugins import backend_description, find_authorizer, find_backend, find_protocols
from nsqtw.replication.set_aside import check_not_a_copy
from nsqtw.runtime.leased_pump import LeasedPump
from nsqtw.runtime.pump import Pump
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.storage_thread import StorageThread

if TYPE_CHECKING:
    from nsqtw.replication.ownership import Ownership

POSITIONS_FILE = "positions.db"
LATENCY_ACCURACY = 0.01
"""The relative accuracy of latency percentiles."""

_log = Logger()


@attrs.frozen
class Storage:
    """Everything of a broker that holds files, under the data path `directory`."""

    directory: str
    positions: IPositions
    backend: IBackend
    memory_backend: IBackend
    ownership: Ownership | None = None
    """With a replica store: the right to write to it."""

    @property
    def metadata_path(self) -> str:
        """The path of nsqd.dat."""
        return os.path.join(self.directory, nsqd_dat.METADATA_FILE)

    def close(self, clean: bool, *, is_released: bool = False) -> None:
        """
        Close all of it; `clean` says that everything is stored. An owner then releases its data set; it also does with
        `is_released`.
        """
        is_synced = self.ownership is not None and clean and self._sync()
        self.backend.close()
        self.memory_backend.close()
        try:
            self.positions.close(clean)
            if self.ownership is not None:
                self.ownership.close(is_synced=is_synced, is_released=clean or is_released)
        except BackendError as error:
            log("error", "NSQ: the next start will take this for a crash - {error}", error=error)

    def _sync(self) -> bool:
        """Bring all messages to stable storage. Returns whether they are there."""
        try:
            return not self.backend.commit([], True)
        except BackendError:
            return False


@attrs.frozen
class Parts:
    """A broker and what drives it."""

    storage: Storage
    broker: Broker
    writer: StorageThread
    pump: Pump
    clients: BrokerFactory
    authorizations: PluginAuthorizations | None
    """The permissions of clients, with an authorizer."""
    limits: Limits


def open_authorizer(options: Options) -> IAuthorizer | None:
    """Return the authorizer of the options; None without one. OptionError, PluginError."""
    if not options.authorizer:
        return None
    factory, argument = find_authorizer(options.authorizer)
    if options.auth_http_address and factory.name != "http":
        raise OptionError(f"--auth-http-address is for --auth=http, and not for --auth={factory.name}")
    try:
        return factory.open(argument, options, log)
    except AuthError as error:
        raise OptionError(f"--auth={factory.name} cannot be used - {error}") from error


def open_backend(options: Options, directory: str, on_report: Report | None = None) -> IBackend:
    """
    Open the messages under a data path, which is locked. `on_report` is told of damage in the place of the operator.
    BackendError, PluginError.
    """
    factory, argument = find_backend(options.backend)
    for name in (nsqd_dat.METADATA_FILE, MANIFEST_FILE):
        remove_temporaries(Files(), os.path.join(directory, name))
    warning = check_backend(directory, backend_description(options.backend))
    if warning:
        log("warn", "NSQ: {warning}", warning=warning)
    return factory.open(argument, directory, options, on_report or report)


def open_storage(options: Options, directory: str, ownership: Ownership | None = None) -> Storage:
    """
    Open what is stored under a data path, which is locked; with `ownership` also its copy. BackendError, PluginError.
    """
    if ownership is None:
        check_not_a_copy(directory)
    positions: IPositions = Positions(os.path.join(directory, POSITIONS_FILE))
    backend = open_backend(options, directory, None if ownership is None else partial(_report_damage, ownership))
    if ownership is not None:
        # Only an owner waits for these imports.
        from nsqtw.replication.backend import ReplicatedBackend
        from nsqtw.replication.positions import ReplicatedPositions

        positions = ReplicatedPositions(positions, ownership, log)
        backend = ReplicatedBackend(backend, ownership)
    return Storage(directory, positions, backend, memory_backend(options, directory), ownership)


def memory_backend(options: Options, directory: str) -> IBackend:
    """Return the backend of ephemeral topics."""
    factory, _ = find_backend("dummy")
    return factory.open("", directory, options, report)


def assemble(
    reactor: Reactor,
    options: Options,
    storage: Storage,
    authorizer: IAuthorizer | None = None,
    protocols: Mapping[bytes, IProtocolFactory] | None = None,
) -> Parts:
    """
    Put a broker together and load what is stored into it, what an nsqd left in the data path included. `protocols` are
    those that the options name, if they are known already. NsqtwError.
    """
    positions, backend = storage.positions, storage.backend
    named = nsqd_dat.read(storage.metadata_path, log) or []
    path = os.path.join(storage.directory, POSITIONS_FILE)
    failure_text = _failure_text(path)
    saved = positions.load()
    for invalid in saved.invalid:
        log("error", f"NSQ: {POSITIONS_FILE} - {invalid}")
    stored = backend.topics()
    if saved.lost:
        failure_text = f"was damaged: {saved.lost_how or 'it was set aside'}"
    if saved.lost or (failure_text and stored and not nsqd_import.is_due(storage.directory)):
        log("error", "NSQ: {path} {how} - channels start at the oldest message kept", path=path, how=failure_text)
    broker = Broker(
        options,
        backend,
        storage.memory_backend,
        positions=positions,
        log=log,
        start_time=int(time.time()),
        measure=measure(options),
    )
    writer = StorageThread(reactor, positions, log, partial(write_names, storage.metadata_path))
    pump = Pump(reactor, broker, writer) if storage.ownership is None else LeasedPump(reactor, broker, writer)
    if nsqd_import.is_due(storage.directory):
        from nsqtw.nsqd_import.importer import take_over

        take_over(storage.directory, named, broker, positions, saved, stored)
    load(broker, saved, stored, pump.now(), named)
    if not saved.clean_stop and (saved.topics or stored):
        log("info", "NSQ: {recovered}", recovered=_recovered(broker, saved))
    authorizations = None if authorizer is None else PluginAuthorizations(reactor, authorizer, pump.now)
    broker.authorizations = authorizations
    release = backend.release_descriptors if IReleasingBackend.providedBy(backend) else lambda: False
    limits = Limits(options, reactor, pump.now, Descriptors(release))
    clients = BrokerFactory(reactor, broker, pump, protocols or find_protocols(options.protocol), limits)
    return Parts(storage, broker, writer, pump, clients, authorizations, limits)


def assemble_standby(
    reactor: Reactor,
    options: Options,
    directory: str,
    authorizer: IAuthorizer | None = None,
) -> Parts:
    """
    Put a broker together that has no topics and takes none, for the HTTP of a standby: it stores nothing.
    """
    nothing = memory_backend(options, directory)
    positions = Positions(os.path.join(directory, POSITIONS_FILE))  # never opened
    broker = Broker(options, nothing, nothing, positions=positions, log=log, start_time=int(time.time()))
    pump = LeasedPump(reactor, broker, NothingStored())
    pump.serve_until(-inf)
    authorizations = None if authorizer is None else PluginAuthorizations(reactor, authorizer, pump.now)
    broker.authorizations = authorizations
    limits = Limits(options, reactor, pump.now, Descriptors(lambda: False))
    clients = BrokerFactory(reactor, broker, pump, {}, limits)
    storage = Storage(directory, positions, nothing, nothing)
    writer = StorageThread(reactor, positions, log)
    return Parts(storage, broker, writer, pump, clients, authorizations, limits)


class NothingStored:
    """The writer of a broker that has no topics: what it wants to save is of no use."""

    def save(self, save: CheckpointJob, done: Callable[[CheckpointJob, BackendError | None], None]) -> None:
        """Writer API"""
        done(save, None)

    def commit(
        self, batch: CommitBatch, done: Callable[[CommitBatch, dict[IBackendQueue, BackendError]], None]
    ) -> None:
        """Writer API"""
        done(batch, {})


def _recovered(broker: Broker, saved: SavedState) -> str:
    """Return a line about what a start after an unclean stop found."""
    put_totals = {topic.name: topic.put_total for topic in saved.topics}
    more = sum(max(0, topic.message_count - put_totals.get(name, 0)) for name, topic in broker.topics.items())
    depth = sum(channel.depth for topic in broker.topics.values() for channel in topic.channels.values())
    return (
        f"recovered from an unclean stop: {len(broker.topics)} topics, depth of all channels {depth};"
        f" {more} messages were stored after {POSITIONS_FILE} was saved last; messages that were finished or in flight"
        " in that second may come again"
    )


def _failure_text(path: str) -> str:
    """Return what the operator is told about a missing file; "" when it exists."""
    try:
        return "" if os.path.getsize(path) else "is empty"
    except OSError:
        return "is missing"


def write_names(path: str, topics: Iterable[NamedTopic]) -> None:
    """Let `nsqd.dat` name these topics. From any thread. BackendError."""
    log("info", f"NSQ: persisting topic/channel metadata to {path}")
    nsqd_dat.write(path, topics)


def measure(options: Options) -> Measure | None:
    """The latencies the options ask for; None when they ask for none, and then nothing is loaded for it."""
    if not options.e2e_processing_latency_percentile:
        return None
    from ddsketch import DDSketch

    return Measure(
        options.e2e_processing_latency_percentile,
        options.e2e_processing_latency_window_time,
        partial(DDSketch, LATENCY_ACCURACY),
    )


def _report_damage(ownership: Ownership, topic: str, where: str, first: int, last: int, why: str) -> None:
    """Tell the operator, and have the store's copy take the place of what is lost."""
    report(topic, where, first, last, why)
    if first <= last:
        ownership.damaged(f"TOPIC({topic}): {where}: {why}")


def report(topic: str, where: str, first: int, last: int, why: str) -> None:
    """Tell the operator of stored messages that cannot be read, and what else was found there. From any thread."""
    if not topic:
        what = "messages of a topic that cannot be told are lost: " if first <= last else ""
        log("error", "NSQ: {where}: {what}{why}", where=where, what=what, why=why)
        return
    if last < first:
        log("warn", "TOPIC({topic}): {where}: {why}", topic=topic, where=where, why=why)
        return
    _log.error(
        "TOPIC({topic}): messages {first} to {last} in {where} are lost: {why}",
        topic=topic,
        first=first,
        last=last,
        where=where,
        why=why,
    )
