"""Pushing to a statsd: when, what becomes of it when something fails, and how it ends. The test owns time."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import MessageLengthError
from twisted.internet.task import Clock
from twisted.logger import LogEvent, eventAsText, globalLogPublisher

from nsqtw.stats import statsd
from nsqtw.stats.statsd import Statsd
from tests.core.harness import BrokerHarness
from tests.process import NsqdProcess, wait_until

INTERVAL = 11.0
SPREAD = INTERVAL - statsd.UNSPREAD_SECONDS
PUSHING = "STATSD: pushing stats to stats.example:8125"
FAILED = "failed to create UDP socket to statsd(stats.example:8125)"
CLOSING = "STATSD: closing"
V4 = IPv4Address("UDP", "10.0.0.1", 8125)
V6 = IPv6Address("UDP", "fd00::1", 8125)


class UdpPort:
    """A connected UDP socket that keeps what is written, with the time."""

    def __init__(self, reactor: Reactor, interface: str) -> None:
        self.reactor = reactor
        self.interface = interface
        self.peer: tuple[str, int] | None = None
        self.sent: list[tuple[float, bytes]] = []
        self.is_open = True

    def connect(self, host: str, port: int) -> None:
        if self.reactor.unreachable:
            raise OSError("network is unreachable")
        if not 0 <= port <= 65535:
            raise OverflowError("connect(): port must be 0-65535.")
        self.peer = (host, port)

    def stopReading(self) -> None:
        """What a peer sends is of no interest."""

    def write(self, packet: bytes) -> None:
        assert self.is_open
        self.sent.append((self.reactor.seconds(), packet))
        if self.reactor.failure is not None:
            raise self.reactor.failure

    def stopListening(self) -> Deferred[None]:
        self.is_open = False
        return succeed(None)


class Reactor(Clock):
    """Time, UDP and names. `addresses` is what every name resolves to; while it is None, no lookup ends."""

    def __init__(self) -> None:
        super().__init__()
        self.nameResolver = self
        self.addresses: list[IPv4Address | IPv6Address] | None = [V4]
        self.names: list[str] = []
        self.ports: list[UdpPort] = []
        self.unreachable = False
        self.failure: Exception | None = None
        self._asked: list[Any] = []

    def listenUDP(self, port: int, protocol: object, interface: str) -> UdpPort:
        self.ports.append(UdpPort(self, interface))
        return self.ports[-1]

    def resolveHostName(self, receiver: Any, name: str, **how: object) -> None:
        self.names.append(name)
        self._asked.append(receiver)
        receiver.resolutionBegan(self)
        if self.addresses is not None:
            self.answer()

    def answer(self) -> None:
        """End the lookups that have begun."""
        asked, self._asked = self._asked, []
        for receiver in asked:
            for address in self.addresses or ():
                receiver.addressResolved(address)
            receiver.resolutionComplete()


class Harness:
    """A pusher, and the core it tells of."""

    def __init__(self, **options: Any) -> None:
        given = {"statsd_address": "stats.example:8125", "statsd_interval": INTERVAL, "statsd_prefix": ""}
        self.core = BrokerHarness(**{**given, **options})
        self.reactor = Reactor()
        self.statsd = Statsd(self.reactor, self.core.broker, lambda: self.core.now)
        self.statsd.start()
        self.is_stopped = False

    def wait(self, seconds: float, step: float = 0.005) -> None:
        """Let time pass as a reactor does, little by little."""
        end = self.reactor.seconds() + seconds
        while (left := end - self.reactor.seconds()) > 1e-9:
            self.reactor.advance(min(step, left))

    def stop(self) -> Deferred[None]:
        self.is_stopped = True
        return Deferred.fromCoroutine(self.statsd.stop())

    def times(self, push: int = 0) -> list[float]:
        return [time for time, _ in self.reactor.ports[push].sent]

    def lines(self, push: int = 0) -> list[str]:
        return b"".join(packet for _, packet in self.reactor.ports[push].sent).decode().splitlines()


Build = Callable[..., Harness]


@pytest.fixture
def build() -> Iterator[Build]:
    """Makes houses, and ends them as a broker does."""
    houses: list[Harness] = []

    def build_one(**options: Any) -> Harness:
        houses.append(Harness(**options))
        return houses[-1]

    yield build_one
    for harness in houses:
        if not harness.is_stopped:
            assert harness.stop().called
        assert harness.reactor.getDelayedCalls() == []
        assert not any(port.is_open for port in harness.reactor.ports)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The log, as text."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(eventAsText(event, includeTimestamp=False, includeSystem=False))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


# -- when


def test_the_first_push_comes_after_one_interval_and_then_every_interval(build: Build, said: list[str]) -> None:
    harness = build()
    harness.wait(INTERVAL - 0.01)
    assert harness.reactor.names == []
    for push in range(1, 4):
        harness.wait(0.02)
        assert harness.reactor.names == ["stats.example"] * push
        assert said == [PUSHING] * push
        assert harness.reactor.ports[-1].peer == ("10.0.0.1", 8125)
        harness.wait(INTERVAL - 0.02)
    assert harness.times(1)[0] == pytest.approx(2 * INTERVAL, abs=0.01)


def test_packets_are_spread_evenly_over_the_interval_less_a_second(build: Build) -> None:
    harness = build(statsd_udp_packet_size=1, statsd_mem_stats=False)
    harness.core.topic("t")
    harness.core.topic("u")
    harness.wait(2 * INTERVAL - 0.1)
    expected = [INTERVAL + n * SPREAD / 8 for n in range(8)]
    assert harness.times() == pytest.approx(expected, abs=0.02)
    assert [line.partition(":")[0] for line in harness.lines()] == [
        f"topic.{topic}.{name}"
        for topic in "tu"
        for name in ("message_count", "message_bytes", "depth", "backend_depth")
    ]


def test_very_many_packets_go_several_at_a_time(build: Build) -> None:
    """A timer for each would cost more than they do."""
    harness = build(statsd_udp_packet_size=1, statsd_interval=1.5, statsd_mem_stats=False)
    for n in range(100):
        harness.core.topic(f"t{n}")
    harness.wait(2.9)
    times = harness.times()
    assert len(times) == 400
    assert 10 < len(set(times)) <= 50
    assert 0.4 < times[-1] - times[0] < 0.51


def test_when_there_is_nothing_to_tell_nothing_is_sent(build: Build) -> None:
    harness = build(statsd_mem_stats=False)
    harness.wait(2 * INTERVAL + 0.1)
    assert [port.sent for port in harness.reactor.ports] == [[], []]


# -- what


def test_ephemeral_ones_are_left_out_when_asked_for(build: Build) -> None:
    kept, left_out = (
        build(statsd_exclude_ephemeral=exclude, statsd_mem_stats=False, statsd_prefix="p.") for exclude in (False, True)
    )
    for harness in (kept, left_out):
        harness.core.channel("c#ephemeral", "t")
        harness.core.channel("c#ephemeral", "u#ephemeral")
        harness.wait(2 * INTERVAL - 0.1)
    assert len(kept.lines()) == 2 * 4 + 2 * 8
    assert [line for line in kept.lines() if "#ephemeral" not in line] == left_out.lines()
    assert len(left_out.lines()) == 4


def test_memory_is_told_unless_it_is_not_to_be(build: Build) -> None:
    harness = build()
    harness.wait(INTERVAL + 0.1)
    assert [line.partition(":")[0] for line in harness.lines()][:2] == ["mem.heap_objects", "mem.heap_idle_bytes"]
    assert len(harness.lines()) == 9


def test_counters_cover_a_push_that_could_not_be(build: Build, said: list[str]) -> None:
    harness = build(statsd_mem_stats=False)
    harness.reactor.addresses = []
    harness.core.put(b"x")
    harness.core.turn()
    harness.wait(INTERVAL + 0.1)
    assert said == [FAILED]
    harness.reactor.addresses = [V4]
    harness.core.put(b"y")
    harness.core.turn()
    harness.wait(INTERVAL)
    assert said == [FAILED, PUSHING]
    assert harness.lines()[0] == "topic.t.message_count:2|c"


# -- where to


def test_of_several_addresses_an_ipv4_one(build: Build) -> None:
    harness = build()
    harness.reactor.addresses = [V6, V4]
    harness.wait(INTERVAL + 0.1)
    (port,) = harness.reactor.ports
    assert (port.interface, port.peer) == ("", ("10.0.0.1", 8125))


def test_ipv6(build: Build) -> None:
    harness = build()
    harness.reactor.addresses = [V6]
    harness.wait(INTERVAL + 0.1)
    (port,) = harness.reactor.ports
    assert (port.interface, port.peer) == ("::", ("fd00::1", 8125))


def test_a_lookup_that_takes_too_long_is_given_up(build: Build, said: list[str]) -> None:
    harness = build()
    harness.reactor.addresses = None
    harness.wait(INTERVAL + statsd.LOOKUP_SECONDS + 0.1)
    assert said == [FAILED]
    harness.reactor.addresses = [V4]
    harness.reactor.answer()  # too late, and nobody is harmed
    harness.wait(INTERVAL)
    assert said == [FAILED, PUSHING]


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "host:",
        "host:statsd",
        "host:65536",
        "host:-1",
        "stats..example:8125",
        f"{64 * 'x'}:8125",
        "\udcff:8125",
    ],
)
def test_an_address_that_is_none(build: Build, said: list[str], address: str) -> None:
    harness = build(statsd_address=address)
    harness.wait(2 * INTERVAL + 0.1)
    assert said == [f"failed to create UDP socket to statsd({address})"] * 2


def test_a_network_that_cannot_be_reached(build: Build, said: list[str]) -> None:
    harness = build()
    harness.reactor.unreachable = True
    harness.wait(INTERVAL + 0.1)
    assert said == [FAILED]
    assert not harness.reactor.ports[0].is_open


@pytest.mark.parametrize("failure", [OSError("operation not permitted"), MessageLengthError("message too long")])
def test_a_packet_that_cannot_be_sent_is_lost_alone(build: Build, said: list[str], failure: Exception) -> None:
    harness = build(statsd_udp_packet_size=1)
    harness.reactor.failure = failure
    harness.wait(2 * INTERVAL - 0.1)
    assert len(harness.times()) == 9
    assert said == [PUSHING]


def test_a_push_that_breaks_does_not_end_pushing(
    build: Build, logged_failures: list[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = build()
    with monkeypatch.context() as broken:
        broken.setattr(statsd, "memory", lambda: 1 / 0)
        harness.wait(INTERVAL + 0.1)
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()
    harness.wait(INTERVAL)
    assert harness.lines(1)


# -- not to keep the reactor


def test_the_reactor_has_its_turn_between_slices(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time for a slice, each is one step: a channel, or a topic."""
    monkeypatch.setattr(statsd, "SLICE_SECONDS", -1.0)
    harness = build(statsd_mem_stats=False)
    for n in range(50):
        harness.core.channel(f"c{n}")
    harness.wait(INTERVAL + 50 * statsd.PAUSE_SECONDS, step=0.001)
    assert harness.times() == []
    harness.core.channel("c10").pause()  # others are served meanwhile
    harness.wait(1.0)
    assert harness.times()
    harness.wait(SPREAD)
    assert len(harness.lines()) == 4 + 50 * 8


