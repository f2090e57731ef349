"""The tests of other versions of Spark: which they are, what runs once more, and that a failure is reported."""

from __future__ import annotations

from importlib.metadata import requires
from pathlib import Path

import pytest

from tests import spark_versions

RUNS = """
from pathlib import Path

MARK = Path(__file__).with_name("mark")

def test_first_run_fails():
    if not MARK.exists():
        MARK.touch()
        raise AssertionError

def test_every_run_passes():
    pass

def test_never_passes():
    raise AssertionError
"""


def test_the_lowest_version_is_the_one_that_is_required() -> None:
    lowest, newest = spark_versions.supported()
    assert newest in (requires("pyspark-nsq") or [])
    assert lowest == newest.replace(">=", "==") + ".0"


def test_a_version_that_fails_its_tests_is_reported(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").write_text("__version__ = '0'\n")
    assert spark_versions.version(tmp_path) == "0"
    assert spark_versions.run_tests(["-q", "tests/spark/test_options.py"], tmp_path) != 0


def test_what_failed_runs_once_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_runs.py").write_text(RUNS)
    tests = [str(tmp_path / "test_runs.py"), "-q"]
    assert spark_versions.run_tests([*tests, "-k", "first or every"], tmp_path) == 0
    first, second = capfd.readouterr().out.split("Once more, by itself, what failed:")
    assert "1 failed, 1 passed" in first
    assert "1 passed" in second and "flaky: 1" in second
    assert spark_versions.run_tests([*tests, "-k", "never"], tmp_path) != 0
