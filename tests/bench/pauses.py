"""
``python -m tests.bench.pauses``: how long a busy broker is away, by a histogram of its reactor's turns.

100,000 messages a second go in, by MPUB, and out; the log is rolled every second or two and cursors are saved every
second. There are 10,000 channels beside, and statsd is told of all of them. On top of that, one after the other:

load      nothing
cursors   each second something changes in every one of the 10,000 channels, which is to be saved
births    as cursors, and then a topic is created, which is answered when all of that is saved
json      each second somebody asks for /stats?format=json
text      each second somebody asks for /stats
metrics   each second a Prometheus asks for /metrics

All the while single PUBs are timed from outside, from when they were to be sent until the message is there. That is
what a client sees, the wait for a core included, which the length of a turn does not count (`tests.bench.turns`). What
a virtual machine is kept waiting for by its host nobody can tell from a long turn: look at the longest ones, and try
again when others are quiet.

The exit status is 1 if a turn is longer than 20 ms.
"""

from __future__ import annotations

import argparse
import http.client
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path

from . import latency, plan, report, turns, wire
from .errors import BenchError
from .latency import Latencies
from .load import LoadProcess
from .plan import Consuming, Plan
from .server import Broker, running
from .turns import Noted, Turn

BOUND_MS = 20.0
EDGES_MS = (0, 1, 2, 5, 10, 20, 50, float("inf"))
SHOWN_TURNS = 12
_CHANNELS_OF_A_TOPIC = 10
_RATE = 100_000
_BUSY, _TIMED, _CHANNEL = "busy", "timed", "ch"
_LONG_MS = 3_600_000
_AT_A_TIME = 20
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Size:
    """How many channels there are beside, and how long each phase takes."""

    channels: int = 10_000
    seconds: float = 10.0

    @property
    def topics(self) -> list[str]:
        return [f"beside.{number}" for number in range(self.channels // _CHANNELS_OF_A_TOPIC)]


QUICK = Size(channels=200, seconds=0.5)


@dataclass(frozen=True)
class Phase:
    """What was going on from `start` to `end`, of the monotonic clock, and how late messages were then."""

    name: str
    start: float
    end: float
    latencies: Latencies


def _create(broker: Broker, size: Size) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=_PATIENCE_SECONDS)
    for topic in size.topics:
        for number in range(_CHANNELS_OF_A_TOPIC):
            connection.request("POST", f"/channel/create?topic={topic}&channel={number}")
            connection.getresponse().read()
        # Every topic has its file before anything is measured.
        connection.request("POST", f"/pub?topic={topic}", b"first")
        connection.getresponse().read()
    connection.close()
    for topic in (_BUSY, _TIMED):
        broker.create(topic, (_CHANNEL,))


class _Disturbance:
    """Does something once a second, in a thread, for as long as it is entered."""

    def __init__(self, deed: Callable[[threading.Event], None]) -> None:
        self._deed = deed
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *failure: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _work(self) -> None:
        due = time.monotonic()
        while not self._is_over.wait(max(0.0, due - time.monotonic())):
            self._deed(self._is_over)
            due += 1.0


def _nothing(is_over: threading.Event) -> None:
    """Just the load."""


def _asking(broker: Broker, path: str) -> Callable[[threading.Event], None]:
    def ask(is_over: threading.Event) -> None:
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", broker.http_port), timeout=_PATIENCE_SECONDS) as connection:
            connection.sendall(request.encode())
            while connection.recv(1 << 20):
                pass

    return ask


def _deferring(broker: Broker, size: Size) -> Callable[[threading.Event], None]:
    """A message an hour ahead for every topic changes the cursors of all its channels."""
    commands = [wire.dpub(topic, _LONG_MS, b"later") for topic in size.topics]

    def publish(is_over: threading.Event) -> None:
        with socket.create_connection(("127.0.0.1", broker.tcp_port), timeout=_PATIENCE_SECONDS) as connection:
            connection.sendall(wire.identify())
            replies, answered = wire.FrameReplies(), 0
            for at in range(0, len(commands), _AT_A_TIME):
                some = commands[at : at + _AT_A_TIME]
                connection.sendall(b"".join(some))
                while answered < 1 + at + len(some):
                    answered += replies.feed(connection.recv(65536))
                if is_over.wait(_AT_A_TIME / len(commands) / 2):
                    return

    return publish


def _bearing(broker: Broker, size: Size) -> Callable[[threading.Event], None]:
    """Changes everything, and waits until it is saved."""
    change, numbers = _deferring(broker, size), count()

    def bear(is_over: threading.Event) -> None:
        change(is_over)
        broker.create(f"born.{next(numbers)}", ())

    return bear


def _phases(broker: Broker, size: Size) -> list[Phase]:
    """Carry everything out. BenchError."""
    deeds = {
        "load": _nothing,
        "cursors": _deferring(broker, size),
        "births": _bearing(broker, size),
        "json": _asking(broker, "/stats?format=json"),
        "text": _asking(broker, "/stats"),
        "metrics": _asking(broker, "/metrics"),
    }
    phases = []
    publishing = replace(plan.mpub(broker.tcp_port, _BUSY, 2), seconds=size.seconds * len(deeds) + 2.0, rate=_RATE)
    load = LoadProcess(
        Plan(broker.pid, publishing, (Consuming(broker.tcp_port, _BUSY, _CHANNEL, connections=2),), keep_ids=False)
    )
    try:
        time.sleep(1.0)  # what starting took is over
        for name, deed in deeds.items():
            start = time.monotonic()
            with _Disturbance(deed):
                late = latency.latencies(broker.tcp_port, _TIMED, _CHANNEL, size.seconds)
            phases.append(Phase(name, start, time.monotonic(), late))
        tally = load.result()
    finally:
        load.kill()
    print(f"{tally.published / tally.seconds:,.0f} messages a second in, and out\n")
    return phases


def _row(name: str, cells: list[str], longest: float) -> str:
    return f"| {name} | {' | '.join(cells)} | {longest:.1f} |"


def _histogram(lengths_ms: list[float]) -> list[str]:
    return [f"{sum(low <= one < high for one in lengths_ms):,}" for low, high in pairwise(EDGES_MS)]


def _heads(first: str) -> str:
    buckets = [f"{low}-{high} ms" if high < EDGES_MS[-1] else f"{low} ms or more" for low, high in pairwise(EDGES_MS)]
    return f"| {first} | {' | '.join(buckets)} | longest, ms |\n|{'---|' * (len(buckets) + 2)}"


def _of(phase: Phase, found: list[Turn]) -> list[Turn]:
    return [turn for turn in found if phase.start <= turn.start < phase.end]


def table(phases: list[Phase], noted: Noted) -> str:
    """The histograms: turns, latencies from outside, garbage collection."""
    lines = [_heads("turns of the reactor")]
    for phase in phases:
        lengths = [turn.seconds * 1e3 for turn in _of(phase, noted.turns)]
        lines.append(_row(phase.name, _histogram(lengths), max(lengths, default=0.0)))
    lines += ["", _heads("messages, PUB to consumer")]
    for phase in phases:
        ages = [age / 1e3 for age in phase.latencies.sorted_us]
        lines.append(_row(phase.name, _histogram(ages), ages[-1]))
    lines += ["", _heads("garbage collection")]
    for generation in range(3):
        pauses = [one.seconds * 1e3 for one in noted.collections if one.generation == generation]
        lines.append(_row(f"generation {generation}", _histogram(pauses), max(pauses, default=0.0)))
    return "\n".join([*lines, "", *_longest(phases, noted)])


def _longest(phases: list[Phase], noted: Noted) -> Iterator[str]:
    """The longest turns one by one, and what they were spent on."""
    yield "| longest turns | ms | of it computing | of it garbage collection |\n|---|---|---|---|"
    named = [(turn, phase.name) for phase in phases for turn in _of(phase, noted.turns)]
    for turn, name in sorted(named, key=lambda one: -one[0].seconds)[:SHOWN_TURNS]:
        parts = (f"{seconds * 1e3:.1f}" for seconds in (turn.seconds, turn.cpu, turn.collecting))
        yield f"| {name} | {' | '.join(parts)} |"


def longest_ms(phases: list[Phase], noted: Noted) -> float:
    """The longest turn of them all."""
    return max((turn.seconds * 1e3 for phase in phases for turn in _of(phase, noted.turns)), default=0.0)


@contextmanager
def _statsd_port() -> Iterator[int]:
    """A port that takes what comes and forgets it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        yield sink.getsockname()[1]


def main(argv: list[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.pauses", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--args", default="", help="more flags for the broker, in one string")
    parser.add_argument("--seconds", type=float, help=f"how long each phase takes (default: {Size().seconds:g})")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; no bound is judged")
    options = parser.parse_args(argv)
    size = QUICK if options.quick else Size()
    size = replace(size, seconds=options.seconds or size.seconds)
    print(report.machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="nsqtw-pauses-") as directory, _statsd_port() as statsd:
        notes = Path(directory) / "turns.json"
        flags = [f"--statsd-address=127.0.0.1:{statsd}", "--statsd-interval=5s", "--max-bytes-per-file=33554432"]
        try:
            with running(turns.launcher(Path(directory), notes), [*flags, *shlex.split(options.args)]) as broker:
                _create(broker, size)
                phases = _phases(broker, size)
                broker.end(signal.SIGTERM)
            noted = turns.read(notes)
        except BenchError as error:
            print(f"pauses: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    longest = longest_ms(phases, noted)
    is_good = longest <= BOUND_MS
    print(f"{table(phases, noted)}\n")
    print(f"{'ok  ' if is_good else 'OVER'}  longest turn: {longest:.1f} ms, bound {BOUND_MS:g} ms, {noted.reactor}")
    return 0 if is_good or options.quick else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
