"""
Console scripts in processes of their own, without the time to import: the processes are forks of one that has imported
everything. A reactor runs once in a process, so what uses it cannot run in that of the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

SECONDS = 60.0
_TOOLS = ("nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "to_nsq")
SCRIPTS = {
    "nsqd": "nsqtw.tap:main_nsqd",
    "nsqtw": "nsqtw.cli.main:main",
    **{tool: f"nsqtw.tools.{tool}:main" for tool in _TOOLS},
}
"""By name: the module and the function, as in pyproject.toml."""
_LATER = ("nsqtw.nsqd.service", "nsqtw.client.twisted", "treq", "rich.table")
"""What the scripts import when they need it."""


class Forked:
    """A running script. It has a part of what subprocess.Popen has, under the same names."""

    def __init__(
        self,
        script: str,
        *words: str,
        stdin: Path = Path(os.devnull),
        stdout: Path,
        stderr: Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*(place.partition(":")[0] for place in SCRIPTS.values()), *_LATER, __name__])
        for output in (stdout, stderr):
            output.touch()  # it is there when this returns, as with Popen
        streams = tuple(map(str, (stdin, stdout, stderr)))
        given = (script, words, streams, dict(environment or os.environ), str(cwd or Path.cwd()))
        self._process = context.Process(target=_child, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float = SECONDS) -> int:
        """Wait for its end. Returns the exit code."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()


def _child(
    script: str, words: tuple[str, ...], streams: tuple[str, ...], environment: Mapping[str, str], cwd: str
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY, 0o600), number)
    os.chdir(cwd)
    # For good.
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    sys.argv = [script, *words]
    module, _, function = SCRIPTS[script].partition(":")
    code: object = 0
    try:
        getattr(import_module(module), function)()
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush()
    assert isinstance(code, int), code
    os._exit(code)


def run_forked(
    directory: Path, script: str, *words: str, stdin: bytes = b"", cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a script to its end. `directory` gets its standard streams, beside those of the daemons there."""
    given, out, err = (directory / f"{script}.{name}" for name in ("stdin", "stdout", "stderr"))
    given.write_bytes(stdin)
    for stream in (out, err):
        stream.write_bytes(b"")
    process = Forked(script, *words, stdin=given, stdout=out, stderr=err, environment=os.environ | environment, cwd=cwd)
    try:
        code = process.wait()
    finally:
        process.kill()
    return subprocess.CompletedProcess([script, *words], code, out.read_bytes(), err.read_bytes())
