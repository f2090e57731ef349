"""Verbs on a cluster that an nsqlookupd knows: changes of all nodes, drain, reload."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Nsqtw
from tests.cli.terminal import NSQTW, Terminal
from tests.process import LookupdProcess, NsqdProcess, wait_until
from tests.wire import HOST

SECONDS = 60.0


class Nodes:
    """An nsqlookupd and two nsqds, which end with the test."""

    def __init__(self, directory: Path) -> None:
        self.lookupd = LookupdProcess(directory / "lookupd")
        self.lookupd.start()
        flags = [f"--lookupd-tcp-address={HOST}:{self.lookupd.tcp_port}", f"--broadcast-address={HOST}"]
        self.config = directory / "nsqd.toml"
        self.config.write_text('log_level = "info"\n')
        self.nsqds = [
            NsqdProcess(directory / f"nsqd{number}", *flags, f"--config={self.config}") for number in range(2)
        ]
        for nsqd in self.nsqds:
            nsqd.start()

    @property
    def options(self) -> tuple[str, str]:
        return ("--lookupd-http-address", f"{HOST}:{self.lookupd.http_port}")

    @property
    def addresses(self) -> list[str]:
        return sorted(f"{HOST}:{nsqd.http_port}" for nsqd in self.nsqds)

    def registered(self, topic: str) -> None:
        """Wait until the nsqlookupd knows that both have the topic."""
        addresses = sorted(f"{HOST}:{nsqd.tcp_port}" for nsqd in self.nsqds)
        wait_until(lambda: self.lookupd.producers(topic) == addresses, "the topic is registered", SECONDS)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    running = Nodes(tmp_path)
    yield running
    for process in (*running.nsqds, running.lookupd):
        process.close()


def test_a_change_is_made_on_all_nodes_and_one_that_is_down_is_named(nodes: Nodes, nsqtw: Nsqtw) -> None:
    wait_until(
        lambda: sorted(row["node"] for row in nsqtw(*nodes.options, "nodes", "-o", "json").json) == nodes.addresses,
        "both nodes are registered",
        SECONDS,
    )
    for nsqd in nodes.nsqds:
        nsqd.http("POST", "/topic/create?topic=t")
    nodes.registered("t")
    paused = nsqtw(*nodes.options, "topic", "pause", "t", "-o", "json")
    assert (paused.code, sorted(paused.json["servers"])) == (0, nodes.addresses)
    shown = nsqtw(*nodes.options, "topic", "show", "t", "-o", "json").json
    assert [(node["node"], node["paused"]) for node in sorted(shown["nodes"], key=lambda node: node["node"])] == [
        (address, True) for address in nodes.addresses
    ]
    dead = f"{HOST}:{nodes.nsqds[1].http_port}"
    nodes.nsqds[1].kill()
    half = nsqtw(*nodes.options, "topic", "unpause", "t", "-o", "json")
    if half.code == 6:  # the nsqlookupd may have forgotten the node already
        assert half.err == f"nsqtw: warning: {dead}: connection refused\n"
    assert half.json["servers"] == [f"{HOST}:{nodes.nsqds[0].http_port}"]


def test_a_topic_that_only_the_nsqlookupd_knows_is_listed_and_can_be_deleted(nodes: Nodes, nsqtw: Nsqtw) -> None:
    assert nsqtw(*nodes.options, "topic", "create", "idle").code == 0
    [row] = nsqtw(*nodes.options, "topic", "list", "idle", "-o", "json").json
    assert (row["topic"], row["node_count"], row["depth"]) == ("idle", 0, None)
    assert nsqtw(*nodes.options, "topic", "delete", "idle", "--yes").code == 0
    assert nsqtw(*nodes.options, "topic", "list", "-o", "json").json == []


def test_a_drain_waits_for_the_end_of_the_node(nodes: Nodes, nsqtw: Nsqtw, own_config: Path) -> None:
    first = nodes.nsqds[0]
    first.create("t", "c")
    first.publish("t", [b"a", b"b"])
    address = f"{HOST}:{first.http_port}"
    with Terminal(*nodes.options, "drain", address) as terminal:
        terminal.wait_for(f"Drain {address}: it refuses publishes, delivers what it has, and stops. Go on? [y/N] ")
        terminal.type("y\n")
        terminal.wait_for(f"draining {address}")
        assert nsqtw("--nsqd-http-address", address, "tail", "t", "c", "-n", "2").out == "a\nb\n"
        assert terminal.end() == 0
        assert f"{address} has stopped" in terminal.text
    assert first.await_end() == 0
    assert nsqtw("health", address).code == 4
    other = f"{HOST}:{nodes.nsqds[1].http_port}"
    begun = nsqtw(*nodes.options, "drain", other, "--no-wait", "--yes", "-o", "json")
    assert (begun.code, begun.json["node"], begun.json["stopped"]) == (0, other, False)
    assert nodes.nsqds[1].await_end() == 0


def test_a_drain_that_its_timeout_ends_is_exit_code_1(nodes: Nodes, nsqtw: Nsqtw) -> None:
    first = nodes.nsqds[0]
    first.create("t", "c")
    first.publish("t", [b"a"])
    address = f"{HOST}:{first.http_port}"
    with first.client() as consumer:
        consumer.sub("t", "c")  # without RDY it takes nothing
        begun = nsqtw("--nsqd-http-address", address, "drain", address, "--timeout", "1h", "--no-wait", "--yes")
        assert begun.code == 0
        [row] = nsqtw("--nsqd-http-address", address, "nodes", "-o", "json").json
        assert row["health"] == "draining"
        done = nsqtw("--nsqd-http-address", address, "drain", address, "--timeout", "1s", "--yes")
        assert done.code == 1
        begin, end = done.err.splitlines()
        assert begin == f"draining {address}: 1 waiting, 0 in flight, 0 deferred, 0 staying"
        assert end == "nsqtw: warning: the timeout ended the drain; the messages that are left stay in the data path"
        assert first.await_end() == 0


def test_a_reload_shows_what_has_changed_and_what_needs_a_restart(nodes: Nodes, nsqtw: Nsqtw) -> None:
    nodes.config.write_text('log_level = "debug"\nmax_msg_size = 2097152\n')
    address = nodes.addresses[0]
    done = nsqtw("--nsqd-http-address", address, "reload")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert [address, "log_level", "info", "debug", "now"] in lines
    assert [address, "max_msg_size", "1048576", "2097152", "needs", "a", "restart"] in lines
    nodes.config.write_text("log_level = 7\n")
    wrong = nsqtw("--nsqd-http-address", address, "reload")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err.count("\n") == 1
    assert "log_level" in wrong.err
    assert wrong.err.endswith(" (INVALID_CONFIG)\n")


def test_ctrl_c_ends_a_question_to_a_node_that_does_not_answer(own_config: Path) -> None:
    with socket.create_server((HOST, 0)) as silent:
        words = [NSQTW, "--nsqd-http-address", f"{HOST}:{silent.getsockname()[1]}", "topic", "list"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
        connection.close()
    assert (process.returncode, out, err) == (130, "", "")
