"""
``python -m tests.bench.shapes``: how cost and memory grow with what a broker has, as ratios that say more than seconds.

topics       MPUB of 20 x 200 B to one topic after the other, of 1, 100 and 10,000 topics
connections  memory of 10,000 idle connections, what they cost while nothing happens, and while others publish
idle         memory and CPU of 1,000 topics with a channel each
behind       a consumer that is 10,000,000 messages behind, beside one that reads the newest

The exit status is 1 if a bound is exceeded.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from . import plan, report, wire
from .cases import KILOBYTE
from .errors import BenchError, BrokerFailed
from .load import carry_out
from .plan import Consuming, Plan
from .server import Broker, cpu_seconds, default_executable, running

MB = 1e6
_BATCH = 20
_PATIENCE_SECONDS = 60.0
_CHANNEL = "ch1"


@dataclass(frozen=True)
class Verdict:
    """A measured value, and what it may be at the most."""

    what: str
    value: float
    bound: float
    unit: str

    @property
    def good(self) -> bool:
        return self.value <= self.bound

    def __str__(self) -> str:
        return (
            f"{'ok  ' if self.good else 'OVER'}  {self.what}: {self.value:,.2f} {self.unit}, "
            f"bound {self.bound:g} {self.unit}"
        )


@dataclass(frozen=True)
class Size:
    """
    How many topics and connections there are, messages that are published, messages that wait, and for how long nothing
    is done to see what that costs.
    """

    topics: int = 10_000
    connections: int = 10_000
    messages: int = 400_000
    behind: int = 10_000_000
    quiet_seconds: float = 5.0


QUICK = Size(topics=200, connections=200, messages=40_000, behind=100_000, quiet_seconds=0.5)


def _publish(broker: Broker, topics: list[str], messages: int) -> float:
    """Microseconds of the broker's CPU a message, for batches to one topic after the other."""
    bodies = [wire.body(plan.BODY_BYTES)] * _BATCH
    commands = [wire.mpub(topic, bodies) for topic in topics]
    with socket.create_connection(("127.0.0.1", broker.tcp_port), timeout=_PATIENCE_SECONDS) as connection:
        connection.sendall(wire.identify())
        replies = wire.FrameReplies()
        _answered(connection, replies)
        for command in commands:  # every topic has its file before anything is measured
            connection.sendall(command)
            _answered(connection, replies)
        before = cpu_seconds(broker.pid)
        batches = max(messages // _BATCH, 1)
        for number in range(batches):
            connection.sendall(commands[number % len(commands)])
            _answered(connection, replies)
        return (cpu_seconds(broker.pid) - before) / (batches * _BATCH) * 1e6


def _answered(connection: socket.socket, replies: wire.FrameReplies) -> None:
    while not replies.feed(data := connection.recv(65536)):
        if not data:
            raise BrokerFailed("the broker closed a connection")


def topics(broker: Broker, size: Size) -> Iterator[Verdict]:
    """The cost of a message does not depend on how many other topics there are."""
    costs = {}
    for count in sorted({1, 100, size.topics}):
        names = [f"shape.{count}.{number}" for number in range(count)]
        costs[count] = _publish(broker, names, size.messages)
        print(f"      {count:>6,} topics: {costs[count]:.2f} us of CPU a message", flush=True)
    yield Verdict(f"{size.topics:,} topics, to one topic", costs[size.topics] / costs[1], 1.5, "times the cost")


@contextmanager
def _idle_connections(broker: Broker, count: int) -> Iterator[None]:
    """So many clients that have identified themselves, without heartbeats, and say nothing."""
    document = b'{"client_id":"idle","heartbeat_interval":-1}'
    greeting = wire.MAGIC + b"IDENTIFY\n" + struct.pack(">i", len(document)) + document
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 100)), hard))
    with ExitStack() as stack:
        for number in range(count):
            # Other addresses of this machine: one has ports for some 28,000 connections, and limits are per address.
            address = f"127.0.{1 + number // 200 % 250}.1"
            connection = socket.create_connection(
                ("127.0.0.1", broker.tcp_port), timeout=_PATIENCE_SECONDS, source_address=(address, 0)
            )
            stack.enter_context(connection)
            connection.sendall(greeting)
            if b"OK" not in connection.recv(64):
                raise BrokerFailed("the broker does not answer IDENTIFY")
        yield


