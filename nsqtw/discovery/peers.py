"""
All nsqlookupds of a broker: each gets the names of its topics and channels, and is asked for the channels of a new
topic.

    --lookupd-tcp-address ─▶ places (addresses) ─▶ a LookupdPeer each (peer) ─▶ a LookupdProtocol each
    PUT /config/...            looked up again            made again                  bytes

The secret of --lookupd-secret-file goes only to the nsqlookupds that the options name. A client that may change the
configuration over HTTP could otherwise read it at an address of their own.

Theory of operation. Every nsqlookupd has a connection of its own, and none waits for another. The broker reports new
and deleted names (`core.topic_listener`), which costs a turn one dictionary entry for each connection, and one write to
each before its publishes are answered. The broker never waits for an nsqlookupd. New topics are handled by
`new_topics`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from nsqtw import NSQ_VERSION
from nsqtw.core.broker import Broker
from nsqtw.core.topic import Topic
from nsqtw.discovery.addresses import Expansion, LookupdAddress, Names, fixed_address, is_looked_up
from nsqtw.discovery.channels import ChannelQuery
from nsqtw.discovery.new_topics import NewTopics
from nsqtw.discovery.peer import CONNECT_SECONDS, LookupdPeer
from nsqtw.discovery.protocol import ANSWER_SECONDS, IdentifyPayload, LookupdProtocol, Name
from nsqtw.discovery.tls import SECRET_FLAG, endpoint_to
from nsqtw.errors import OptionError
from nsqtw.interfaces import OperatorLog
from nsqtw.options.broker import Options
from nsqtw.options.broker_address import hostname
from nsqtw.options.files import read_secret
from nsqtw.runtime.pump import Pump
from nsqtw.runtime.reactor import Reactor

TLS_ANSWER_SECONDS = 5.0
"""The time limit of the first response after a handshake."""

_log = Logger()


class LookupdConnector:
    """The connections and queries to nsqlookupds, according to the options of an nsqd."""

    def __init__(self, reactor: Reactor, options: Options) -> None:
        self._reactor = reactor
        self._options = options
        self._names = Names(reactor)
        self._query = ChannelQuery(reactor, options)

    def connect(self, lookupd: LookupdAddress, factory: Factory) -> Deferred[Any]:
        """Connects a protocol of the factory to one of them. Any error."""
        try:
            endpoint = endpoint_to(self._reactor, self._options, lookupd, CONNECT_SECONDS)
        except Exception:  # a missing file, an invalid name, any error of OpenSSL
            return fail()
        connecting: Deferred[Any] = endpoint.connect(factory)
        return connecting

    async def places(self, address: str) -> list[LookupdAddress]:
        """Like Names.places."""
        return await self._names.places(address)

    async def ask(self, http_address: str, topic: str, name: str, secret: str) -> list[str]:
        """Like ChannelQuery.ask."""
        return await self._query.ask(http_address, topic, name, secret)


class LookupdPeers:
    """
    The nsqlookupds in the options of `broker`, once it is started. `configured` returns the addresses that the sources
    of the options name; those set over HTTP get no secret.
    """

    def __init__(
        self,
        reactor: Reactor,
        broker: Broker,
        pump: Pump,
        log: OperatorLog,
        configured: Callable[[], Iterable[str]],
        network: LookupdConnector | None = None,
    ) -> None:
        self._reactor = reactor
        self._broker = broker
        self._before_answers = pump.before_answers
        self._say = log
        self._configured = configured
        self._connector = network or LookupdConnector(reactor, broker.options)
        self._new_topics = NewTopics(reactor, broker, pump, self._ready_peers, self._ask)
        self._random = random.SystemRandom().random
        self._addresses: tuple[str, ...] = ()
        self._expansions: dict[str, Expansion] = {}
        self._links: dict[LookupdAddress, LookupdPeer] = {}
        self._secret = ""

    def start(self) -> None:
        """Report the broker's names from now on. Topics that still wait for their channels are asked for."""
        self._broker.directory = self
        self.follow()
        for topic in [topic for topic in self._broker.topics.values() if topic.is_awaiting_channels]:
            self._new_topics.begin(topic)

    def follow(self) -> None:
        """The addresses in the options may be others than before."""
        self._addresses = tuple(dict.fromkeys(self._broker.options.lookupd_tcp_address))
        for address in set(self._expansions) - set(self._addresses):
            self._expansions.pop(address).stop()
        new = [name for name in self._addresses if is_looked_up(name) and name not in self._expansions]
        for name in new:
            self._expansions[name] = Expansion(
                self._reactor, name, self._connector.places, self._random, self._follow_places
            )
        self._follow_places()
        for name in new:
            self._expansions[name].start()

    def stop(self) -> None:
        """Leave all of them."""
        self._new_topics.stop()
        for expansion in self._expansions.values():
            expansion.stop()
        for peer in self._links.values():
            peer.stop()
        self._links.clear()
        _log.info("LOOKUP: closing")

    def states(self) -> dict[str, bool]:
        """Return the address of each nsqlookupd, and whether it has identified itself on a connection that lasts."""
        return {str(address): peer.lookupd is not None for address, peer in self._links.items()}

    def why_unreachable(self) -> str:
        """Return why no nsqlookupd tells consumers of this broker; "" when one does, or none is configured."""
        states = self.states()
        if any(states.values()) or not self._addresses:
            return ""
        return f"connected to none of {len(states)} nsqlookupds"

    # -- TopicListener API

    def on_new_topic(self, topic: Topic) -> None:
        """TopicListener API."""
        self._notify(Name(topic.name))
        if self._addresses and not self._broker.stopping:
            self._new_topics.begin(topic)

    def on_created(self, topic: str, channel: str) -> None:
        """TopicListener API."""
        self._notify(Name(topic, channel))

    def on_deleted(self, topic: str, channel: str = "") -> None:
        """TopicListener API."""
        for peer in self._links.values():
            peer.on_deleted(Name(topic, channel))

    # -- the connections

    def _notify(self, name: Name) -> None:
        for peer in self._links.values():
            peer.on_created(name)

    def _follow_places(self) -> None:
        """Have a link to each place there is, and to no other."""
        addresses = dict.fromkeys(self._places(self._addresses))
        for lookupd in [lookupd for lookupd in self._links if lookupd not in addresses]:
            _log.info("LOOKUP({lookupd}): removing peer", lookupd=str(lookupd))
            self._links.pop(lookupd).stop()
        for lookupd in addresses:
            if lookupd not in self._links:
                peer = self._links[lookupd] = LookupdPeer(
                    self._reactor,
                    str(lookupd),
                    partial(self._connector.connect, lookupd),
                    partial(self._speak, lookupd),
                    self._listed,
                    self._random,
                    self._before_answers,
                )
                peer.start()

    def _places(self, addresses: Iterable[str]) -> Iterator[LookupdAddress]:
        for address in addresses:
            if address in self._expansions:
                yield from self._expansions[address].places
            elif lookupd := fixed_address(address):
                yield lookupd
            else:
                _log.error("LOOKUP({lookupd}): invalid address, expected host:port", lookupd=address)

    async def _ready_peers(self) -> Mapping[LookupdAddress, LookupdPeer]:
        """The connections there are, when every name has been looked up once."""
        for expansion in list(self._expansions.values()):
            await expansion.ready.wait()
        return self._links

    async def _ask(self, lookupd: LookupdAddress, http_address: str, topic: str) -> list[str]:
        secret = self._secret if self._may_have_secret(lookupd) else ""
        return await self._connector.ask(http_address, topic, lookupd.name, secret)

    def _listed(self) -> Iterator[Name]:
        """Everything an nsqlookupd is told of at first: to name a channel is to name its topic."""
        for topic in self._broker.topics.values():
            if not topic.channels:
                yield Name(topic.name)
            for channel in topic.channels:
                yield Name(topic.name, channel)

    def _speak(self, lookupd: LookupdAddress, names: Iterable[Name], now: float) -> LookupdProtocol:
        options = self._broker.options
        identify_payload = IdentifyPayload(
            broadcast_address=options.broadcast_address,
            hostname=hostname(),
            http_port=options.broadcast_http_port,
            tcp_port=options.broadcast_tcp_port,
            topology_region=options.topology_region,
            topology_zone=options.topology_zone,
            version=NSQ_VERSION,
            secret=self._secret_for(lookupd),
        )
        first_answer_seconds = TLS_ANSWER_SECONDS if options.lookupd_tls else ANSWER_SECONDS
        return LookupdProtocol(
            str(lookupd),
            identify_payload,
            names,
            self._say,
            most_answer_bytes=options.max_body_size,
            now=now,
            first_answer_seconds=first_answer_seconds,
        )

    def _may_have_secret(self, lookupd: LookupdAddress) -> bool:
        return lookupd in self._places(self._configured())

    def _secret_for(self, lookupd: LookupdAddress) -> str:
        """Return what an nsqlookupd is told; "" for no secret."""
        secret = self._secret_now()
        if secret and not self._may_have_secret(lookupd):
            text = "LOOKUP({lookupd}): gets no secret, because PUT /config has set it: name it in {flag}, and reload"
            _log.warn(text, lookupd=str(lookupd), flag="--lookupd-tcp-address")
            return ""
        return secret

    def _secret_now(self) -> str:
        """Return the secret in the file; while it cannot be read, the last one that was read."""
        try:
            self._secret = read_secret(self._broker.options.lookupd_secret_file, SECRET_FLAG)
        except OptionError as error:
            _log.error("LOOKUP: the secret stays as it was - {error}", error=str(error))
        return self._secret
