"""
``python -m tests.compiled [words for pytest]``: the tests, on the modules that mypyc compiled.

Installs nsqtw, compiled, into a directory of its own, and puts that before this tree: for the tests, and by PYTHONPATH
for the brokers they start. Tests marked `plain` are left out: they count what Python does, or put mistakes into the
core, and compiled modules give them no occasion.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import compiler

ROOT = Path(__file__).parent.parent
SHOW_ORIGIN = "import nsqtw.core.segment as hot; print(hot.__file__)"


def install(directory: Path) -> None:
    """Compile and install there, in the place of what was there. CalledProcessError when it does not compile."""
    # Setuptools would install what an earlier build left of modules that are not compiled any more.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, *words, "--upgrade", "--target", str(directory), str(ROOT)],
        env=os.environ | {"NSQTW_COMPILE": "1", "CC": compiler.command() or "cc"},
        check=True,
    )


def origin(directory: Path) -> str:
    """The file from which a broker that is started with this directory first has a hot module."""
    found = subprocess.run(
        [sys.executable, "-P", "-c", SHOW_ORIGIN], env=_first(directory), check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def run_tests(directory: Path, words: list[str]) -> int:
    """Run pytest on what is installed there. Its exit status."""
    paths = f"pythonpath={directory} . contrib/spark"
    run = [sys.executable, "-m", "pytest", "-m", "not plain and not long", "-o", paths, *words]
    return subprocess.run(run, cwd=ROOT, env=_first(directory), check=False).returncode


def _first(directory: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(directory)}


def main(words: list[str]) -> int:
    """Returns the exit status, pytest's."""
    directory = ROOT / ".compiled"
    install(directory)
    hot = origin(directory)
    if not hot.endswith(".so"):
        print(f"not compiled: {hot}", file=sys.stderr)
        return 1
    return run_tests(directory, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
