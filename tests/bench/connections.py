"""
``python -m tests.bench.connections``: what closed connections leave in the memory of a broker.

Connections of each kind are opened, do what their kind does, and are closed, one kind after the other against one
broker. The memory of the broker is read after each kind; meanwhile /ping is asked twenty times a second, each time on a
new connection.

sub      SUB of one channel
pub      one PUB and its answer
tls      IDENTIFY, the upgrade to TLS, one PUB
snappy   the same with snappy
deflate  the same with deflate
http     one POST /pub
https    the same over TLS

The exit status is 1 if a bound is exceeded.
"""

from __future__ import annotations

import argparse
import http.client
import re
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from urllib.parse import quote

from tests.certificates import Certificates
from tests.wire import Client

from . import report
from .errors import BenchError, BrokerFailed
from .server import Broker, default_executable, running
from .shapes import MB, Verdict

HOST = "127.0.0.1"
COUNT = 200_000
QUICK_COUNT = 20
_WORKERS = 3
_SETTLE_SECONDS = 1.0
_PING_SECONDS = 0.05
_START_SECONDS = 20.0
_WARM_UP = 500
_TOPIC = "t#ephemeral"
"""Without a channel it drops what it gets, so that no message takes memory."""


@cache
def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _sub(ports: dict[str, int]) -> None:
    with Client(ports["tcp"]) as client:
        client.sub("sub", "c", ready=1)


def _pub(ports: dict[str, int]) -> None:
    with Client(ports["tcp"]) as client:
        client.pub(_TOPIC, b"body")


def _upgraded(ports: dict[str, int], wants: ssl.SSLContext | None = None, **asked: object) -> None:
    with Client(ports["tcp"]) as client:
        client.upgrade(wants, **asked)
        client.pub(_TOPIC, b"body")


def _http(connection: http.client.HTTPConnection) -> None:
    try:
        connection.request("POST", f"/pub?topic={quote(_TOPIC)}", b"body")
        connection.getresponse().read()
    finally:
        connection.close()


KINDS: dict[str, Callable[[dict[str, int]], None]] = {
    "sub": _sub,
    "pub": _pub,
    "tls": lambda ports: _upgraded(ports, _tls_context()),
    "snappy": lambda ports: _upgraded(ports, snappy=True),
    "deflate": lambda ports: _upgraded(ports, deflate=True),
    "http": lambda ports: _http(http.client.HTTPConnection(HOST, ports["http"])),
    "https": lambda ports: _http(http.client.HTTPSConnection(HOST, ports["https"], context=_tls_context())),
}


def make(kind: str, ports: dict[str, int], count: int) -> None:
    """Make so many connections, one after the other."""
    for _ in range(count):
        KINDS[kind](ports)


class Pings:
    """A thread that asks /ping. `longest` is in seconds."""

    def __init__(self, port: int) -> None:
        self.longest = 0.0
        self._port = port
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(_PING_SECONDS):
            start = time.perf_counter()
            with socket.create_connection((HOST, self._port)) as connection:
                connection.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                while connection.recv(4096):
                    pass
            self.longest = max(self.longest, time.perf_counter() - start)


def _measure(broker: Broker, ports: dict[str, int], kinds: list[str], count: int) -> list[Verdict]:
    broker.create("sub", ("c",))
    for kind in kinds:
        make(kind, ports, min(_WARM_UP, count))
    time.sleep(_SETTLE_SECONDS)
    first = broker.resident_bytes()[0]
    print(f"      before: {first / MB:.1f} MB", flush=True)
    verdicts = []
    with ProcessPoolExecutor(_WORKERS) as workers:
        for kind in kinds:
            pings, start = Pings(broker.http_port), time.monotonic()
            parts = [workers.submit(make, kind, ports, count // _WORKERS) for _ in range(_WORKERS)]
            for part in parts:
                part.result()
            pings.stop()
            seconds = time.monotonic() - start
            time.sleep(_SETTLE_SECONDS)
            more = (broker.resident_bytes()[0] - first) / MB
            print(
                f"      {kind:8} {count:,} connections, {count / seconds:,.0f} a second:"
                f" {more:+.1f} MB, longest /ping {pings.longest * 1000:.0f} ms",
                flush=True,
            )
            verdicts += [Verdict(f"memory after {kind}", more, 20, "MB")]
            verdicts += [Verdict(f"longest /ping during {kind}", pings.longest * 1000, 100, "ms")]
    return verdicts


def _https_port(broker: Broker) -> int:
    """The port that the broker says last, behind those that `Broker` waits for."""
    patience = time.monotonic() + _START_SECONDS
    while time.monotonic() < patience:
        said = (broker.data_path.parent / "stderr").read_text(errors="replace")
        if found := re.search(r"HTTPS: listening on 127\.0\.0\.1:(\d+)", said):
            return int(found[1])
        time.sleep(0.01)
    raise BrokerFailed(f"no line 'HTTPS: listening on': {broker.last_words()}")


def main(argv: list[str]) -> int:
    """Measure. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.connections",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated; default: all")
    parser.add_argument("--count", type=int, default=COUNT, help=f"connections of each kind; default: {COUNT}")
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="the broker to measure")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; no bound is judged")
    options = parser.parse_args(argv)
    count = QUICK_COUNT if options.quick else options.count
    print(f"{options.nsqd}\n{report.machine()}")
    with tempfile.TemporaryDirectory() as directory:
        server = Certificates(Path(directory)).server
        flags = [*server.flags(), f"--https-address={HOST}:0", "--max-connections=0", "--mem-queue-size=10"]
        try:
            with running(options.nsqd, flags) as broker:
                ports = {"tcp": broker.tcp_port, "http": broker.http_port, "https": _https_port(broker)}
                verdicts = _measure(broker, ports, options.kind or list(KINDS), count)
        except BenchError as error:
            print(f"connections: {error}", file=sys.stderr)
            return 1
    for verdict in verdicts:
        print(verdict)
    return 0 if options.quick or all(verdict.good for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
