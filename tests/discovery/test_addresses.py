"""What an address of nsqlookupd stands for, and names that are looked up again and again."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.internet.error import DNSLookupError
from twisted.internet.task import Clock
from twisted.names import dns
from twisted.names.error import DNSNameError, DNSServerError

from nsqtw.discovery.addresses import (
    ANSWER_SECONDS,
    RESOLVE_SECONDS,
    Expansion,
    LookupdAddress,
    Names,
    fixed_address,
    is_looked_up,
)
from tests.http.broker_fixture import Log


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("10.0.0.1:4160", LookupdAddress("10.0.0.1", 4160, "10.0.0.1")),
        ("lookupd.example:1", LookupdAddress("lookupd.example", 1, "lookupd.example")),
        ("[fd00::1]:4160", LookupdAddress("fd00::1", 4160, "fd00::1")),
        (":4160", LookupdAddress("localhost", 4160, "localhost")),
        ("lookupd.example", None),
        ("lookupd.example:", None),
        ("lookupd.example:x", None),
        ("lookupd.example:0", None),
        ("lookupd.example:65536", None),
        ("fd00::1:4160", None),
        ("", None),
    ],
)
def test_a_plain_address_is_one_place(address: str, place: LookupdAddress | None) -> None:
    assert fixed_address(address) == place
    assert not is_looked_up(address)


def test_a_place_is_shown_as_an_address() -> None:
    assert [str(LookupdAddress(host, 4160, "name")) for host in ("10.0.0.1", "fd00::1")] == [
        "10.0.0.1:4160",
        "[fd00::1]:4160",
    ]


class Reactor(Clock):
    """Time and host names."""

    def __init__(self, *addresses: str) -> None:
        super().__init__()
        self.nameResolver = self
        self.addresses = list(addresses)
        self.asked: list[str] = []

    def resolveHostName(self, receiver: Any, name: str, **how: object) -> None:
        self.asked.append(name)
        receiver.resolutionBegan(self)
        for address in self.addresses:
            kind = IPv6Address if ":" in address else IPv4Address
            receiver.addressResolved(kind("UDP", address, 0))
        receiver.resolutionComplete()


class Services:
    """A resolver of twisted.names; `records` is what it finds, None: nothing comes, an error: that."""

    def __init__(self, *records: tuple[str, int]) -> None:
        self.records: Any = records
        self.asked: list[bytes | str] = []

    def lookupService(self, name: str, timeout: object) -> Deferred[Any]:
        self.asked.append(name)
        if self.records is None:
            return Deferred()
        if isinstance(self.records, Exception):
            return Deferred.fromCoroutine(_raise(self.records))
        answers = [
            dns.RRHeader(name, dns.SRV, payload=dns.Record_SRV(0, 0, port, target)) for target, port in self.records
        ]
        extra = dns.RRHeader(name, dns.A, payload=dns.Record_A("10.9.9.9"))
        return succeed(([extra, *answers], [], []))


async def _raise(error: Exception) -> None:
    raise error


def found(reactor: Reactor, address: str, services: Services | None = None) -> list[LookupdAddress]:
    places: list[list[LookupdAddress]] = []
    ensureDeferred(Names(reactor, services).places(address)).addCallback(places.append)
    return places[0]


def test_a_name_stands_for_each_of_its_addresses() -> None:
    reactor = Reactor("10.0.0.2", "fd00::1", "10.0.0.1", "10.0.0.2")
    assert is_looked_up("dns://lookupd.example:4160")
    assert found(reactor, "dns://lookupd.example:4160") == [
        LookupdAddress("10.0.0.1", 4160, "lookupd.example"),
        LookupdAddress("10.0.0.2", 4160, "lookupd.example"),
    ]
    assert reactor.asked == ["lookupd.example"]
    assert found(Reactor("fd00::2", "fd00::1"), "dns://l:1") == [
        LookupdAddress("fd00::1", 1, "l"),
        LookupdAddress("fd00::2", 1, "l"),
    ]


def test_a_service_stands_for_each_of_its_records() -> None:
    services = Services(("b.example", 4161), ("a.example", 4160), ("", 4160), ("a.example", 4160))
    assert is_looked_up("dns+srv://_nsqlookupd._tcp.example")
    assert found(Reactor(), "dns+srv://_nsqlookupd._tcp.example", services) == [
        LookupdAddress("a.example", 4160, "a.example"),
        LookupdAddress("b.example", 4161, "b.example"),
    ]
    assert services.asked == ["_nsqlookupd._tcp.example"]


class Harness:
    """A name that is followed."""

    def __init__(self, address: str, *records: tuple[str, int]) -> None:
        self.reactor = Reactor()
        self.services = Services(*records)
        self.seen: list[list[str]] = []
        look_up = Names(self.reactor, self.services).places
        self.expansion = Expansion(self.reactor, address, look_up, lambda: 1.0, self._changed)
        self.expansion.start()

    def _changed(self) -> None:
        self.seen.append([str(place) for place in self.expansion.places])


def test_what_a_name_stands_for_is_looked_up_again_and_said_when_it_is_something_else() -> None:
    harness = Harness("dns+srv://s", ("a", 1))
    assert harness.expansion.ready.is_known
    harness.reactor.advance(RESOLVE_SECONDS)
    harness.services.records = [("b", 1), ("a", 1)]
    harness.reactor.advance(RESOLVE_SECONDS)
    assert harness.seen == [["a:1"], ["a:1", "b:1"]]
    assert len(harness.services.asked) == 3
    harness.expansion.stop()
    harness.reactor.advance(RESOLVE_SECONDS)
    assert len(harness.services.asked) == 3
    assert not harness.reactor.getDelayedCalls()


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (DNSNameError("<Message>"), "no such name"),
        (DNSServerError("<Message>"), "DNSServerError"),
        (DNSLookupError("no answer"), "DNS lookup failed: no answer."),
        ((), "it stands for nothing"),
        (RuntimeError("odd"), "odd"),
    ],
)
def test_a_name_that_cannot_be_looked_up_leaves_all_as_it_was(failure: Any, why: str) -> None:
    harness = Harness("dns+srv://s", ("a", 1))
    harness.services.records = failure
    with Log() as lines:
        harness.reactor.advance(RESOLVE_SECONDS)
    assert lines == [f"error: LOOKUP(dns+srv://s): looking it up - {why}"]
    assert harness.seen == [["a:1"]]
    harness.services.records = [("b", 1)]
    harness.reactor.advance(1)
    assert harness.seen == [["a:1"], ["b:1"]]
    harness.expansion.stop()


def test_a_name_server_that_does_not_answer_is_asked_again() -> None:
    harness = Harness("dns+srv://s")
    harness.services.records = None
    harness.reactor.advance(1)
    assert len(harness.services.asked) == 2
    with Log() as lines:
        harness.reactor.advance(ANSWER_SECONDS)
    assert lines == ["error: LOOKUP(dns+srv://s): looking it up - i/o timeout"]
    harness.services.records = [("a", 1)]
    harness.reactor.advance(2)
    assert harness.seen == [["a:1"]]
    harness.expansion.stop()


def test_stopped_while_it_is_looked_up_it_ends() -> None:
    harness = Harness("dns+srv://s")
    harness.services.records = None
    harness.reactor.advance(1)
    harness.expansion.stop()
    assert not harness.reactor.getDelayedCalls()


@pytest.mark.parametrize("address", ["dns://no-port", "dns://:x", "dns://" + "a" * 300 + ":1"])
def test_an_address_that_is_none_is_said(address: str) -> None:
    with Log() as lines:
        harness = Harness(address)
    assert lines[0].startswith(f"error: LOOKUP({address}): looking it up - ")
    assert harness.expansion.ready.is_known
    harness.expansion.stop()
