"""NSQ's tools as processes: forks of one that has imported them (`tests.forked`)."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from nsqtw.testing import Broker
from tests.forked import Forked, run_forked
from tests.process import wait_until

END_SECONDS = 60.0
Running = subprocess.Popen[bytes] | Forked
Done = subprocess.CompletedProcess[bytes]


class Programs:
    """The tools in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def run(self, tool: str, *flags: str, stdin: bytes = b"", cwd: Path | None = None) -> Done:
        """Run a tool to its end."""
        command = [str(self._directory / tool), *flags]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=END_SECONDS, cwd=cwd)

    def start(self, tool: str, *flags: str, output: Path) -> Running:
        """Start a tool. What it writes goes to the end of a file."""
        command = [str(self._directory / tool), *flags]
        with output.open("ab") as file:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


class Ours(Programs):
    """Our tools, without the time to start Python. `directory` gets their standard streams."""

    def run(self, tool: str, *flags: str, stdin: bytes = b"", cwd: Path | None = None) -> Done:
        return run_forked(self._directory, tool, *flags, stdin=stdin, cwd=cwd)

    def start(self, tool: str, *flags: str, output: Path) -> Running:
        return Forked(tool, *flags, stdout=output, stderr=output)


class ToolProcess:
    """A running tool, and what it writes."""

    def __init__(self, directory: Path, tool: str, *flags: str) -> None:
        self._stderr = directory / f"{tool}.stderr"
        self._stdout = directory / f"{tool}.stdout"
        self._process = Forked(tool, *flags, stdout=self._stdout, stderr=self._stderr)

    @property
    def log(self) -> str:
        """All it wrote to stderr."""
        return self._stderr.read_text("utf-8", "replace")

    @property
    def output(self) -> str:
        """All it wrote to stdout."""
        return self._stdout.read_text("utf-8", "replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.send(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end. Returns the exit code."""
        code = self._process.wait(END_SECONDS)
        assert "Traceback" not in self.log, self.log
        return code

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """Leave no process behind."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


Start = Callable[..., ToolProcess]
"""Starts a tool with flags."""


def run_tool(tool: str, *flags: str, stdin: bytes = b"") -> Done:
    """Run a tool to its end."""
    with tempfile.TemporaryDirectory() as streams:
        return run_forked(Path(streams), tool, *flags, stdin=stdin)


def publish(nsqd: Broker, topic: str, bodies: list[bytes]) -> None:
    """Publish messages, a line each."""
    url = f"http://{nsqd.http_address}/mpub?topic={topic}"
    with urllib.request.urlopen(url, b"\n".join(bodies)) as answer:
        assert answer.read() == b"OK"


def topic_stats(nsqd: Broker, topic: str) -> dict[str, object]:
    """Return the statistics of a topic, empty for an unknown one."""
    with urllib.request.urlopen(f"http://{nsqd.http_address}/stats?format=json&topic={topic}") as answer:
        found = json.load(answer)["topics"]
    return found[0] if found else {}


def unfinished(nsqd: Broker, topic: str, channel: str) -> int:
    """Return how many messages a channel has, -1 without the channel."""
    channels = topic_stats(nsqd, topic).get("channels") or []
    for found in channels:  # type: ignore[attr-defined]
        if found["channel_name"] == channel:
            return int(found["depth"] + found["in_flight_count"] + found["deferred_count"])
    return -1


def wait_drained(nsqd: Broker, topic: str, channel: str) -> None:
    """Wait until a channel has no messages."""
    wait_until(lambda: unfinished(nsqd, topic, channel) == 0, f"{topic}/{channel} is empty", END_SECONDS)
