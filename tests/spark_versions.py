"""
``python -m tests.spark_versions [lowest|newest|VERSION] [words for pytest]``: the tests of the connector with another
Spark, and with Spark Connect.

Installs that version into a directory of its own, some 670 MB with an archive of its classes, and puts that first, by
PYTHONPATH, for the tests and for the Python processes of Spark. `lowest` and `newest` are those that setup.py allows;
without a version the tests run with both, also when the first one fails. Without words for pytest all of tests/spark
and tests/spark_connect run. What failed runs once more, alone, as in `make test`. The client of Spark Connect has
requirements of its own, some 210 MB, which are in another directory, for tests/spark_connect alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.flaky import AGAIN

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".spark"
CONNECTOR = ROOT / "contrib/spark/setup.py"
CONNECT = (
    "googleapis-common-protos>=1.71",
    "grpcio-status>=1.76",
    "grpcio>=1.76",
    "pandas>=2.2,<3",
    "zstandard>=0.25",
)
"""The extra `connect` of pyspark but for pyarrow, which is there. Spark warns of pandas 3."""

SOME_FAILED = 1
"""pytest's exit status."""


def supported() -> tuple[str, str]:
    """Return the requirements of the lowest and of the newest version that setup.py allows."""
    found = re.search(r'"pyspark>=([\d.]+)"', CONNECTOR.read_text())
    assert found is not None, "setup.py gives a lowest version"
    return f"pyspark=={found[1]}.0", f"pyspark>={found[1]}"


def install(requirements: list[str], directory: Path) -> None:
    """Install them there; an older version gives way. pip keeps the wheels that it built."""
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target", str(directory)]
    subprocess.run([sys.executable, *words, *requirements], check=True)


def version(directory: Path) -> str:
    """Return the version of the pyspark that is there."""
    show = "import pyspark; print(pyspark.__version__)"
    found = subprocess.run(
        [sys.executable, "-c", show], env=first(directory), check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def archive_classes(directory: Path) -> None:
    """Have Java start as fast as in `make test`. An archive is for one path, and for one installation."""
    words = ["-m", "tests.spark.fast_java", str(archive(directory))]
    subprocess.run([sys.executable, *words], cwd=ROOT, env=first(directory), check=True)


def archive(directory: Path) -> Path:
    return directory / "spark-classes.jsa"


def run_tests(words: list[str], *directories: Path) -> int:
    """Run pytest with what is installed there, and once more what failed. Returns its exit status."""
    run = [sys.executable, "-m", "pytest", "-o", f"cache_dir={directories[0] / 'pytest-cache'}", *words]
    environment = first(*directories) | {"SPARK_CLASSES": str(archive(directories[0]))}
    status = subprocess.run(run, cwd=ROOT, env=environment, check=False).returncode
    if status == SOME_FAILED:
        print("Once more, by itself, what failed:", flush=True)
        status = subprocess.run([*run, "--numprocesses=0", *AGAIN], cwd=ROOT, env=environment, check=False).returncode
    return status


def first(*directories: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, directories))}


def main(words: list[str]) -> int:
    """Return the exit status: pytest's, of the first run that failed."""
    requirements = dict(zip(("lowest", "newest"), supported(), strict=True))
    if words and not words[0].startswith(("-", "tests")):
        chosen, *words = words
        requirements = {chosen: requirements.get(chosen, f"pyspark=={chosen}")}
    connect = CACHE / "connect"
    if not words:
        install(list(CONNECT), connect)
    statuses = []
    for name, requirement in requirements.items():
        directory = CACHE / name
        install([requirement], directory)
        archive_classes(directory)
        print(f"Spark {version(directory)}", flush=True)
        statuses.append(run_tests(words or ["tests/spark"], directory))
        if not words:
            print(f"Spark Connect {version(directory)}", flush=True)
            checks = ["-o", "python_files=check_*.py", "tests/spark_connect"]
            statuses.append(run_tests(checks, directory, connect))
    return next(filter(None, statuses), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
