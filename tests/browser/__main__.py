"""
``python -m tests.browser [NAME...]``: tests of nsqadmin's pages in a real Chromium, all or those whose file has a NAME.

They are in check_*.py, which `make test` does not collect: a newcomer's machine may lack Chromium. Exit status 1 with
one line when it is missing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.browser import missing
from tests.flaky import AGAIN

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run the tests, and return pytest's exit status."""
    if line := missing():
        sys.stderr.write(f"{line}\n")
        return 1
    files = [str(path) for path in sorted(HERE.glob("check_*.py")) if not names or any(n in path.name for n in names)]
    if not files:
        sys.stderr.write(f"No file of tests/browser has {' or '.join(names)} in its name.\n")
        return 1
    command = [sys.executable, "-m", "pytest", "-o", "python_files=check_*.py", "--hypothesis-profile=same", *files]
    code = subprocess.run(command, check=False).returncode
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    # As in `make test`: on a busy machine a page may know a node too late.
    sys.stdout.write("Once more, by itself, what failed:\n")
    return subprocess.run([*command, "--numprocesses=0", *AGAIN], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
