"""Connections that wait for more than one byte: what the kernel is told, and that they do not wait for ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent

from nsqtw.net.low_water import LowWater
from nsqtw.protocols.compression import Snappy
from nsqtw.protocols.fin_coalescing import FLUSH_SECONDS, MIN_IN_FLIGHT, RATE_READS
from nsqtw.upgrades import Compress
from tests.net.test_tcp_socket import Pair
from tests.process import Counts, NsqdProcess
from tests.wire import Client

MARK = MIN_IN_FLIGHT // 32 * len(b"FIN 0123456789abcdef\n")


class Guest:
    """Waits on for so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def wait_on(self) -> bool:
        self.looks -= 1
        return self.looks > 0


def test_who_waits_is_looked_at_once_in_a_moment_as_long_as_it_wants() -> None:
    clock = Clock()
    low_water, short, long = LowWater(clock), Guest(1), Guest(3)
    low_water.join(short)
    low_water.join(long)
    clock.pump([FLUSH_SECONDS] * 10)
    assert (short.looks, long.looks) == (0, 0)
    assert not clock.getDelayedCalls(), "nobody waits any more"


def test_who_has_left_is_not_looked_at() -> None:
    clock = Clock()
    low_water, guest = LowWater(clock), Guest(9)
    low_water.join(guest)
    low_water.leave(guest)
    clock.pump([FLUSH_SECONDS] * 10)
    assert guest.looks == 9
    assert not clock.getDelayedCalls()


def test_one_that_fails_keeps_nobody_waiting(logged_failures: list[LogEvent]) -> None:
    class Broken(Guest):
        def wait_on(self) -> bool:
            raise ZeroDivisionError

    clock = Clock()
    low_water, guest = LowWater(clock), Guest(3)
    low_water.join(Broken(1))
    low_water.join(guest)
    clock.pump([FLUSH_SECONDS] * 10)
    assert guest.looks == 0
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()


class Consumer(Pair):
    """A client with 2 * MIN_IN_FLIGHT in flight, whose FINs the test reads one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.publish(b"  V2SUB t c\nRDY 2500\n")
        topic = self.core.topic()
        topic.put([b"x"] * 2 * MIN_IN_FLIGHT, 0, lambda error: None)
        self.pump.wake()
        self.settle()
        [channel] = topic.channels.values()
        [consumer] = channel.consumers
        self.in_flight = consumer.in_flight
        self.fins = [b"FIN %s\n" % one for one, _ in consumer.in_flight.items()]

    @property
    def mark(self) -> int:
        """What the kernel was told."""
        return self.transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    def finish(self, count: int) -> None:
        for _ in range(count):
            self.publish(self.fins.pop(0))

    def gather(self) -> None:
        """Finish until FINs are let gather."""
        self.finish(RATE_READS + 1)
        assert self.mark == MARK


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    one = Consumer()
    yield one
    one.close()


def test_the_kernel_is_told_how_many_bytes_are_worth_it(consumer: Consumer) -> None:
    consumer.finish(RATE_READS)
    assert consumer.mark == 1
    consumer.finish(1)
    assert consumer.mark == MARK


def test_after_a_moment_without_a_read_any_byte_is_worth_it(consumer: Consumer) -> None:
    consumer.gather()
    assert consumer.connection.wait_on(), "it was read from since the last look"
    assert consumer.mark == MARK
    assert not consumer.connection.wait_on()
    assert consumer.mark == 1


def test_who_was_read_from_waits_on(consumer: Consumer) -> None:
    consumer.gather()
    for _ in range(5):
        assert consumer.connection.wait_on()
        consumer.finish(1)
    assert consumer.mark == MARK


def test_it_does_not_wait_again_before_it_was_read_from(consumer: Consumer) -> None:
    """What is delivered meanwhile is written, and after that a session is asked what it wants."""
    consumer.gather()
    consumer.connection.wait_on()
    consumer.connection.wait_on()
    consumer.pump.changed(consumer.connection)
    consumer.settle()
    assert consumer.mark == 1
    consumer.finish(1)
    assert consumer.mark == MARK


def test_what_gathered_is_read_when_the_broker_stops(consumer: Consumer) -> None:
    consumer.gather()
    before = consumer.in_flight.count
    consumer.client.sendall(consumer.fins[0] + consumer.fins[1])
    consumer.factory.disconnect_all()
    assert consumer.in_flight.count == before - 2


def test_what_is_not_plain_is_not_read_past_its_transport(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside TLS the socket has what the session must not see."""
    consumer.gather()
    consumer.connection._wait_for(1)
    monkeypatch.setattr(consumer.connection, "_plain", None)
    before = consumer.in_flight.count
    consumer.client.sendall(consumer.fins[0])
    consumer.connection.read_rest()
    consumer.pump.changed(consumer.connection)
    consumer.settle()
    assert (consumer.mark, consumer.connection._reading) == (1, 1)
    consumer.connection.read_rest()
    assert consumer.in_flight.count == before


def test_one_that_breaks_when_the_broker_stops_keeps_no_other_from_being_read(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    consumer.gather()
    monkeypatch.setattr(consumer.transport, "doRead", fail)
    consumer.factory.disconnect_all()
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()


def test_what_is_compressed_is_not_waited_for(consumer: Consumer) -> None:
    consumer.gather()
    consumer.connection._upgrade(Compress(Snappy()))
    assert consumer.mark == 1
    assert not consumer.connection.wait_on()


def test_who_is_not_read_from_at_all_is_not_because_it_waits(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer.gather()
    session = consumer.connection._session
    assert session is not None
    monkeypatch.setattr(session, "_blocked", 1)
    consumer.pump.changed(consumer.connection)
    consumer.settle()
    consumer.connection.wait_on()
    consumer.connection.wait_on()
    assert consumer.mark == 1
    monkeypatch.setattr(session, "_blocked", 0)
    resumed: list[bool] = []
    monkeypatch.setattr(consumer.transport, "resumeProducing", lambda: resumed.append(True))
    consumer.pump.changed(consumer.connection)
    consumer.settle()
    assert resumed
    assert consumer.mark == MARK


def test_who_is_gone_does_not_wait(consumer: Consumer) -> None:
    consumer.gather()
    waiting = consumer.factory.low_water._waiting
    assert consumer.connection in waiting
    consumer.lose()
    assert not waiting


def test_of_a_real_broker_every_fin_is_read_however_few_come(tmp_path: Path) -> None:
    count = 5 * MIN_IN_FLIGHT
    nsqd = NsqdProcess(tmp_path)
    try:
        nsqd.start()
        with Client(nsqd.tcp_port) as client:
            client.sub("t", "c", ready=count)
            client.mpub("t", [b"x"] * count)
            messages = client.take(count)
            while messages:
                some, messages = messages[: MIN_IN_FLIGHT // 2 + 1], messages[MIN_IN_FLIGHT // 2 + 1 :]
                for one in some:
                    client.fin([one])
                nsqd.await_counts("t", "c", Counts(0, len(messages), 0))
            client.cls()
    finally:
        nsqd.close()
