"""
Rates of an ordered channel: a consumer of nsqtw.client drains a backlog of a broker in another process.

    python -m tests.bench.order_rates                          all cases, a table
    python -m tests.bench.order_rates consume ADDRESS TOPIC    the consumer of one run

The cases take turns, `--rounds` times, and each figure is a median. The share is that of the rate without order. On a
machine with few free cores the consumer and the broker share them, and the CPU of the consumer for each message, which
is the same in all cases, counts in a rate. So the CPU of the broker for each message is there, too.
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
from typing import Any

from attrs import frozen

from nsqtw.client.asyncio import Consumer, Producer
from nsqtw.testing import Broker, broker

from .server import cpu_seconds

MESSAGES = 200_000
_KEYS = 10_000
_BATCH = 200
_BODY_BYTES = 200
_IN_FLIGHT = 2500
_CHANNEL = "channel"


@frozen
class Case:
    """One row: a policy, and whether the keys come in turn or at random."""

    title: str
    policy: dict[str, Any]
    in_turn: bool = False


CASES = (
    Case("without order", {}),
    Case("by header, keys in turn", {"ordered_by": "header:key"}, in_turn=True),
    Case("by header, random keys", {"ordered_by": "header:key"}),
    Case("by JSON, keys in turn", {"ordered_by": "json:key"}, in_turn=True),
    Case("by JSON, random keys", {"ordered_by": "json:key"}),
)


async def publish(address: str, topic: str, messages: int, *, in_turn: bool) -> None:
    """Publish messages whose key is a header and a member of the body."""
    draw = random.Random(topic)
    async with Producer(address, protocol="V3") as producer:
        for first in range(0, messages, _BATCH):
            numbers = range(first, first + _BATCH)
            keys = [str(number % _KEYS if in_turn else draw.randrange(_KEYS)) for number in numbers]
            starts = [b'{"key":"%s","text":"' % key.encode() for key in keys]
            bodies = [start.ljust(_BODY_BYTES - 2, b"x") + b'"}' for start in starts]
            await producer.multi_publish(topic, bodies, headers=[{"key": key} for key in keys])


async def consume(address: str, topic: str, messages: int) -> float:
    """Finish all messages. Returns the seconds from the first one on."""
    began = 0.0
    async with Consumer(topic, _CHANNEL, nsqd=address, max_in_flight=_IN_FLIGHT) as consumer:
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


def measure(nsqd: Broker, pid: int, case: Case, topic: str, messages: int) -> tuple[float, float]:
    """Return the messages a second, in millions, and the microseconds of the broker's CPU for each."""
    where = f"topic={topic}&channel={_CHANNEL}"
    call(nsqd, "POST", f"/topic/create?topic={topic}")
    call(nsqd, "POST", f"/channel/create?{where}")
    call(nsqd, "PUT", f"/v2/channel/policy?{where}", json.dumps(case.policy).encode())
    asyncio.run(publish(nsqd.tcp_address, topic, messages, in_turn=case.in_turn))
    before = cpu_seconds(pid)
    command = [sys.executable, "-m", "tests.bench.order_rates", "consume", nsqd.tcp_address, topic, str(messages)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"the consumer failed: {done.stderr[-2000:]}")
    cost = (cpu_seconds(pid) - before) / messages * 1e6
    call(nsqd, "POST", f"/topic/delete?topic={topic}")
    return messages / float(done.stdout) / 1e6, cost


def main(words: list[str]) -> int:
    """Print a line for each case, or be the consumer of a run."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.order_rates", description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default: 5)")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; the figures mean little")
    parser.add_argument("run", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.run:
        _, address, topic, count = options.run
        sys.stdout.write(f"{asyncio.run(consume(address, topic, int(count)))}\n")
        return 0
    messages, rounds = (_KEYS, 1) if options.quick else (MESSAGES, options.rounds)
    runs: list[list[tuple[float, float]]] = [[] for _ in CASES]
    with broker("--protocol=V2,V3", "--mem-queue-size=1000000") as nsqd:
        for number in range(rounds * len(CASES)):
            place = number % len(CASES)
            runs[place].append(measure(nsqd, nsqd.pid, CASES[place], f"topic{number}", messages))
    sys.stdout.write(f"{'':26}{'M/s':>6}{'share':>7}{'CPU of the broker':>22}\n")
    base = [rate for rate, _ in runs[0]]
    for case, row in zip(CASES, runs, strict=True):
        share = statistics.median([rate / other for (rate, _), other in zip(row, base, strict=True)])
        rate, cost = (statistics.median(values) for values in zip(*row, strict=True))
        sys.stdout.write(f"{case.title:26}{rate:6.2f}{share:7.2f}{cost:19.2f} us\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
