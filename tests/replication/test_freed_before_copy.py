"""
What all channels have finished is freed in the store. A standby that has not copied it by then never will: its log ends
before what was saved of the channels.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zope.interface import directlyProvides, providedBy

from nsqtw.core.broker import Broker
from nsqtw.core.checkpoint import NamedTopic, SavedState
from nsqtw.interfaces import IBackend, ICopyingBackend
from tests.core.stored_harness import StoredHarness


class Copying:
    """A backend whose commits reach a store, too."""

    def __init__(self, local: IBackend) -> None:
        self.local = local
        directlyProvides(self, ICopyingBackend, *providedBy(local))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.local, name)


class Owner(StoredHarness):
    """A broker whose commits reach a store, too."""

    def _start(self, saved: SavedState, named: Iterable[NamedTopic] = ()) -> Broker:
        self.backend = Copying(self.backend)
        return super()._start(saved, named)

    def kept_log(self, name: str) -> Path:
        """Return a copy of the log as it is now."""
        kept = self._directory / name
        shutil.copytree(self._path / "t", kept)
        return kept

    def take_over(self, log: Path) -> None:
        """Another broker takes over, with what is saved, and this log."""
        before = self._path
        self._lives += 1
        shutil.copytree(before, self._path)
        shutil.rmtree(self._path / "t")
        shutil.copytree(log, self._path / "t")
        self._close(is_clean=False)
        self._open()


def test_what_was_finished_does_not_come_back(tmp_path: Path) -> None:
    owner = Owner(tmp_path, "disk")
    reader = owner.reader()
    owner.put(b"copied")
    [copied] = reader.read()
    reader.finish(copied.id)
    log_of_standby = owner.kept_log("standby")
    owner.put(b"freed before it is copied")
    [freed] = reader.read()
    reader.finish(freed.id)
    owner.save()
    log_of_owner = owner.kept_log("owner")
    try:
        owner.take_over(log_of_standby)
        assert owner.channel().depth == 0
        owner.save()
        # The first owner has still got it, and takes over again.
        owner.take_over(log_of_owner)
        reader = owner.reader()
        assert reader.bodies() == []
        assert owner.channel().depth == 0
        owner.put(b"new")
        assert reader.bodies() == [b"new"]
        assert not owner.damage
    finally:
        owner.close()
