"""The modules that may be compiled: nobody must, and compiled ones do the same. `make test-compiled` runs all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import compiled

SHOW_EXTENSIONS = """
import sys
from distutils.core import run_setup

sys.argv.append("bdist_wheel")
print(run_setup("setup.py", stop_after="init").ext_modules)
"""
HAS_COMPILER = bool(
    shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
    and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
)


def test_nothing_is_compiled_unless_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import setuptools" + SHOW_EXTENSIONS], cwd=compiled.ROOT, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler, or not what C needs of this Python")
@pytest.mark.timeout(1500)
def test_compiled_modules_pass_the_tests_of_the_plain_ones(tmp_path: Path) -> None:
    compiled.install(tmp_path)
    assert compiled.origin(tmp_path).endswith(".so")
    chosen = ["tests/core", "tests/protocols", "tests/net/test_tcp.py", "tests/net/test_pump.py"]
    # The same examples as the plain modules had: a red run is about the compiler.
    words = ["--quiet", "-p", "no:cacheprovider", "--hypothesis-profile=same", *chosen]
    assert compiled.run_tests(tmp_path, words) == 0
