"""The version, as clients and their test suites read it."""

from __future__ import annotations

import platform
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

from nsqtw import NSQ_VERSION, __version__

VERSION_FIELD = "X-Nsqtw-Version"
"""The header field of HTTP answers that has the version of nsqtw, beside the version of NSQ that clients are told."""


def version_line(program: str = "nsqd") -> str:
    """The output of --version and the first log line: NSQ's format, with our version in the place of the compiler's."""
    return f"{program} v{NSQ_VERSION} (built w/nsqtw{__version__}-python{platform.python_version().rstrip('+')})"


def command_version_line() -> str:
    """Return the output of `nsqtw --version`, which is a program of nsqtw only."""
    python = platform.python_version().rstrip("+")
    compiled = ", hot modules compiled" if is_compiled() else ""
    return f"nsqtw v{__version__} (for NSQ v{NSQ_VERSION}, python{python}){compiled}"


def is_compiled() -> bool:
    """Return whether mypyc compiled the hot modules (docs/explanation/performance-python.md). Loads none of them."""
    spec = find_spec("nsqtw.core.broker")
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
