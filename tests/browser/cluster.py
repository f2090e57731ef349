"""A cluster for the browser: nsqlookupd, nsqds and nsqadmin as processes, with topics to look at and traffic."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs

from tests.admin.process import AdminProcess
from tests.process import LookupdProcess, NsqdProcess, wait_until
from tests.wire import HOST, Client, Closed

TOPICS = {
    "orders": ("billing", "warehouse", "search-index"),
    "clicks": ("stats", "archive"),
    "mail.outbox": ("smtp",),
    "payments": ("ledger",),
    "sessions": ("worker",),
}
NOTES = "notes"
"""A topic with one message in each state and form."""
TEXT, BINARY, LONG = b"plain <b>text</b> & more", bytes(range(256)), b"long " * 20_000
DOCUMENT = b'{"id": 7, "price": 1.50, "tags": ["a", "b"], "note": "<script>alert(1)</script>"}'
QUANTILES = ("0.5", "0.95", "0.99")
_TURN_SECONDS = 0.1
_NOP_SECONDS = 5.0
_HOLD_MS = 900_000


@attrs.define
class BrowserCluster:
    """One nsqlookupd, two nsqds and one nsqadmin."""

    lookupd: LookupdProcess
    nsqds: tuple[NsqdProcess, ...]
    admin: AdminProcess
    _is_over: threading.Event = attrs.field(factory=threading.Event)
    _holding: list[threading.Thread] = attrs.field(factory=list)

    @classmethod
    @contextmanager
    def started(cls, directory: Path, *flags: str) -> Iterator[BrowserCluster]:
        """Run all processes while the context lasts; `flags` are nsqadmin's."""
        lookupd = LookupdProcess(directory / "lookupd")
        quantiles = [f"--e2e-processing-latency-percentile={quantile}" for quantile in QUANTILES]
        options = [f"--lookupd-tcp-address={HOST}:{lookupd.tcp_port}", f"--broadcast-address={HOST}", *quantiles]
        nsqds = tuple(NsqdProcess(directory / f"nsqd{number}", *options) for number in range(2))
        admin = AdminProcess(directory / "admin", f"--lookupd-http-address={HOST}:{lookupd.http_port}", *flags)
        cluster = cls(lookupd, nsqds, admin)
        processes = (lookupd, *nsqds, admin)
        with ExitStack() as stack:
            for process in processes:
                stack.callback(process.close)
            for process in processes:
                process.start()
            stack.callback(cluster._release)
            yield cluster
        for process in processes:
            process.assert_no_traceback()

    def _release(self) -> None:
        """End the connection that holds a message."""
        self._is_over.set()
        for thread in self._holding:
            thread.join()

    @property
    def url(self) -> str:
        """The URL of the nsqadmin, without a slash at the end."""
        return f"http://{HOST}:{self.admin.http_port}"

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return [f"{HOST}:{nsqd.http_port}" for nsqd in self.nsqds]

    def create(self, topic: str, *channels: str) -> None:
        """Create a topic on all nodes, and wait until the nsqlookupd knows."""
        for nsqd in self.nsqds:
            nsqd.create(topic, *channels)
        self._wait_for(topic)

    @contextmanager
    def second_is_dead(self, *topics: str) -> Iterator[None]:
        """Kill the second node, and start it at the end: then the nsqlookupd knows again that it has these topics."""
        self.nsqds[1].kill()
        try:
            yield
        finally:
            self.nsqds[1].start()
            for topic in topics:
                self._wait_for(topic)

    def _wait_for(self, topic: str) -> None:
        addresses = sorted(f"{HOST}:{nsqd.tcp_port}" for nsqd in self.nsqds)
        wait_until(lambda: self.lookupd.producers(topic) == addresses, f"{topic} is registered")

    def publish(self, topic: str, *bodies: bytes) -> None:
        """Publish messages to the first node."""
        self.nsqds[0].publish(topic, bodies)

    def depth(self, topic: str, channel: str) -> int:
        """Return the messages that wait in a channel, over all nodes."""
        return sum(nsqd.counts(topic, channel).depth for nsqd in self.nsqds)

    def fill(self) -> None:
        """Make topics with messages."""
        for topic, channels in TOPICS.items():
            self.create(topic, *channels)
        self.create(NOTES, "desk")
        for nsqd in self.nsqds:
            nsqd.order("/v2/topic/durability?topic=payments&class=fsync")
            nsqd.order("/v2/topic/retention?topic=orders&time=24h&bytes=1000000000")
            nsqd.order("/channel/pause?topic=mail.outbox&channel=smtp")
            with nsqd.client() as producer:
                for topic in TOPICS:
                    producer.mpub(topic, [order(number) for number in range(40)])
        with self.nsqds[0].client() as producer:
            producer.pub(NOTES, b"in flight")
            holder = self.nsqds[0].client()
            holder.identify(
                client_id="holder",
                hostname="desk-1",
                user_agent="tests/1",
                msg_timeout=_HOLD_MS,
            )
            holder.sub(NOTES, "desk", ready=1)
            holder.take(1)
            self._holding.append(threading.Thread(target=_hold, args=(holder, self._is_over)))
            self._holding[-1].start()
            for body in (TEXT, DOCUMENT, BINARY, LONG):
                producer.pub(NOTES, body)
            producer.dpub(NOTES, 3_000_000, b"deferred")

    @contextmanager
    def traffic(self) -> Iterator[None]:
        """Publish to some topics and consume from some channels while the context lasts."""
        is_over = threading.Event()
        threads = [threading.Thread(target=self._publish_on, args=(nsqd, is_over)) for nsqd in self.nsqds]
        consumers = []
        for nsqd in self.nsqds:
            for topic, channel in (("orders", "billing"), ("orders", "warehouse"), ("clicks", "stats")):
                consumers.append(nsqd.client())
                threads.append(threading.Thread(target=_consume, args=(consumers[-1], topic, channel)))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for consumer in consumers:
                with suppress(OSError):  # its nsqd may be dead
                    consumer.end()
            for thread in threads:
                thread.join()

    def _publish_on(self, nsqd: NsqdProcess, is_over: threading.Event) -> None:
        number = 0
        with suppress(OSError, Closed), nsqd.client() as producer:
            while not is_over.wait(_TURN_SECONDS):
                number += 1
                wave = 1.2 + math.sin(number / 25)
                for topic, rate in (("orders", 3), ("clicks", 8), ("sessions", 2)):
                    producer.mpub(topic, [order(number) for _ in range(max(1, round(rate * wave)))])


def order(number: int) -> bytes:
    """Return the body of a message."""
    customer = ("anna", "bo", "chris")[number % 3]
    items = [{"sku": f"A-{number % 97}", "count": 1 + number % 4}]
    return json.dumps({"id": number, "customer": customer, "total": 19.90 + number, "items": items}).encode()


def _hold(client: Client, is_over: threading.Event) -> None:
    """Keep a connection, and what is in flight to it, until it is over."""
    with client:
        while not is_over.wait(_NOP_SECONDS):
            client.send(b"NOP\n")  # as good as an answer to a heartbeat


def _consume(client: Client, topic: str, channel: str) -> None:
    with suppress(OSError, Closed), client:
        client.identify(client_id=f"{channel}-worker", hostname="worker-1", user_agent="tests/1")
        client.sub(topic, channel, ready=100)
        while True:
            client.drain(1)
