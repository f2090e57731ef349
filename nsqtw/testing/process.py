"""
A real broker for tests: a process on free ports, with its data in a temporary folder.

    from nsqtw.testing import broker

    with broker() as nsqd:
        ...  # nsqd.tcp_address, nsqd.http_address

The pytest fixture nsq_broker is the same for one test.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Thread

from nsqtw.errors import NsqtwError

START_SECONDS = 30.0
STOP_SECONDS = 30.0
_COMMAND = (sys.executable, "-c", "from nsqtw.tap import main_nsqd; main_nsqd()")
_LISTENING = re.compile(r"(TCP|HTTP): listening on (\S+)")
_ANY_PORT = "127.0.0.1:0"


class BrokerNotStarted(NsqtwError):
    """The broker of a test ended at its start, or did not listen in time. The text has its log."""


class Broker:
    """
    A broker process. `tcp_address` and `http_address` are host:port, and stay the same over a `restart`; `data_path`
    is its folder. `flags` are those of nsqd.
    """

    def __init__(self, data_path: str, flags: tuple[str, ...] = ()) -> None:
        self.data_path = data_path
        self.tcp_address = self.http_address = _ANY_PORT
        self._flags = flags
        self._lines: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self.restart()

    @property
    def pid(self) -> int:
        """The process id. Zero while the broker does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def log(self) -> str:
        """Everything that the broker wrote to stderr."""
        return "".join(self._lines)

    def restart(self) -> None:
        """Stop the broker if it runs, and start it on the same ports and data. BrokerNotStarted."""
        self.stop()
        addresses = (f"--tcp-address={self.tcp_address}", f"--http-address={self.http_address}")
        command = [
            *_COMMAND,
            *addresses,
            f"--data-path={self.data_path}",
            "--broadcast-address=127.0.0.1",
            *self._flags,
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self._process = process
        found: SimpleQueue[tuple[str, str]] = SimpleQueue()
        Thread(target=self._read, args=(process, found), daemon=True).start()
        addresses_by_name: dict[str, str] = {}
        deadline = time.monotonic() + START_SECONDS
        while len(addresses_by_name) < 2:
            try:
                name, address = found.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                name = address = ""
            if not name:
                self.kill()
                raise BrokerNotStarted(f"the broker did not start:\n{self.log}")
            addresses_by_name[name] = address
        self.tcp_address, self.http_address = addresses_by_name["TCP"], addresses_by_name["HTTP"]

    def stop(self) -> None:
        """End the broker with SIGTERM, and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker with SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _read(self, process: subprocess.Popen[str], found: SimpleQueue[tuple[str, str]]) -> None:
        """Read the log to its end; report the addresses, and the end."""
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._lines.append(line)
                match = _LISTENING.search(line)
                if match is not None:
                    found.put((match[1], match[2]))
        found.put(("", ""))


@contextmanager
def broker(*flags: str, **options: str | int | bool) -> Iterator[Broker]:
    """
    Run a broker while the context lasts. `flags` are nsqd's; `options` are the same by name: `max_msg_size=1000` is
    `--max-msg-size=1000`, and True is a switch. The data is removed at the end. BrokerNotStarted.
    """
    named = [f"--{name.replace('_', '-')}={_text(value)}" for name, value in options.items()]
    directory = tempfile.mkdtemp(prefix="nsqtw-broker-")
    try:
        running = Broker(directory, (*flags, *named))
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
