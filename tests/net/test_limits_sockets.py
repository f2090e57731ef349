"""
Hostile clients of a whole broker, many at once. How many is computed from what the system lets a process have open:
2,000 on a usual machine, fewer where the limit is low. Each broker has short deadlines, so that a test waits for what
happens and not for a clock; that nothing is ended too early is tested where the test owns the time.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from nsqtw.net.descriptors import raise_limit
from tests.http.broker_fixture import request
from tests.process import NsqdProcess, wait_until
from tests.wire import ANSWER_SECONDS, HOST

MANY = 2000
MB = 1024 * 1024
_OTHER_FILES = 400
"""What this process, and the broker, may have open besides."""
FEW_FILES = 100
"""What a broker gets that is to run short of them."""
TINY = 16
"""Connections that are enough where numbers do not matter."""


def many() -> int:
    """As many connections as both processes can have, MANY at the most."""
    raise_limit()
    return max(TINY, min(MANY, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES))


@contextmanager
def broker(directory: Path, *flags: str) -> Iterator[NsqdProcess]:
    process = NsqdProcess(directory, *flags)
    try:
        process.start()
        yield process
    finally:
        process.close()


def connect(stack: ExitStack, port: int, said: bytes = b"") -> socket.socket:
    client = stack.enter_context(socket.create_connection((HOST, port), timeout=ANSWER_SECONDS))
    if said:
        client.sendall(said)
    return client


def ended(client: socket.socket) -> bytes:
    """What is read up to the end of the connection, which must come."""
    data = b""
    try:
        while piece := client.recv(65536):
            data += piece
    except ConnectionError:
        pass
    return data


def limits(nsqd: NsqdProcess) -> dict[str, Any]:
    import json

    answer = nsqd.http("GET", "/stats?format=json&include_limits=1&include_mem=0")
    found: dict[str, Any] = json.loads(answer.body)["limits"]
    return found


def resident(nsqd: NsqdProcess) -> int:
    """Bytes of memory the broker has."""
    pages = int(Path(f"/proc/{nsqd.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_silent_connections_hold_nothing_for_long(tmp_path: Path) -> None:
    count = many()
    flags = ("--magic-timeout=500ms", "--http-header-timeout=500ms")
    with broker(tmp_path, *flags) as nsqd, ExitStack() as stack:
        before = nsqd.open_sockets()
        clients = [connect(stack, nsqd.tcp_port, b"  V"[: index % 4]) for index in range(count // 2)]
        clients += [connect(stack, nsqd.http_port, b"GET /"[: index % 5]) for index in range(count // 2)]
        for client in clients:
            assert ended(client)[:12] in (b"", b"HTTP/1.1 408")
        wait_until(lambda: nsqd.open_sockets() == before, "all are closed")
        assert nsqd.http("GET", "/ping").status == 200
        nsqd.stop()


def test_it_stops_at_once_whoever_is_there(tmp_path: Path) -> None:
    """Half commands, half requests, readers that do not read: none of them is waited for."""
    half_mpub = b"  V2MPUB t\n" + struct.pack(">iii", 5 * MB - 100, 2, MB) + b"x" * 10_000
    half_post = request("POST", "/mpub?topic=t", b"x" * 20_000)[:-10_000]
    pipelined = request("GET", "/stats?format=json&include_clients=0") * 30
    unread = b"  V2" + b"PUB t\n\0\0\0\1xNOP\n" * 2000
    said = [b"", b"  V", b"  V2", half_mpub, unread, b"  V2SUB t c\nRDY 100\n", b"  V2IDENTIFY\n\0\0\0\6{"]
    asked = [b"", b"GET /ping HT", half_post, pipelined, request("POST", "/pub?topic=t", b"x")]
    count = many() // 2
    with broker(tmp_path) as nsqd, ExitStack() as stack:
        nsqd.create("t", "c")
        for index in range(count // 2):
            one = connect(stack, nsqd.tcp_port)
            one.setblocking(False)
            one.send(said[index % len(said)])
            other = connect(stack, nsqd.http_port)
            other.setblocking(False)
            other.send(asked[index % len(asked)])
        wait_until(lambda: limits(nsqd)["connections"] > count // 2, "most are in")
        nsqd.stop()
        assert "--stop-timeout" not in nsqd.said()


def test_half_commands_and_half_requests_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Each of them might be 5 MB, and is begun by many."""
    count, bound = 60, 32 * MB
    half_mpub = b"  V2MPUB t\n" + struct.pack(">ii", 5 * MB - 100, 1_000_000) + b"\0\0\0\1x" * (MB // 5)
    half_post = request("POST", "/mpub?topic=t", Content_Length=str(5 * MB - 100)) + b"x\n" * (MB // 2)
    with broker(tmp_path, f"--max-unfinished-size={bound}") as nsqd, ExitStack() as stack:
        before = resident(nsqd)
        for index in range(count):
            where, what = (nsqd.tcp_port, half_mpub) if index % 2 else (nsqd.http_port, half_post)
            try:
                connect(stack, where, what)
            except ConnectionError:
                continue
        wait_until(lambda: limits(nsqd)["over"].get("max-unfinished-size", 0) >= count // 4, "the oldest are gone")
        assert limits(nsqd)["unfinished_bytes"] <= bound
        assert resident(nsqd) - before < 3 * bound
        nsqd.publish("t", [b"honest"])
        nsqd.stop()


def test_who_is_one_too_many_is_told(tmp_path: Path) -> None:
    with broker(tmp_path, "--max-connections-per-address=4") as nsqd, ExitStack() as stack:
        inside = [connect(stack, nsqd.tcp_port, b"  V2") for _ in range(4)]
        tcp = connect(stack, nsqd.tcp_port, b"  V2NOP\n")
        assert ended(tcp)[8:] == b"E_TOO_MANY_CONNECTIONS too many connections"
        http = connect(stack, nsqd.http_port, request("GET", "/ping"))
        answer = ended(http)
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert answer.endswith(b'{"message":"TOO_MANY_CONNECTIONS"}')
        inside[0].close()
        wait_until(lambda: _is_served(nsqd), "there is room again")
        assert nsqd.said().count("is over --max-connections-per-address") == 1
        nsqd.stop()


def _is_served(nsqd: NsqdProcess) -> bool:
    try:
        return nsqd.http("GET", "/ping").status == 200
    except ConnectionError:
        return False


def test_when_files_run_short_what_is_stored_goes_on(tmp_path: Path) -> None:
    """Its clients get two thirds of the files that the broker may have."""
    with broker(tmp_path) as nsqd, ExitStack() as stack:
        nsqd.stop()
        nsqd.limit_open_files(FEW_FILES)
        nsqd.start()
        os.kill(nsqd.pid, signal.SIGSTOP)  # so that all come at once
        published = b"".join(b"PUB t%d\n\0\0\0\1x" % number for number in range(20))
        clients = [connect(stack, nsqd.tcp_port, b"  V2" + published)]
        clients += [connect(stack, nsqd.tcp_port, b"  V2") for _ in range(4 * FEW_FILES)]
        os.kill(nsqd.pid, signal.SIGCONT)
        wait_until(lambda: "is over --max-connections;" in nsqd.said(), "it says so")
        data = b""
        while len(data) < 20 * 10:
            piece = clients[0].recv(4096)
            assert piece, data
            data += piece
        assert data == b"\0\0\0\6\0\0\0\0OK" * 20
        assert "EMFILE" not in nsqd.said()
        for client in clients:
            client.close()
        wait_until(lambda: _is_served(nsqd), "there is room again")
        nsqd.stop()


@pytest.mark.parametrize("backend", ["disk", "sqlite"])
@pytest.mark.parametrize("limit", [64, 128])
def test_a_low_limit_of_files_is_enough_for_many_topics(limit: int, backend: str, tmp_path: Path) -> None:
    topics = 200
    with broker(tmp_path, f"--backend={backend}") as nsqd:
        nsqd.stop()
        nsqd.limit_open_files(limit)
        nsqd.start()
        assert f"LIMIT: this process may have {limit} open files" in nsqd.said()
        for number in range(topics):
            nsqd.publish(f"t{number}", [b"%d" % number])
            assert nsqd.http("GET", "/ping").status == 200
        with ExitStack() as stack:
            for _ in range(limit):  # more than it can serve
                with suppress(ConnectionError):
                    connect(stack, nsqd.tcp_port, b"  V2")
            assert nsqd.http("GET", "/ping").status == 200
        wait_until(lambda: nsqd.open_sockets() < limit // 3, "the connections are closed")
        nsqd.restart()
        for number in range(0, topics, 20):
            nsqd.create(f"t{number}", "c")
            assert [message.body for message in nsqd.drain(f"t{number}", "c", 1)] == [b"%d" % number]
        nsqd.stop()
        assert "EMFILE" not in nsqd.said() and "too many open files" not in nsqd.said()


def test_who_never_reads_is_cut_off(tmp_path: Path) -> None:
    with broker(tmp_path, "--write-timeout=1s") as nsqd, ExitStack() as stack:
        for number in range(40):
            nsqd.create(f"{'x' * 50}{number}")
        tcp, http = connect(stack, nsqd.tcp_port, b"  V2"), connect(stack, nsqd.http_port)
        for client, said in ((tcp, b"PUB t\n\0\0\0\1x" * 5000), (http, request("GET", "/stats?format=json") * 500)):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            _send_without_end(client, said, nsqd)
        assert limits(nsqd)["over"]["write-timeout"] == 2
        nsqd.stop()


def _send_without_end(client: socket.socket, said: bytes, nsqd: NsqdProcess) -> None:
    """Send and never read, until the broker ends it."""

    def is_over() -> bool:
        try:
            client.send(said)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        return False

    wait_until(is_over, "it is cut off")


@pytest.mark.parametrize("deflate", [False, True])
def test_a_client_that_only_talks_is_disconnected_and_others_are_served(deflate: bool, tmp_path: Path) -> None:
    """A million NOPs, of which a broker carries out as many as it likes."""
    with broker(tmp_path, "--max-idle-commands=1000") as nsqd:
        with nsqd.client() as talker, nsqd.client() as publisher:
            if deflate:
                talker.upgrade(deflate=True)
            with suppress(ConnectionError):
                talker.send(b"NOP\n" * 1_000_000)
            publisher.pub("t", b"x")
            assert nsqd.http("GET", "/ping").status == 200
            wait_until(lambda: limits(nsqd)["over"] == {"max-idle-commands": 1}, "it is disconnected")
            publisher.pub("t", b"x")
        nsqd.stop()
