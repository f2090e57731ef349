"""
A whole nsqlookupd with many registrations: what it takes, how long HTTP does, and how long a PING waits meanwhile.
"""

import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import BrokerFailed, WrongCount
from .lookup_shape import Shape
from .server import Broker, cpu_seconds, directory, launched

_TIMEOUT_SECONDS = 120.0
_PING, _OK = b"PING\n", b"\0\0\0\2OK"
_SIZE = struct.Struct(">i")


@dataclass(frozen=True)
class LoadFigures:
    """
    Bytes and seconds of the clock; ``register`` is CPU of the server. Each list is in no order.
    """

    empty: int
    full: int
    """Resident with nothing, and with all registrations."""
    register: float
    lookups: list[float]
    nodes: list[float]
    nodes_bytes: int
    pings: list[float]
    pings_meanwhile: list[float]
    """PINGs on another connection while /nodes is answered."""
    longest: list[float]
    """The longest PING during each /nodes."""


def measure(executable: Path, shape: Shape, rounds: int) -> LoadFigures:
    """
    Raises `BrokerFailed` when the daemon refuses something, `WrongCount` when it counts otherwise.
    """
    with directory() as workspace, launched(executable, [], workspace) as server, ExitStack() as connections:
        ping = connections.enter_context(_connection(server))
        empty = server.resident_bytes()[0]
        cpu = cpu_seconds(server.pid)
        for nsqd in range(shape.nsqds):
            _register(connections.enter_context(_connection(server)), shape, nsqd)
        register = (cpu_seconds(server.pid) - cpu) / shape.registrations
        full = server.resident_bytes()[0]
        _check(server, shape)
        lookups = [_lookup(server, shape.topic(number * 7919)) for number in range(100)]
        pings = [_ping(ping) for _ in range(200)]
        asked = [_nodes_and_pings(server, ping) for _ in range(rounds)]
    return LoadFigures(
        empty,
        full,
        register,
        lookups,
        [seconds for seconds, _, _ in asked],
        asked[0][1],
        pings,
        [seconds for _, _, times in asked for seconds in times],
        [max(times) for _, _, times in asked],
    )


@contextmanager
def _connection(server: Broker) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.tcp_port), timeout=_TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"  V1")
        yield connection


def _register(connection: socket.socket, shape: Shape, nsqd: int) -> None:
    name = f"nsqd-{nsqd:04}.example.net"
    said = {"broadcast_address": name, "hostname": name, "tcp_port": 4150, "http_port": 4151, "version": "1.3.0"}
    body = json.dumps(said).encode()
    connection.sendall(b"IDENTIFY\n" + _SIZE.pack(len(body)) + body)
    _read(connection, _SIZE.unpack(_read(connection, _SIZE.size))[0])
    lines = [f"REGISTER {topic} {channel}\n".encode() for topic, channel in shape.of(nsqd)]
    for start in range(0, len(lines), 1000):
        some = lines[start : start + 1000]
        connection.sendall(b"".join(some))
        if _read(connection, len(_OK) * len(some)) != _OK * len(some):
            raise BrokerFailed(f"REGISTER was refused: {_read(connection, 1)!r}")


def _read(connection: socket.socket, count: int) -> bytes:
    read = bytearray()
    while len(read) < count:
        chunk = connection.recv(count - len(read))
        if not chunk:
            raise BrokerFailed(f"a connection was closed behind {bytes(read[-100:])!r}")
        read += chunk
    return bytes(read)


def _check(server: Broker, shape: Shape) -> None:
    topics = server.ask("GET", "/topics")["topics"]
    found = server.ask("GET", f"/lookup?topic={shape.topic(0)}")
    nodes = server.ask("GET", "/nodes")["producers"]
    counted = len(topics), len(found["producers"]), len(nodes), sum(len(node["topics"]) for node in nodes)
    if counted != (shape.topics, shape.producers_of_a_topic, shape.nsqds, shape.registrations):
        raise WrongCount(f"of {shape.title} there are (topics, producers of one, nodes, topics of nodes) {counted}")


def _lookup(server: Broker, topic: str) -> float:
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=_TIMEOUT_SECONDS)
    connection.request("GET", f"/lookup?topic={topic}")
    connection.getresponse().read()
    connection.close()
    return time.perf_counter() - start


def _ping(connection: socket.socket) -> float:
    start = time.perf_counter()
    connection.sendall(_PING)
    if _read(connection, len(_OK)) != _OK:
        raise BrokerFailed("a PING was not answered with OK")
    return time.perf_counter() - start


def _nodes_and_pings(server: Broker, ping: socket.socket) -> tuple[float, int, list[float]]:
    """
    Ask for /nodes and PING until the answer is complete: its seconds, its bytes, and those of each PING.
    """
    times = []
    got = bytearray()
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=_TIMEOUT_SECONDS) as connection:
        start = time.perf_counter()
        connection.sendall(b"GET /nodes HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        connection.setblocking(False)
        while True:
            times.append(_ping(ping))
            try:
                while chunk := connection.recv(1 << 20):
                    got += chunk
                break
            except BlockingIOError:
                continue
    seconds = time.perf_counter() - start
    if not got.startswith(b"HTTP/1.1 200 "):
        raise BrokerFailed(f"GET /nodes: {bytes(got[:100])!r}")
    return seconds, len(got), times
