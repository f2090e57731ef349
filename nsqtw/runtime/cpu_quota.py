"""Number of cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of a container, as it sees itself: "50000 100000" is half a core, "max 100000" all there are (cgroup v2)."""


def cpu_quota(quota: Path = _QUOTA) -> float:
    """Those that it may run on, or the part of their time that it is given."""
    available = float(len(os.sched_getaffinity(0)))
    try:
        used, _, period = quota.read_text().partition(" ")
        return min(available, int(used) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return available