def test_what_took_long_to_build_is_sent_in_the_time_that_is_left(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statsd, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(statsd, "PAUSE_SECONDS", SPREAD)
    harness = build(statsd_udp_packet_size=1, statsd_mem_stats=False)
    harness.core.topic("t")
    harness.wait(2 * INTERVAL - 0.5)
    assert harness.times() == pytest.approx([INTERVAL + SPREAD] * 4, abs=0.02)


# -- the end


def test_at_the_end_the_rest_of_a_push_goes_out_at_once(build: Build, said: list[str]) -> None:
    harness = build(statsd_udp_packet_size=1)
    harness.wait(INTERVAL + 0.1)
    assert len(harness.times()) == 1
    assert harness.stop().called
    assert len(harness.times()) == 9
    assert said == [PUSHING, CLOSING]


def test_at_the_end_a_push_is_built_to_its_end(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statsd, "SLICE_SECONDS", -1.0)
    harness = build(statsd_mem_stats=False)
    for n in range(50):
        harness.core.topic(f"t{n}")
    harness.wait(INTERVAL + 0.02)
    assert harness.times() == []
    assert harness.stop().called
    assert len(harness.lines()) == 200


@pytest.mark.parametrize("seconds", [0.0, INTERVAL / 2, 1.5 * INTERVAL])
def test_between_pushes_the_end_comes_at_once(build: Build, said: list[str], seconds: float) -> None:
    harness = build()
    harness.wait(seconds)
    assert harness.stop().called
    assert said[-1] == CLOSING


def test_a_lookup_does_not_delay_the_end(build: Build, said: list[str]) -> None:
    harness = build()
    harness.reactor.addresses = None
    harness.wait(INTERVAL + 0.1)
    assert harness.stop().called
    assert said == [CLOSING]
    harness.reactor.addresses = [V4]
    harness.reactor.answer()


# -- as its users run it


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "[::1]")], ids=["IPv4", "IPv6"])
def receiver(request: pytest.FixtureRequest) -> Iterator[tuple[str, socket.socket]]:
    """A statsd, and its address."""
    family, host = request.param
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as bound:
        bound.bind((host.strip("[]"), 0))
        bound.settimeout(60)
        yield f"{host}:{bound.getsockname()[1]}", bound