def _quiet_cpu(broker: Broker, seconds: float) -> float:
    """The share of a core that the broker takes while nothing happens."""
    before = cpu_seconds(broker.pid)
    time.sleep(seconds)  # what is measured is that nothing happens
    return (cpu_seconds(broker.pid) - before) / seconds


def connections(broker: Broker, size: Size) -> Iterator[Verdict]:
    """Those who say nothing cost next to nothing."""
    alone = _publish(broker, ["shape"], size.messages)
    before = broker.resident_bytes()[0]
    with _idle_connections(broker, size.connections):
        each = (broker.resident_bytes()[0] - before) / size.connections
        yield Verdict(f"memory of each of {size.connections:,} idle connections", each / KILOBYTE, 25, "KB")
        yield Verdict(
            f"CPU with {size.connections:,} idle connections",
            _quiet_cpu(broker, size.quiet_seconds) * 100,
            2,
            "% of a core",
        )
        beside = _publish(broker, ["shape"], size.messages)
        print(f"      publishing: {alone:.2f} us of CPU a message alone, {beside:.2f} beside them", flush=True)
        yield Verdict("publishing beside them", beside / alone, 1.5, "times the cost")


def idle(broker: Broker, size: Size) -> Iterator[Verdict]:
    """A broker with many topics and channels that nobody uses."""
    count = min(size.topics, 1_000)
    for number in range(count):
        broker.create(f"idle.{number}", (_CHANNEL,))
    time.sleep(1.5)  # what is created is saved within a second
    yield Verdict(f"memory with {count:,} topics and channels", broker.resident_bytes()[0] / MB, 100, "MB")
    yield Verdict(
        f"CPU with {count:,} topics and channels", _quiet_cpu(broker, size.quiet_seconds) * 100, 1, "% of a core"
    )


def behind(broker: Broker, size: Size) -> Iterator[Verdict]:
    """Who is far behind reads from disk, and not much slower than who reads what was just written."""
    rates = {}
    for topic, backlog in (("newest", min(size.behind, 400_000)), ("behind", size.behind)):
        broker.create(topic, (_CHANNEL,))
        filling = replace(plan.mpub(broker.tcp_port, topic, 2), limit=backlog)
        published = carry_out(Plan(broker.pid, filling)).published
        broker.settle(topic, published, left=published)
        resident = broker.resident_bytes()[1]
        consuming = (Consuming(broker.tcp_port, topic, _CHANNEL, connections=2),)
        tally = carry_out(Plan(broker.pid, None, consuming, published, keep_ids=backlog <= 1_000_000))
        rates[topic] = tally.delivered / tally.seconds
        print(f"      {published:>10,} behind: {rates[topic]:,.0f} a second, {resident / MB:.0f} MB", flush=True)
    yield Verdict("the newest, to a long backlog", rates["newest"] / rates["behind"], 2.0, "times the rate")
    yield Verdict(f"memory with {size.behind:,} waiting", broker.resident_bytes()[1] / MB, 200, "MB")


CASES: dict[str, Callable[[Broker, Size], Iterator[Verdict]]] = {
    "topics": topics,
    "connections": connections,
    "idle": idle,
    "behind": behind,
}


def main(argv: list[str]) -> int:
    """Run the chosen cases, each with a broker of its own. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.shapes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", choices=CASES, help="may be repeated; default: all")
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="the broker to measure")
    parser.add_argument("--args", default="", help="more flags for it, in one string")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; no bound is judged")
    options = parser.parse_args(argv)
    flags = shlex.split(options.args)
    print(f"{shlex.join([str(options.nsqd), *flags])}\n{report.machine()}")
    good = True
    for name in options.case or CASES:
        print(f"\n{name}", flush=True)
        try:
            with running(options.nsqd, flags) as broker:
                for verdict in CASES[name](broker, QUICK if options.quick else Size()):
                    print(verdict, flush=True)
                    good = good and (verdict.good or options.quick)
        except BenchError as error:
            print(f"shapes: {name}: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
