"""A broker with nsqlookupds, in the time of a test, which owns every connection."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from nsqtw.discovery.addresses import LookupdAddress
from nsqtw.discovery.peers import LookupdPeers
from tests.core.harness import BrokerHarness
from tests.discovery.test_peer import Attempt
from tests.discovery.test_protocol import sized
from tests.http.broker_fixture import Writer, harness_pump

TIMEOUT = 5.0


def quiet(level: str, text: str, /, **fields: object) -> None:
    """The dialogues' lines are their own tests' business."""


class Harness:
    """A broker with nsqlookupds, and the network between them."""

    def __init__(self, *addresses: str, core: BrokerHarness | None = None, **options: Any) -> None:
        self.attempts: dict[str, Attempt] = {}
        """The newest to each place."""
        self.questions: dict[tuple[str, str], Deferred[list[str]]] = {}
        """By the host over HTTP and the topic."""
        self.shown: dict[str, str] = {}
        """The secret of the newest question, by the host over HTTP."""
        self.names: dict[str, list[LookupdAddress]] = {}
        self.clock = Clock()
        given = {"lookupd_tcp_address": addresses, "http_client_request_timeout": TIMEOUT}
        self.core = core or BrokerHarness(**given, **options)
        pump = harness_pump(self.clock, self.core, Writer(self.core))
        network: Any = self
        self.peers = LookupdPeers(self.clock, self.core.broker, pump, quiet, lambda: addresses, network)
        self.peers.start()

    # -- LookupdConnector API

    def connect(self, place: LookupdAddress, factory: Any) -> Deferred[Any]:
        self.attempts[str(place)] = Attempt(factory)
        return self.attempts[str(place)].outcome

    async def places(self, address: str) -> list[LookupdAddress]:
        return self.names.get(address, [])

    async def ask(self, http_address: str, topic: str, name: str, secret: str) -> list[str]:
        host = http_address.partition(":")[0]
        self.shown[host] = secret
        self.questions[host, topic] = asked = Deferred[list[str]]()
        return await asked

    # -- what nsqlookupds do

    def meet(self, *addresses: str, itself: str = "") -> None:
        """They are there; over HTTP each is at its own host, or all at `itself`."""
        for address in addresses:
            self.attempts[address].succeed()
            said = {"broadcast_address": itself or address.partition(":")[0], "http_port": 4161}
            self.attempts[address].say(sized(json.dumps(said).encode()))

    def heard(self, address: str) -> list[str]:
        self.clock.advance(0)
        return self.attempts[address].heard()

    def answer(self, host: str, *channels: str, topic: str = "t") -> None:
        self.questions[host, topic].callback(list(channels))

    # -- what clients do and see

    def put(self, *bodies: bytes, topic: str = "t") -> None:
        """Publish, which is answered at once."""
        answers = self.core.put(*bodies, topic=topic)
        self.core.turn()
        assert answers == [None]

    def channels(self, topic: str = "t") -> dict[str, int]:
        """Each with its depth."""
        return {name: channel.depth for name, channel in self.core.topic(topic).channels.items()}
