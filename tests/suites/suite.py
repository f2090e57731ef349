"""
What a client's test-suite is, and the two kinds there are: pytest's from PyPI and mocha's from npm.

A suite is installed into a directory of its own, with an interpreter of its own, so that nothing here depends on what
the machine has besides Python: also node comes as a package. Sources are pinned by version and checksum.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

HERE = Path(__file__).parent
_INSTALL_SECONDS = 280


class SuiteError(Exception):
    """A suite cannot be installed or run; says which and why."""


@attrs.frozen(kw_only=True)
class Suite:
    """A client of others, whose own tests start `nsqd` from PATH."""

    name: str
    version: str
    requirements: tuple[str, ...]
    """What goes into its interpreter from PyPI."""
    tests: int
    """How many there are; all of them pass with nsqd 1.3.0."""
    ports: tuple[int, ...]
    """Where it starts servers, if not on ports that are free."""

    @property
    def passes(self) -> int:
        """How many of them have to pass."""
        return self.tests

    def install(self, where: Path) -> None:
        """Put it into an empty directory. SuiteError if that cannot be done."""
        venv.create(where / "venv", with_pip=True)
        self.call([where / "venv/bin/python", "-m", "pip", "install", "--quiet", *self.requirements], where)
        self.add_source(where)

    def add_source(self, where: Path) -> None:
        """Put the client and its tests beside the interpreter."""
        raise NotImplementedError

    def command(self, where: Path, everything: bool) -> list[str | Path]:
        """What runs the tests that have to pass, or everything."""
        raise NotImplementedError

    def directory(self, where: Path) -> Path:
        """Where the tests are run."""
        raise NotImplementedError

    def count(self, said: str) -> int:
        """How many tests have passed, from what was printed."""
        raise NotImplementedError

    def call(self, command: Sequence[str | Path], where: Path, environment: Mapping[str, str] | None = None) -> None:
        """Run one step of the installation."""
        done = subprocess.run(
            command, cwd=where, env=environment, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise SuiteError(f"{self.name} {self.version} cannot be installed: {said}")


@attrs.frozen(kw_only=True)
class PytestSuite(Suite):
    """The tests in a source distribution."""

    sha256: str
    fixtures: Path | None = None
    """A conftest.py for tests that come without theirs."""
    left_out: Mapping[str, str] = attrs.field(factory=dict)
    """By test: why it is left out."""

    @property
    def passes(self) -> int:
        return self.tests - len(self.left_out)

    def add_source(self, where: Path) -> None:
        pinned = where / "pinned.txt"
        pinned.write_text(f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n")
        download = [
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary=:all:",
            "--require-hashes",
            f"--requirement={pinned}",
        ]
        self.call([where / "venv/bin/python", "-m", "pip", *download], where)
        with tarfile.open(where / f"{self.name}-{self.version}.tar.gz") as archive:
            archive.extractall(where, filter="data")
        if self.fixtures:
            shutil.copy(self.fixtures, self.directory(where) / "tests/conftest.py")
        # Its modules are found by its own interpreter only: a PYTHONPATH would reach the broker it starts.
        (packages,) = where.glob("venv/lib/python3*/site-packages")
        (packages / "suite.pth").write_text(f"{self.directory(where)}\n")

    def directory(self, where: Path) -> Path:
        return where / f"{self.name}-{self.version}"

    def command(self, where: Path, everything: bool) -> list[str | Path]:
        without = [] if everything else [f"--deselect={test}" for test in self.left_out]
        return [
            where / "venv/bin/python",
            "-m",
            "pytest",
            "-c",
            "setup.cfg",
            "-q",
            "-rfE",
            "--disable-warnings",
            *without,
            "tests",
        ]

    def count(self, said: str) -> int:
        found = re.search(r"(\d+) passed", said)
        return int(found[1]) if found else 0


@attrs.frozen(kw_only=True)
class MochaSuite(Suite):
    """The tests in a package of npm, whose lock file in the directory of its name pins it and all it needs."""

    def add_source(self, where: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / self.name / name, where)
        # What the lock file names never changes: no need to ask again, which with a slow registry ends npm itself.
        patient = ["--prefer-offline", "--fetch-retries=5"]
        command: list[str | Path] = [
            where / "venv/bin/npm",
            "ci",
            *patient,
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
        ]
        self.call(command, where, os.environ | {"PATH": f"{where / 'venv/bin'}:{os.environ['PATH']}"})

    def directory(self, where: Path) -> Path:
        return where / "node_modules" / self.name

    def command(self, where: Path, everything: bool) -> list[str | Path]:
        return [where / "venv/bin/node", where / "node_modules/.bin/mocha", "--reporter=dot", "--exit"]

    def count(self, said: str) -> int:
        found = re.search(r"(\d+) passing", said)
        return int(found[1]) if found else 0
