"""
The cases of the benchmark, one row of the table each.

Every case gets a broker and a fresh topic with its channels, runs one plan that is measured, and then asks
the broker's own counts, so that a broker which loses, repeats or invents messages gets no figure.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from . import plan
from .errors import WrongCount
from .latency import latencies
from .load import carry_out
from .plan import Consuming, Plan, Publishing, Tally
from .server import Broker, cpu_seconds

PIPELINED = 100
KILOBYTE = 1024


@dataclass(frozen=True)
class Size:
    """
    How much a case does: publishers run for ``seconds``; backlogs have ``messages`` messages.
    """

    seconds: float
    messages: int


@dataclass(frozen=True)
class Figure:
    """
    One measured run. ``messages`` were moved in ``seconds``; CPU times are seconds of the same span. ``p50_us`` and
    ``p99_us`` are latencies, 0 where the case is about rates.
    """

    messages: int
    seconds: float
    broker_cpu: float
    load_cpu: float
    p50_us: float = 0.0
    p99_us: float = 0.0

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cost_us(self) -> float:
        """Microseconds of the broker's CPU a message."""
        return self.broker_cpu / self.messages * 1e6

    @property
    def broker_cores(self) -> float:
        return self.broker_cpu / self.seconds

    @property
    def load_cores(self) -> float:
        return self.load_cpu / self.seconds

    @property
    def load_limit(self) -> float:
        """Messages a second that the load process could move with a core of its own; 0 where it is not known."""
        return self.messages / self.load_cpu if self.load_cpu else 0.0


@dataclass(frozen=True)
class Bar:
    """
    The least ratio that we want to have to nsqd, of rates or of latencies: to one that keeps everything in memory, and
    to one at its default flags.
    """

    memory: float
    defaults: float

    def of(self, side: str) -> float | None:
        return {"memory": self.memory, "defaults": self.defaults}.get(side)


@dataclass(frozen=True)
class Case:
    """
    ``unit`` says what the rate counts: messages published, deliveries finished, or messages that went in and
    out to each channel. ``cost`` is a bar for the broker's CPU a message, where the ratio is not to be above it.
    """

    name: str
    title: str
    unit: str
    measure: Callable[[Broker, str, Size], Figure]
    bar: Bar | None = None
    cost: Bar | None = None


def _figure(messages: int, tally: Tally) -> Figure:
    if not messages:
        raise WrongCount("no message passed")
    return Figure(messages, tally.seconds, tally.broker_cpu, tally.load_cpu)


def _channels(count: int) -> tuple[str, ...]:
    return tuple(f"ch{number}" for number in range(1, count + 1))


def publishing(make: Callable[[Broker, str], Publishing]) -> Callable[[Broker, str, Size], Figure]:
    """
    Publish for a time into a topic with one channel that nobody consumes.
    """

    def measure(broker: Broker, topic: str, size: Size) -> Figure:
        broker.create(topic, _channels(1))
        tally = carry_out(Plan(broker.pid, replace(make(broker, topic), seconds=size.seconds)))
        broker.settle(topic, tally.published, left=tally.published)
        return _figure(tally.published, tally)

    return measure


def _consuming(
    broker: Broker, topic: str, channels: int, protocol: str = "V2", *, single_fins: bool = False
) -> tuple[Consuming, ...]:
    """
    Two connections on a single channel, as the reference's own bench; otherwise one on each channel.
    """
    connections = 2 if channels == 1 else 1
    return tuple(
        Consuming(broker.tcp_port, topic, name, connections, protocol=protocol, single_fins=single_fins)
        for name in _channels(channels)
    )


def draining(
    channels: int,
    batch: int = plan.MPUB_MESSAGES,
    body_bytes: int = plan.BODY_BYTES,
    protocol: str = "V2",
    *,
    single_fins: bool = False,
) -> Callable[[Broker, str, Size], Figure]:
    """
    Consume a backlog that was published before.
    """

    def measure(broker: Broker, topic: str, size: Size) -> Figure:
        broker.create(topic, _channels(channels))
        # The same number of deliveries whatever the number of channels, but a backlog worth its name.
        messages = size.messages if channels == 1 else size.messages // 2
        filling = replace(plan.mpub(broker.tcp_port, topic, 2, batch, body_bytes), limit=messages)
        published = carry_out(Plan(broker.pid, filling)).published
        broker.settle(topic, published, left=published)
        consumers = _consuming(broker, topic, channels, protocol, single_fins=single_fins)
        consuming = [replace(one, body_bytes=body_bytes) for one in consumers]
        tally = carry_out(Plan(broker.pid, None, tuple(consuming), published))
        broker.settle(topic, published, left=0)
        return _figure(tally.delivered, tally)

    return measure


