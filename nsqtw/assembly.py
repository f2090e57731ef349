"""The parts of a broker and how they are put together: storage, broker, writer thread, pump, TCP edge."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import Any

import attrs
from twisted.logger import Logger, LogLevel

from nsqtw import metadata, takeover
from nsqtw.backends.positions import Positions
from nsqtw.core.broker import Broker
from nsqtw.core.recovery import load
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackend, IPositions
from nsqtw.net.pump import Pump
from nsqtw.net.tcp import BrokerFactory
from nsqtw.net.writer import WriterThread
from nsqtw.options import Options
from nsqtw.plugins import find_backend, protocols

POSITIONS_FILE = "positions.db"

_log = Logger()


@attrs.frozen
class Storage:
    """Everything of a broker that holds files, under the data path `directory`."""

    directory: str
    positions: IPositions
    backend: IBackend
    memory_backend: IBackend

    def close(self, clean: bool) -> None:
        """Close all of it; `clean` says that everything is stored."""
        self.backend.close()
        self.memory_backend.close()
        try:
            self.positions.close(clean)
        except BackendError as error:
            log("error", f"NSQ: the next start will take this for a crash - {error}")


@attrs.frozen
class Parts:
    """A broker and what drives it."""

    storage: Storage
    broker: Broker
    writer: WriterThread
    pump: Pump
    clients: BrokerFactory


def open_storage(options: Options, directory: str) -> Storage:
    """Open what is stored under a data path, which is locked. BackendError, PluginError."""
    factory, argument = find_backend(options.backend)
    memory_factory, _ = find_backend("dummy")
    with ExitStack() as undo:
        positions = Positions(os.path.join(directory, POSITIONS_FILE))
        undo.callback(positions.close, False)
        backend = factory.open(argument, directory, options, report)
        undo.callback(backend.close)
        memory_backend = memory_factory.open("", directory, options, report)
        undo.pop_all()
    return Storage(directory, positions, backend, memory_backend)


def assemble(reactor: Any, options: Options, storage: Storage) -> Parts:
    """
    Put a broker together and load what is stored into it, what an nsqd left in the data path included. NsqtwError.
    """
    positions, backend = storage.positions, storage.backend
    saved = positions.load()
    stored = backend.topics()
    broker = Broker(
        options,
        backend,
        storage.memory_backend,
        reserve=positions.reserve,
        log=log,
        start_time=int(time.time()),
    )
    writer = WriterThread(reactor, positions, log)
    pump = Pump(reactor, broker, writer)
    if takeover.is_due(storage.directory):
        from nsqtw.takeover.run import take_over

        named = metadata.read(os.path.join(storage.directory, metadata.METADATA_FILE), log) or []
        take_over(storage.directory, named, broker, positions, saved, stored)
    load(broker, saved, stored, pump.now())
    return Parts(storage, broker, writer, pump, BrokerFactory(reactor, broker, pump, protocols()))


def log(level: str, text: str) -> None:
    """Tell the operator. From any thread."""
    if level == "critical":
        _log.failure("{text}", text=text)
    else:
        _log.emit(LogLevel.levelWithName(level), "{text}", text=text)


def report(topic: str, where: str, first: int, last: int, why: str) -> None:
    """Tell the operator of stored messages that cannot be read. From any thread."""
    _log.error(
        "TOPIC({topic}): messages {first} to {last} in {where} are lost: {why}",
        topic=topic,
        first=first,
        last=last,
        where=where,
        why=why,
    )
