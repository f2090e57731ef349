"""
One log file of the running broker, and the set of open log files.

A file is read in the reactor thread while the storage thread may replace or unlink it. Two rules keep that right:

- a descriptor is closed when it is not used any more, not when it leaves the set of open files;
- a file that was replaced, unlinked or kept for reuse is marked `is_removed` before its name gets another meaning. A
reader that finds damage, or fails to open a file, checks `is_removed` first: it then asks the log again.
"""

# mypyc: compiled

from __future__ import annotations

import resource
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from random import choice
from threading import Lock
from typing import Final

from nsqtw.backends.disk.format import HEADER_BYTES, Entry
from nsqtw.backends.files import Files, write_all

INDEX_BYTES: Final = 256 * 1024
"""Bytes between two entries of an index, about."""
AHEAD_FROM: Final = 4 * 1024 * 1024
"""A file that is larger gets space ahead (`writer`)."""

KEPT_OPEN = 256
"""Files that may be open whatever else needs descriptors, if the limit is not low."""
_KEPT_SHARE = 8
"""The share of a low limit."""
_SHARE = 1, 2
"""
The share of all descriptors below which new numbers mean that nothing needs to be closed. Connections may have more of
any limit (`net.descriptors`), so that files never exclude them.
"""
_CLOSED_AT_ONCE = 8
"""An eighth more than `_SHARE` can be in use with it; with two it would be twice as many."""
_UNLIMITED = 1_048_576


class Descriptor:
    """
    An open file, closed when the last reference to it goes. Its number is not told: compiled code lets go of a local
    after it is last used, and were that to read the number, the file would be closed before a call that is given it.
    The file stays open until a method that uses it returns. The methods are those of `Files`, and raise what they do.
    """

    __slots__ = ("_fd", "_files")

    def __init__(self, files: Files, fd: int) -> None:
        self._files = files
        self._fd = fd

    def __del__(self) -> None:
        with suppress(OSError):
            self._files.close(self._fd)

    def read(self, size: int, position: int) -> bytes:
        return self._files.read(self._fd, size, position)

    def write(self, buffers: Sequence[bytes], position: int) -> int:
        """Any number of buffers, and all of them. The position behind."""
        return write_all(self._files, self._fd, buffers, position)

    def truncate(self, size: int) -> None:
        self._files.truncate(self._fd, size)

    def allocate(self, position: int, size: int) -> None:
        self._files.allocate(self._fd, position, size)

    def sync(self) -> None:
        self._files.sync(self._fd)


class LogFile:
    """The state of one log file. Identity matters: a file that was rewritten is another `LogFile`."""

    __slots__ = (
        "ahead_to",
        "closed",
        "damaged",
        "examined",
        "first",
        "index",
        "is_inherited",
        "is_removed",
        "needs_repair",
        "path",
        "put_total",
        "recycled",
        "salvaged",
        "saved",
        "sealed",
        "size",
        "version",
    )

    def __init__(self, path: str, first: int, size: int, put_total: int) -> None:
        self.path = path
        self.first = first
        """No record in it has a lower sequence; its name."""
        self.size = size
        """Bytes that readers look at: the header and good records."""
        self.put_total = put_total
        """Messages ever put into the log before this file."""
        self.version = 0
        """The format version in its header, the newest one when the header is damaged. 0: not yet looked for."""
        self.is_inherited = False
        """An earlier process wrote it."""
        self.index: list[Entry] | None = None
        """Ascending. None: not yet looked for. Only the writer of the log or the reader adds to it, never both."""
        self.saved = 0
        """The number of index entries in its index file."""
        self.damaged: dict[int, int] = {}
        """Places where no good record is, already reported, and where to go on."""
        self.salvaged: set[int] = set()
        """The positions in `damaged` of which messages could be kept."""
        self.needs_repair = False
        """A read found damage that a rewritten file would not have."""
        self.recycled = False
        """Older content may follow after `size`."""
        self.ahead_to = AHEAD_FROM
        """The space up to here is checked, or need not be."""
        self.sealed = False
        """Never to be written again: an fsync failed, or the rest of a failed write could not be truncated."""
        self.closed = False
        """The log writes on in another file, though this one is not full: trim can free it now."""
        self.is_removed = False
        """No longer part of the log: the path may mean another file."""
        self.examined: int | None = None
        """The number of needed sequences when the file was last found not worth rewriting."""

    @property
    def is_longer(self) -> bool:
        """Whether it uses more disk space than readers see: older content, or space allocated ahead."""
        return self.recycled or self.ahead_to > AHEAD_FROM

    def entry_at(self, sequence: int) -> Entry:
        """The last known record that does not start above `sequence`, or the start of the file."""
        index = self.index or ()
        index_after = bisect_right(index, sequence, key=_sequence)
        return index[index_after - 1] if index_after else Entry(self.first, HEADER_BYTES, self.put_total)