def test_a_broker_pushes(tmp_path: Path, receiver: tuple[str, socket.socket]) -> None:
    address, statsd_socket = receiver
    flags = (f"--statsd-address={address}", "--statsd-interval=1050ms", "--broadcast-address=ho.st")
    broker = NsqdProcess(tmp_path, *flags, "--e2e-processing-latency-percentile=1.0,0.5")
    with closing(broker):
        broker.start()
        broker.create("t", "c")
        prefix = f"nsq.ho_st_{broker.http_port}.topic.t.".encode()
        seen = b""
        while prefix + b"channel.c.e2e_processing_latency_50:0|g\n" not in seen:
            seen += statsd_socket.recv(65535)
        wait_until(lambda: f"INFO: STATSD: pushing stats to {address}" in broker.said(), "it says so")
        broker.stop()
        lines = broker.said().splitlines()
        texts = [line.partition("INFO: ")[2] for line in lines]
        assert texts.index("NSQ: stopping subsystems") < texts.index(CLOSING) < texts.index("NSQ: bye")


def test_a_broker_pushes_while_no_statsd_is_there(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.connect(("127.0.0.1", 9))  # whoever else sends here is refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = (f"--statsd-address={address}", "--statsd-interval=1050ms", "--statsd-udp-packet-size=64")
        broker = NsqdProcess(tmp_path, *flags)
        with closing(broker):
            broker.start()
            pushing = f"INFO: STATSD: pushing stats to {address}"
            wait_until(lambda: broker.said().count(pushing) >= 3, "it goes on pushing")
            broker.stop()
