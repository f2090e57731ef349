"""
Two brokers of ours under two nsqlookupds of ours, and consumers of gnsq that find them there while one of each dies.

gevent, which gnsq needs, would like to be everywhere: so a consumer runs in a process of its own, this module with the
addresses of nsqlookupds. It prints what was delivered, a body a line.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.process import DaemonProcess, LookupdProcess, NsqdProcess, wait_until
from tests.wire import HOST

ROOT = Path(__file__).parent.parent.parent
TOPIC, CHANNEL = "found", "readers"


class Consumer:
    """A consumer of gnsq."""

    def __init__(self, *lookupds: LookupdProcess) -> None:
        self.bodies: list[str] = []
        addresses = [f"{HOST}:{lookupd.http_port}" for lookupd in lookupds]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.test_discovery", *addresses],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.bodies.append(line.rstrip("\n"))

    def close(self) -> None:
        self._process.kill()
        self._reader.join()
        self._process.wait()


class Harness:
    """All of it, and what was published."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.lookupds = [LookupdProcess(directory / f"lookupd{number}") for number in range(2)]
        self._start(*self.lookupds)
        flags = [f"--lookupd-tcp-address={HOST}:{lookupd.tcp_port}" for lookupd in self.lookupds]
        flags.append(f"--broadcast-address={HOST}")
        self.brokers = [NsqdProcess(directory / f"nsqd{number}", *flags) for number in range(2)]
        self._start(*self.brokers)
        self.published: set[str] = set()
        self.consumers: list[Consumer] = []

    def _start(self, *processes: DaemonProcess) -> None:
        for process in processes:
            self._stack.callback(process.close)
            process.start()

    def publish(self, *brokers: NsqdProcess) -> None:
        """Some more messages, each answered with OK."""
        for broker in brokers:
            bodies = [str(len(self.published) + number) for number in range(20)]
            broker.publish(TOPIC, [body.encode() for body in bodies])
            self.published.update(bodies)

    def consume(self) -> None:
        """One more consumer."""
        self.consumers.append(Consumer(*self.lookupds))
        self._stack.callback(self.consumers[-1].close)

    def await_all(self) -> None:
        """Wait until everything that was published has come."""
        wait_until(lambda: self._missing() == set(), f"all of it comes, there misses {self._missing()}")

    def _missing(self) -> set[str]:
        return self.published - {body for consumer in self.consumers for body in consumer.bodies}

    def await_listed(self, *brokers: NsqdProcess) -> None:
        """Wait until every nsqlookupd that runs lists these brokers for the topic, and no others."""
        addresses = sorted(f"{HOST}:{broker.tcp_port}" for broker in brokers)
        for lookupd in filter(lambda lookupd: lookupd.runs, self.lookupds):
            wait_until(lambda one=lookupd: one.producers(TOPIC) == addresses, f"{addresses} are listed")


def channels_of(lookupd: LookupdProcess, topic: str) -> list[str]:
    """Those it knows."""
    return sorted(lookupd.ask(f"/channels?topic={topic}")["channels"])


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with ExitStack() as stack:
        yield Harness(tmp_path, stack)


def test_consumers_find_what_is_left_and_lose_nothing(harness: Harness) -> None:
    (first, second), lookupd = harness.brokers, harness.lookupds[0]
    harness.publish(first, second)
    harness.await_listed(first, second)
    harness.consume()
    harness.await_all()

    lookupd.kill()
    harness.publish(first, second)
    harness.await_all()
    lookupd.start()
    harness.await_listed(first, second)
    wait_until(lambda: channels_of(lookupd, TOPIC) == [CHANNEL], "it knows the channel again")

    harness.publish(first)
    first.kill()
    harness.publish(second)
    harness.await_listed(second)
    harness.consume()
    harness.publish(second)
    first.start()
    harness.await_listed(first, second)
    harness.publish(first, second)
    harness.await_all()
    for broker in harness.brokers:
        broker.assert_no_traceback()


def test_a_topic_that_is_new_on_one_broker_has_the_channels_of_the_other(harness: Harness) -> None:
    first, second = harness.brokers
    first.create("t", "one", "two")
    for lookupd in harness.lookupds:
        wait_until(lambda one=lookupd: channels_of(one, "t") == ["one", "two"], "the channels are known")
    second.publish("t", [b"first"])
    wait_until(lambda: {one["depth"] for one in second.stats("t")[0]["channels"]} == {1}, "both channels have it")
    assert [one["channel_name"] for one in second.stats("t")[0]["channels"]] == ["one", "two"]


def main() -> None:
    """Print every body that comes, and finish the message."""
    import gnsq

    # With less in flight than connections gnsq would let them take turns of some seconds.
    consumer = gnsq.Consumer(
        TOPIC, CHANNEL, lookupd_http_addresses=sys.argv[1:], lookupd_poll_interval=1, max_in_flight=10
    )

    @consumer.on_message.connect
    def handle_message(consumer: gnsq.Consumer, message: gnsq.Message) -> None:
        print(message.body.decode(), flush=True)

    consumer.start()


if __name__ == "__main__":
    main()
