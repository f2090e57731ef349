"""The modules that may be compiled: nobody must, and compiled ones do the same. `make test-compiled` runs all tests."""

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


@pytest.mark.plain
@pytest.mark.skipif(not compiler.has_headers(), reason="Python's headers are not installed (Debian: python3-dev)")
@pytest.mark.timeout(1500)
def test_compiled_modules_pass_the_tests_of_the_plain_ones(tmp_path: Path) -> None:
    compiled.install(tmp_path)
    assert compiled.origin(tmp_path).endswith(".so")
    chosen = ["tests/core", "tests/protocols", "tests/net"]
    # The same examples as the plain modules had: a red run is about the compiler.
    words = ["--quiet", "-p", "no:cacheprovider", "--hypothesis-profile=same", *chosen]
    assert compiled.run_tests(tmp_path, words) == 0
