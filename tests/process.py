"""
A broker as its users run it, the console script `nsqd`, and an `nsqlookupd`, each in a process of its own.

It keeps its ports and its data path over any number of deaths. The ports are below 32768, where nobody's outgoing
connections come from, and stay reserved while the broker is down: this process holds them with a socket that
is bound and does not listen. Linux only.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.forked import Forked
from tests.wire import ANSWER_SECONDS, HOST, MAGIC, Client, Message

EXECUTABLE = Path(sys.executable).with_name("nsqd")
LOOKUPD = EXECUTABLE.with_name("nsqlookupd")
_PORTS = range(20000, 32768)
_LOOK_AGAIN_SECONDS = 0.005


class Answer(NamedTuple):
    """What came of an HTTP request."""

    status: int
    body: bytes


class Counts(NamedTuple):
    """What /stats says of the messages of a channel."""

    depth: int
    in_flight: int
    deferred: int


NOTHING = Counts(0, 0, 0)


def wait_until(condition: Callable[[], object], what: str, seconds: float = ANSWER_SECONDS) -> None:
    """Return when the condition holds; the test fails when it does not in so many seconds."""
    assert comes_true(condition, seconds), f"not in {seconds:.0f} s: {what}"


def comes_true(condition: Callable[[], object], seconds: float = ANSWER_SECONDS) -> bool:
    """Return whether the condition holds within so many seconds, as soon as it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_AGAIN_SECONDS)  # a process of its own tells nobody when its state changes
    return True


class ReservedPort:
    """A free port that nobody else gets while this lives."""

    def __init__(self) -> None:
        while True:
            self._socket = socket.socket()
            self.number = random.SystemRandom().choice(_PORTS)
            try:
                self._socket.bind((HOST, self.number))
            except OSError:
                self._socket.close()
                continue
            # Said only now: who binds with this option set, as a broker does, may share the port with us,
            # and another reservation could not be told from one.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return

    def release(self) -> None:
        self._socket.close()


class DaemonProcess:
    """
    A daemon, with `directory`/data for what it stores, and with default flags but for `flags`. What it says on stderr,
    over all its lives, is in `directory`/stderr. `close` in the end, or the fixture's end does it.
    """

    last_words = ""
    """How what it says ends when it was stopped."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.data_path = directory / "data"
        self.data_path.mkdir(parents=True, exist_ok=True)
        self._ports = [ReservedPort(), ReservedPort()]
        self.tcp_port, self.http_port = (port.number for port in self._ports)
        self._stderr = directory / "stderr"
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._open_files = 0
        self._command = [
            *self.program(),
            f"--tcp-address={HOST}:{self.tcp_port}",
            f"--http-address={HOST}:{self.http_port}",
            *flags,
        ]

    def program(self) -> list[str]:
        """What is started, without its flags."""
        raise NotImplementedError

    # -- life and death

    def start(self) -> None:
        """Start it, and wait until it says that it listens."""
        assert self._process is None, "it runs already"
        said = len(self.said())
        self._process = self._started()
        wait_until(lambda: self._listens(self.said()[said:]), "it listens")

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, after which it must end cleanly."""
        status = self._end(signal.SIGTERM)
        assert status == 0, f"exit status {status} after SIGTERM: {self.said()[-2000:]}"
        assert self.said().endswith(self.last_words), self.said()[-2000:]
        self.assert_no_traceback()

    def signal(self, number: int) -> None:
        """Send a signal that does not end it."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(number)

    def end_with(self, number: int) -> int:
        """Send a signal that ends it; the exit code."""
        return self._end(number)

    def await_end(self) -> int:
        """Wait until it has ended by itself, cleanly; the exit code."""
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        try:
            code = process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        self.assert_no_traceback()
        return code

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Leave no process and no port behind."""
        try:
            if self._process is not None:
                self.kill()
        finally:
            for port in self._ports:
                port.release()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    def command(self) -> list[str]:
        """The words that started it."""
        return list(self._command)

    # -- what it says

    def said(self) -> str:
        """All it said on stderr so far."""
        return self._stderr.read_text(errors="replace") if self._stderr.exists() else ""

    def assert_no_traceback(self) -> None:
        """Nothing went wrong that nobody had thought of."""
        said = self.said()
        assert "Traceback" not in said, said[max(0, said.find("Traceback") - 500) :][:4000]
        assert "FATAL" not in said, said[-2000:]

    # -- HTTP

    def http(self, method: str, path: str, body: bytes = b"") -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, body or None)
            response = connection.getresponse()
            return Answer(response.status, response.read())
        finally:
            connection.close()

    # -- the system around it

    def open_sockets(self) -> int:
        """How many sockets it has: one for each connection, and some of its own."""
        directory = Path(f"/proc/{self.pid}/fd")
        count = 0
        for descriptor in directory.iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                count += os.readlink(descriptor).startswith("socket:")
        return count

    def limit_files(self, size: int | None) -> None:
        """From now on no file may grow beyond `size` bytes, as if the disk were full there; None: all is well again."""
        hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))

    def limit_open_files(self, count: int) -> None:
        """From its next start on it may have so many files open."""
        self._open_files = count

    # -- inside

    def _started(self) -> subprocess.Popen[bytes] | Forked:
        with self._stderr.open("ab") as stderr:
            return subprocess.Popen(
                self._limited(self._command), stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
            )

    def _limited(self, command: list[str]) -> list[str]:
        if not self._open_files:
            return command
        return ["/bin/sh", "-c", f'ulimit -n {self._open_files} && exec "$@"', "sh", *command]

    def _listens(self, said: str) -> bool:
        assert self.runs, f"it ended: {said[-2000:]}"
        return all(f"{name}: listening on {HOST}:" in said for name in ("TCP", "HTTP"))

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        assert process.poll() is None, f"it ended by itself: {self.said()[-2000:]}"
        process.send_signal(number)
        try:
            return process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


