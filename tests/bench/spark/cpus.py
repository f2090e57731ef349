"""CPU affinity, CPU time and memory of a process and of everything it has started. Linux only."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _FIRST_TIME, _END_OF_TIMES = 1, 11, 15


def processes(root: int, without: int | None = None) -> list[int]:
    """`root` and what it has started, directly or not, but for `without` and what that has started."""
    children = defaultdict(list)
    for pid in _numbers("/proc"):
        with suppress(OSError):  # it is gone
            children[int(_fields(pid)[_PARENT])].append(pid)
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        if pid != without:
            found.append(pid)
            waiting += children[pid]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time, that of children which have ended included."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            ticks += sum(int(field) for field in _fields(pid)[_FIRST_TIME:_END_OF_TIMES])
    return ticks / _TICKS


def memory(pid: int) -> tuple[str, float]:
    """Return the name of a process and its memory in MB, of shared pages its share; 0 when it has ended."""
    with suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return name, int(line.split()[1]) / 1000
    return "", 0.0


def pin(pids: list[int], cores: set[int]) -> None:
    """All threads there are; those that come inherit it."""
    for pid in pids:
        with suppress(OSError):
            for thread in _numbers(f"/proc/{pid}/task"):
                with suppress(OSError):
                    os.sched_setaffinity(thread, cores)


def _numbers(directory: str) -> Iterator[int]:
    return (int(name) for name in os.listdir(directory) if name.isdigit())


def _fields(pid: int) -> list[str]:
    # The command's name, in parentheses, may hold spaces.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