def passing(channels: int, protocol: str = "V2") -> Callable[[Broker, str, Size], Figure]:
    """
    Publish for a time and consume all the while, until the last message is finished.
    """

    def measure(broker: Broker, topic: str, size: Size) -> Figure:
        broker.create(topic, _channels(channels))
        mpubs = replace(plan.mpub(broker.tcp_port, topic, 2), seconds=size.seconds)
        tally = carry_out(Plan(broker.pid, mpubs, _consuming(broker, topic, channels, protocol)))
        broker.settle(topic, tally.published, left=0)
        return _figure(tally.published, tally)

    return measure


def _slow_and_steady(broker: Broker, topic: str, size: Size) -> Figure:
    """
    How long messages are on their way when there are few of them.
    """
    (channel,) = _channels(1)
    broker.create(topic, (channel,))
    start, before = time.perf_counter(), cpu_seconds(broker.pid)
    found = latencies(broker.tcp_port, topic, channel, size.seconds)
    seconds, cost = time.perf_counter() - start, cpu_seconds(broker.pid) - before
    return Figure(len(found.sorted_us), seconds, cost, 0.0, found.at(0.5), found.at(0.99))


def _publishing_case(name: str, title: str, make: Callable[[Broker, str], Publishing], bar: Bar) -> Case:
    return Case(name, title, "in", publishing(make), bar)


CASES = (
    _publishing_case(
        "mpub",
        "MPUB 200 x 200 B, 2 connections",
        lambda broker, topic: plan.mpub(broker.tcp_port, topic, 2),
        Bar(1.2, 2.0),
    ),
    _publishing_case(
        "mpub-1k",
        "MPUB 100 x 1 KB, 2 connections",
        lambda broker, topic: plan.mpub(broker.tcp_port, topic, 2, 100, KILOBYTE),
        Bar(1.2, 1.5),
    ),
    _publishing_case(
        "pub-2",
        "PUB 200 B, 2 connections, each waits for OK",
        lambda broker, topic: plan.pub(broker.tcp_port, topic, 2),
        Bar(1.0, 1.0),
    ),
    _publishing_case(
        "pub-8",
        "PUB 200 B, 8 connections, each waits for OK",
        lambda broker, topic: plan.pub(broker.tcp_port, topic, 8),
        Bar(1.0, 1.0),
    ),
    _publishing_case(
        "pub-64",
        "PUB 200 B, 64 connections, each waits for OK",
        lambda broker, topic: plan.pub(broker.tcp_port, topic, 64),
        Bar(1.5, 1.5),
    ),
    _publishing_case(
        "pub-pipelined",
        "PUB 200 B, 8 connections, 200 unanswered",
        lambda broker, topic: plan.pub(broker.tcp_port, topic, 8, PIPELINED),
        Bar(2.0, 2.0),
    ),
    Case("sub-1", "SUB+FIN of a backlog, 1 channel", "out", draining(1), Bar(1.5, 2.0)),
    Case("sub-1k", "SUB+FIN of a backlog, 1 KB", "out", draining(1, 100, KILOBYTE), Bar(1.5, 2.0)),
    Case("sub-4", "SUB+FIN of a backlog, 4 channels", "out", draining(4)),
    Case("pass-1", "MPUB and SUB+FIN at once, 1 channel", "in and out", passing(1), cost=Bar(0.5, 0.3)),
    Case("pass-4", "MPUB and SUB+FIN at once, 4 channels", "in and 4 x out", passing(4), Bar(1.5, 2.0)),
    _publishing_case(
        "http-pub",
        "HTTP /pub 200 B, 8 connections, each waits",
        lambda broker, topic: plan.http_pub(broker.http_port, topic, 8),
        Bar(0.8, 0.8),
    ),
    _publishing_case(
        "http-mpub",
        "HTTP /mpub binary 200 x 200 B, 2 connections",
        lambda broker, topic: plan.http_mpub(broker.http_port, topic, 2),
        Bar(1.5, 2.0),
    ),
    Case("latency", "5,000 PUB a second, consumed at once", "in and out", _slow_and_steady, Bar(1.0, 1.0)),
)