class OpenFiles:
    """
    The descriptors of files that were used.

    Closing and reopening a file costs 100 us, more than a publish to it, so files are closed only when descriptors run
    short. A new descriptor has the lowest free number: one that is not below `plenty_below` tells that all numbers
    below it are taken, and then some files are closed. The next descriptors fill the gaps, and tell nothing; so the
    files in use exceed `plenty_below` by a share that is the smaller the more are closed.

    The files to close are chosen at random. If the least recently used ones were closed, a client that writes to a few
    more topics than there are descriptors, in rotation, would find every one of them closed.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        files.release_descriptors = self.release
        self._lock = Lock()
        self._open: dict[LogFile, Descriptor] = {}
        self._order: list[LogFile] = []
        """The same files; `_places` has their indexes. A removed one is replaced by the last one."""
        self._places: dict[LogFile, int] = {}
        limit = _descriptor_limit()
        self.kept_open = min(KEPT_OPEN, max(1, limit // _KEPT_SHARE))
        self.plenty_below = limit * _SHARE[0] // _SHARE[1]
        """While new descriptors have lower numbers there are enough for all uses."""

    def find(self, file: LogFile) -> Descriptor | None:
        """The descriptor of a file that is open. Needs no lock: it is one step."""
        return self._open.get(file)

    def open(self, file: LogFile, *, create: bool = False) -> Descriptor:
        """Open a file. OSError."""
        fd = self._files.open(file.path, create=create)
        descriptor = Descriptor(self._files, fd)
        closed: list[Descriptor] = []
        with self._lock:
            if fd >= self.plenty_below:
                closed = self._take_some()
            if file not in self._open:
                self._places[file] = len(self._order)
                self._order.append(file)
            self._open[file] = descriptor
        # After the lock, for it may take a while.
        closed.clear()
        return descriptor

    def forget(self, file: LogFile) -> None:
        """The file is not needed open any more."""
        closed: list[Descriptor] = []
        with self._lock:
            if file in self._open:
                closed.append(self._take(file))
        # After the lock, for it may take a while.
        closed.clear()

    def _take_some(self) -> list[Descriptor]:
        """Take some of the files that need not stay open; the caller closes them by dropping them."""
        count = min(_CLOSED_AT_ONCE, len(self._open) + 1 - self.kept_open)
        return [self._take(choice(self._order)) for _ in range(count)]

    def release(self) -> bool:
        """Close some files because descriptors have run out. Returns whether there were any. From any thread."""
        with self._lock:
            closed = [self._take(choice(self._order)) for _ in range(min(_CLOSED_AT_ONCE, len(self._order)))]
        # After the lock, for it may take a while.
        is_any = bool(closed)
        closed.clear()
        return is_any

    def _take(self, file: LogFile) -> Descriptor:
        index, last = self._places.pop(file), self._order.pop()
        if last is not file:
            self._order[index] = last
            self._places[last] = index
        return self._open.pop(file)


def _descriptor_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _sequence(entry: Entry) -> int:
    return entry.sequence
