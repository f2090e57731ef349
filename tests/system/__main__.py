"""
``python -m tests.system [NAME...]``: tests that need programs of the system, all or those whose file has a NAME.

They are in check_*.py, which `make test` does not collect: a newcomer's machine lacks the programs. Exit status 1 with
one line when a program is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
    "fish": "fish",
    "zsh": "zsh",
}
"""The programs, and Debian's package of each."""


def missing() -> str:
    """Return a line about the programs that are missing; "" when all are there."""
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if not absent:
        return ""
    packages = " ".join(dict.fromkeys(PROGRAMS[program] for program in absent))
    return f"make test-system needs {', '.join(absent)}. On Debian and Ubuntu: apt-get install {packages}"


def main(names: list[str]) -> int:
    """Run the tests, and return pytest's exit status."""
    if line := missing():
        sys.stderr.write(f"{line}\n")
        return 1
    files = [str(path) for path in sorted(HERE.glob("check_*.py")) if not names or any(n in path.name for n in names)]
    command = [sys.executable, "-m", "pytest", "-o", "python_files=check_*.py", "--hypothesis-profile=same", *files]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