class NsqdProcess(DaemonProcess):
    """`nsqd`."""

    last_words = "INFO: NSQ: bye\n"

    def __init__(self, directory: Path, *flags: str) -> None:
        stored = f"--data-path={directory / 'data'}"
        super().__init__(directory, stored, f"--stop-timeout={ANSWER_SECONDS:.0f}s", *flags)

    def program(self) -> list[str]:
        return [str(EXECUTABLE)]

    def order(self, path: str) -> None:
        """POST to an administrative path, which must go well: what it did, and all before it, then is stored."""
        answer = self.http("POST", path)
        assert answer.status == 200, f"{path}: {answer}"

    def create(self, topic: str, *channels: str) -> None:
        """Create a topic, with channels that get everything published from now on."""
        self.order(f"/topic/create?topic={topic}")
        for channel in channels:
            self.order(f"/channel/create?topic={topic}&channel={channel}")

    def stats(self, topic: str = "") -> list[dict[str, Any]]:
        """What /stats says of a topic, or of all."""
        answer = self.http("GET", f"/stats?format=json&topic={topic}")
        assert answer.status == 200, answer
        return json.loads(answer.body)["topics"] or []

    def counts(self, topic: str, channel: str) -> Counts:
        """What waits in a channel."""
        (found,) = self.stats(topic)
        (one,) = [one for one in found["channels"] if one["channel_name"] == channel]
        return Counts(one["depth"], one["in_flight_count"], one["deferred_count"])

    def await_counts(self, topic: str, channel: str, counts: Counts) -> None:
        """Wait until the channel has just that: FIN and REQ have no answer to wait for."""
        wait_until(
            lambda: self.counts(topic, channel) == counts,
            f"{counts} in {channel}, there is {self.counts(topic, channel)}",
        )

    def store(self) -> None:
        """
        When this returns, all that was done before is stored, also what has no answer to wait for, as FIN and REQ:
        one consistent cut of all channels is saved before an order is answered.
        """
        self.create("stored")

    # -- clients

    def client(self, magic: bytes = MAGIC) -> Client:
        """A connection to it."""
        return Client(self.tcp_port, magic)

    def publish(self, topic: str, bodies: Iterable[bytes]) -> None:
        """One PUB each, the next when the last was answered with OK."""
        with self.client() as producer:
            for body in bodies:
                producer.pub(topic, body)

    def drain(self, topic: str, channel: str, count: int) -> list[Message]:
        """Consume and finish `count` messages, after which there must be nothing left."""
        with self.client() as consumer:
            consumer.sub(topic, channel, ready=500)
            messages = consumer.drain(count)
            self.await_counts(topic, channel, NOTHING)
        return messages


class ForkedNsqd(NsqdProcess):
    """
    `nsqd` as a fork of a process that has imported it, for tests of what talks to a broker: it starts in a fifth of the
    time.
    """

    def _started(self) -> Forked:
        assert not self._open_files, "a fork has the limits of the process that it is made of"
        return Forked(EXECUTABLE.name, *self._command[1:], stdout=self._stderr, stderr=self._stderr)


class LookupdProcess(DaemonProcess):
    """`nsqlookupd`, which stores nothing unless `flags` say so."""

    def program(self) -> list[str]:
        return [str(LOOKUPD)]

    def ask(self, path: str) -> dict[str, Any]:
        """What GET answers, which must go well."""
        answer = self.http("GET", path)
        assert answer.status == 200, f"{path}: {answer}"
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def producers(self, topic: str) -> list[str]:
        """The `broadcast_address:tcp_port` of those that a lookup of the topic shows; none for an unknown one."""
        answer = self.http("GET", f"/lookup?topic={topic}")
        producers = json.loads(answer.body)["producers"] if answer.status == 200 else []
        return sorted(f"{one['broadcast_address']}:{one['tcp_port']}" for one in producers)


Start = Callable[..., NsqdProcess]
"""Starts a broker with the flags it is given."""


@contextmanager
def starting(directory: Path, make: type[NsqdProcess] = NsqdProcess) -> Iterator[Start]:
    """Starts brokers, each on a data path of its own; none outlives this, or dies of its own failure in it."""
    started: list[NsqdProcess] = []

    def start_one(*flags: str) -> NsqdProcess:
        process = make(directory / str(len(started)), *flags)
        started.append(process)
        process.start()
        return process

    try:
        yield start_one
    finally:
        for process in started:
            process.close()
    for process in started:
        process.assert_no_traceback()
