"""The script that starts Python without the archives that Spark puts on PYTHONPATH."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from unittest.mock import Mock

import pyspark
import pytest
from pyspark_nsq.python_start import python_of_a_session, quick_python

_PRINT = "import json, os, sys; print(json.dumps([sys.executable, os.environ['PYTHONPATH'], sys.argv[1:]]))"


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The folder of installed packages: that of pyspark, which may be elsewhere when its lowest version is tested."""
    get_path = Mock(return_value=str(Path(pyspark.__file__).parent.parent))
    monkeypatch.setattr(sysconfig, "get_path", get_path)
    return get_path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9-src.zip:/a b:/*:/c.zip", "/a b:/*:/c.zip"),
        ("/spark/python/lib/pyspark.zip", ""),
    ],
)
def test_python_starts_without_sparks_archives(environ: dict[str, str], given: str, kept: str) -> None:
    script = quick_python(environ)
    assert Path(script).is_relative_to(environ["XDG_CACHE_HOME"])
    command = [script, "-c", _PRINT, "a b", "*"]
    done = subprocess.run(command, env={"PYTHONPATH": given}, capture_output=True, timeout=60, check=True)
    assert [sys.executable, kept, ["a b", "*"]] == json.loads(done.stdout)


def test_only_the_session_that_starts_has_the_script(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", environ)
    with python_of_a_session():
        assert Path(environ["PYSPARK_PYTHON"]).is_relative_to(environ["XDG_CACHE_HOME"])
    assert sys.executable == environ["PYSPARK_PYTHON"]


def test_a_python_that_the_user_has_chosen_stays(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", environ | {"PYSPARK_PYTHON": "/opt/python"})
    with python_of_a_session():
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


def test_another_spark_keeps_its_archive(environ: dict[str, str]) -> None:
    assert sys.executable == quick_python(environ | {"SPARK_HOME": "/opt/spark"})


def test_a_pyspark_that_is_not_installed_may_be_only_in_the_archive(environ: dict[str, str], site: Mock) -> None:
    site.return_value = "/usr/lib/python3/site-packages"
    assert sys.executable == quick_python(environ)


def test_a_cache_where_nothing_is_executed_changes_nothing(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", Mock(return_value=False))
    assert sys.executable == quick_python(environ)


def test_a_cache_that_cannot_be_written_changes_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pyspark-nsq").write_text("a file is in the way")
    assert sys.executable == quick_python(environ)


def test_no_home_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    assert sys.executable == quick_python({})
