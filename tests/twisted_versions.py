"""
``python -m tests.twisted_versions [lowest|newest|VERSION] [words for pytest]``: the tests with another Twisted.

Installs that version into a directory of its own and puts that first, by PYTHONPATH, for the tests and for the brokers
they start. `lowest` and `newest` are those of the range in pyproject.toml; without a version the tests run with both.
Without words for pytest all tests run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEAR_PRIVATE_NAMES = (
    "tests/runtime",
    "tests/net/test_listen.py",
    "tests/net/test_tcp.py",
    "tests/net/test_tcp_steps.py",
    "tests/net/test_low_water.py",
    "tests/net/test_deadlines.py",
    "tests/daemon/test_process.py",
    "tests/http/test_sockets.py",
    "tests/test_http_clients.py",
)
"""The tests of what uses private names of Twisted (ADR 0019): the short form, which `make test` runs."""


def supported() -> tuple[str, str]:
    """Return the requirements of the lowest and of the newest version in the range of pyproject.toml."""
    found = re.search(r'"twisted\[tls\]>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert found is not None, "pyproject.toml gives a range of versions"
    return f"twisted=={found[1]}.*", f"twisted<{found[2]}"


def install(requirement: str, directory: Path) -> str:
    """Install Twisted there, without what it requires. Returns its version."""
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    subprocess.run([sys.executable, *words, "--target", str(directory), requirement], check=True)
    show = "import twisted; print(twisted.__version__)"
    found = subprocess.run(
        [sys.executable, "-c", show], env=_first(directory), check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def run_tests(directory: Path, words: list[str]) -> int:
    """Run pytest with the Twisted that is installed there. Returns its exit status."""
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not long", *words]
    return subprocess.run(run, cwd=ROOT, env=_first(directory), check=False).returncode


def _first(directory: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(directory)}


def main(words: list[str]) -> int:
    """Return the exit status, pytest's."""
    lowest, newest = supported()
    requirements = [lowest, newest]
    if words and not words[0].startswith(("-", "tests")):
        version, *words = words
        requirements = [{"lowest": lowest, "newest": newest}.get(version, f"twisted=={version}")]
    for requirement in requirements:
        directory = ROOT / ".twisted" / re.sub(r"[^\w.]+", "-", requirement)
        print(f"Twisted {install(requirement, directory)}", flush=True)
        status = run_tests(directory, words)
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
