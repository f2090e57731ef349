"""
Rates of an ordered channel: a consumer of nsqtw.client drains a backlog of a broker in another process.

    python -m tests.bench.order_rates                              all cases, the table of docs/how-to/ordering.md
    python -m tests.bench.order_rates consume V2 2500 ADDRESS TOPIC COUNT    the consumer of one run

A column is a protocol and RDY. The cases take turns, `--rounds` times, and each figure is a median: the share of the
rate without order, and the CPU of the broker for each message. On a machine with few free cores the consumer and the
broker share them, and the CPU of the consumer for each message, which is the same in all cases, counts in a rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from nsqtw.client.asyncio import Consumer, Producer
from nsqtw.testing import Broker, broker

from .server import cpu_seconds

MESSAGES = 100_000
_KEYS = 10_000
_BATCH = 200
_BODY_BYTES = 200
_CHANNEL = "channel"


@frozen
class Case:
    """One row: a policy, and whether the keys come in turn or at random."""

    title: str
    policy: dict[str, Any]
    in_turn: bool = False


CASES = (
    Case("without order", {}),
    Case("`header:key`, keys in turn", {"ordered_by": "header:key"}, in_turn=True),
    Case("`header:key`, keys at random", {"ordered_by": "header:key"}),
    Case("`json:key`, keys in turn", {"ordered_by": "json:key"}, in_turn=True),
    Case("`json:key`, keys at random", {"ordered_by": "json:key"}),
    Case("`json:order.customer.id`, keys at random", {"ordered_by": "json:order.customer.id"}),
)
CONSUMERS: Sequence[tuple[str, int]] = (("V2", 2500), ("V2", 100), ("V3", 2500), ("V3", 100))
"""The columns: protocol and RDY."""


@frozen
class Measured:
    """One run: messages a second, and seconds of the broker's CPU for each."""

    rate: float
    cost: float


def body(number: int, key: str) -> bytes:
    """Return a body of _BODY_BYTES with the key as a member, and further inside."""
    start = b'{"id":%d,"key":"%s","order":{"id":%d,"customer":{"id":"%s"}},"text":"'
    return (start % (number, key.encode(), number, key.encode())).ljust(_BODY_BYTES - 2, b"x") + b'"}'


async def publish(address: str, topic: str, messages: int, *, in_turn: bool) -> None:
    """Publish messages whose key is a header, and twice in the body."""
    draw = random.Random(topic)
    async with Producer(address, protocol="V3") as producer:
        for first in range(0, messages, _BATCH):
            numbers = range(first, first + _BATCH)
            keys = [str(number % _KEYS if in_turn else draw.randrange(_KEYS)) for number in numbers]
            bodies = [*map(body, numbers, keys)]
            await producer.multi_publish(topic, bodies, headers=[{"key": key} for key in keys])


async def consume(protocol: str, ready_count: int, address: str, topic: str, messages: int) -> float:
    """Finish all messages. Returns the seconds from the first one on."""
    began = 0.0
    async with Consumer(topic, _CHANNEL, nsqd=address, max_in_flight=ready_count, protocol=protocol) as consumer:
        async for message in consumer:
            began = began or time.perf_counter()
            message.finish()
            messages -= 1
            if not messages:
                break
    return time.perf_counter() - began


def call(nsqd: Broker, method: str, path: str, body: bytes = b"") -> None:
    """Send a request that must succeed."""
    with urllib.request.urlopen(urllib.request.Request(f"http://{nsqd.http_address}{path}", body, method=method)):
        pass


def measure(nsqd: Broker, case: Case, consumer: tuple[str, int], topic: str, messages: int) -> Measured:
    """Publish, and consume in another process."""
    where = f"topic={topic}&channel={_CHANNEL}"
    call(nsqd, "POST", f"/topic/create?topic={topic}")
    call(nsqd, "POST", f"/channel/create?{where}")
    call(nsqd, "PUT", f"/v2/channel/policy?{where}", json.dumps(case.policy).encode())
    asyncio.run(publish(nsqd.tcp_address, topic, messages, in_turn=case.in_turn))
    before = cpu_seconds(nsqd.pid)
    run = [*map(str, consumer), nsqd.tcp_address, topic, str(messages)]
    command = [sys.executable, "-m", "tests.bench.order_rates", "consume", *run]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"the consumer failed: {done.stderr[-2000:]}")
    cost = (cpu_seconds(nsqd.pid) - before) / messages
    call(nsqd, "POST", f"/topic/delete?topic={topic}")
    return Measured(messages / float(done.stdout), cost)


def cell(runs: Sequence[Measured], without_order: Sequence[Measured]) -> str:
    """Return the share of the rate without order, or that rate, and the cost."""
    rate = f"{statistics.median([run.rate for run in runs]) / 1e6:.2f} M/s"
    share = f"{statistics.median([run.rate / other.rate for run, other in zip(runs, without_order, strict=True)]):.2f}"
    cost = statistics.median([run.cost for run in runs]) * 1e6
    return f"{rate if runs is without_order else share}, {cost:.1f} µs"


def main(words: list[str]) -> int:
    """Print the table, or be the consumer of a run."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.order_rates", description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default: 5)")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; the figures mean little")
    parser.add_argument("run", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.run:
        _, protocol, ready_count, address, topic, count = options.run
        sys.stdout.write(f"{asyncio.run(consume(protocol, int(ready_count), address, topic, int(count)))}\n")
        return 0
    messages, rounds, consumers = MESSAGES, options.rounds, CONSUMERS
    if options.quick:
        messages, rounds, consumers = _KEYS, 1, CONSUMERS[::3]
    runs: dict[tuple[str, tuple[str, int]], list[Measured]] = defaultdict(list)
    with broker("--protocol=V2,V3", "--mem-queue-size=1000000") as nsqd:
        for consumer in consumers:
            for number in range(rounds):
                for place, case in enumerate(CASES):
                    topic = f"topic{number}_{place}_{consumer[0]}_{consumer[1]}"
                    runs[case.title, consumer].append(measure(nsqd, case, consumer, topic, messages))
    titles = [f"{protocol}, RDY {ready_count:,}" for protocol, ready_count in consumers]
    sys.stdout.write(f"| | {' | '.join(titles)} |\n|---|{'---|' * len(titles)}\n")
    for case in CASES:
        cells = [cell(runs[case.title, consumer], runs[CASES[0].title, consumer]) for consumer in consumers]
        sys.stdout.write(f"| {case.title} | {' | '.join(cells)} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
