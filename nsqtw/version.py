"""The version, as clients and their test suites read it."""

from __future__ import annotations

import platform

from nsqtw import NSQ_VERSION, __version__


def version_line(program: str = "nsqd") -> str:
    """What --version prints and the log starts with: NSQ's format, ours in the place of the compiler's version."""
    return f"{program} v{NSQ_VERSION} (built w/nsqtw{__version__}-python{platform.python_version().rstrip('+')})"
