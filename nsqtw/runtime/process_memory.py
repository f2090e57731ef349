"""
The `memory` block of /stats: Go's names, filled with what Python knows of itself.

They are no measure of Go's kind. In use is what the process has resident, released what it once had more; Python
collects by counts and not by bytes and keeps no record of pauses, so those are 0.
"""

from __future__ import annotations

import gc
import os
import resource
import sys

_STATM = "/proc/self/statm"
_RESIDENT_FIELD = 1
_PEAK_UNIT = 1 if sys.platform == "darwin" else 1024


def memory() -> dict[str, int]:
    """The nine numbers, in nsqd's order."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT
    resident = min(resident_bytes() or peak, peak)
    return {
        "heap_objects": sys.getallocatedblocks(),
        "heap_idle_bytes": peak - resident,
        "heap_in_use_bytes": resident,
        "heap_released_bytes": peak - resident,
        "gc_pause_usec_100": 0,
        "gc_pause_usec_99": 0,
        "gc_pause_usec_95": 0,
        "next_gc_bytes": 0,
        "gc_total_runs": sum(generation["collections"] for generation in gc.get_stats()),
    }


def resident_bytes() -> int | None:
    """Return the bytes that are resident now; None where the system has no /proc."""
    try:
        with open(_STATM, encoding="ascii") as statm:
            pages = int(statm.read().split()[_RESIDENT_FIELD])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
