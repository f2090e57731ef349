"""
The cases of the benchmark, one row of the table each.

Every case gets a broker and a fresh topic with its channels, runs one plan that is measured, and then asks
the broker's own counts, so that a broker which loses, repeats or invents messages gets no figure.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from . import plan
from .errors import WrongCount
from .load import carry_out
from .plan import Consuming, Plan, Publishing, Tally
from .server import Broker

PIPELINED = 100


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
    One measured run. ``messages`` were moved in ``seconds``; CPU times are seconds of the same span.
    """

    messages: int
    seconds: float
    broker_cpu: float
    load_cpu: float

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
        """Messages a second that the load process could move with a core of its own."""
        return self.messages / self.load_cpu


@dataclass(frozen=True)
class Case:
    """
    ``unit`` says what the rate counts: messages published, deliveries finished, or messages that went in and
    out to each channel.
    """

    name: str
    title: str
    unit: str
    measure: Callable[[Broker, str, Size], Figure]


def _figure(messages: int, tally: Tally) -> Figure:
    if not messages:
        raise WrongCount("no message passed")
    return Figure(messages, tally.seconds, tally.broker_cpu, tally.load_cpu)


def _channels(count: int) -> tuple[str, ...]:
    return tuple(f"ch{number}" for number in range(1, count + 1))


def _publishing(make: Callable[[Broker, str], Publishing]) -> Callable[[Broker, str, Size], Figure]:
    """
    Publish for a time into a topic with one channel that nobody consumes.
    """

    def measure(broker: Broker, topic: str, size: Size) -> Figure:
        broker.create(topic, _channels(1))
        tally = carry_out(Plan(broker.pid, replace(make(broker, topic), seconds=size.seconds)))
        broker.settle(topic, tally.published, left=tally.published)
        return _figure(tally.published, tally)

    return measure


def _consuming(broker: Broker, topic: str, channels: int) -> tuple[Consuming, ...]:
    """
    Two connections on a single channel, as the reference's own bench; otherwise one on each channel.
    """
    connections = 2 if channels == 1 else 1
    return tuple(Consuming(broker.tcp_port, topic, name, connections) for name in _channels(channels))


def _draining(channels: int) -> Callable[[Broker, str, Size], Figure]:
    """
    Consume a backlog that was published before.
    """

    def measure(broker: Broker, topic: str, size: Size) -> Figure:
        broker.create(topic, _channels(channels))
        # The same number of deliveries whatever the number of channels, but a backlog worth its name.
        messages = size.messages if channels == 1 else size.messages // 2
        filling = replace(plan.mpub(broker.tcp_port, topic, 2), limit=messages)
        published = carry_out(Plan(broker.pid, filling)).published
        broker.settle(topic, published, left=published)
        tally = carry_out(Plan(broker.pid, None, _consuming(broker, topic, channels), published))
        broker.settle(topic, published, left=0)
        return _figure(tally.delivered, tally)

    return measure


def _passing(channels: int) -> Callable[[Broker, str, Size], Figure]:
    """
    Publish for a time and consume all the while, until the last message is finished.
    """

    def measure(broker: Broker, topic: str, size: Size) -> Figure:
        broker.create(topic, _channels(channels))
        publishing = replace(plan.mpub(broker.tcp_port, topic, 2), seconds=size.seconds)
        tally = carry_out(Plan(broker.pid, publishing, _consuming(broker, topic, channels)))
        broker.settle(topic, tally.published, left=0)
        return _figure(tally.published, tally)

    return measure


CASES = (
    Case(
        "mpub",
        "MPUB 200 x 200 B, 2 connections",
        "in",
        _publishing(lambda broker, topic: plan.mpub(broker.tcp_port, topic, 2)),
    ),
    Case(
        "pub-2",
        "PUB 200 B, 2 connections, each waits for OK",
        "in",
        _publishing(lambda broker, topic: plan.pub(broker.tcp_port, topic, 2)),
    ),
    Case(
        "pub-8",
        "PUB 200 B, 8 connections, each waits for OK",
        "in",
        _publishing(lambda broker, topic: plan.pub(broker.tcp_port, topic, 8)),
    ),
    Case(
        "pub-64",
        "PUB 200 B, 64 connections, each waits for OK",
        "in",
        _publishing(lambda broker, topic: plan.pub(broker.tcp_port, topic, 64)),
    ),
    Case(
        "pub-pipelined",
        "PUB 200 B, 1 connection, 200 unanswered",
        "in",
        _publishing(lambda broker, topic: plan.pub(broker.tcp_port, topic, 1, PIPELINED)),
    ),
    Case("sub-1", "SUB+FIN of a backlog, 1 channel", "out", _draining(1)),
    Case("sub-4", "SUB+FIN of a backlog, 4 channels", "out", _draining(4)),
    Case("pass-1", "MPUB and SUB+FIN at once, 1 channel", "in and out", _passing(1)),
    Case("pass-4", "MPUB and SUB+FIN at once, 4 channels", "in and 4 x out", _passing(4)),
    Case(
        "http-pub",
        "HTTP /pub 200 B, 8 connections, each waits",
        "in",
        _publishing(lambda broker, topic: plan.http_pub(broker.http_port, topic, 8)),
    ),
    Case(
        "http-mpub",
        "HTTP /mpub binary 200 x 200 B, 2 connections",
        "in",
        _publishing(lambda broker, topic: plan.http_mpub(broker.http_port, topic, 2)),
    ),
)
