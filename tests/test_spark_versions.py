"""The tests of other versions of Spark: which they are, and that a failure is reported."""

from __future__ import annotations

from importlib.metadata import requires
from pathlib import Path

from tests import spark_versions


def test_the_lowest_version_is_the_one_that_is_required() -> None:
    lowest, newest = spark_versions.supported()
    assert newest in (requires("pyspark-nsq") or [])
    assert lowest == newest.replace(">=", "==") + ".0"


def test_a_version_that_fails_its_tests_is_reported(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").write_text("__version__ = '0'\n")
    assert spark_versions.version(tmp_path) == "0"
    assert spark_versions.run_tests(["-q", "tests/spark/test_options.py"], tmp_path) != 0
