"""
Start of a daemon as a child of `nsqtw up`: `python -c ... MODULE:FUNCTION PARENT FLAG...`.

The child has a session of its own, so that Ctrl-C reaches only `nsqtw up`, which ends the children in order. When
`nsqtw up` is killed, Linux sends SIGTERM to the child.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib import import_module

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG in <linux/prctl.h>


def main() -> None:
    """Become the daemon that the first word names."""
    name, parent, *flags = sys.argv[1:]
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGTERM))
    if os.getppid() != int(parent):  # it ended before
        sys.exit(1)
    module, _, function = name.partition(":")
    sys.argv = [function.removeprefix("main_"), *flags]
    getattr(import_module(module), function)()
