"""The runner itself: what it counts, what it calls good, and what it refuses."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import attrs
import pytest

from tests.wire import HOST

from . import runner
from .runner import Result, run
from .suite import Suite, SuiteError
from .table import ANSQ, GNSQ, NSQJS


@attrs.frozen(kw_only=True)
class ShellSuite(Suite):
    """Its tests are a shell script, whose first argument says which are run."""

    script: str

    def install(self, where: Path) -> None:
        (where / "tests.sh").write_text(self.script)

    def command(self, where: Path, everything: bool) -> list[str | Path]:
        return ["sh", where / "tests.sh", "everything" if everything else "wanted"]

    def directory(self, where: Path) -> Path:
        return where

    def count(self, said: str) -> int:
        return said.count("passed\n")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an nsqd that only says what it was given."""
    monkeypatch.setattr(runner, "BUILD", tmp_path / "build")
    nsqd = tmp_path / "programs/nsqd"
    nsqd.parent.mkdir()
    nsqd.write_text('#!/bin/sh\necho "nsqd $*"\n')
    nsqd.chmod(0o755)
    return nsqd.parent


def suite(script: str, *, tests: int = 2, ports: tuple[int, ...] = ()) -> ShellSuite:
    return ShellSuite(
        name="shell",
        version="1",
        requirements=(),
        tests=tests,
        ports=ports,
        script=script,
    )


def test_it_is_good_when_all_that_have_to_pass_do(programs: Path) -> None:
    result = run(suite("echo passed; echo passed"), programs)
    assert result.is_good
    assert (result.passed, result.status) == (2, 0)


@pytest.mark.parametrize("script", ["echo passed", "echo passed; echo passed; exit 1", "printf 'passed\n%.0s' 1 2 3"])
def test_it_is_not_good_with_too_few_or_too_many_or_a_status(programs: Path, script: str) -> None:
    assert not run(suite(script), programs).is_good


def test_a_suite_that_does_not_pass_is_run_once_more(programs: Path) -> None:
    late = suite("echo passed; test -e here && echo passed; touch here")
    assert run(late, programs).is_good


def test_our_nsqd_is_first_on_path(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath)  # which has no nsqlookupd, wherever this runs
    said = run(suite("nsqd --tcp-address=:0; nsqlookupd", tests=0), programs).said
    assert "nsqd --tcp-address=:0\n" in said
    assert "nsqlookupd: not found" in said or "nsqlookupd: command not found" in said


def test_it_is_installed_again_when_it_has_changed(programs: Path) -> None:
    assert "old" in run(suite("echo old", tests=0), programs).said
    assert "new" in run(suite("echo new", tests=0), programs).said


def test_a_port_in_use_is_refused(programs: Path) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SuiteError, match=f"^shell starts nsqd on port {port}, which is in use"):
            run(suite("echo passed", ports=(port,)), programs)


def test_what_cannot_be_installed_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"^shell 1 cannot be installed: no such package$"):
        suite("").call(["sh", "-c", "echo no such package >&2; exit 1"], tmp_path)


def test_counts() -> None:
    assert GNSQ.count("98 passed, 10 deselected, 43 warnings in 21.85s") == 98
    assert ANSQ.count("3 failed in 1s") == 0
    assert NSQJS.count("\n  171 passing (12s)\n") == 171


def test_a_line_says_what_came_of_it() -> None:
    result = Result(GNSQ, passed=98, wanted=98, status=0, said="", seconds=21.8)
    assert str(result) == "gnsq 1.0.2: 98 of 108 pass, 10 are left out, 22 s"
