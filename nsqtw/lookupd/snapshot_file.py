"""
The snapshot file, `registrations.snapshot` in the data path: read at the start, written after changes.

Theory of operation. The first change after a pause is written after a short delay, and the next ones SECONDS later: the
registrations are collected in steps of some milliseconds, and written by a thread. Writing takes at most a twentieth of
the time, however many registrations there are. The stop writes the current state. PINGs are no changes: after a crash
the file may say that an nsqd was heard from earlier than it was, which is harmless, see `snapshot`.

An invalid file is renamed to `registrations.snapshot.bad`, and nsqlookupd starts without registrations, as the original
always does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from nsqtw.backends.files import Files, remove_temporaries, replace_file
from nsqtw.errors import SnapshotError
from nsqtw.lookupd.changes import Change
from nsqtw.lookupd.registrations import Registrations
from nsqtw.lookupd.snapshot import encode, pieces, restore
from nsqtw.runtime.long_work import LongWork
from nsqtw.runtime.turns import PlainTurns

FILE = "registrations.snapshot"
BAD_FILE = f"{FILE}.bad"
SECONDS = 1.0
DELAY_SECONDS = 0.05
"""The delay after a change, for others that follow it."""
_PART_OF_TIME = 19

_log = Logger()


class SnapshotFile:
    """The snapshot file of `registrations` in `directory`."""

    def __init__(
        self, directory: str, registrations: Registrations, turns: PlainTurns, files: Files | None = None
    ) -> None:
        self._path = os.path.join(directory, FILE)
        self._bad_path = os.path.join(directory, BAD_FILE)
        self._registrations = registrations
        self._turns = turns
        self._long_work = LongWork(turns.reactor, turns.now)
        self._files = files or Files()
        self._is_changed = False
        self._is_busy = False
        self._is_failing = False
        self._is_over = False
        self._began = 0.0
        self._not_before = 0.0
        self._timer: Any = None
        self._writing: Deferred[str] | None = None

    def load(self) -> None:
        """Take in what the file says, if there is one that can be used. Remove what interrupted writes left."""
        remove_temporaries(self._files, self._path)
        try:
            with open(self._path, "rb") as file:
                data = file.read()
            restored = restore(self._registrations, data, self._turns.unix_ns())
        except FileNotFoundError:
            return
        except OSError as failure:
            self._quarantine(f"the snapshot cannot be read: {_why(failure)}")
        except SnapshotError as error:
            self._quarantine(str(error))
        else:
            text = "DB: snapshot {path} has {producers} producers and {topics} topics"
            _log.info(text, path=self._path, producers=restored.producers, topics=restored.topics)

    def start(self) -> None:
        """Write it after changes from now on."""
        self._registrations.subscribe(self._record)

    async def stop(self) -> None:
        """Write what there is now, and nothing any more."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing
        self._written(self._replace(encode(self._registrations, self._turns.unix_ns())))

    # -- inside

    def _quarantine(self, why: str) -> None:
        with suppress(OSError):
            self._files.rename(self._path, self._bad_path)
        text = "DB: {why}: {path} is moved to {bad_path}, nothing is known"
        _log.warn(text, why=why, path=self._path, bad_path=self._bad_path)

    def _record(self, change: Change) -> None:
        self._is_changed = True
        if self._timer is None and not self._is_busy:
            self._arm()

    def _arm(self) -> None:
        wait = max(DELAY_SECONDS, self._not_before - self._turns.now())
        self._timer = self._turns.reactor.callLater(wait, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._is_changed, self._is_busy = False, True
        self._began = self._turns.now()
        self._long_work.add(self._put_together())

    def _put_together(self) -> Iterator[None]:
        """Gather the pieces, one at each step, and have them written."""
        gathered = []
        for piece in pieces(self._registrations, self._turns.unix_ns()):
            if self._is_over:
                return
            gathered.append(piece)
            yield
        reactor = self._turns.reactor
        self._writing = deferToThreadPool(reactor, reactor.getThreadPool(), self._replace, b"".join(gathered))
        self._writing.addCallback(self._written)

    def _replace(self, data: bytes) -> str:
        """Write the file. From any thread. Why it could not be written, empty when it was."""
        try:
            replace_file(self._files, self._path, data)
        except OSError as failure:
            return _why(failure)
        return ""

    def _written(self, why: str) -> None:
        self._writing = None
        self._is_busy = False
        now = self._turns.now()
        self._not_before = max(self._began + SECONDS, now + (now - self._began) * _PART_OF_TIME)
        if why:
            self._is_changed = True
            if not self._is_failing:
                _log.error("DB: snapshot {path} cannot be written - {why}", path=self._path, why=why)
        elif self._is_failing:
            _log.info("DB: snapshot {path} is written again", path=self._path)
        self._is_failing = bool(why)
        if self._is_changed and not self._is_over:
            self._arm()


def _why(failure: OSError) -> str:
    return (failure.strerror or str(failure)).lower()
