"""Scripts that start a program, in a folder of the user's cache. Only this user may write to it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path


class UnsafeFolderError(OSError):
    """Other users may write to the folder, or it is a link."""


def cached_script(environ: Mapping[str, str], name: str, text: str) -> Path:
    """Write the script `name`, relative to the folder, and return its path. Raises UnsafeFolderError and OSError."""
    cache = _cache_folder(environ)
    script = cache / name
    for folder in (one for one in reversed(script.parents) if one.is_relative_to(cache)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _must_be_ours(folder)
    _write(script, text)
    return script


def _cache_folder(environ: Mapping[str, str]) -> Path:
    given = environ.get("XDG_CACHE_HOME", "")
    # The specification of XDG_CACHE_HOME says to ignore relative paths.
    if os.path.isabs(given):
        return Path(given) / "pyspark-nsq"
    try:
        return Path.home() / ".cache" / "pyspark-nsq"
    except RuntimeError as failure:  # a container may run under a number without an account
        raise OSError(f"{failure} Set XDG_CACHE_HOME.") from None


def _must_be_ours(folder: Path) -> None:
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise UnsafeFolderError(f"{folder} must be a folder only you can write to; remove it and try again")


def _write(script: Path, text: str) -> None:
    """Replace `script` atomically: another process may be starting it at this moment."""
    descriptor, draft = tempfile.mkstemp(dir=script.parent)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(draft, 0o700)
    os.replace(draft, script)
