"""A test that passes only the second time is named; `make test` runs what failed a second time with this plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flaky import AGAIN, FILE

ROOT = Path(__file__).parent.parent
RUNS = """
from pathlib import Path

import pytest

MARK = Path(__file__).with_name("mark")

def test_first_run_fails():
    if not MARK.exists():
        raise AssertionError

@pytest.fixture
def ending():
    yield
    assert False

@pytest.fixture
def beginning():
    if not MARK.exists():
        raise AssertionError

def test_first_setup_fails(beginning):
    pass

def test_every_run_passes():
    pass

def test_never_passes():
    raise AssertionError

def test_never_ends(ending):
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_runs.py").write_text(RUNS)
    (tmp_path / "pytest.ini").touch()
    return tmp_path


def run(project: Path, *words: str) -> list[str]:
    """Run pytest. Returns the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:nsqtw", *words],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1, 5), done.stdout + done.stderr  # 5: nothing to run
    return done.stdout.splitlines()


def test_what_passes_only_the_second_time_is_printed_and_kept(project: Path) -> None:
    run(project)
    (project / "mark").touch()
    lines = run(project, *AGAIN)
    flaky = ["test_runs.py::test_first_run_fails", "test_runs.py::test_first_setup_fails"]
    start = lines.index("flaky: 2")
    assert lines[start + 1 : -1] == [f"  {name}" for name in flaky], "at the end"
    kept = (project / FILE).read_text("utf-8").splitlines()
    assert [line.split()[1] for line in kept] == flaky
    run(project, *AGAIN)
    assert (project / FILE).read_text("utf-8").splitlines() == kept, "what fails twice is not flaky"


def test_nothing_is_flaky_without_a_failure(project: Path) -> None:
    (project / "mark").touch()
    words = ("-k", "first or every")
    assert not any(line.startswith("flaky:") for line in run(project, *words) + run(project, *words, *AGAIN))
    assert not (project / FILE).exists()


def test_make_runs_the_plugin_and_git_ignores_the_file() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(rf"^AGAIN = .*\$\(PYTEST\) {' '.join(AGAIN)};", makefile, re.MULTILINE)
    assert f"/{FILE}" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
