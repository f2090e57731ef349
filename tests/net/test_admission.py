"""Who is let in, and what is said to the others."""

from __future__ import annotations

import os
import resource
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress

from nsqtw.net.admission import LINE_SECONDS, ConnectionLimiter, RejectedConnection, Rejections
from nsqtw.net.descriptors import HTTP_RESERVE, Descriptors, raise_limit
from nsqtw.net.tcp import BrokerConnection
from nsqtw.options.broker import Options
from tests.http.broker_fixture import Log
from tests.net.test_tcp import Edge, SpyTransport, edge

__all__ = ["edge"]


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def address(host: str, port: int = 1) -> Any:
    return IPv6Address("TCP", host, port) if ":" in host else IPv4Address("TCP", host, port)


def connection_limiter(**options: Any) -> ConnectionLimiter:
    return ConnectionLimiter(Options(node_id=1, **options), Rejections(Clock()), None)


def test_without_limits_everybody_comes_in() -> None:
    limiter = connection_limiter()
    assert all(limiter.enter(address("1.2.3.4")) for _ in range(1000))
    assert limiter.count == 1000


def test_no_more_connections_than_there_may_be() -> None:
    limiter = connection_limiter(max_connections=2)
    assert [limiter.enter(address(f"1.2.3.{n}")) for n in range(4)] == [True, True, False, False]
    limiter.leave(address("1.2.3.0"))
    assert limiter.enter(address("1.2.3.9"))
    assert not limiter.enter(UNIXAddress(None))


@pytest.mark.parametrize(
    ("one", "same", "another"),
    [
        ("1.2.3.4", "1.2.3.4", "1.2.3.5"),
        ("1.2.3.4", "::ffff:1.2.3.4", "::ffff:1.2.3.5"),
        ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"),
        ("fe80::1%eth0", "fe80::2", "fe80:0:0:1::1"),
    ],
)
def test_one_address_has_so_many(one: str, same: str, another: str) -> None:
    limiter = connection_limiter(max_connections_per_address=1)
    assert limiter.enter(address(one))
    assert not limiter.enter(address(same, 2))
    assert limiter.enter(address(another))
    limiter.leave(address(one))
    assert limiter.enter(address(same))
    assert len(limiter.by_address) == 2
    assert [limiter.enter(UNIXAddress(None)) for _ in range(3)] == [True] * 3


def test_the_log_tells_of_a_flood_in_few_lines() -> None:
    clock = Clock()
    rejections = Rejections(clock)
    with Log() as lines:
        for _ in range(1000):
            rejections.record("max-connections", "1.2.3.4:5")
        rejections.record("magic-timeout", "1.2.3.4:6")
        clock.now += LINE_SECONDS
        rejections.record("max-connections", "1.2.3.4:7")
    assert lines == [
        "warn: LIMIT: client(1.2.3.4:5) is over --max-connections; 1 since the last such line",
        "warn: LIMIT: client(1.2.3.4:6) is over --magic-timeout; 1 since the last such line",
        "warn: LIMIT: client(1.2.3.4:7) is over --max-connections; 1000 since the last such line",
    ]
    assert rejections.counts == {"max-connections": 1001, "magic-timeout": 1}


def test_descriptors_are_short_while_there_are_some_left_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = Descriptors()
    try:
        assert not descriptors.are_short()
        lowest_free = os.dup(0)
        os.close(lowest_free)
        monkeypatch.setattr(descriptors, "for_connections", lowest_free + 1)
        assert not descriptors.are_short()
        one_more = os.dup(0)
        assert descriptors.are_short()
        os.close(one_more)
        assert not descriptors.are_short()
    finally:
        descriptors.close()


def test_who_comes_when_descriptors_are_short_is_not_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = Descriptors()
    try:
        limiter = ConnectionLimiter(Options(node_id=1), Rejections(Clock()), descriptors)
        assert limiter.enter(address("1.2.3.4"))
        monkeypatch.setattr(descriptors, "for_connections", 0)
        assert not limiter.enter(address("1.2.3.4"))
        assert limiter.refusal(Clock(), b"no") is None
    finally:
        descriptors.close()


def test_files_are_closed_before_a_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [os.dup(0) for _ in range(3)]
    descriptors = Descriptors(lambda: bool(files) and os.close(files.pop()) is None)
    try:
        monkeypatch.setattr(descriptors, "for_connections", files[-1] + 1)
        assert not descriptors.are_short()
        assert len(files) == 2
        monkeypatch.setattr(descriptors, "for_connections", 0)
        assert descriptors.are_short()
        assert files == []
    finally:
        descriptors.close()


def test_http_has_a_reserve_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = Descriptors()
    try:
        connection_limiter = ConnectionLimiter(Options(node_id=1), Rejections(Clock()), descriptors)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        monkeypatch.setattr(descriptors, "for_connections", lowest_free)
        assert not connection_limiter.enter(address("1.2.3.4"))
        assert connection_limiter.enter(address("1.2.3.4"), HTTP_RESERVE)
        monkeypatch.setattr(descriptors, "for_connections", lowest_free - HTTP_RESERVE)
        assert not connection_limiter.enter(address("1.2.3.4"), HTTP_RESERVE)
    finally:
        descriptors.close()


def test_the_limit_is_what_the_system_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        raise_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard == before[1]
        assert soft in (before[0], hard, 1_048_576)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_session_is_given_a_place_and_gives_it_back(edge: Edge) -> None:
    edge.broker.options.max_connections = 1
    connection, _ = edge.connect()
    refused = edge.factory.buildProtocol(None)
    assert isinstance(refused, RejectedConnection)
    connection.connectionLost()
    assert isinstance(edge.factory.buildProtocol(None), BrokerConnection)


def test_over_tls_a_refusal_is_the_end_at_once(edge: Edge) -> None:
    edge.broker.options.max_connections = 1
    edge.connect()
    refused, transport = edge.factory.buildProtocol(None), SpyTransport()
    refused.makeConnection(transport)
    assert transport.aborting
    refused.connectionLost()
    assert edge.factory.limits.connection_limiter.reading_count == 0
