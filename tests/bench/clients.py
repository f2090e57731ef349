"""
Rates of client libraries with one broker: ours on both event loops, and those of others.

    python -m tests.bench.clients                every client, a table
    python -m tests.bench.clients consume gnsq   one run, for the table: messages a second

Each run is a process. Consumers drain a backlog of messages of 200 B with 2,500 in flight and finish each. Producers
publish one by one: those that can have 1,000 publishes without an answer, the others wait for each. Then they publish
batches of 200 messages, of which those that can have 10 without an answer.

The load generator of `tests.bench` writes prepared bytes and counts the answers: no client can do more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nsqtw.testing import Broker, broker

BODY = b"x" * 200
IN_FLIGHT = 2500
WINDOW = 1000
BATCH = [BODY] * 200
BATCH_WINDOW = 10
TOPIC, CHANNEL = "bench", "channel"
MESSAGES = {"ours on asyncio": 200_000, "ours on Twisted": 200_000, "pynsq": 20_000, "gnsq": 20_000, "ansq": 20_000}
"""The clients, and how many messages a run has."""
_BATCH = 1000
WHATS = ("consume", "publish", "multi_publish")
"""The columns of the table."""


class Clock:
    """The time between the first and the last of `count` messages."""

    def __init__(self, count: int) -> None:
        self._left = self._count = count
        self._began = 0.0

    def tick(self, messages: int = 1) -> bool:
        """Count messages. Returns whether they were the last, after printing the rate."""
        if self._left == self._count:
            self._began = time.perf_counter()
        self._left -= messages
        if not self._left:
            sys.stdout.write(f"{self._count / (time.perf_counter() - self._began)}\n")
            sys.stdout.flush()
        return not self._left


def ours(classes: Any, run: Callable[[Any], None], what: str, tcp: str, count: int) -> None:
    """Our client, on either loop."""

    async def consume() -> None:
        clock = Clock(count)
        async with classes.Consumer(TOPIC, CHANNEL, nsqd=tcp, max_in_flight=IN_FLIGHT) as consumer:
            async for message in consumer:
                message.finish()
                if clock.tick():
                    break

    async def publish() -> None:
        clock = Clock(count)
        async with classes.Producer(tcp) as producer:
            for _ in range(count // WINDOW):
                futures = [producer.publish(TOPIC, BODY) for _ in range(WINDOW)]
                for future in futures:
                    await future
                    clock.tick()

    async def multi_publish() -> None:
        clock = Clock(count)
        async with classes.Producer(tcp) as producer:
            futures: list[Any] = []
            for _ in range(count // len(BATCH)):
                futures.append(producer.multi_publish(TOPIC, BATCH))
                if len(futures) == BATCH_WINDOW:
                    await futures.pop(0)
                    clock.tick(len(BATCH))
            for future in futures:
                await future
                clock.tick(len(BATCH))

    run({"consume": consume, "publish": publish, "multi_publish": multi_publish}[what])


def ours_on_asyncio(what: str, tcp: str, http: str, count: int) -> None:
    import asyncio

    import nsqtw.client.asyncio

    ours(nsqtw.client.asyncio, lambda function: asyncio.run(function()), what, tcp, count)


def ours_on_twisted(what: str, tcp: str, http: str, count: int) -> None:
    from twisted.internet.task import react

    import nsqtw.client.twisted

    def run(function: Any) -> None:
        from twisted.internet.defer import Deferred

        react(lambda reactor: Deferred.fromCoroutine(function()))

    ours(nsqtw.client.twisted, run, what, tcp, count)


def pynsq(what: str, tcp: str, http: str, count: int) -> None:
    import nsq
    from tornado.ioloop import IOLoop

    clock = Clock(count)
    if what == "consume":

        def handle(message: Any) -> bool:
            if clock.tick():
                IOLoop.current().stop()
            return True

        nsq.Reader(
            topic=TOPIC, channel=CHANNEL, message_handler=handle, nsqd_tcp_addresses=[tcp], max_in_flight=IN_FLIGHT
        )
    else:
        _pynsq_publishes(what, nsq.Writer([tcp]), count, clock)
    IOLoop.current().start()


def _pynsq_publishes(what: str, writer: Any, count: int, clock: Clock) -> None:
    from tornado.ioloop import IOLoop

    left = count

    def answered(connection: Any, data: Any) -> None:
        nonlocal left
        if clock.tick():
            IOLoop.current().stop()
        elif left:
            left -= 1
            writer.pub(TOPIC, BODY, answered)

    def answered_batch(connection: Any, data: Any) -> None:
        if clock.tick(len(BATCH)):
            IOLoop.current().stop()
        else:
            writer.mpub(TOPIC, BATCH, answered_batch)

    def begin() -> None:
        nonlocal left
        if not writer.conns:
            IOLoop.current().call_later(0.01, begin)
            return
        if what == "multi_publish":
            writer.mpub(TOPIC, BATCH, answered_batch)
            return
        for _ in range(WINDOW):
            left -= 1
            writer.pub(TOPIC, BODY, answered)

    IOLoop.current().add_callback(begin)


def gnsq(what: str, tcp: str, http: str, count: int) -> None:
    import gnsq as library

    clock = Clock(count)
    if what == "consume":
        consumer = library.Consumer(TOPIC, CHANNEL, tcp, max_in_flight=IN_FLIGHT)

        def handle(consumer: Any, message: Any) -> None:
            message.finish()
            if clock.tick():
                sys.stdout.flush()
                import os

                os._exit(0)

        consumer.on_message.connect(handle)
        consumer.start()
    else:
        producer = library.Producer(tcp)
        producer.start()
        if what == "publish":
            for _ in range(count):
                producer.publish(TOPIC, BODY)
                clock.tick()
        else:
            for _ in range(count // len(BATCH)):
                producer.multipublish(TOPIC, BATCH)
                clock.tick(len(BATCH))
        producer.close()


def ansq(what: str, tcp: str, http: str, count: int) -> None:
    import asyncio

    import ansq as library

    async def consume() -> None:
        clock = Clock(count)
        reader = await library.create_reader(topic=TOPIC, channel=CHANNEL, nsqd_tcp_addresses=[tcp])
        for connection in reader.connections:  # it has no max_in_flight
            await connection.rdy(IN_FLIGHT)
        async for message in reader.messages():
            await message.fin()
            if clock.tick():
                break
        await reader.close()

    async def publish() -> None:
        clock = Clock(count)
        writer = await library.create_writer(nsqd_tcp_addresses=[tcp])
        if what == "publish":
            for _ in range(count):
                await writer.pub(topic=TOPIC, message=BODY)
                clock.tick()
        else:
            for _ in range(count // len(BATCH)):
                await writer.mpub(TOPIC, *BATCH)
                clock.tick(len(BATCH))
        await writer.close()

    asyncio.run(consume() if what == "consume" else publish())


CLIENTS: dict[str, Callable[[str, str, str, int], None]] = {
    "ours on asyncio": ours_on_asyncio,
    "ours on Twisted": ours_on_twisted,
    "pynsq": pynsq,
    "gnsq": gnsq,
    "ansq": ansq,
}


def fill(nsqd: Broker, count: int) -> None:
    """Make a backlog of `count` messages in an empty channel."""
    base = f"http://{nsqd.http_address}"
    post(f"{base}/topic/create?topic={TOPIC}")
    post(f"{base}/channel/create?topic={TOPIC}&channel={CHANNEL}")
    post(f"{base}/channel/empty?topic={TOPIC}&channel={CHANNEL}")
    for _ in range(count // _BATCH):
        post(f"{base}/mpub?topic={TOPIC}", b"\n".join([BODY] * _BATCH))


def post(url: str, body: bytes = b"") -> None:
    """Send a request that must succeed."""
    with urllib.request.urlopen(url, body) as answer:
        answer.read()


def rate(nsqd: Broker, what: str, client: str, share: float) -> float:
    """Return the messages a second of one run, with this share of its usual messages."""
    count = max(_BATCH, int(MESSAGES[client] * share) // _BATCH * _BATCH)
    fill(nsqd, count if what == "consume" else 0)
    command = [
        sys.executable,
        "-m",
        "tests.bench.clients",
        what,
        client,
        nsqd.tcp_address,
        nsqd.http_address,
        str(count),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if not done.stdout.strip():
        raise RuntimeError(f"{client} failed to {what}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def generator_rate(case: str, rounds: int, seconds: float) -> float:
    """Return the messages a second of a case of `tests.bench`."""
    with tempfile.TemporaryDirectory() as directory:
        rows = Path(directory, "rows.json")
        command = [sys.executable, "-m", "tests.bench", "--only", case, "--json", str(rows)]
        command += ["--rounds", str(rounds), "--seconds", str(seconds)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return float(json.loads(rows.read_text("utf-8"))["cases"][case]["ours"]["rate"])


def line(client: str, rates: Iterable[float]) -> str:
    """Return a line of the table."""
    return f"{client:20}" + "".join(f"{rate:14,.0f}" for rate in rates) + "\n"


def main(words: list[str]) -> int:
    """Run all clients, or one when the words say so. The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.clients", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; the figures mean little")
    parser.add_argument("run", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.run:
        what, client, tcp, http, count = options.run
        CLIENTS[client](what, tcp, http, int(count))
        return 0
    share, rounds = (0.02, 1) if options.quick else (1.0, options.rounds)
    heads = ("consumed/s", "published/s", "in batches/s")
    sys.stdout.write(f"{'client':20}" + "".join(f"{head:>14}" for head in heads) + "\n")
    seconds = 0.2 if options.quick else 2.0
    rates = [generator_rate(case, rounds, seconds) for case in ("sub-1", "pub-pipelined", "mpub")]
    sys.stdout.write(line("the generator", rates))
    with broker("--mem-queue-size=1000000") as nsqd:
        for client in CLIENTS:
            runs = [[rate(nsqd, what, client, share) for _ in range(rounds)] for what in WHATS]
            sys.stdout.write(line(client, map(statistics.median, runs)))
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
