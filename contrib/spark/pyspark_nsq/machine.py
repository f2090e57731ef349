"""The identity of this machine, and the place of Spark's tasks."""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")
#: A master among the words of the command of Spark's Java.
_MASTER = re.compile(rb"\0(?:spark\.master=|--master\0)([^\0]*)")
#: The masters whose tasks run in the Java of the driver.
_LOCAL = re.compile(rb"local(\[[^\]]*\])?")


@cache
def this_machine() -> str:
    """Return a name of the running system: the same for two processes that can share memory, also in two containers."""
    try:
        return _LINUX.read_text("ascii").strip()
    except OSError:
        return platform.node()


def tasks_run_here() -> bool:
    """
    Return whether Spark runs its tasks in the Java that started this process, as its command says; False when in doubt.
    For a process on the driver.
    """
    try:
        masters = _MASTER.findall(Path(f"/proc/{os.getppid()}/cmdline").read_bytes())
    except OSError:
        return False
    return bool(masters) and all(_LOCAL.fullmatch(master) for master in masters)
