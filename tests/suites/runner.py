"""
Installs a suite once and runs it, with our programs first on PATH.

What is installed stays in `.suites/` until the suite or what installs it changes. Many of these tests wait for a
time that a busy machine can miss: a suite that does not pass is run once more, alone, before it counts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import attrs

from tests.process import EXECUTABLE
from tests.wire import HOST

from .suite import HERE, Suite, SuiteError

BUILD = HERE.parent.parent / ".suites"
PROGRAMS = EXECUTABLE.parent
_RUN_SECONDS = 200


@attrs.frozen
class Result:
    """What came of one run."""

    suite: Suite
    passed: int
    wanted: int
    status: int
    said: str
    seconds: float

    @property
    def is_good(self) -> bool:
        return self.status == 0 and self.passed == self.wanted

    def __str__(self) -> str:
        found = f"{self.suite.name} {self.suite.version}: {self.passed} of {self.suite.tests} pass"
        return f"{found}, {self.suite.tests - self.wanted} are left out, {self.seconds:.0f} s"


def run(suite: Suite, programs: Path = PROGRAMS, everything: bool = False) -> Result:
    """
    Install the suite if need be, and run the tests that have to pass, or all of them, against the `nsqd` (and
    `nsqlookupd`) in a directory. SuiteError if it cannot be installed or its ports are in use.
    """
    where = installed(suite)
    result = _run_once(suite, where, programs, everything)
    return result if result.is_good else _run_once(suite, where, programs, everything)


def installed(suite: Suite) -> Path:
    """Where the suite is, which is installed there now if it is not yet or has changed."""
    where, mark = BUILD / suite.name, BUILD / suite.name / "installed"
    fingerprint = _fingerprint(suite)
    if not (mark.exists() and mark.read_text() == fingerprint):
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        try:
            suite.install(where)
        except (OSError, subprocess.SubprocessError) as error:
            raise SuiteError(f"{suite.name} {suite.version} cannot be installed: {error}") from error
        mark.write_text(fingerprint)
    return where


def _fingerprint(suite: Suite) -> str:
    """Differs when the suite, or what is put beside it, does."""
    digest = hashlib.sha256(repr(suite).encode() + (HERE / "suite.py").read_bytes())
    for file in sorted((HERE / suite.name).glob("*.*")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _run_once(suite: Suite, where: Path, programs: Path, everything: bool) -> Result:
    _assert_ports_are_free(suite)
    # What our own pytest was told is not meant for theirs.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PATH"] = f"{_on_path(where, programs)}:{environment['PATH']}"
    started = time.monotonic()
    process = subprocess.Popen(
        suite.command(where, everything),
        cwd=suite.directory(where),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=_RUN_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said = process.communicate()[0] + f"\nnot done in {_RUN_SECONDS} s"
    finally:
        with suppress(ProcessLookupError):  # what servers its tests left behind
            os.killpg(process.pid, signal.SIGKILL)
    wanted = suite.tests if everything else suite.passes
    return Result(suite, suite.count(said), wanted, process.wait(), said, time.monotonic() - started)


def _on_path(where: Path, programs: Path) -> Path:
    """A directory with nothing but our programs."""
    directory = where / "programs"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name in ("nsqd", "nsqlookupd"):
        if (programs / name).exists():
            (directory / name).symlink_to(programs / name)
    return directory


def _assert_ports_are_free(suite: Suite) -> None:
    for port in suite.ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise SuiteError(
                    f"{suite.name} starts nsqd on port {port}, which is in use: stop what listens there"
                ) from error
