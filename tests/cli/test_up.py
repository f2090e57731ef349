"""`nsqtw up`: three daemons that start with one command, and end with one Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Nsqtw
from tests.cli.terminal import Terminal
from tests.process import wait_until

SECONDS = 60.0
NSQTW = str(Path(sys.executable).with_name("nsqtw"))
NAMES = ["nsqlookupd", "nsqd", "nsqadmin"]
DAEMONS = re.compile(r"nsqtw\.(tap\w*):main_(\w+)")


class Up:
    """A running `nsqtw up`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._stdout, self._stderr = directory / "up.stdout", directory / "up.stderr"
        words = [NSQTW, "up", "--data-path", str(directory / "data"), *flags]
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
            )

    @property
    def output(self) -> str:
        return self._stdout.read_text()

    @property
    def errors(self) -> str:
        return self._stderr.read_text()

    def wait_ready(self) -> None:
        wait_until(
            lambda: "Ctrl-C stops everything" in self.output or self.process.poll() is not None,
            "all are started",
            SECONDS,
        )
        assert self.process.poll() is None, self.errors

    def address(self, name: str) -> str:
        """Return the HTTP address of a daemon."""
        found = re.search(rf"^{name} .*http://(\S+)$", self.output, re.MULTILINE)
        assert found, self.output
        return found[1]

    def pid(self, name: str) -> int:
        return self.pids()[name]

    def pids(self) -> dict[str, int]:
        """Return the process ids of the daemons, by name."""
        found: dict[str, int] = {}
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children:
            match = DAEMONS.search(Path(f"/proc/{pid}/cmdline").read_text())
            if match:
                found[match[2]] = int(pid)
        return found

    def end(self, number: signal.Signals) -> int:
        os.killpg(self.process.pid, number)
        return self.process.wait(SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


Start = Callable[..., Up]


@pytest.fixture
def up(tmp_path: Path, own_config: Path) -> Iterator[Start]:
    """Starts `nsqtw up`."""
    started: list[Up] = []

    def start(*flags: str) -> Up:
        started.append(Up(tmp_path, *flags))
        return started[-1]

    yield start
    for running in started:
        running.close()


def is_running(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_all_are_up_and_a_signal_ends_all_in_order(up: Start, nsqtw: Nsqtw, number: signal.Signals) -> None:
    running = up("--port", "0", "--verbose")
    running.wait_ready()
    assert [line.split()[0] for line in running.output.splitlines()[:3]] == NAMES
    assert f"the page is at http://{running.address('nsqadmin')}" in running.output
    with urllib.request.urlopen(f"http://{running.address('nsqadmin')}/ping") as answer:
        assert answer.read() == b"OK"
    lookupd = running.address("nsqlookupd")
    assert nsqtw("--lookupd-http-address", lookupd, "pub", "greetings", "hello").code == 0
    assert nsqtw("--lookupd-http-address", lookupd, "tail", "greetings", "c", "-n", "1").out == "hello\n"
    with urllib.request.urlopen(f"http://{running.address('nsqadmin')}/api/topics") as answer:
        assert json.load(answer)["topics"] == ["greetings"]
    pids = running.pids()
    assert sorted(pids) == sorted(NAMES)
    assert running.end(number) == 0
    assert not any(map(is_running, pids.values()))
    last = {name: running.errors.rindex(f"\n{name:<10} | ") for name in NAMES}
    assert sorted(last, key=lambda name: last[name]) == ["nsqadmin", "nsqd", "nsqlookupd"]


def test_a_daemon_that_is_killed_is_told_without_old_lines_and_ends_the_others(up: Start) -> None:
    running = up("--port", "0")
    running.wait_ready()
    pids = running.pids()
    tcp = re.search(r"^nsqd +tcp 127\.0\.0\.1:(\d+) ", running.output, re.MULTILINE)
    assert tcp
    with socket.create_connection(("127.0.0.1", int(tcp[1]))) as client:
        client.sendall(b"HTTP GET")  # an ERROR in its log
        while client.recv(100):
            pass
    os.kill(pids["nsqd"], signal.SIGKILL)
    assert running.process.wait(SECONDS) == 1
    assert running.errors == "nsqtw: nsqd was ended by SIGKILL; the others are stopped\n"
    assert not any(map(is_running, pids.values()))


def test_when_up_is_killed_no_daemon_is_left(up: Start) -> None:
    running = up("--port", "0")
    running.wait_ready()
    pids = running.pids()
    running.process.kill()
    running.process.wait()
    wait_until(lambda: not any(map(is_running, pids.values())), "the daemons end", SECONDS)


def test_messages_are_there_again_after_a_restart(up: Start, nsqtw: Nsqtw) -> None:
    for round_number in range(2):
        running = up("--port", "0", "--without-lookupd", "--without-admin")
        running.wait_ready()
        assert [line.split()[0] for line in running.output.splitlines()[:1]] == ["nsqd"]
        words = ("--nsqd-http-address", running.address("nsqd"))
        if not round_number:
            assert nsqtw(*words, "pub", "kept", "hello").code == 0
        else:
            assert nsqtw(*words, "tail", "kept", "c", "-n", "1").out == "hello\n"
        assert running.end(signal.SIGINT) == 0


def test_a_busy_port_is_one_line_that_names_the_option(nsqtw: Nsqtw, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = nsqtw("up", "--port", "0", "--lookupd-http-port", str(port), "--data-path", str(tmp_path / "data"))
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"nsqtw: 127.0.0.1:{port}: address already in use; --lookupd-http-port chooses another, and --port other ones"
        " for all\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        words = (
            "up",
            "--port",
            "0",
            "--nsqd-tcp-port",
            str(other.getsockname()[1]),
            "--data-path",
            str(tmp_path / "d"),
        )
        assert "'make run PORT=5150'" in nsqtw(*words, NSQTW_MAKE_RUN="yes").err


def test_ctrl_c_on_a_terminal_says_that_all_is_stopped(tmp_path: Path, own_config: Path) -> None:
    words = ("up", "--port", "0", "--without-lookupd", "--without-admin", "--data-path", str(tmp_path / "data"))
    with Terminal(*words) as terminal:
        terminal.wait_for("Ctrl-C stops everything")
        terminal.interrupt()
        assert terminal.end() == 0
        assert terminal.text.endswith("\n\nstopped\n")


def test_a_daemon_that_cannot_start_says_why(up: Start, tmp_path: Path) -> None:
    running = up("--port", "0", "--nsqd-flag=--frob", "--without-lookupd")
    assert running.process.wait(SECONDS) == 1
    assert running.errors == "nsqtw: nsqd does not start: flag provided but not defined: -frob\n"


def test_a_data_path_in_use_says_so(up: Start) -> None:
    first = up("--port", "0", "--without-lookupd", "--without-admin")
    first.wait_ready()
    second = up("--port", "0", "--without-lookupd", "--without-admin")
    assert second.process.wait(SECONDS) == 1
    assert second.errors.startswith("nsqtw: nsqd does not start: ")
    assert second.errors.count("\n") == 1
    assert second.errors.endswith("(possibly in use by another instance of nsqd); stop it first\n")
    assert first.end(signal.SIGINT) == 0


def test_a_data_path_that_is_a_file(nsqtw: Nsqtw, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    done = nsqtw("up", "--port", "0", "--data-path", str(path))
    assert (done.code, done.err) == (2, f"nsqtw: --data-path {path}: is a file; give a directory\n")


def test_addresses_as_json(up: Start) -> None:
    running = up("--port", "0", "-o", "json")
    wait_until(lambda: running.output.endswith("}\n"), "all are started", SECONDS)
    addresses = json.loads(running.output)
    assert sorted(addresses) == sorted(NAMES)
    assert addresses["nsqd"]["tcp_address"].startswith("127.0.0.1:")
    assert running.end(signal.SIGINT) == 0
