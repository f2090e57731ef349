"""A broker whose disk fails and whose wall clock is set, as a test says while it runs: see faulty_nsqd.py."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.process import NsqdProcess

PROGRAM = Path(__file__).with_name("faulty_nsqd.py")


class FaultyNsqd(NsqdProcess):
    """Nothing fails, and the clock is right, until a test says so."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._control = directory / "control.json"
        self._wall = 0.0
        self._faults: list[dict[str, Any]] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._tell()
        super().__init__(directory, *flags)

    def program(self) -> list[str]:
        return [sys.executable, str(PROGRAM), str(self._control)]

    def set_wall(self, seconds: float) -> None:
        """The wall clock is wrong by this from now on."""
        self._wall = seconds
        self._tell()

    def fail(self, operation: str, error: str, path: str = "") -> None:
        """`operation` (write, read or sync) of every path with `path` in it fails from now on."""
        self._faults.append({"operation": operation, "path": path, "error": error})
        self._tell()

    def heal(self) -> None:
        """No disk fails any more."""
        self._faults.clear()
        self._tell()

    def _tell(self) -> None:
        fresh = self._control.with_suffix(".new")
        fresh.write_text(json.dumps({"wall": self._wall, "faults": self._faults}))
        os.replace(fresh, self._control)
