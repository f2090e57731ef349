"""What a release uploads: made, and installed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import nsqtw
from contrib import wheels
from tests import compiled, compiler

VERSION = f"nsqtw-{nsqtw.__version__}"


@pytest.mark.plain  # it compiles
@pytest.mark.timeout(900)
def test_a_release_has_the_source_a_wheel_for_everybody_and_a_compiled_one_that_runs_on_old_systems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's headers come with the system, not with pip: without them the compiled one is refused in one line."""
    status = wheels.main(["--out", str(tmp_path / "dist")])
    said = capsys.readouterr()
    made = {path.name: path for path in (tmp_path / "dist").iterdir()}
    archive, plain = f"{VERSION}.tar.gz", f"{VERSION}-py3-none-any.whl"
    assert made.keys() >= {archive, plain}
    assert [name for name in zipfile.ZipFile(made[plain]).namelist() if name.endswith(".so")] == []
    rest = made.keys() - {archive, plain}
    if compiler.has_headers():
        assert (status, said.err) == (0, "")
        [fast] = rest
        check_compiled(made[fast], tmp_path / "installed")
    else:
        assert (status, rest) == (1, set())
        assert "no headers" in said.err


def check_compiled(wheel: Path, place: Path) -> None:
    """It says for whom it is, can be installed, and is what it says."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.startswith(f"{VERSION}-{python}-{python}-manylinux")
    assert f"manylinux_2_17_{platform.machine()}" in wheel.name
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), str(wheel)]
    subprocess.run(install, check=True)
    assert compiled.origin(place).endswith(".so")
    said = subprocess.run(
        [sys.executable, "-P", "-c", "from nsqtw.cli.main import main; main()", "--version"],
        env=os.environ | {"PYTHONPATH": str(place)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout.endswith("hot modules compiled\n")


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
