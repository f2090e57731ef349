"""Hostile clients of a whole nsqlookupd: each costs its own connection, and nobody else notices."""

from __future__ import annotations

import json
import random
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.lookupd.conftest import StartLookupd
from tests.lookupd.nsqd import MAGIC, FakeNsqd, identify
from tests.process import LookupdProcess, wait_until
from tests.wire import ANSWER_SECONDS, HOST

MB = 1024 * 1024
MANY = 200


@pytest.fixture(scope="module")
def lookupd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupdProcess]:
    """One for all hostile clients, with short deadlines, which an honest nsqd is registered with."""
    flags = [f"--{name}=500ms" for name in ("magic-timeout", "http-header-timeout", "write-timeout")]
    process = LookupdProcess(tmp_path_factory.mktemp("hostile"), *flags, "--max-watchers=5")
    process.start()
    with FakeNsqd(process.tcp_port) as honest:
        honest.register("t")
        yield process
        assert honest.ask("PING") == b"OK"
    process.close()
    process.assert_no_traceback()


def connect(port: int, said: bytes = b"") -> socket.socket:
    client = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS)
    client.sendall(said)
    return client


def ended(client: socket.socket) -> bytes:
    """What is read up to the end of the connection, which must come."""
    data = b""
    with suppress(ConnectionError):
        while piece := client.recv(65536):
            data += piece
    client.close()
    return data


