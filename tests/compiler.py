"""
The C compiler for the modules that mypyc makes: CC, the one that Python was built with, or that of the package ziglang
(``pip install nsqtw[compiler]``), which `make` installs where there is no other.

``python -m tests.compiler`` has the exit status 1 when a compiler is all that is missing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from sysconfig import get_config_var, get_path


def command() -> str | None:
    """The words that call it, for CC; None when there is none."""
    for words in (os.environ.get("CC"), get_config_var("CC") or "cc"):
        if words and shutil.which(shlex.split(words)[0]):
            return words
    return shlex.join([sys.executable, "-m", "ziglang", "cc"]) if find_spec("ziglang") else None


def has_headers() -> bool:
    """Whether C can be compiled for this Python at all. Debian has what that takes in a package of its own."""
    return os.path.exists(os.path.join(get_path("include"), "Python.h"))


if __name__ == "__main__":
    sys.exit(has_headers() and command() is None)
