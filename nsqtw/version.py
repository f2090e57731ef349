"""The version, as clients and their test suites read it."""

from __future__ import annotations

import platform

from nsqtw import NSQ_VERSION


def version_line() -> str:
    """What --version prints and the log starts with."""
    # Client suites read this with a pattern that knows lower-case letters, digits, dots and dashes.
    return f"nsqd v{NSQ_VERSION}-nsqtw (built w/python{platform.python_version().rstrip('+')})"
