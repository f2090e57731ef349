"""A broker on a data path, nsqd.dat included, that dies with copies of what it leaves; and what fsck says of one."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nsqtw.backends.dummy import DummyFactory
from nsqtw.backends.finding import Finding
from nsqtw.core import recovery
from nsqtw.core.broker import Broker
from nsqtw.core.checkpoint import NamedTopic
from nsqtw.nsqd import nsqd_dat
from nsqtw.tools.fsck.data_path import check_data_path
from nsqtw.tools.fsck.repair import repair
from tests.core.harness import WALL_NS
from tests.nsqd_import.data_path import DataPath

LONG_AFTER = 10_000_000.0
"""Seconds after which nothing is deferred any more."""


class Stored(DataPath):
    """The broker on `directory`, started as `assemble` does it."""

    def _load(self, path: str) -> None:
        self._names_path = os.path.join(path, nsqd_dat.METADATA_FILE)
        named = nsqd_dat.read(self._names_path, self.log) or []
        saved = self.positions.load()
        stored = self.backend.topics()
        memory = DummyFactory().open("", "", self.options, self.report)
        self.broker = Broker(self.options, self.backend, memory, positions=self.positions, log=self.log, start_time=1)
        self.broker.wall_offset_ns = WALL_NS
        recovery.load(self.broker, saved, stored, self.now, named)
        self.turn()

    def write_names(self, topics: Sequence[NamedTopic]) -> None:
        nsqd_dat.write(self._names_path, topics)

    def stop(self) -> None:
        """A clean stop."""
        self.broker.stop(self.now)
        self.save()
        self.backend.close()
        self.positions.close(True)


def copy_of(directory: Path, to: Path) -> Path:
    """What is on disk now, as a killed process leaves it."""
    shutil.copytree(directory, to)
    return to


def content(directory: Path) -> dict[str, bytes]:
    """Every file."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def findings(directory: Path) -> list[Finding]:
    """What fsck finds; it changes nothing."""
    before = content(directory)
    found = check_data_path(str(directory)).findings()
    assert content(directory) == before
    return found


def repair_path(directory: Path) -> list[Finding]:
    """Repair; what is left. All that was promised is done."""
    _, failures = repair(check_data_path(str(directory)))
    assert failures == []
    left = findings(directory)
    assert [finding for finding in left if finding.remedy is not None] == []
    return left


def whats(found: Sequence[Finding]) -> list[str]:
    """Of what kinds findings are."""
    return [finding.what for finding in found]


def delivered(directory: Path, *channels: str, **options: object) -> dict[str, Counter[bytes]]:
    """All that a broker started on a copy delivers to channels of `t`, deferred messages too."""
    copy = copy_of(directory, directory.with_name(directory.name + "-started"))
    try:
        broker = Stored(copy, **options)
        try:
            broker.wait(LONG_AFTER)
            return {channel: broker.bodies(channel) for channel in channels}
        finally:
            broker.close()
    finally:
        shutil.rmtree(copy)
