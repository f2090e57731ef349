"""Number of cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The quota of a container (cgroup v2): "50000 100000" is half a core, "max 100000" no limit."""


def cpu_quota(quota: Path = _QUOTA) -> float:
    """Return the number of cores that the process may use, or its share of their time."""
    available = float(len(os.sched_getaffinity(0)))
    try:
        used, _, period = quota.read_text().partition(" ")
        return min(available, int(used) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return available
