"""
A broker that notes how long its reactor's turns are.

Theory of operation. A turn is what the reactor does between two polls: nobody is served meanwhile. Twisted's epoll
reactor makes one object that it polls with; here a `Poller` stands in its place and looks at the clock before and
after. What the kernel kept the thread waiting for a core is taken off (Linux counts it in `schedstat`): on a busy
machine that is most of what there is, and no broker can help it. A wait for another thread of the broker, or for the
disk, counts.

`launcher` writes an executable that takes nsqd's flags and runs nsqd so. When it stops it leaves what it noted.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent.parent
_NOTHING_SECONDS = 5e-6
"""Between two polls of a reactor that asks again and again nothing happens: no turn is so short."""


@dataclass(frozen=True)
class Turn:
    """
    `start` is of the machine's monotonic clock, in seconds. Of the `seconds` the reactor's thread computed for `cpu`,
    and garbage was collected for `collecting`; the rest it waited for another thread or for the disk.
    """

    start: float
    seconds: float
    cpu: float
    collecting: float


@dataclass(frozen=True)
class Collection:
    """One run of Python's garbage collector."""

    generation: int
    seconds: float


@dataclass(frozen=True)
class Noted:
    """What a broker leaves."""

    turns: list[Turn]
    collections: list[Collection]
    reactor: str
    """The name of its class."""


class Poller:
    """Stands before a `select.epoll`."""

    def __init__(self, poller: Any) -> None:
        self._poller = poller
        self._waits = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._begun = self._waited = self._computed = 0.0
        self._may_look_again = False
        self._turns = array("d")
        self._collections: list[tuple[int, float]] = []
        self._collecting = self._collection_begun = 0.0
        gc.callbacks.append(self._on_collection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)

    def poll(self, timeout: float, most: int) -> Any:
        """End a turn; after the wait the next one begins. The second poll of a turn (`runtime.epoll`) belongs to it."""
        if timeout == 0 and self._may_look_again:
            self._may_look_again = False
            return self._poller.poll(timeout, most)
        self._end_turn()
        found: Any = ()
        try:
            found = self._poller.poll(timeout, most)
            return found
        finally:
            self._may_look_again = len(found) > 1
            self._collecting = 0.0
            self._waited = self._waited_for_a_core()
            self._computed = time.thread_time()
            self._begun = time.monotonic()

    def _end_turn(self) -> None:
        if not self._begun:
            return
        seconds = time.monotonic() - self._begun - (self._waited_for_a_core() - self._waited)
        if seconds > _NOTHING_SECONDS:
            cpu = time.thread_time() - self._computed
            self._turns.extend((self._begun, seconds, cpu, self._collecting))

    def leave(self, file: Path) -> None:
        """Write down what was noted, for `read`."""
        from twisted.internet import reactor

        name = type(reactor).__name__
        noted = {"turns": self._turns.tolist(), "collections": self._collections, "reactor": name}
        file.write_text(json.dumps(noted))

    def _waited_for_a_core(self) -> float:
        return int(os.pread(self._waits, 100, 0).split()[1]) / 1e9

    def _on_collection(self, phase: str, about: dict[str, int]) -> None:
        now = time.monotonic() - self._waited_for_a_core()
        if phase == "start":
            self._collection_begun = now
            return
        seconds = now - self._collection_begun
        self._collecting += seconds
        self._collections.append((about["generation"], seconds))


def read(file: Path) -> Noted:
    """What a broker that has stopped noted. OSError when it left nothing."""
    found = json.loads(file.read_text())
    numbers = iter(found["turns"])
    turns = [Turn(*one) for one in zip(numbers, numbers, numbers, numbers, strict=True)]
    return Noted(turns, [Collection(*one) for one in found["collections"]], found["reactor"])


def launcher(directory: Path, notes: Path) -> Path:
    """An executable in `directory` that takes nsqd's flags; when its broker stops, the notes are there."""
    path = directory / "nsqd"
    lines = [
        f"#!{sys.executable}",
        "import sys",
        f"sys.path[0] = {str(_ROOT)!r}",
        "from tests.bench.turns import run",
        f"sys.exit(run({str(notes)!r}, sys.argv[1:]))",
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


def run(notes: str, words: Sequence[str]) -> int:
    """Run nsqd with these flags. Its exit code."""
    # Before anything of Twisted's, as nsqd itself does it.
    from nsqtw import tap  # isort: split
    from nsqtw.daemon import lazy_imports

    with lazy_imports.without_tls():
        from twisted.internet import epollreactor

    pollers: list[Poller] = []

    def epoll(size: int) -> Poller:
        pollers.append(Poller(select.epoll(size)))
        return pollers[-1]

    # Not in a reactor that is there: with one, the daemon would not install its own.
    epollreactor.epoll = epoll
    try:
        return tap.NSQD_PROGRAM.run(words)
    finally:
        pollers[0].leave(Path(notes))
