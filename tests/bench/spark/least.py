"""
``python -m tests.bench.spark.least``: what the requests of the sink cost at least, with a server that only drains them.

bare    one `sendmsg` for each request and one `recv` for its answer, in the sizes of the sink's requests
treq    the same bytes by the sink's own publisher: what a request costs without packing

The server answers OK when it has received as many bytes as the head says; it looks at nothing else. "apart": both sides
have a core of their own. "shared": both have all cores. us of CPU a row of 200 B, medians of rounds that alternate.
"""

from __future__ import annotations

import argparse
import os
import re
import selectors
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median

from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.packing import Request
from pyspark_nsq.sink.publisher import Publisher

from . import cpus
from .bare import BareClient
from .sink import BODY_BYTES

_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n\r\nOK"
_LENGTH = re.compile(rb"Content-Length: (\d+)")
_READ_BYTES = 256 * 1024
_SIZE_BYTES = 4


def serve() -> None:
    """Drain the requests of all connections, until standard input ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    missing: dict[socket.socket, int] = {}
    buffer = bytearray(_READ_BYTES)
    while True:
        for key, _ in selector.select():
            connection = key.fileobj
            if not isinstance(connection, socket.socket):
                return
            if connection is listener:
                connection = listener.accept()[0]
                missing[connection] = 0
                selector.register(connection, selectors.EVENT_READ)
            elif count := connection.recv_into(buffer):
                if not missing[connection]:
                    missing[connection] = _request_bytes(buffer)
                missing[connection] -= count
                if not missing[connection]:
                    connection.send(_OK)
            else:
                selector.unregister(connection)
                connection.close()


def _request_bytes(start: bytearray) -> int:
    """Return the size of a request, head and body."""
    end = start.index(b"\r\n\r\n") + 4
    found = _LENGTH.search(start, 0, end)
    assert found is not None
    return end + int(found[1])


def send_bare(port: int, request: Request, count: int) -> None:
    """Send `count` requests over one socket."""
    with BareClient(port) as client:
        for _ in range(count):
            client.publish(request)


def send_by_treq(port: int, request: Request, count: int) -> None:
    """Send `count` requests as the sink does."""
    with Publisher(SinkOptions.parse({"nsqdHttpAddresses": f"127.0.0.1:{port}", "topic": request.topic})) as publisher:
        for _ in range(count):
            publisher.submit(request)


WAYS: dict[str, Callable[[int, Request, int], None]] = {"bare": send_bare, "treq": send_by_treq}


def measured(rows: int, rounds: int, requests: int) -> str:
    """Return a line for each way of sending requests of `rows` rows."""
    entry = BODY_BYTES.to_bytes(_SIZE_BYTES, "big") + b"x" * BODY_BYTES
    request = Request("/mpub?binary=true&topic=t", (rows.to_bytes(_SIZE_BYTES, "big"), entry * rows), "t", rows)
    costs: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    ours = os.sched_getaffinity(0)
    with subprocess.Popen(
        [sys.executable, "-m", __spec__.name, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        try:
            for number in range(1 + rounds):
                for place, sides in (("apart", ({0}, {1})), ("shared", (ours, ours))):
                    for way, send in WAYS.items():
                        for pid, cores in zip((os.getpid(), server.pid), sides, strict=True):
                            cpus.pin([pid], cores)
                        before = time.process_time(), cpus.cpu_seconds([server.pid])
                        send(port, request, requests)
                        after = time.process_time(), cpus.cpu_seconds([server.pid])
                        if number:
                            for side, start, end in zip(costs[f"{way}, {place}"], before, after, strict=True):
                                side.append((end - start) / rows / requests * 1e6)
        finally:
            cpus.pin([os.getpid()], ours)
    return "\n".join(f"{name}: client {median(a):.3f}, server {median(b):.3f}" for name, (a, b) in costs.items())


def main(argv: list[str]) -> int:
    """Run it. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.spark.least",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=10_000, help="rows of a request (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument("--requests", type=int, default=300, help="requests of a round (default: %(default)s)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.serve:
        serve()
    else:
        print(measured(given.rows, given.rounds, given.requests))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
