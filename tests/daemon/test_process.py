"""The process `nsqd`: what signals do to it, and what it writes to its log."""

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

from tests.process import EXECUTABLE, NsqdProcess, wait_until
from tests.wire import HOST, Client, Closed

SECRET = "Quixotic-Zwieback"
Start = Callable[..., NsqdProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers, and sees to it that none outlives the test."""
    started: list[NsqdProcess] = []

    def start_one(*flags: str) -> NsqdProcess:
        broker = NsqdProcess(tmp_path, *flags)
        started.append(broker)
        broker.start()
        return broker

    yield start_one
    for broker in started:
        broker.close()


def says(broker: NsqdProcess, text: str) -> None:
    wait_until(lambda: text in broker.said(), f"it says {text!r}")


def pieces(secret: str) -> set[str]:
    return {secret[start : start + 4] for start in range(len(secret) - 3)}


# -- signals


def test_a_clean_stop_says_what_it_does_in_nsqds_order(start: Start) -> None:
    broker = start()
    broker.create("t", "c")
    with broker.client() as client:
        client.sub("t", "c")
        before = len(broker.said())
        broker.stop()
        with pytest.raises(Closed):
            client.frame()
    lines = [line.partition("INFO: ")[2] for line in broker.said()[before:].splitlines()]
    expected = [
        f"TCP: closing {HOST}:{broker.tcp_port}",
        f"HTTP: closing {HOST}:{broker.http_port}",
        "NSQ: closing topics",
        "TOPIC(t): closing",
        "CHANNEL(c): closing",
        "NSQ: stopping subsystems",
        "QUEUESCAN: closing",
        "NSQ: bye",
    ]
    assert [line for line in lines if line in expected] == expected


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_that_do_not_end_it(start: Start, number: int) -> None:
    broker = start()
    os.kill(broker.pid, number)
    if number == signal.SIGHUP:
        says(broker, "INFO: RELOAD: there is nothing to reload\n")
    assert broker.http("GET", "/ping").body == b"OK"
    broker.stop()


def test_sigquit_dumps_the_stacks_and_ends_it_without_a_clean_stop(start: Start) -> None:
    broker = start()
    assert broker.end_with(signal.SIGQUIT) == 2
    assert "Current thread 0x" in broker.said()
    assert "in serve\n" in broker.said()
    assert "NSQ: bye" not in broker.said()
    broker.start()
    broker.stop()


@pytest.mark.parametrize("broken", ["startService", "stopService"])
def test_a_crash_has_its_own_exit_code_and_leaves_a_traceback(broken: str, tmp_path: Path) -> None:
    script = (
        "import os, signal; from nsqtw.tap import main_nsqd; from nsqtw.nsqd.service import BrokerService\n"
        "def fail(self): raise RuntimeError('nobody foresaw this')\n"
        f"BrokerService.{broken} = fail\n"
        "from twisted.internet import reactor\n"
        "reactor.callWhenRunning(os.kill, os.getpid(), signal.SIGTERM)\n"
        "main_nsqd()"
    )
    flags = ["--tcp-address=127.0.0.1:0", "--http-address="]
    done = subprocess.run([sys.executable, "-c", script, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "RuntimeError: nobody foresaw this" in done.stderr


# -- the start

HEAVY = [
    *("OpenSSL", "cryptography", "service_identity", "twisted.internet.ssl", "twisted.protocols.tls"),
    *("urllib.request", "http.client", "email.parser", "xml.dom", "multiprocessing", "cProfile"),
    *("twisted.web.server", "twisted.web.client", "twisted.web.resource", "treq", "tomllib"),
    *("cramjam", "nsqtw.net.tls_transport", "nsqtw.protocols.compression"),
    *("nsqtw.daemon.twistd", "nsqtw.testing"),
]


def test_it_loads_nothing_heavy_that_it_does_not_need(tmp_path: Path) -> None:
    """Its start is waited for. What it has loaded after some work is printed in the end."""
    telling = f"import atexit, sys; atexit.register(lambda: print('loaded', [m for m in {HEAVY} if m in sys.modules]))"
    script = f"{telling}; from nsqtw.tap import main_nsqd; main_nsqd()"
    flags = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-c", script, *flags], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None and broker.stderr is not None
        address = next(line for line in broker.stderr if "HTTP: listening on" in line).rpartition(" ")[2]
        with urllib.request.urlopen(f"http://{address.strip()}/ping") as answer:
            assert answer.read() == b"OK"
        broker.send_signal(signal.SIGTERM)
        assert broker.communicate()[0] == "loaded []\n"


def test_a_module_that_is_loaded_later_is_the_same_module() -> None:
    script = (
        "from nsqtw.daemon import lazy_imports; import sys; from http import cookiejar;"
        "print('urllib.request' in sys.modules, cookiejar.CookieJar.__name__, 'urllib.request' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False CookieJar True\n"


# -- the log


def test_json_lines_from_start_to_stop(start: Start) -> None:
    broker = start("--log-format=json")
    broker.create("t", "c")
    with broker.client() as client:
        client.send(b"FIN x\n")
        client.frame()
    os.kill(broker.pid, signal.SIGTERM)
    says(broker, '"text":"NSQ: bye"')
    lines = [json.loads(line) for line in broker.said().splitlines()]
    assert all(list(line)[:3] == ["time", "level", "text"] for line in lines)
    by_text = {line["text"]: line for line in lines}
    created = by_text["TOPIC(t): new channel(c)"]
    assert (created["level"], created["topic"], created["channel"]) == ("info", "t", "c")
    (failed,) = [line for line in lines if line["level"] == "error" and line["text"].startswith("[")]
    assert failed["error"] == "E_INVALID cannot FIN in current state"
    assert failed["client"].startswith(f"{HOST}:")


def test_json_also_when_it_cannot_start(tmp_path: Path) -> None:
    flags = ["--log-format=json", "--data-path=/no/such/place", "--tcp-address=127.0.0.1:0", "--http-address="]
    done = subprocess.run([EXECUTABLE, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["level"] == "fatal"
    assert json.loads(line)["text"].startswith("failed to instantiate nsqd - failed to lock data-path: open /no/such")


TWISTD = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]


def test_under_twistd_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ours = ["nsq", "--log-format=json", "--tcp-address=127.0.0.1:0", "--http-address="]
    command = [*TWISTD, "--nodaemon", "--pidfile=", f"--logfile={log}", *ours]
    listening = re.compile(r"TCP: listening on 127\.0\.0\.1:(\d+)")
    with subprocess.Popen(command, cwd=tmp_path) as broker:
        wait_until(lambda: log.exists() and listening.search(log.read_text()), "it listens")
        # It listens before twistd takes signals, and answers after that.
        (port,) = listening.findall(log.read_text())
        with Client(int(port)) as client:
            client.identify()
        broker.send_signal(signal.SIGTERM)
        broker.wait()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["text"] for line in lines][-1] == "NSQ: bye"
    assert "TCP" in [line.get("server") for line in lines]


def test_twistds_other_logs_have_no_json(tmp_path: Path) -> None:
    words = ["--nodaemon", "--pidfile=", "--logger=twisted.logger.LimitedHistoryLogObserver", "nsq"]
    done = subprocess.run(
        [*TWISTD, *words, "--log-format=json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "--log-format=json is not for twistd's --logger and --syslog" in done.stderr


def test_nothing_of_a_body_or_a_secret_is_in_the_log(start: Start) -> None:
    """Over real sockets, right and wrong, at level debug. Wrong command lines: tests/protocols/test_v2_trace.py."""
    broker = start("--log-level=debug")
    body = SECRET.encode()
    broker.create("t", "c")
    broker.publish("t", [body, body])
    for path in (
        "/pub?topic=t",
        "/mpub?topic=t",
        "/mpub?topic=t&binary=true",
        "/pub?topic=t&defer=x",
        "/pub",
        "/nowhere",
    ):
        broker.http("POST", path, body)
    broker.http("PUT", "/config/log_level", body)
    assert broker.drain("t", "c", 4)
    for sent in (b"PUB t\n\0\0\0\3" + body + b"\n", b"AUTH " + body + b"\n", b"AUTH\n\0\0\0\x11" + body, body + b"\n"):
        with broker.client() as client:
            client.send(sent)
            client.end()
            with pytest.raises(Closed):
                while client.frame():
                    pass
    with socket.create_connection((HOST, broker.http_port)) as peer:
        peer.sendall(b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n" + body + b"\r\n\r\n")
        while peer.recv(1000):
            pass
    broker.stop()
    assert "PROTOCOL(V2): writing msg(" in broker.said()
    assert not [piece for piece in pieces(SECRET) if piece in broker.said()]
