"""GET /v2/watch, in a time that the test owns."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.python.failure import Failure

from nsqtw.http.bearer_auth import FREE
from nsqtw.http.factory import HttpFactory
from nsqtw.http.routes import Routes
from nsqtw.lookupd.http import LookupApi
from nsqtw.lookupd.watchers import KEEP_ALIVE_SECONDS, MAX_WAITING, Watchers
from nsqtw.net.limits import Limits
from nsqtw.options.lookupd import LookupdOptions
from nsqtw.runtime.turns import PlainTurns
from tests.lookupd.harness import LookupdHarness

ADDRESS = IPv4Address("TCP", "10.0.0.9", 50000)


class Client:
    """A connection that asked for something, and what was answered."""

    def __init__(self, harness: Harness, path: str) -> None:
        self._house = harness
        self.transport: Any = StringTransportWithDisconnection(peerAddress=ADDRESS)
        self.transport.protocol = connection = harness.site.buildProtocol(ADDRESS)
        connection.makeConnection(self.transport)
        connection.dataReceived(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        self.connection = connection
        self._seen = 0

    def heard(self) -> list[tuple[str, dict[str, Any]]]:
        """The events since the last call."""
        self._house.turn()
        text = self.transport.value()[self._seen :].decode()
        self._seen += len(text)
        found = []
        for block in text.partition("\r\n\r\n")[2].split("\n\n") if "HTTP/1.1" in text else text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if fields:
                found.append((fields["event"], json.loads(fields["data"])))
        return found

    def names(self) -> list[str]:
        """Of these events."""
        return [name for name, _ in self.heard()]

    def head(self) -> str:
        """Of the answer."""
        text: str = self.transport.value().decode()
        return text.partition("\r\n\r\n")[0]


class Harness:
    """An nsqlookupd without sockets."""

    def __init__(self, limit: int = 10) -> None:
        self.core = LookupdHarness()
        self.clock = Clock()
        turns = PlainTurns(self.clock)
        turns.now = self.clock.seconds  # type: ignore[method-assign]
        self.limits = Limits(LookupdOptions(), self.clock, turns.now)
        self.watchers = Watchers(self.core.registrations, turns, limit, self.limits.rejections)
        routes = [self.watchers.route(FREE), *LookupApi(self.core.registrations, turns).routes()]
        self.site = HttpFactory(Routes(routes), turns, self.limits, None, hosts=None)

    def turn(self) -> None:
        """Let the reactor go round until nobody has anything to do."""
        while any(call.getTime() <= self.clock.seconds() for call in self.clock.getDelayedCalls()):
            self.clock.advance(0)


def test_a_watcher_is_told_everything_and_then_what_happens() -> None:
    harness = Harness()
    harness.core.nsqd("t/c", name="a")
    client = Client(harness, "/v2/watch")
    assert client.names() == ["reset", "producer", "topic", "registered", "channel", "registered", "complete"]
    assert client.head().startswith("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
    nsqd = harness.core.nsqd("t", name="b")
    (came, who), (registered, what) = client.heard()
    assert (came, registered) == ("producer", "registered")
    assert who["producer"] == what["producer"]
    assert (what["id"], what["topic"], what["channel"]) == (nsqd, "t", None)
    harness.core.registrations.remove_peer(nsqd)
    assert client.heard() == [("producer_gone", {"id": nsqd})]
    assert client.heard() == []


def test_events_are_numbered_without_a_gap() -> None:
    harness = Harness()
    client = Client(harness, "/v2/watch")
    harness.turn()
    harness.core.nsqd("t/c")
    harness.turn()
    text = client.transport.value().decode()
    numbers = [int(line.removeprefix("id: ")) for line in text.splitlines() if line.startswith("id: ")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == 7


def test_a_watcher_of_one_topic_is_told_of_nothing_else() -> None:
    harness = Harness()
    harness.core.nsqd("t", "u", name="a")
    client = Client(harness, "/v2/watch?topic=t")
    assert client.names() == ["reset", "topic", "registered", "complete"]
    harness.core.nsqd("u", name="b")
    harness.core.registrations.create_channel("u", "c")
    assert client.heard() == []
    harness.core.registrations.create_channel("t", "c")
    assert client.heard() == [("channel", {"topic": "t", "channel": "c"})]


def test_a_topic_need_not_be_known_yet() -> None:
    harness = Harness()
    client = Client(harness, "/v2/watch?topic=t%23ephemeral")
    assert client.names() == ["reset", "complete"]
    harness.core.nsqd("t#ephemeral")
    assert client.names() == ["topic", "registered"]


def test_what_is_no_topic_cannot_be_watched() -> None:
    harness = Harness()
    for path in ("?topic=", "?topic=*", "?topic=x%20y"):
        client = Client(harness, f"/v2/watch{path}")
        assert client.head().startswith("HTTP/1.1 400 ")
        assert b'{"message":"INVALID_ARG_TOPIC"}' in client.transport.value()
    assert b"INVALID_REQUEST" in Client(harness, "/v2/watch?topic=%zz").transport.value()


def test_there_are_only_so_many() -> None:
    harness = Harness(limit=2)
    first, second, third = (Client(harness, "/v2/watch") for _ in range(3))
    assert third.head().startswith("HTTP/1.1 503 ")
    assert b'{"message":"TOO_MANY_WATCHERS"}' in third.transport.value()
    assert harness.limits.rejections.counts == {"max-watchers": 1}
    first.connection.connectionLost(Failure(ConnectionLost()))
    assert Client(harness, "/v2/watch").names() == ["reset", "complete"]
    assert second.names() == ["reset", "complete"]


def test_who_is_gone_is_told_nothing() -> None:
    harness = Harness()
    client = Client(harness, "/v2/watch")
    client.heard()
    harness.core.nsqd("t")
    client.connection.connectionLost(Failure(ConnectionLost()))
    harness.core.nsqd("u")
    assert client.heard() == []


def test_who_ends_its_side_does_not_read_any_more_either() -> None:
    harness = Harness(limit=1)
    client = Client(harness, "/v2/watch")
    client.heard()
    client.transport.abortConnection = lambda: client.connection.connectionLost(Failure(ConnectionLost()))
    client.connection.readConnectionLost()
    assert Client(harness, "/v2/watch").names() == ["reset", "complete"]


def test_silence_is_broken_by_a_comment() -> None:
    harness = Harness()
    client = Client(harness, "/v2/watch")
    client.heard()
    size = len(client.transport.value())
    harness.clock.advance(KEEP_ALIVE_SECONDS)
    harness.clock.advance(KEEP_ALIVE_SECONDS)
    assert client.transport.value()[size:] == b":\n\n"
    harness.core.nsqd("t")
    client.heard()
    size = len(client.transport.value())
    harness.clock.advance(KEEP_ALIVE_SECONDS)
    assert len(client.transport.value()) == size
    client.connection.connectionLost(Failure(ConnectionLost()))
    harness.clock.pump([KEEP_ALIVE_SECONDS] * 3)
    assert not harness.clock.getDelayedCalls()


def test_who_does_not_read_is_told_later() -> None:
    harness = Harness()
    client = Client(harness, "/v2/watch")
    assert client.names() == ["reset", "complete"]
    client.connection.pauseProducing()
    harness.core.nsqd("t", name="a")
    harness.clock.pump([KEEP_ALIVE_SECONDS] * 2)
    assert client.heard() == []
    client.connection.resumeProducing()
    assert client.names() == ["producer", "topic", "registered"]


def test_who_does_not_keep_up_starts_over() -> None:
    harness = Harness()
    client = Client(harness, "/v2/watch")
    client.heard()
    client.connection.pauseProducing()
    for number in range(MAX_WAITING + 1):
        harness.core.registrations.create_topic(f"t{number}")
    client.connection.resumeProducing()
    told = client.names()
    assert (told[0], told[-1]) == ("reset", "complete")
    assert told.count("topic") == MAX_WAITING + 1


def test_a_stop_ends_what_has_no_end() -> None:
    harness = Harness()
    client = Client(harness, "/v2/watch")
    harness.turn()
    harness.watchers.close()
    assert not client.transport.connected
    harness.site.disconnect_all()


def test_a_large_answer_comes_whole_and_lets_others_in_between() -> None:
    harness = Harness()
    for number in range(30):
        harness.core.nsqd(f"t{number}", name=f"n{number}")
    times = iter(range(10**6))
    harness.watchers.turns.now = lambda: float(next(times))  # type: ignore[method-assign]
    client = Client(harness, "/debug")
    assert client.transport.value() == b""
    harness.turn()
    body = client.transport.value().partition(b"\r\n\r\n")[2]
    assert len(json.loads(body)) == 31