def resident(lookupd: LookupdProcess) -> int:
    """Bytes of memory it has."""
    pages = int(Path(f"/proc/{lookupd.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_line_without_an_end_takes_no_memory(lookupd: LookupdProcess) -> None:
    before = resident(lookupd)
    client = connect(lookupd.tcp_port, MAGIC)
    with suppress(ConnectionError):
        for _ in range(64):
            client.sendall(b"x" * MB)
    ended(client)
    assert resident(lookupd) - before < 16 * MB
    assert lookupd.producers("t") == ["a:4150"]


def test_a_negative_length_ends_one_connection(lookupd: LookupdProcess) -> None:
    for size in (b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff"):
        with FakeNsqd(lookupd.tcp_port) as client:
            client.send(b"IDENTIFY\n" + size)
            assert client.read() == b"E_BAD_BODY IDENTIFY failed to read body"
            assert client.read() == b""
    assert lookupd.producers("t") == ["a:4150"]


def test_noise_ends_its_own_connections(lookupd: LookupdProcess) -> None:
    chance = random.Random(7)
    pieces = [
        b"IDENTIFY\n",
        b"REGISTER t c\n",
        b"PING\n",
        b"\n",
        b"\xff\xff\xff\xff",
        identify(),
        b"GET / HTTP/1.1\r\n",
    ]
    for _ in range(MANY):
        port = chance.choice((lookupd.tcp_port, lookupd.http_port))
        said = b"".join(chance.choice(pieces) for _ in range(chance.randrange(8))) + chance.randbytes(20)
        client = connect(port)
        with suppress(ConnectionError):
            client.sendall(MAGIC * chance.randrange(2) + said)
        client.close()
    wait_until(lambda: lookupd.producers("t") == ["a:4150"], "what noise has registered is gone")
    lookupd.assert_no_traceback()


def test_silent_connections_are_closed(lookupd: LookupdProcess) -> None:
    silent = [connect(port, said) for port, said in ((lookupd.tcp_port, b""), (lookupd.tcp_port, b"  V"))] + [
        connect(lookupd.http_port, said) for said in (b"", b"GET /ping HT")
    ]
    for client in silent:
        ended(client)
    assert "is over --magic-timeout" in lookupd.said()


def test_who_never_reads_is_cut_off(lookupd: LookupdProcess) -> None:
    client = connect(lookupd.tcp_port, MAGIC)
    client.settimeout(ANSWER_SECONDS)
    with pytest.raises(ConnectionError):
        while True:
            client.sendall(b"PING\n" * 10_000)
    client.close()
    assert lookupd.producers("t") == ["a:4150"]


def test_a_watcher_that_never_reads_is_cut_off(lookupd: LookupdProcess) -> None:
    watcher = socket.socket()
    watcher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    watcher.settimeout(ANSWER_SECONDS)
    watcher.connect((HOST, lookupd.http_port))
    watcher.sendall(b"GET /v2/watch HTTP/1.1\r\nHost: x\r\n\r\n")
    watcher.recv(1)
    is_cut = threading.Event()

    def register(nsqd: FakeNsqd) -> None:
        while not is_cut.is_set():
            nsqd.send(b"REGISTER w c\nUNREGISTER w c\n" * 500)
            for _ in range(1000):
                nsqd.read()

    with FakeNsqd(lookupd.tcp_port) as nsqd:
        nsqd.register(name="noisy")
        sockets = lookupd.open_sockets()
        noisy = threading.Thread(target=register, args=(nsqd,))
        noisy.start()
        try:
            wait_until(lambda: lookupd.open_sockets() < sockets, "who never reads is cut off")
        finally:
            is_cut.set()
            noisy.join()
        assert nsqd.ask("PING") == b"OK"
    watcher.close()


def test_who_is_one_too_many_is_told(start: StartLookupd) -> None:
    lookupd = start("--max-connections-per-address=3", "--max-registrations-per-connection=2", "--max-topics=1")
    with ExitStack() as stack:
        nsqd = stack.enter_context(FakeNsqd(lookupd.tcp_port))
        nsqd.register("t c")
        assert nsqd.ask("REGISTER t d").startswith(b"E_TOO_MANY_REGISTRATIONS REGISTER registrations of one producer")
        assert nsqd.ask("UNREGISTER t") == b"OK"
        assert nsqd.ask("REGISTER u").startswith(b"E_TOO_MANY_REGISTRATIONS REGISTER topics exceed limit of 1")
        answer = lookupd.http("POST", "/topic/create?topic=u")
        assert (answer.status, answer.body) == (503, b'{"message":"TOO_MANY_TOPICS"}')
        for _ in range(2):
            assert stack.enter_context(FakeNsqd(lookupd.tcp_port)).ask("PING") == b"OK"
        refused = stack.enter_context(FakeNsqd(lookupd.tcp_port, b""))
        assert refused.read() == b"E_TOO_MANY_CONNECTIONS too many connections"
        assert refused.read() == b""
        assert lookupd.http("GET", "/ping").status == 503
        assert nsqd.ask("PING") == b"OK"
    assert "is over --max-connections-per-address" in lookupd.said()


def test_a_consumer_hears_of_a_new_nsqd(lookupd: LookupdProcess) -> None:
    with connect(lookupd.http_port, b"GET /v2/watch?topic=new HTTP/1.1\r\nHost: x\r\n\r\n") as watcher:
        events = watcher.makefile("rb")
        while events.readline() != b"event: complete\n":
            pass
        with FakeNsqd(lookupd.tcp_port) as nsqd:
            nsqd.register("other", "new", name="b")
            while events.readline() != b"event: registered\n":
                pass
            events.readline()
            found = json.loads(events.readline().removeprefix(b"data: "))
            assert (found["topic"], found["producer"]["broadcast_address"]) == ("new", "b")
        while events.readline() != b"event: producer_gone\n":
            pass
        events.close()


def test_there_are_only_so_many_watchers(lookupd: LookupdProcess) -> None:
    with ExitStack() as stack:
        request = b"GET /v2/watch HTTP/1.0\r\n\r\n"
        sockets = lookupd.open_sockets()
        answers = [stack.enter_context(connect(lookupd.http_port, request)).recv(17) for _ in range(6)]
    assert answers == [b"HTTP/1.0 200 OK\r\n"] * 5 + [b"HTTP/1.0 503 Serv"]
    wait_until(lambda: lookupd.open_sockets() <= sockets, "watchers that have closed are gone")


def test_pipelined_registrations_of_an_nsqd_with_many_topics(lookupd: LookupdProcess) -> None:
    count = 2000
    with connect(lookupd.tcp_port) as nsqd:
        said = MAGIC + identify() + b"".join(b"REGISTER many%d c\n" % number for number in range(count)) + b"PING\n"
        nsqd.sendall(said)
        answers = nsqd.makefile("rb")
        answers.read(struct.unpack(">i", answers.read(4))[0])
        assert answers.read(6 * (count + 1)) == struct.pack(">i", 2) + b"OK" + (struct.pack(">i", 2) + b"OK") * count
        assert len(lookupd.ask("/topics")["topics"]) > count
        answers.close()


@pytest.fixture
def large(start: StartLookupd) -> Iterator[LookupdProcess]:
    """An nsqlookupd whose largest answers do not fit into the buffers of a connection."""
    process = start()
    with FakeNsqd(process.tcp_port) as nsqd:
        nsqd.identify(**{name: "x" * 255 for name in ("hostname", "version", "topology_zone", "topology_region")})
        nsqd.send(b"".join(b"REGISTER %s%05d c\n" % (b"t" * 50, number) for number in range(4_000)))
        wait_until(lambda: len(process.ask("/topics")["topics"]) == 4_000, "all topics are registered")
        yield process


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_large_answer_is_sent_as_it_is_built(large: LookupdProcess, version: str) -> None:
    before = resident(large)
    said = f"GET /debug HTTP/{version}\r\nHost: localhost\r\n\r\n".encode()
    head, _, rest = ended(connect(large.http_port, said)).partition(b"\r\n\r\n")
    assert (b"Transfer-Encoding: chunked" in head) is (version == "1.1")
    assert len(rest) > 8 * MB
    assert resident(large) - before < 6 * MB
    answer = large.http("GET", "/debug")
    keys = json.loads(answer.body)
    assert (answer.status, len(keys)) == (200, 8_001)
    assert version == "1.1" or json.loads(rest) == keys
    assert len(large.ask("/topics")["topics"]) == 4_000


def test_a_client_that_does_not_read_keeps_nothing_in_memory(large: LookupdProcess) -> None:
    before = resident(large)
    with ExitStack() as clients:
        for _ in range(20):
            clients.enter_context(connect(large.http_port, b"GET /debug HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        assert large.http("GET", "/ping").status == 200
        assert large.http("GET", "/debug").status == 200
        assert resident(large) - before < 20 * MB
    large.stop()
    large.start()
