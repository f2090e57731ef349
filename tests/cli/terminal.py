"""`nsqtw` on a terminal: a pseudo-terminal of a known size, whose output is kept."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from multiprocessing.connection import wait

NSQTW = os.path.join(os.path.dirname(sys.executable), "nsqtw")
_SECONDS = 60.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A running `nsqtw`, or another program."""

    def __init__(
        self, *words: str, columns: int = 160, lines: int = 40, program: str = "nsqtw", **environment: str
    ) -> None:
        self._fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        variables = {**os.environ, "TERM": "xterm-256color", **environment}
        for name in ("COLUMNS", "LINES"):  # would be the size, whatever the terminal says
            variables.pop(name, None)
        self._process = subprocess.Popen(
            [os.path.join(os.path.dirname(NSQTW), program), *words],
            stdin=other,
            stdout=other,
            stderr=other,
            env=variables,
            start_new_session=True,
        )
        os.close(other)
        self.raw = ""

    @property
    def text(self) -> str:
        """All output, without colours and movements."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        """Read until the output has a text."""
        deadline = time.monotonic() + _SECONDS
        while text not in self.text:
            assert self._read(deadline), f"{text!r} is not in {self.text!r}"

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._fd, text.encode())

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> int:
        """Read to the end. Returns the exit code."""
        deadline = time.monotonic() + _SECONDS
        while self._read(deadline):
            pass
        assert "Traceback" not in self.text, self.text
        return self._process.wait(_SECONDS)

    def close(self) -> None:
        """Leave no process behind."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._fd)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, deadline: float) -> bool:
        """Read some output. False at its end."""
        ready = wait([self._fd], max(0.0, deadline - time.monotonic()))  # select knows no descriptor above 1023
        assert ready, f"not in time; so far {self.text!r}"
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # Linux's word for the end of a pseudo-terminal
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)
