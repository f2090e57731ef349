"""Draining a broker's process: by SIGTERM and over HTTP, to its end, to its deadline, and when it is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import ANSWER_SECONDS, LookupdProcess, NsqdProcess, Start, starting, wait_until
from tests.wire import Client, Closed, Refused

BODIES = [b"%d" % number for number in range(50)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


def state(broker: NsqdProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(broker.http("GET", "/v2/drain").body)
    return found


def draining(broker: NsqdProcess) -> None:
    wait_until(lambda: state(broker)["draining"], "it drains")


def finish(client: Client, count: int) -> list[bytes]:
    """Take and finish `count` messages."""
    return [message.body for message in client.drain(count)]


def backlog(broker: NsqdProcess) -> None:
    broker.create("t", "c")
    broker.publish("t", BODIES)


def test_sigterm_drains(start: Start) -> None:
    broker = start("--sigterm=drain", "--drain-timeout=0")
    backlog(broker)
    with broker.client() as consumer, broker.client() as producer:
        consumer.sub("t", "c", ready=1)
        first = finish(consumer, 1)
        broker.signal(signal.SIGTERM)
        draining(broker)
        with pytest.raises(Refused, match=r"^E_PUB_FAILED PUB failed draining$"):
            producer.pub("t", b"x")
        with pytest.raises(Closed):
            producer.frame()
        assert broker.http("POST", "/pub?topic=t", b"x").status == 503
        ready = broker.http("GET", "/readyz")
        assert (ready.status, list(json.loads(ready.body)["reasons"])) == (503, ["draining"])
        assert first + finish(consumer, len(BODIES) - 1) == BODIES
        assert broker.await_end() == 0
    said = broker.said()
    assert said.endswith("INFO: NSQ: bye\n")
    assert "INFO: NSQ: draining, without a deadline: publishes are refused, depth " in said
    assert "INFO: NSQ: drained\n" in said


def test_a_consumer_that_comes_while_it_drains(start: Start) -> None:
    broker = start()
    backlog(broker)
    answer = broker.http("POST", "/v2/drain?timeout=0")
    assert (answer.status, json.loads(answer.body)["depth"]) == (200, len(BODIES))
    with broker.client() as consumer:
        consumer.sub("t", "c", ready=10)
        assert sorted(finish(consumer, len(BODIES))) == sorted(BODIES)
        assert broker.await_end() == 0
    broker.start()
    assert broker.counts("t", "c").depth == 0


def test_at_the_deadline_the_rest_stays(start: Start) -> None:
    broker = start()
    backlog(broker)
    assert broker.http("POST", "/v2/drain?timeout=1ms").status == 200
    assert broker.await_end() == 0
    assert f"WARNING: NSQ: the drain's time is over, depth {len(BODIES)}, in flight 0" in broker.said()
    broker.start()
    assert [message.body for message in broker.drain("t", "c", len(BODIES))] == BODIES


def test_killed_while_it_drains_it_has_lost_nothing(start: Start) -> None:
    broker = start("--sigterm=drain")
    backlog(broker)
    with broker.client() as consumer:
        consumer.sub("t", "c", ready=1)
        finished = finish(consumer, 3)
        broker.signal(signal.SIGTERM)
        draining(broker)
        finished += finish(consumer, 3)
    broker.kill()
    broker.start()
    assert broker.http("GET", "/readyz").status == 200
    with broker.client() as consumer:
        consumer.sub("t", "c", ready=500)
        again: set[bytes] = set()
        while not again | set(finished) >= set(BODIES):
            again.update(finish(consumer, 1))
    broker.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(start: Start, number: int) -> None:
    broker = start("--sigterm=drain", "--drain-timeout=0")
    backlog(broker)
    broker.signal(signal.SIGTERM)
    draining(broker)
    broker.signal(number)
    assert broker.await_end() == 0
    said = broker.said()
    assert said.endswith("INFO: NSQ: bye\n")
    assert "NSQ: drained" not in said
    broker.start()
    assert broker.counts("t", "c").depth == len(BODIES)


def test_sigint_does_not_drain(start: Start) -> None:
    broker = start("--sigterm=drain", "--drain-timeout=0")
    backlog(broker)
    broker.signal(signal.SIGINT)
    assert broker.await_end() == 0
    assert "draining" not in broker.said()


def test_it_leaves_its_nsqlookupd_at_once(start: Start, tmp_path: Path) -> None:
    lookupd = LookupdProcess(tmp_path / "lookupd")
    lookupd.start()
    try:
        broker = start(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")
        backlog(broker)
        wait_until(lambda: bool(lookupd.producers("t")), "it is registered")
        broker.http("POST", "/v2/drain?timeout=0")
        wait_until(lambda: not lookupd.producers("t"), "it has left")
        # What a client changes does not bring it back.
        broker.http("PUT", "/config/nsqlookupd_tcp_addresses", f'["127.0.0.1:{lookupd.tcp_port}"]'.encode())
        with broker.client() as consumer:
            consumer.sub("t", "c", ready=100)
            finish(consumer, len(BODIES))
            assert broker.await_end() == 0
        assert lookupd.producers("t") == []
    finally:
        lookupd.close()


def test_under_twistd(tmp_path: Path) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(ANSWER_SECONDS)
    script = "from twisted.scripts.twistd import run; run()"
    words = ["-n", "--pidfile=", "nsq", "--sigterm=drain", "--drain-timeout=0"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words, "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"],
        cwd=tmp_path,
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "HTTP: listening on " in line:
                break
        # It serves, so its reactor has installed what it does on signals.
        urllib.request.urlopen(f"http://{line.split()[-1]}/ping").close()
        assert manager.recv(4096).startswith(b"READY=1\nSTATUS=")
        process.send_signal(signal.SIGTERM)
        assert manager.recv(4096).startswith(b"STATUS=draining: ")
        rest, _ = process.communicate(timeout=ANSWER_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        manager.close()
    assert "NSQ: draining, without a deadline" in rest
    assert "NSQ: drained\n" in rest
    assert "NSQ: bye" in rest
    assert process.returncode == 0
