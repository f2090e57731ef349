"""
What is seen of a data set in its store, by somebody who never writes there: who owns it, and what was stored when.

    torn        the LSN went back, or an epoch began below the one before
    fence       a message that was published to the owner of an epoch was stored after a later epoch began
    late OK     a publish that began when a later epoch had been seen was answered with OK
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nsqtw.core.segment import BODY_AT, SIZE_BYTES
from nsqtw.errors import BackendError
from nsqtw.replication.store import DataSet
from tests.crash.checks import name
from tests.crash.history import moment
from tests.replication.servers import opened

_POLL_SECONDS = 0.05
_TIMEOUT_SECONDS = 2.0
_READ_BYTES = 4 << 20
_SIZE = struct.Struct(">I")

Publish = tuple[bytes, int, float, bool]
"""Body, life, when it began, and whether it was answered with OK."""


class Watch(threading.Thread):
    """Looks at the data set all the time. `follow` gets each row. It has a connection of its own that nobody breaks."""

    def __init__(self, folder: Path, dsn: str, follow: Callable[[DataSet], None]) -> None:
        super().__init__(name="watch")
        self._store = opened(folder, dsn, _TIMEOUT_SECONDS, "nsqtw")
        self._follow = follow
        self._stopping = threading.Event()
        self._lsn = 0
        self._after = 0
        self.seen: dict[int, float] = {}
        """When each epoch was known to have begun."""
        self.began: dict[int, int] = {}
        """The LSN at which each epoch began."""
        self.stored: dict[bytes, int] = {}
        """The LSN with which a message was stored. Of some that were trimmed soon nothing is known."""
        self.wrongs: list[str] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.wait(_POLL_SECONDS):
                try:
                    self._look()
                except BackendError:
                    continue
        except BaseException as failure:
            self.failure = failure
        finally:
            self._store.close()

    def close(self) -> None:
        """End it."""
        self._stopping.set()
        self.join()

    def _look(self) -> None:
        data_set = self._store.data_set()
        if data_set is None:
            return
        if data_set.lsn < self._lsn:
            self.wrongs.append(f"torn: the LSN was {self._lsn}, and is {data_set.lsn} in epoch {data_set.epoch}")
        self._lsn = max(self._lsn, data_set.lsn)
        if data_set.epoch not in self.seen:
            self.seen[data_set.epoch] = moment()
        self._follow(data_set)
        for epoch in range(max(self.began, default=1), data_set.epoch + 1):
            claim = self._store.claim_of(epoch)
            if claim is not None:
                began = claim.began
                if began < self.began.get(epoch - 1, 0):
                    self.wrongs.append(f"torn: epoch {epoch} began with {began}, and the one before above that")
                self.began[epoch] = began
        for lsn, _, segment in self._store.segments(self._after, _READ_BYTES):
            self._after = lsn
            for body in _bodies(segment.frames):
                self.stored.setdefault(body, lsn)

    def found(self, publishes: Iterable[Publish]) -> Iterator[str]:
        """Tell what is wrong with these publishes."""
        yield from self.wrongs
        for body, life, at, is_good in publishes:
            ends = min((began for epoch, began in self.began.items() if epoch > life), default=None)
            lsn = self.stored.get(body, 0)
            if ends is not None and lsn > ends:
                yield f"fence: {name(body)} of epoch {life} has the LSN {lsn}, and the next epoch began with {ends}"
            known = min((seen for epoch, seen in self.seen.items() if epoch > life), default=None)
            if is_good and known is not None and at > known:
                yield f"late OK: {name(body)} was published {at - known:.3f} s after epoch {life} was over"

    def forget(self) -> None:
        """A new chapter begins."""
        self.stored.clear()


def _bodies(frames: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(frames):
        (size,) = _SIZE.unpack_from(frames, place)
        yield frames[place + BODY_AT : place + SIZE_BYTES + size]
        place += SIZE_BYTES + size
