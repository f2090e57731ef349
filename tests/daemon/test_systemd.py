"""A daemon under a service manager: what it is told, and the sockets that it passes."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from nsqtw.daemon.systemd import STATUS_SECONDS, Notifier, Supervision, notifier_of, watchdog_seconds
from nsqtw.errors import OptionError
from nsqtw.net.inherited import InheritedSockets
from tests.admin.process import EXECUTABLE as NSQADMIN
from tests.process import ANSWER_SECONDS, EXECUTABLE, LOOKUPD, wait_until
from tests.wire import HOST, Client

TWISTD = [Path(sys.executable), "-c", "from twisted.scripts.twistd import run; run()"]
SCRIPT = "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid()); os.execv(sys.argv[1], sys.argv[1:])"
"""What systemd does between fork and exec."""


class Manager:
    """The socket of a service manager, and what it was told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.setblocking(False)
        self.messages: list[dict[str, str]] = []

    def read(self) -> list[dict[str, str]]:
        """All messages so far."""
        while True:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return self.messages
            self.messages.append(dict(line.split("=", 1) for line in data.decode().split("\n")))

    def says(self, name: str, value: str = "") -> bool:
        """Whether a message has this assignment."""
        return any(name in message and value in message[name] for message in self.read())

    def keys(self) -> list[str]:
        return [key for message in self.read() for key in message]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


# -- messages


