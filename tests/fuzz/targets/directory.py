"""Directories that examples make and throw away, in memory where the system has such a place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")


@contextmanager
def directory() -> Iterator[Path]:
    """An empty directory, gone afterwards."""
    where = str(_IN_MEMORY) if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else None
    path = Path(tempfile.mkdtemp(prefix="nsqtw-fuzz-", dir=where))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write(files: dict[str, bytes], to: Path) -> None:
    """Let these files, and no more, be in an empty directory."""
    for name, data in files.items():
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read(path: Path) -> dict[str, bytes]:
    """Every file in a directory, in the order of their names."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
