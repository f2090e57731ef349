"""Processes of the demo. Their output goes to a log file. The end of the output of one that fails is reported."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from contrib.demo.errors import DemoError

_LINES_SHOWN = 20
_STOP_SECONDS = 20


class Child:
    """A process named `name` that runs until `stop`, or ends by itself; a context manager."""

    def __init__(self, name: str, command: Iterable[str | Path], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_environment()
            )

    @classmethod
    def python(cls, name: str, module: str, arguments: Iterable[str | Path], log: Path) -> Self:
        return cls(name, [sys.executable, "-m", module, *arguments], log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def must_run(self) -> None:
        """Raises DemoError, with the end of the log, if the process has ended."""
        if self.exit_code is not None:
            raise DemoError(f"{self.name} ended too early, exit code {self.exit_code}:\n{self.last_words()}")

    def last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()[-_LINES_SHOWN:]
        return "\n".join(f"  | {line}" for line in lines)

    def kill(self) -> None:
        """SIGKILL: no chance to clean up."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM, and SIGKILL if that is not enough; the exit code."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.wait()


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONUNBUFFERED": "1"}
