"""The modules that may be compiled: nobody must. That compiled ones do the same is a matter of `test_wheels`."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import compiled, compiler

# What `python setup.py bdist_wheel` compiles; a list of paths in the place of what mypyc makes of it.
SHOW_EXTENSIONS = """
import sys
from distutils.core import run_setup
from types import ModuleType

mypyc = sys.modules["mypyc.build"] = ModuleType("mypyc.build")
mypyc.mypycify = lambda modules, **settings: modules
sys.argv.append("bdist_wheel")
print(run_setup("setup.py", stop_after="init").ext_modules)
"""


def extensions(**environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", "import setuptools" + SHOW_EXTENSIONS],
        cwd=compiled.ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    found: list[str] = ast.literal_eval(done.stdout)
    return found


def test_nothing_is_compiled_unless_asked_for() -> None:
    assert extensions() == []


def test_the_modules_with_the_mark_are_compiled() -> None:
    """A comment about mypyc that is not exactly the mark would leave a module out, without a word."""
    modules = {path: path.read_text("utf-8") for path in (compiled.ROOT / "nsqtw").rglob("*.py")}
    marked = [path for path, text in modules.items() if re.search(r"#\s*mypyc:", text, re.IGNORECASE)]
    assert extensions(NSQTW_COMPILE="1") == sorted(str(path.relative_to(compiled.ROOT)) for path in marked)


def test_no_compiled_module_has_a_class_of_attrs() -> None:
    """mypyc does not know them."""
    decorated = {
        (path, ast.unparse(mark).split("(")[0])
        for path in extensions(NSQTW_COMPILE="1")
        for node in ast.walk(ast.parse((compiled.ROOT / path).read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        for mark in node.decorator_list
    }
    assert decorated
    assert not [found for found in decorated if found[1].removeprefix("attrs.") in ("define", "frozen")]


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
