"""
Faults of system calls: writes, syncs, truncations and renames of a broker fail, once or several times, for all files or
those with a part of a path. A preloaded library (failing_calls.c) stands between the process and the C library, so
Python's own calls and those of SQLite fail alike.
"""

from __future__ import annotations

import atexit
import errno
import mmap
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests import compiler
from tests.process import NsqdProcess

SOURCE = Path(__file__).with_name("failing_calls.c")
WRITE, SYNC, RENAME, TRUNCATE = 1, 2, 4, 8
SHORT = "short"
"""In the place of an errno's name: the error of a write that stores a half of its bytes and reports no failure."""

_NUMBERS = struct.Struct("=5q")
_PATH_BYTES = 128
_LEFT, _SKIP, _OPERATIONS, _ERROR, _HITS = range(5)


class Fault(NamedTuple):
    """`operations` of files with `path` in theirs fail with `error`, after `skip` good calls and so many `times`."""

    operations: int
    error: str
    path: str = ""
    skip: int = 0
    times: int = 1


MESSAGES = {"disk": ".log", "sqlite": "messages.db"}
"""For each backend a part of the paths of the files that have messages."""


def faults_of(backend: str) -> tuple[Fault, ...]:
    """Every kind of failure of each kind of file that a broker writes."""
    messages = MESSAGES[backend]
    return (
        Fault(SYNC, "EIO", messages),
        Fault(SYNC, "EIO", messages, skip=1),
        Fault(SYNC | TRUNCATE, "EIO", messages, times=2),
        Fault(SYNC, "ENOSPC", messages),
        Fault(WRITE, "EIO", messages),
        Fault(WRITE, "ENOSPC", messages),
        Fault(WRITE, "EDQUOT", messages),
        Fault(WRITE, SHORT, messages),
        Fault(WRITE | TRUNCATE, "EIO", messages, times=2),
        Fault(WRITE, "EIO", "positions.db"),
        Fault(WRITE, SHORT, "positions.db"),
        Fault(SYNC, "EIO", "positions.db"),
        Fault(RENAME, "EIO", "nsqd.dat"),
        Fault(WRITE, "ENOSPC", "nsqd.dat"),
    )


@cache
def library() -> Path:
    """The library, compiled once in each process that uses it."""
    words = compiler.command()
    assert words is not None, "fault injection needs a C compiler: pip install 'nsqtw[compiler]'"
    directory = tempfile.mkdtemp(prefix="nsqtw-failing-calls-")
    atexit.register(shutil.rmtree, directory)
    path = Path(directory) / "failing_calls.so"
    subprocess.run([*shlex.split(words), "-shared", "-fPIC", "-O1", "-o", str(path), str(SOURCE), "-ldl"], check=True)
    return path


class FailingCalls:
    """The faults of one broker, which is started with `preload` before its command. `directory` is for their file."""

    def __init__(self, directory: Path) -> None:
        self._library = library()
        self._control = directory / "failing_calls"
        self._control.write_bytes(bytes(_NUMBERS.size + _PATH_BYTES))
        with self._control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _NUMBERS.size + _PATH_BYTES)

    @property
    def preload(self) -> list[str]:
        """The words that start a command with the library."""
        return ["/usr/bin/env", f"LD_PRELOAD={self._library}", f"FAILING_CALLS={self._control}"]

    def meet(self, fault: Fault) -> None:
        """The next matching calls fail. One fault at a time: this replaces the one before."""
        self.heal()
        self._map[_NUMBERS.size :] = os.fsencode(fault.path).ljust(_PATH_BYTES, b"\0")
        self._set(_SKIP, fault.skip)
        self._set(_OPERATIONS, fault.operations)
        self._set(_ERROR, 0 if fault.error == SHORT else getattr(errno, fault.error))
        self._set(_LEFT, fault.times)

    def heal(self) -> None:
        """Nothing fails any more."""
        self._set(_LEFT, 0)

    @property
    def left(self) -> int:
        """How many calls are still to fail."""
        return max(0, self._get(_LEFT))

    @property
    def hits(self) -> int:
        """How many calls have failed so far."""
        return self._get(_HITS)

    def _get(self, place: int) -> int:
        value: int = struct.unpack_from("=q", self._map, 8 * place)[0]
        return value

    def _set(self, place: int, value: int) -> None:
        struct.pack_into("=q", self._map, 8 * place, value)


class FailingNsqd(NsqdProcess):
    """`nsqd` whose system calls fail as `calls` says."""

    def __init__(self, directory: Path, *flags: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.calls = FailingCalls(directory)
        super().__init__(directory, *flags)

    def program(self) -> list[str]:
        return [*self.calls.preload, *super().program()]
