"""
What a closed connection leaves behind: nothing, and no reference cycle that a garbage collector would have to find.

Daemons run as processes with the collector off (tests.uncollected).
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.certificates import Certificates
from tests.process import LookupdProcess, NsqdProcess, wait_until
from tests.uncollected import report
from tests.wire import ANSWER_SECONDS, HOST, Client, sized

TIMES = 3
"""Each connection is made so often, after two that may fill caches."""
FREED_SECONDS = 10.0
"""A save of a new topic that is under way may refer to its client. A heartbeat, which is a timer, comes after 30 s."""


class _Broker(NsqdProcess):
    def __init__(self, directory: Path, certificates: Certificates) -> None:
        self.control = directory / "control"
        self.idle_sockets = 0
        self.https_port = 0
        self.tls = ssl.create_default_context(cafile=certificates.authority.certificate)
        flags = [
            *certificates.server.flags(),
            f"--https-address={HOST}:0",
            "--magic-timeout=200ms",
            "--http-header-timeout=200ms",
            "--max-msg-size=1000",
        ]
        super().__init__(directory, *flags)

    def program(self) -> list[str]:
        return [sys.executable, "-m", "tests.uncollected", str(self.control), "nsqd"]

    def start(self) -> None:
        super().start()
        wait_until(self.control.exists, "the control socket is there")
        self.idle_sockets = self.open_sockets()
        self.https_port = int(self.said().partition(f"HTTPS: listening on {HOST}:")[2].split()[0])


class _Lookupd(LookupdProcess):
    def __init__(self, directory: Path) -> None:
        self.control = directory / "control"
        self.idle_sockets = 0
        super().__init__(directory)

    def program(self) -> list[str]:
        return [sys.executable, "-m", "tests.uncollected", str(self.control), "nsqlookupd"]

    def start(self) -> None:
        super().start()
        wait_until(self.control.exists, "the control socket is there")
        self.idle_sockets = self.open_sockets()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[_Broker]:
    made = _Broker(tmp_path_factory.mktemp("broker"), certificates)
    try:
        made.start()
        made.create("t", "c")
        made.create("quiet", "c")
        yield made
        made.assert_no_traceback()
    finally:
        made.close()


@pytest.fixture(scope="module")
def lookupd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Lookupd]:
    made = _Lookupd(tmp_path_factory.mktemp("lookupd"))
    try:
        made.start()
        yield made
        made.assert_no_traceback()
    finally:
        made.close()


# -- how a connection is made


def _plain(broker: _Broker) -> Client:
    client = broker.client()
    client.identify()
    return client


def _tls(broker: _Broker) -> Client:
    client = broker.client()
    client.upgrade(broker.tls)
    return client


def _snappy(broker: _Broker) -> Client:
    client = broker.client()
    client.upgrade(snappy=True)
    return client


def _deflate(broker: _Broker) -> Client:
    client = broker.client()
    client.upgrade(deflate=True)
    return client


def _tls_snappy(broker: _Broker) -> Client:
    client = broker.client()
    client.upgrade(broker.tls, snappy=True)
    return client


MAKERS = [_plain, _tls, _snappy, _deflate, _tls_snappy]

# -- what it does


def _nothing(client: Client) -> None:
    """It has done enough."""


def _subscribe(client: Client) -> None:
    client.sub("quiet", "c", ready=5)


def _publish(client: Client) -> None:
    client.pub("t", b"body")


def _publish_unanswered(client: Client) -> None:
    client.send(b"PUB t\n" + sized(b"body"))


def _consume(client: Client) -> None:
    client.sub("t2", "c#ephemeral", ready=5)
    client.pub("t2", b"body")
    client.message()


def _half_a_command(client: Client) -> None:
    client.send(b"PUB t\n" + sized(b"body")[:-1])


USES = [_nothing, _subscribe, _publish, _publish_unanswered, _consume, _half_a_command]

# -- how it ends


def _client_closes(client: Client) -> None:
    client.close()


def _client_half_closes(client: Client) -> None:
    client.end()
    client.rest()
    client.close()


def _client_resets(client: Client) -> None:
    client.reset()


def _error(client: Client) -> None:
    client.send(b"NONSENSE\n" * 100)
    try:
        client.rest()
    finally:
        client.close()


ENDS = [_client_closes, _client_half_closes, _client_resets, _error]


def _leaves_nothing(daemon: _Broker | _Lookupd, once: Callable[[], None]) -> None:
    """Fail if what `once` does leaves objects behind when its connections are closed."""

    def settled() -> tuple[dict[str, int], dict[str, int]]:
        wait_until(lambda: daemon.open_sockets() <= daemon.idle_sockets, "connections are closed")
        return report(daemon.control)

    for _ in range(2):
        once()
    _, before = settled()
    for _ in range(TIMES):
        once()
    cycles, after = settled()
    assert cycles == {}
    deadline = time.monotonic() + FREED_SECONDS
    while more := {name: count for name, count in after.items() if count > before.get(name, 0)}:
        assert time.monotonic() < deadline, f"{more} are left"
        cycles, after = settled()
        assert cycles == {}


COMBINATIONS = [(_plain, use, end) for use in USES for end in ENDS] + [
    (make, use, ENDS[(row + column) % len(ENDS)])
    for row, make in enumerate(MAKERS[1:])
    for column, use in enumerate(USES)
]


@pytest.mark.parametrize(("make", "use", "end"), COMBINATIONS)
def test_a_closed_connection_leaves_nothing(
    broker: _Broker,
    make: Callable[[_Broker], Client],
    use: Callable[[Client], None],
    end: Callable[[Client], None],
) -> None:
    def once() -> None:
        client = make(broker)
        use(client)
        end(client)

    _leaves_nothing(broker, once)


def _http(port: int, wants: ssl.SSLContext | None = None) -> socket.socket:
    connection = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS)
    return connection if wants is None else wants.wrap_socket(connection, server_hostname="localhost")


def _request(line: str, *fields: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode() + body


_REQUESTS = {
    "ping": _request("GET /ping"),
    "ping, closing": _request("GET /ping", "Connection: close"),
    "stats": _request("GET /stats?format=json"),
    "pub": _request("POST /pub?topic=t", "Content-Length: 4", body=b"body"),
    "chunked": _request("POST /pub?topic=t", "Transfer-Encoding: chunked", body=b"4\r\nbody\r\n0\r\n\r\n"),
    "pipelined": _request("GET /ping") * 20,
    "not found": _request("GET /nowhere"),
    "malformed": b"nonsense\r\n\r\n",
    "too large": _request("POST /pub?topic=t", "Content-Length: 4000") + bytes(4000),
    "admin": _request("POST /topic/create?topic=t", "Content-Length: 0"),
    "log": _request("GET /v2/topic/log?topic=t"),
}


_HTTP_ENDS = ["close", "half", "reset"]
_HTTP_COMBINATIONS = [
    (is_https, name, _HTTP_ENDS[(number + is_https) % 3])
    for is_https in (False, True)
    for number, name in enumerate(_REQUESTS)
]


@pytest.mark.parametrize(("is_https", "name", "end"), _HTTP_COMBINATIONS)
def test_a_closed_http_connection_leaves_nothing(broker: _Broker, is_https: bool, name: str, end: str) -> None:
    def once() -> None:
        with _http(broker.https_port if is_https else broker.http_port, broker.tls if is_https else None) as client:
            client.sendall(_REQUESTS[name])
            assert client.recv(65536)
            _end_socket(client, end)

    _leaves_nothing(broker, once)


def _end_socket(client: socket.socket, end: str) -> None:
    if end == "half":
        client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while client.recv(65536):
                pass
    elif end == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_connections_that_time_out_leave_nothing(broker: _Broker) -> None:
    def once() -> None:
        for port, data in ((broker.tcp_port, b"  "), (broker.http_port, b"GET /pi")):
            with _http(port) as client:
                client.sendall(data)
                with suppress(ConnectionError):
                    while client.recv(65536):
                        pass

    _leaves_nothing(broker, once)


def test_a_client_that_closes_with_cls_leaves_nothing(broker: _Broker) -> None:
    def once() -> None:
        with broker.client() as client:
            client.sub("quiet", "c", ready=1)
            client.cls()

    _leaves_nothing(broker, once)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"])
def test_a_failed_handshake_leaves_nothing(broker: _Broker, data: bytes) -> None:
    def once() -> None:
        with broker.client() as client:
            client.identify(tls_v1=True)
            client.send(data)
            client.bytes_left()

    _leaves_nothing(broker, once)


def test_an_unknown_magic_leaves_nothing(broker: _Broker) -> None:
    def once() -> None:
        with broker.client(b"  V9") as client:
            client.rest()

    _leaves_nothing(broker, once)


@pytest.mark.parametrize("end", ["close", "half", "reset"])
@pytest.mark.parametrize("request_", ["/ping", "/lookup?topic=t", "/nodes", "/nowhere"])
def test_a_closed_http_connection_of_nsqlookupd_leaves_nothing(lookupd: _Lookupd, request_: str, end: str) -> None:
    def once() -> None:
        with _http(lookupd.http_port) as client:
            client.sendall(_request(f"GET {request_}"))
            assert client.recv(65536)
            _end_socket(client, end)

    _leaves_nothing(lookupd, once)


_PEER = b'{"broadcast_address":"a","hostname":"a","tcp_port":1,"http_port":2,"version":"1"}'


@pytest.mark.parametrize("end", ["close", "half", "reset"])
@pytest.mark.parametrize(
    "commands",
    [b"PING\n", b"NONSENSE\n", b"IDENTIFY\n" + sized(_PEER), b"IDENTIFY\n" + sized(_PEER) + b"REGISTER t c\n"],
)
def test_a_closed_connection_of_nsqlookupd_leaves_nothing(lookupd: _Lookupd, commands: bytes, end: str) -> None:
    def once() -> None:
        with _http(lookupd.tcp_port) as client:
            client.sendall(b"  V1" + commands)
            assert client.recv(65536)
            _end_socket(client, end)

    _leaves_nothing(lookupd, once)
