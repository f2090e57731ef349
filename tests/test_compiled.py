"""The modules that may be compiled: nobody must. That compiled ones do the same is a matter of `test_wheels`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import compiled, compiler

SHOW_EXTENSIONS = """
import sys
from distutils.core import run_setup

sys.argv.append("bdist_wheel")
print(run_setup("setup.py", stop_after="init").ext_modules)
"""


def test_nothing_is_compiled_unless_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import setuptools" + SHOW_EXTENSIONS], cwd=compiled.ROOT, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


def test_the_compiler_is_the_one_asked_for_or_pythons_own_or_a_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiler, "get_config_var", lambda name: "gcc -pthread")
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    assert compiler.command() is None
    monkeypatch.setattr(compiler, "find_spec", lambda name: name == "ziglang")
    assert compiler.command() == f"{sys.executable} -m ziglang cc"
    (tmp_path / "gcc").touch(0o755)
    assert compiler.command() == "gcc -pthread"
    (tmp_path / "clang").touch(0o755)
    monkeypatch.setenv("CC", "clang -O1")
    assert compiler.command() == "clang -O1"
