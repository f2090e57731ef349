"""A broker on a data path on disk, as `assemble` puts it together: what an nsqd left there is taken over first."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.dummy import DummyFactory
from nsqtw.backends.positions.store import Positions
from nsqtw.core import recovery
from nsqtw.core.broker import Broker
from nsqtw.errors import NsqtwError
from nsqtw.interfaces import IBackend
from nsqtw.nsqd import nsqd_dat
from nsqtw.nsqd.build import POSITIONS_FILE
from nsqtw.nsqd_import import is_due
from nsqtw.nsqd_import.importer import take_over
from tests.core.harness import WALL_NS, BrokerHarness, Message


class DataPath(BrokerHarness):
    """The broker on `directory`, started."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(**options)
        self.directory = directory
        self.start()

    def start(self) -> None:
        """What the process does at its start. NsqtwError, with nothing left open."""
        path = str(self.directory)
        self.positions = Positions(os.path.join(path, POSITIONS_FILE))
        try:
            self.backend = self.open_backend(path)
        except NsqtwError:
            self.positions.close(False)
            raise
        try:
            self._load(path)
        except NsqtwError:
            self.close()
            raise

    def open_backend(self, path: str) -> IBackend:
        return DiskBackend(path, self.options.max_bytes_per_file, self.report)

    def _load(self, path: str) -> None:
        saved = self.positions.load()
        stored = self.backend.topics()
        memory = DummyFactory().open("", "", self.options, self.report)
        self.broker = Broker(self.options, self.backend, memory, positions=self.positions, log=self.log, start_time=1)
        self.broker.wall_offset_ns = WALL_NS
        if is_due(path):
            named = nsqd_dat.read(os.path.join(path, nsqd_dat.METADATA_FILE), self.log) or []
            take_over(path, named, self.broker, self.positions, saved, stored)
        recovery.load(self.broker, saved, stored, self.now)
        self.turn()

    def close(self) -> None:
        """The process is gone, with what was not saved."""
        self.backend.close()
        self.positions.close(False)

    def restart(self) -> None:
        """Save everything, and start again."""
        self.broker.stop(self.now)
        self.save()
        self.close()
        self.start()

    def drain(self, channel: str = "c", topic: str = "t") -> list[Message]:
        """Everything that the channel has to deliver now, each message finished."""
        reader = self.reader(channel, topic)
        found: list[Message] = []
        while read := reader.read():
            reader.finish(*(message.id for message in read))
            found += read
        reader.leave()
        return found

    def bodies(self, channel: str = "c", topic: str = "t") -> Counter[bytes]:
        """What the channel has to deliver now."""
        return Counter(message.body for message in self.drain(channel, topic))

    def said(self, level: str) -> list[str]:
        """The log lines of a level."""
        return [text for of_line, text in self.lines if of_line == level]


def names(directory: Path) -> list[str]:
    """What is in a directory."""
    return sorted(path.name for path in directory.iterdir())
