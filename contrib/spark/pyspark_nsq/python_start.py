"""
The Python that Spark starts for its tasks and data sources, without ``pyspark.zip``.

Spark puts this archive before all else on PYTHONPATH. Python compiles each module that it imports from an archive, in
each process: 0.5 s of CPU for pyspark. An installed pyspark is the same code, and is compiled. So a small script
removes Spark's archives from PYTHONPATH, and starts Python.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pyspark

from pyspark_nsq.cached_script import cached_script

_SCRIPT = """\
#!/bin/sh
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        */pyspark.zip | */py4j-*.zip) ;;
        *) kept=$kept${{kept:+:}}$entry ;;
    esac
done
PYTHONPATH=$kept exec {python} "$@"
"""


@contextmanager
def python_of_a_session() -> Iterator[None]:
    """
    Let a local Spark that is started within use the script, unless PYSPARK_PYTHON is set. Spark would run the python3
    on PATH, in which these packages may be missing.

    A Spark that is started later gets this Python itself: its tasks may be on machines that do not have the script.
    """
    if "PYSPARK_PYTHON" in os.environ:
        yield
        return
    os.environ["PYSPARK_PYTHON"] = quick_python(os.environ)
    try:
        yield
    finally:
        os.environ["PYSPARK_PYTHON"] = sys.executable


def quick_python(environ: Mapping[str, str]) -> str:
    """Return the script, or the path of this Python when its pyspark is not an installed one."""
    home = Path(pyspark.__file__).parent.parent
    installed = home in {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    if "SPARK_HOME" in environ or not installed:
        return sys.executable
    name = f"python-{sha256(os.fsencode(sys.executable)).hexdigest()[:16]}"
    try:
        script = cached_script(environ, f"{name}/python", _SCRIPT.format(python=shlex.quote(sys.executable)))
    except OSError:
        return sys.executable
    # A file system may be mounted so that nothing on it is executed.
    return str(script) if os.access(script, os.X_OK) else sys.executable
