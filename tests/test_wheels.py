"""
What a release uploads: made once, and installed; and compiled modules do what plain ones do. `make test-compiled` runs
all tests on compiled modules.
"""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple

import pytest

import nsqtw
from contrib import wheels
from tests import compiled, compiler

ROOT = compiled.ROOT
MARK = "\n# mypyc: compiled\n"
VERSION = f"nsqtw-{nsqtw.__version__}"
ARCHIVE, PLAIN = f"{VERSION}.tar.gz", f"{VERSION}-py3-none-any.whl"
# They come with the system, not with pip. That a release without them is refused is tested below.
needs_headers = pytest.mark.skipif(
    not compiler.has_headers(), reason="Python's headers are not installed (Debian: python3-dev)"
)


class Release(NamedTuple):
    """The exit status and the words of an error of the program that makes a release, and the files by name."""

    status: int
    error: str
    made: dict[str, Path]

    @property
    def compiled(self) -> list[Path]:
        """The wheels that are neither the source nor for everybody."""
        return [path for name, path in self.made.items() if name not in (ARCHIVE, PLAIN)]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The compiler does not optimize, which would take it twice as long."""
    dist = tmp_path_factory.mktemp("dist")
    error = io.StringIO()
    with redirect_stderr(error), pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSQTW_COMPILE_LEVEL", "0")
        # Zig's would look for mistakes of C instead.
        patch.setenv("CFLAGS", "-fno-sanitize=undefined")
        status = wheels.main(["--out", str(dist)])
    return Release(status, error.getvalue(), {path.name: path for path in dist.iterdir()})


@pytest.fixture(scope="module")
def installed(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the compiled wheel."""
    [wheel] = release.compiled
    place = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), str(wheel)]
    subprocess.run(install, check=True)
    return place


@pytest.mark.plain
@pytest.mark.timeout(1500)
def test_a_release_has_the_source_a_wheel_for_everybody_and_a_compiled_one(release: Release) -> None:
    """Python's headers come with the system, not with pip: without them the compiled one is refused in one line."""
    assert release.made.keys() >= {ARCHIVE, PLAIN}
    assert [name for name in zipfile.ZipFile(release.made[PLAIN]).namelist() if name.endswith(".so")] == []
    if compiler.has_headers():
        assert (release.status, release.error, len(release.compiled)) == (0, "", 1)
    else:
        assert (release.status, release.compiled) == (1, [])
        assert "no headers" in release.error


@needs_headers
@pytest.mark.plain
@pytest.mark.timeout(1500)
def test_the_compiled_wheel_runs_on_old_systems_and_says_what_it_is(release: Release, installed: Path) -> None:
    [wheel] = release.compiled
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.startswith(f"{VERSION}-{python}-{python}-manylinux")
    assert f"manylinux_2_17_{platform.machine()}" in wheel.name
    assert compiled.origin(installed).endswith(".so")
    modules = {name.split(".")[0] for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}
    marked = {path.relative_to(ROOT) for path in (ROOT / "nsqtw").rglob("*.py") if MARK in path.read_text("utf-8")}
    assert {str(path.with_suffix("")) for path in marked} == {name for name in modules if name.startswith("nsqtw/")}
    said = subprocess.run(
        [sys.executable, "-P", "-c", "from nsqtw.cli.main import main; main()", "--version"],
        env=os.environ | {"PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout.endswith("hot modules compiled\n")


@needs_headers
@pytest.mark.plain
@pytest.mark.timeout(1500)
def test_compiled_modules_pass_the_tests_of_the_plain_ones(installed: Path) -> None:
    """The short form of `make test-compiled`: without histories."""
    edges = [
        *("tests/net/test_tcp.py", "tests/net/test_compressed.py", "tests/api/test_pub.py", "tests/api/test_mpub.py"),
        *("tests/runtime/test_pump.py", "tests/runtime/test_pump_checkpoints.py"),
    ]
    chosen = ["tests/core", "--ignore=tests/core/model", "tests/protocols", *edges]
    # Few of the examples that the plain modules had: a red run is about the compiler.
    words = [
        "--quiet",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile=fast",
        "-m",
        "not plain and not histories",
        *chosen,
    ]
    assert compiled.run_tests(installed, words) == 0


@pytest.mark.parametrize(
    ("python", "said"),
    [("/no/such/python", "/no/such/python"), ("false", "no headers to compile for")],
)
def test_what_cannot_be_made_is_one_clear_error(
    python: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wheels, "source", lambda out: tmp_path)
    monkeypatch.setattr(wheels, "plain", lambda archive, out: None)
    assert wheels.main(["--out", str(tmp_path), python]) == 1
    assert said in capsys.readouterr().err


def test_without_the_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "find_spec", lambda name: None)
    with pytest.raises(wheels.BuildFailed, match=r"pip install '\.\[wheels\]'"):
        wheels.compiler()