class Supervised:
    """The supervision of a daemon, in time that the test owns."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.clock = Clock()
        self.status, self.is_ending = "1 topics", False
        self.supervision = Supervision(self.clock, lambda: self.status, lambda: self.is_ending, environment)


@pytest.fixture
def supervised(manager: Manager) -> Supervised:
    return Supervised({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "20000000"})


def test_a_daemon_that_is_ready_gives_signs_of_life(manager: Manager, supervised: Supervised) -> None:
    supervised.supervision.ready()
    assert manager.read() == [{"READY": "1", "STATUS": "1 topics"}, {"WATCHDOG": "1"}]
    supervised.clock.pump([1.0] * 20)
    assert manager.keys().count("WATCHDOG") == 3, "at half of the time"
    supervised.supervision.close()
    assert supervised.clock.getDelayedCalls() == []


def test_a_start_that_takes_long_asks_for_more_time(
    manager: Manager, supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsqtw.daemon.systemd.STATUS_SECONDS", 0.001)
    with supervised.supervision.starting():  # as if it read what is stored: the reactor does not turn
        wait_until(lambda: manager.keys().count("EXTEND_TIMEOUT_USEC") > 2, "it asks again and again")
    assert not manager.says("READY")


def test_a_status_is_told_when_it_has_changed(manager: Manager, supervised: Supervised) -> None:
    supervised.supervision.ready()
    supervised.clock.advance(STATUS_SECONDS)
    supervised.status = "2 topics"
    supervised.clock.pump([STATUS_SECONDS] * 3)
    assert [message["STATUS"] for message in manager.read() if "STATUS" in message] == ["1 topics", "2 topics"]


def test_a_drain_asks_for_more_time(manager: Manager, supervised: Supervised) -> None:
    supervised.supervision.ready()
    manager.read().clear()
    supervised.status, supervised.is_ending = "draining", True
    supervised.supervision.draining()
    assert manager.read() == [{"STATUS": "draining", "EXTEND_TIMEOUT_USEC": "30000000"}]
    supervised.clock.pump([STATUS_SECONDS] * 4)
    assert manager.keys().count("EXTEND_TIMEOUT_USEC") == 5
    supervised.supervision.stopping()
    assert manager.read()[-1] == {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "30000000"}


def test_a_reload(manager: Manager, supervised: Supervised) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    with supervised.supervision.reloading():
        (message,) = manager.read()
        assert message["RELOADING"] == "1"
        assert before <= int(message["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert manager.read()[-1]["READY"] == "1"


def test_without_a_service_manager_nothing_is_done() -> None:
    supervised = Supervised({"WATCHDOG_USEC": "20000000"})
    with supervised.supervision.starting(), supervised.supervision.reloading():
        supervised.supervision.ready()
    supervised.supervision.draining()
    supervised.supervision.stopping()
    assert supervised.clock.getDelayedCalls() == []


def test_an_abstract_socket_and_one_that_is_gone() -> None:
    manager = Manager(f"@nsqtw-test-{os.getpid()}")
    notifier = notifier_of({"NOTIFY_SOCKET": manager.address})
    assert notifier is not None
    notifier.send("READY=1")
    assert manager.says("READY")
    manager.close()
    notifier.send("READY=1")
    Notifier("/nowhere/at/all").send("READY=1")


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_time_of_the_watchdog(environment: dict[str, str], seconds: float) -> None:
    assert watchdog_seconds(environment) == seconds


@pytest.mark.parametrize("address", ["", "relative/path", "vsock:2:1"])
def test_an_address_that_is_none(address: str) -> None:
    assert notifier_of({"NOTIFY_SOCKET": address}) is None


# -- sockets


def listening(port: int = 0) -> socket.socket:
    one = socket.socket()
    one.bind((HOST, port))
    one.listen()
    return one


def passed(*sockets: tuple[str, socket.socket]) -> InheritedSockets:
    return InheritedSockets([*sockets])


def test_a_socket_goes_to_the_option_with_its_port_or_its_name() -> None:
    with listening() as first, listening() as second:
        ports = [one.getsockname()[1] for one in (first, second)]
        sockets = passed(("nsqd.socket", first), ("nsqd.socket", second))
        assert sockets.take("tcp", f"0.0.0.0:{ports[1]}") is second
        assert sockets.take("http", f":{ports[0]}") is first
        assert sockets.take("https", ":4152") is None
        sockets.check_all_taken({})
        named = passed(("http", first), ("tcp", second))
        assert named.take("tcp", f":{ports[0]}") is second, "the name counts"
        assert named.take("http", "/run/nsqd.sock") is first


def test_a_socket_that_is_for_no_option_is_refused() -> None:
    with listening() as one:
        port = one.getsockname()[1]
        sockets = passed(("nsqd.socket", one))
        assert sockets.take("tcp", "0.0.0.0:1") is None
        line = (
            f"^the service manager passes a socket on port {port} \\(nsqd.socket\\), which is for none of"
            " --tcp-address=0.0.0.0:1$"
        )
        with pytest.raises(OptionError, match=line):
            sockets.check_all_taken({"tcp": "0.0.0.0:1"})


# -- processes


class Process:
    """A daemon as systemd starts it: with a socket for messages, and `sockets` as descriptors 3, 4, ..."""

    def __init__(
        self,
        directory: Path,
        program: Path,
        manager: Manager,
        sockets: list[socket.socket],
        *words: str,
        name: str = "nsqd.socket",
    ) -> None:
        def inherit() -> None:
            spare = [os.dup2(one.fileno(), 100 + index) for index, one in enumerate(sockets)]
            for index, number in enumerate(spare):
                os.dup2(number, 3 + index, inheritable=True)
                os.close(number)

        environment = {
            **os.environ,
            "NOTIFY_SOCKET": manager.address,
            "WATCHDOG_USEC": "200000",
            "LISTEN_FDS": str(len(sockets)),
        }
        if name:
            environment["LISTEN_FDNAMES"] = ":".join(name for _ in sockets)
        self._stderr = directory / "stderr"
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(program), *words],
                env=environment,
                stderr=stderr,
                preexec_fn=inherit,
                pass_fds=range(3, 3 + len(sockets)),
                cwd=directory,
            )

    def awaits(self, condition: Callable[[], object], what: str) -> None:
        """Wait for it, as long as the daemon runs."""
        wait_until(lambda: condition() or self.process.poll() is not None, what)
        assert condition(), self.said()

    def said(self) -> str:
        return self._stderr.read_text()

    def end(self) -> int:
        try:
            return self.process.wait(ANSWER_SECONDS)
        finally:
            self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def test_a_broker_with_the_sockets_and_the_ear_of_its_manager(tmp_path: Path, manager: Manager) -> None:
    with listening() as tcp, listening() as web:
        tcp_port, web_port = tcp.getsockname()[1], web.getsockname()[1]
        early = Client(tcp_port)  # before there is a broker: it waits in the socket
        words = [f"--tcp-address={HOST}:{tcp_port}", f"--http-address={HOST}:{web_port}", "--sigterm=drain"]
        broker = Process(tmp_path, EXECUTABLE, manager, [web, tcp], *words, "--drain-timeout=0")
        try:
            broker.awaits(lambda: manager.says("READY"), "it is ready")
            with early:
                early.pub("t", b"x")
                early.sub("t", "c")
                broker.awaits(lambda: manager.keys().count("WATCHDOG") > 2, "it gives signs of life")
                broker.process.send_signal(signal.SIGHUP)
                broker.awaits(lambda: manager.says("RELOADING"), "it reloads")
                wait_until(
                    lambda: "READY" in manager.read()[-1] or manager.keys().count("READY") > 1, "it has reloaded"
                )
                connection = http.client.HTTPConnection(HOST, web_port, timeout=ANSWER_SECONDS)
                connection.request("GET", "/ping")
                assert connection.getresponse().read() == b"OK"
                connection.close()
                broker.process.send_signal(signal.SIGTERM)
                broker.awaits(lambda: manager.says("STATUS", "draining: depth 1"), "it drains")
                assert manager.says("EXTEND_TIMEOUT_USEC")
                early.rdy(1)
                early.drain(1)
                assert broker.end() == 0
        finally:
            broker.close()
        assert manager.says("STOPPING")
        # The sockets are the manager's: they are still there.
        socket.create_connection((HOST, tcp_port)).close()
    assert broker.said().endswith("INFO: NSQ: bye\n")


def test_an_nsqlookupd_with_the_sockets_of_its_manager(tmp_path: Path, manager: Manager) -> None:
    with listening() as tcp, listening() as web:
        tcp_port, web_port = tcp.getsockname()[1], web.getsockname()[1]
        words = [f"--tcp-address={HOST}:{tcp_port}", f"--http-address={HOST}:{web_port}"]
        lookupd = Process(tmp_path, LOOKUPD, manager, [tcp, web], *words)
        try:
            lookupd.awaits(lambda: manager.says("READY"), "it is ready")
            assert manager.says("STATUS", "0 topics, 0 channels")
            connection = http.client.HTTPConnection(HOST, web_port, timeout=ANSWER_SECONDS)
            connection.request("GET", "/ping")
            assert connection.getresponse().read() == b"OK"
            connection.close()
            lookupd.process.send_signal(signal.SIGTERM)
            assert lookupd.end() == 0
        finally:
            lookupd.close()
        assert manager.says("STOPPING")


def test_an_nsqadmin_with_the_socket_of_its_manager(tmp_path: Path, manager: Manager) -> None:
    with listening() as web:
        port = web.getsockname()[1]
        words = [f"--http-address={HOST}:{port}", f"--nsqd-http-address={HOST}:1"]
        admin = Process(tmp_path, NSQADMIN, manager, [web], *words)
        try:
            admin.awaits(lambda: manager.says("READY"), "it is ready")
            assert manager.says("STATUS", "the cluster of 1 nsqds")
            connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
            connection.request("GET", "/ping")
            assert connection.getresponse().read() == b"OK"
            connection.close()
            admin.awaits(lambda: manager.keys().count("WATCHDOG") > 2, "it gives signs of life")
            admin.process.send_signal(signal.SIGHUP)
            admin.awaits(lambda: manager.says("RELOADING") and manager.keys().count("READY") > 1, "it reloads")
            admin.process.send_signal(signal.SIGTERM)
            assert admin.end() == 0
        finally:
            admin.close()
        assert manager.says("STOPPING")


@pytest.mark.parametrize("program", [[EXECUTABLE], [*TWISTD, "-n", "nsq"]], ids=["nsqd", "twistd"])
def test_the_sockets_reach_a_broker_that_asks_nsqlookupds(
    program: list[Path | str], tmp_path: Path, manager: Manager
) -> None:
    """Its HTTP client imports a module of Twisted that takes the sockets; so does twistd."""
    with listening() as tcp:
        port = tcp.getsockname()[1]
        words = [f"--tcp-address={HOST}:{port}", f"--http-address={HOST}:0", f"--lookupd-tcp-address={HOST}:1"]
        first, *others = program
        broker = Process(tmp_path, first, manager, [tcp], *others, *words)
        try:
            broker.awaits(lambda: manager.says("READY"), "it is ready")
            Client(port).close()
            broker.process.send_signal(signal.SIGTERM)
            assert broker.end() == 0
        finally:
            broker.close()


def test_sockets_need_no_names(tmp_path: Path, manager: Manager) -> None:
    """systemd names them all, other programs do not: systemd-socket-activate(1)."""
    with listening() as tcp, listening() as web:
        tcp_port, web_port = tcp.getsockname()[1], web.getsockname()[1]
        words = [f"--tcp-address={HOST}:{tcp_port}", f"--http-address={HOST}:{web_port}"]
        broker = Process(tmp_path, EXECUTABLE, manager, [tcp, web], *words, name="")
        try:
            broker.awaits(lambda: manager.says("READY"), "it is ready")
            broker.process.send_signal(signal.SIGTERM)
            assert broker.end() == 0
        finally:
            broker.close()


def test_a_socket_that_no_option_asks_for_is_one_clear_line(tmp_path: Path, manager: Manager) -> None:
    with listening() as other:
        port = other.getsockname()[1]
        words = [f"--tcp-address={HOST}:0", "--http-address="]
        broker = Process(tmp_path, EXECUTABLE, manager, [other], *words)
        try:
            assert broker.end() == 1
        finally:
            broker.close()
    assert f"the service manager passes a socket on port {port} (nsqd.socket), which is for none of" in broker.said()
    assert "Traceback" not in broker.said()
    assert not manager.says("READY")
