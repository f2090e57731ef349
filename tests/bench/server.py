"""
A broker process under test: start it on free ports, ask it over HTTP, watch its CPU, memory and disk.

Linux only: figures come from /proc.
"""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import BrokerFailed, WrongCount

_CPU_CLOCK = 2
_START_SECONDS = 20.0


def default_executable() -> Path:
    """
    The console script ``nsqd`` that was installed beside this Python.
    """
    return Path(sys.executable).with_name("nsqd")


def cpu_seconds(pid: int) -> float:
    """
    User and system time of a process with all its threads, to the nanosecond.
    """
    # The clock of another process, as clock_getcpuclockid makes it; /proc counts in steps of 10 ms.
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


@dataclass(frozen=True)
class Depths:
    """
    What /stats says of one topic: per channel what waits, is in flight or is deferred.
    """

    message_count: int
    topic_depth: int
    channels: dict[str, tuple[int, int, int]]


class Broker:
    """
    One running broker. Use `running` to get one.
    """

    def __init__(self, process: subprocess.Popen[bytes], workspace: Path) -> None:
        self._process = process
        self._log = workspace / "stderr"
        self.data_path = workspace / "data"
        self.pid = process.pid
        self.tcp_port = self._port("TCP")
        self.http_port = self._port("HTTP")

    def end(self, number: signal.Signals) -> float:
        """
        Send a signal and wait for the end of the process; the seconds it took.
        """
        start = time.monotonic()
        self._process.send_signal(number)
        self._process.wait()
        return time.monotonic() - start

    def _port(self, listener: str) -> int:
        pattern = re.compile(rf"{listener}: listening on 127\.0\.0\.1:(\d+)")
        patience = time.monotonic() + _START_SECONDS
        while time.monotonic() < patience:
            if found := pattern.search(self._log.read_text(errors="replace")):
                return int(found[1])
            if self._process.poll() is not None:
                raise BrokerFailed(f"the broker exited with {self._process.returncode}: {self.last_words()}")
            time.sleep(0.005)
        raise BrokerFailed(f"no line '{listener}: listening on' in {_START_SECONDS:.0f} s: {self.last_words()}")

    def last_words(self) -> str:
        """
        The last lines the broker wrote to stderr, on one line.
        """
        return " / ".join(self._log.read_text(errors="replace").splitlines()[-3:]) or "it said nothing"

    def resident_bytes(self) -> tuple[int, int]:
        """
        Resident memory now, and the most there ever was.
        """
        status = Path(f"/proc/{self.pid}/status").read_text()
        now, most = (re.search(rf"{key}:\s+(\d+) kB", status) for key in ("VmRSS", "VmHWM"))
        if now is None or most is None:
            raise BrokerFailed(f"the broker is gone: {self.last_words()}")
        return int(now[1]) * 1024, int(most[1]) * 1024

    def disk_bytes(self) -> int:
        """
        Space that the data path takes on disk (allocated blocks, not file lengths).
        """
        total = 0
        for directory, _, names in os.walk(self.data_path):
            for name in names:
                try:
                    total += os.stat(os.path.join(directory, name)).st_blocks * 512
                except FileNotFoundError:
                    continue  # the broker may unlink a file between the listing and the look
        return total

    def ask(self, method: str, path: str) -> Any:
        """
        One HTTP request without a body; the decoded JSON answer, or None for an empty one.

        Raises `BrokerFailed` for any status but 200.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            content = answer.read()
        except OSError as error:
            raise BrokerFailed(f"{method} {path}: {error}; {self.last_words()}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise BrokerFailed(f"{method} {path}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content) if content else None

    def create(self, topic: str, channels: tuple[str, ...] = ()) -> None:
        """
        Create a topic with its channels, which so get all that is published later.
        """
        self.ask("POST", f"/topic/create?topic={topic}")
        for channel in channels:
            self.ask("POST", f"/channel/create?topic={topic}&channel={channel}")

    def delete(self, topic: str) -> None:
        self.ask("POST", f"/topic/delete?topic={topic}")

    def depths(self, topic: str) -> Depths:
        """
        Read the counts of ``topic`` from /stats.
        """
        found = self.ask("GET", f"/stats?format=json&topic={topic}")["topics"]
        if not found:
            raise WrongCount(f"/stats does not know topic {topic}")
        channels = {
            one["channel_name"]: (one["depth"], one["in_flight_count"], one["deferred_count"])
            for one in found[0]["channels"]
        }
        return Depths(found[0]["message_count"], found[0]["depth"], channels)

    def settle(self, topic: str, published: int, left: int, patience_seconds: float = 60.0) -> None:
        """
        Wait until the topic counted ``published`` messages and each of its channels holds ``left``.

        A broker may hand messages from topic to channels after it answered, so this asks until it is so.
        Raises `WrongCount` when it is not so in time.
        """
        end = time.monotonic() + patience_seconds
        while True:
            depths = self.depths(topic)
            held = {name: sum(parts) for name, parts in depths.channels.items()}
            wrong_channels = {name: count for name, count in held.items() if count != left}
            if depths.message_count == published and not depths.topic_depth and not wrong_channels:
                return
            if time.monotonic() > end:
                raise WrongCount(
                    f"{published} published and {left} should be left in each channel of {topic}, "
                    f"but /stats says {depths}"
                )
            time.sleep(0.02)


@contextmanager
def directory() -> Iterator[Path]:
    """
    Room for brokers that follow each other on one data path; thrown away afterwards.
    """
    workspace = Path(tempfile.mkdtemp(prefix="nsqtw-bench-"))
    (workspace / "data").mkdir()
    try:
        yield workspace
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


@contextmanager
def launched(executable: Path, flags: list[str], workspace: Path) -> Iterator[Broker]:
    """
    Any daemon with a TCP and an HTTP listener, on free ports; what it says goes to ``workspace``. Afterwards it is
    killed.

    Raises `BrokerFailed` when it cannot be started or does not name its ports.
    """
    # It is started elsewhere; a bare name is looked for on PATH.
    program = executable if len(executable.parts) == 1 else executable.absolute()
    command = [str(program), "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", *flags]
    with (workspace / "stderr").open("wb") as log:
        try:
            process = subprocess.Popen(command, stderr=log, stdout=log, cwd=workspace)
        except OSError as error:
            raise BrokerFailed(f"cannot start {executable}: {error.strerror}") from error
    try:
        yield Broker(process, workspace)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def started(executable: Path, flags: list[str], workspace: Path) -> Iterator[Broker]:
    """
    A broker with the data that is in ``workspace``; as `launched`.
    """
    with launched(executable, [f"--data-path={workspace / 'data'}", *flags], workspace) as broker:
        yield broker


@contextmanager
def running(executable: Path, flags: list[str]) -> Iterator[Broker]:
    """
    A broker on free ports with an empty data path. Afterwards it is killed and its data thrown away.

    Raises `BrokerFailed` when it cannot be started or does not name its ports.
    """
    with directory() as workspace, started(executable, flags, workspace) as broker:
        yield broker
