"""
The ids of the messages of the window, by which another delivery of one is dropped.

Theory of operation. The ids of the segment that is being written are in memory. When it is full they go into a file,
sorted; only the first and the last id of each run of them stay in memory. The ids of an nsqd ascend, so a new message
has a higher id than all before it, and no file is read. For a lower id, of a deferred message or of a repeat, the run
that may have it is searched.

Chains limit the search to one run: each run of a chain is above all runs before it. An id that is too low for the first
chain is added to the second, and so on (as in patience sorting). A channel where nsqd mixes old messages from its disk
with new ones needs two chains. Ids that are too low for all `_CHAINS` stay in memory, 100 B each.

    ids file   "NSQI" | version 2 | runs 2 | newest time 8 | run ... | CRC of all until here 4 | ids, 16 bytes each
    run        length of nsqd 2 | chain 2 | ids 4 | nsqd           chain: 0, 1, ...; _CHAINS for ids in memory
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from operator import lt
from pathlib import Path
from zlib import crc32

from pyspark_nsq.channel.spool_format import UNFINISHED_SUFFIX

_CHAINS = 4
_ID_BYTES = 16
#: For more ids than this a run is read as a whole.
_MANY = 64
_HEAD = struct.Struct(">4sHHq")
_RUN = struct.Struct(">HHI")
_MAGIC, _VERSION = b"NSQI", 1
_CRC_BYTES = 4
_ID = struct.Struct(f"{_ID_BYTES}s")


class _Run:
    """Sorted ids in a file, `count` of them from the byte `offset` on."""

    def __init__(self, path: Path, offset: int, count: int) -> None:
        self.path, self._offset, self._count = path, offset, count

    def known(self, ids: list[bytes]) -> set[bytes]:
        """Return the `ids` that are here. Raises OSError."""
        with self.path.open("rb", buffering=0) as file:
            if len(ids) > _MANY:
                return self.read(file.fileno()).intersection(ids)
            places = _Places(file.fileno(), self._offset, self._count)
            return {one for one in ids if (at := bisect_left(places, one)) < self._count and places[at] == one}

    def read(self, descriptor: int) -> set[bytes]:
        return set(_split(os.pread(descriptor, self._count * _ID_BYTES, self._offset)))


class _Places:
    """The ids of a run as a sequence. Each access reads one."""

    def __init__(self, descriptor: int, offset: int, count: int) -> None:
        self._descriptor, self._offset, self._count = descriptor, offset, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> bytes:
        return os.pread(self._descriptor, _ID_BYTES, self._offset + at * _ID_BYTES)


class _Chain:
    """Runs of ids, each above all runs before it."""

    def __init__(self) -> None:
        self.lows: list[bytes] = []
        self.highs: list[bytes] = []
        self.runs: list[_Run] = []

    def takes(self, low: bytes) -> bool:
        return not self.highs or low > self.highs[-1]

    def add(self, low: bytes, high: bytes, run: _Run) -> None:
        self.lows.append(low)
        self.highs.append(high)
        self.runs.append(run)

    def forget(self, path: Path) -> None:
        kept = [at for at, run in enumerate(self.runs) if run.path != path]
        self.lows, self.highs = [self.lows[at] for at in kept], [self.highs[at] for at in kept]
        self.runs = [self.runs[at] for at in kept]

    def known(self, ids: list[bytes]) -> set[bytes]:
        """Return the `ids` that are here. Raises OSError."""
        wanted: dict[int, list[bytes]] = {}
        for one in ids:
            at = bisect_right(self.lows, one) - 1
            if at >= 0 and one <= self.highs[at]:
                wanted.setdefault(at, []).append(one)
        return set[bytes]().union(*(self.runs[at].known(some) for at, some in wanted.items()))


class _Nsqd:
    """The ids of one nsqd."""

    def __init__(self) -> None:
        self.in_order: list[bytes] = []
        """The ids in memory, in the order in which they came: nearly sorted."""
        self._recent: set[bytes] = set()
        """Those of `in_order` from the first one on, as far as a search has needed them."""
        self.chains = [_Chain() for _ in range(_CHAINS)]
        self.highest = b""
        """The highest id in the files."""
        self.greatest = b""
        """The highest id that ever came."""
        self.others: dict[Path, set[bytes]] = {}

    def known(self, ids: set[bytes]) -> set[bytes]:
        """Return the `ids` that are known. Raises OSError."""
        self._recent.update(self.in_order[len(self._recent) :])
        found = set() if self._recent.isdisjoint(ids) else self._recent & ids
        if min(ids) > self.highest:
            return found
        old = [one for one in ids if one <= self.highest]
        for chain in self.chains:
            found |= chain.known(old)
        for some in self.others.values():
            found |= some.intersection(old)
        return found

    def divide(self) -> Iterator[tuple[int, list[bytes]]]:
        """Remove and return the ids in memory: chain by chain, sorted."""
        ids = sorted(self.in_order)
        for number, chain in enumerate(self.chains):
            low = bisect_right(ids, chain.highs[-1]) if chain.highs else 0
            if ids[low:]:
                yield number, ids[low:]
            ids = ids[:low]
        if ids:
            yield _CHAINS, ids
        self._recent, self.in_order = set(), []

    def forget(self, path: Path) -> None:
        for chain in self.chains:
            chain.forget(path)
        self.others.pop(path, None)


class KnownIds:
    """The known ids of all nsqds. For one thread at a time."""

    def __init__(self) -> None:
        self._nsqds: dict[str, _Nsqd] = {}
        self._files: list[tuple[int, Path]] = []

    def are_next(self, nsqd: str, ids: list[bytes]) -> bool:
        """Return whether `ids` ascend, and are above all that came before. So they are new and without repeats."""
        one = self._nsqds.get(nsqd)
        return (not ids or one is None or ids[0] > one.greatest) and all(map(lt, ids, islice(ids, 1, None)))

    def known(self, nsqd: str, ids: set[bytes]) -> set[bytes]:
        """Return the `ids` that came before. `ids` is not empty. Raises OSError."""
        one = self._nsqds.get(nsqd)
        return set() if one is None else one.known(ids)

    def add(self, nsqd: str, ids: list[bytes]) -> None:
        """Add `ids`, which are new and without repeats."""
        one = self._nsqds.setdefault(nsqd, _Nsqd())
        one.in_order += ids
        one.greatest = max(one.greatest, max(ids, default=b""))

    def store(self, path: Path, newest: int) -> None:
        """Move the ids in memory to a new file. `newest`: time of the last of them. Raises OSError."""
        runs = [(nsqd.encode(), chain, ids) for nsqd, one in self._nsqds.items() for chain, ids in one.divide()]
        if not runs:
            return
        head = _HEAD.pack(_MAGIC, _VERSION, len(runs), newest)
        head += b"".join(_RUN.pack(len(nsqd), chain, len(ids)) + nsqd for nsqd, chain, ids in runs)
        unfinished = path.with_suffix(UNFINISHED_SUFFIX)
        with unfinished.open("wb") as file:
            file.write(head + crc32(head).to_bytes(_CRC_BYTES, "big"))
            for _, _, ids in runs:
                file.write(b"".join(ids))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        self._learn(
            path, newest, len(head) + _CRC_BYTES, [(nsqd.decode(), chain, len(ids)) for nsqd, chain, ids in runs]
        )

    def load(self, path: Path) -> bool:
        """Load a file of `store`. Return False when it is damaged. Raises OSError."""
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return False
            magic, version, count, newest = _HEAD.unpack(head)
            if magic != _MAGIC or version != _VERSION:
                return False
            runs = []
            for _ in range(count):
                fields = file.read(_RUN.size)
                if len(fields) < _RUN.size:
                    return False
                size, chain, ids = _RUN.unpack(fields)
                nsqd = file.read(size)
                head += fields + nsqd
                runs.append((nsqd, chain, ids))
            if file.read(_CRC_BYTES) != crc32(head).to_bytes(_CRC_BYTES, "big"):
                return False
        offset = len(head) + _CRC_BYTES
        if path.stat().st_size != offset + sum(ids for _, _, ids in runs) * _ID_BYTES:
            return False
        self._learn(path, newest, offset, [(nsqd.decode(), chain, ids) for nsqd, chain, ids in runs])
        return True

    def _learn(self, path: Path, newest: int, offset: int, runs: list[tuple[str, int, int]]) -> None:
        self._files.append((newest, path))
        with path.open("rb", buffering=0) as file:
            for nsqd, chain, count in runs:
                one = self._nsqds.setdefault(nsqd, _Nsqd())
                run, places = _Run(path, offset, count), _Places(file.fileno(), offset, count)
                low, high = places[0], places[count - 1]
                if chain < _CHAINS and one.chains[chain].takes(low):
                    one.chains[chain].add(low, high, run)
                else:
                    one.others[path] = run.read(file.fileno())
                one.highest = max(one.highest, high)
                one.greatest = max(one.greatest, high)
                offset += count * _ID_BYTES

    def forget(self, before: int) -> None:
        """Remove the files whose ids all came before the time `before`. Raises OSError."""
        gone = [path for newest, path in self._files if newest < before]
        if not gone:
            return
        self._files = [(newest, path) for newest, path in self._files if newest >= before]
        for path in gone:
            for one in self._nsqds.values():
                one.forget(path)
            path.unlink(missing_ok=True)


def _split(data: bytes) -> Iterator[bytes]:
    return (one for (one,) in _ID.iter_unpack(data))
