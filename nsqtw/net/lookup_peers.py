"""
All nsqlookupds of a broker: each is told what topics and channels there are, and asked for the channels of a new topic.

    --lookupd-tcp-address ─▶ places (lookup_place) ─▶ a Link each (lookup_link) ─▶ a Dialogue each (lookup_dialogue)
    PUT /config/...            looked up again            made again                  bytes

Theory of operation. Every nsqlookupd has a connection of its own, and none waits for another. The broker says what
comes and goes (`core.directory`); that costs the turn a dictionary entry for each connection.

A new topic is held: what is published to it is stored and answered as ever, but goes on to no channel. Meanwhile all
nsqlookupds are asked which channels it has elsewhere (lookup_channels). With all answers, or after
`--http-client-request-timeout`, whatever came by then, these channels are made and the topic starts, so that each
has the first message. An nsqlookupd that is being connected to for the first time is waited for as well; one that is
known to be away is not. An ephemeral topic is not held: in memory there would not be room for what it must keep.

nsqd asks while it creates the topic: its publisher waits, and with it everybody who publishes to that topic.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList, DeferredSemaphore, fail
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from nsqtw import NSQ_VERSION
from nsqtw.core.broker import Broker
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, CapReached, Exiting, OptionError
from nsqtw.interfaces import OperatorLog
from nsqtw.net.lookup_channels import ChannelQuery
from nsqtw.net.lookup_dialogue import ANSWER_SECONDS, Dialogue, Introduction, Name
from nsqtw.net.lookup_link import CONNECT_SECONDS, Link
from nsqtw.net.lookup_place import Expansion, Names, Place, fixed_place, is_looked_up
from nsqtw.net.lookup_trust import endpoint_to, read_secret
from nsqtw.net.pump import Pump
from nsqtw.net.settled import in_time
from nsqtw.options import Options, hostname

TLS_ANSWER_SECONDS = 5.0
"""For the first answer when there is a handshake before it."""
MOST_QUERIES = 32
"""Topics that are asked about at the same time; more wait for their turn."""

_log = Logger()


class Network:
    """What reaches nsqlookupds, as the options of an nsqd say."""

    def __init__(self, reactor: Any, options: Options) -> None:
        self._reactor = reactor
        self._options = options
        self._names = Names(reactor)
        self._query = ChannelQuery(reactor, options)

    def connect(self, place: Place, factory: Factory) -> Deferred[Any]:
        """Connects a protocol of the factory to one of them. Any error."""
        try:
            endpoint = endpoint_to(self._reactor, self._options, place, CONNECT_SECONDS)
        except Exception:  # a file that is gone, a name that is none, whatever OpenSSL says
            return fail()
        connecting: Deferred[Any] = endpoint.connect(factory)
        return connecting

    async def places(self, address: str) -> list[Place]:
        """As Names.places."""
        return await self._names.places(address)

    async def ask(self, http_address: str, topic: str, name: str, secret: str) -> list[str]:
        """As ChannelQuery.ask."""
        return await self._query.ask(http_address, topic, name, secret)


class LookupPeers:
    """Those of `broker`, as its options name them, once it is started."""

    def __init__(
        self, reactor: Any, broker: Broker, pump: Pump, log: OperatorLog, network: Network | None = None
    ) -> None:
        self._reactor = reactor
        self._broker = broker
        self._pump = pump
        self._say = log
        self._network = network or Network(reactor, broker.options)
        self._turns = DeferredSemaphore(MOST_QUERIES)
        self._random = random.SystemRandom().random
        self._addresses: tuple[str, ...] = ()
        self._expansions: dict[str, Expansion] = {}
        self._links: dict[Place, Link] = {}
        self._starting: dict[Topic, Deferred[None]] = {}
        self._secret = ""
        self._is_over = False

    def start(self) -> None:
        """From now on the broker is listed. Topics that are held from before are asked about."""
        self._broker.directory = self
        self.follow()
        for topic in [topic for topic in self._broker.topics.values() if topic.is_held]:
            self._begin(topic)

    def follow(self) -> None:
        """The addresses in the options may be others than before."""
        self._addresses = tuple(dict.fromkeys(self._broker.options.lookupd_tcp_address))
        for address in set(self._expansions) - set(self._addresses):
            self._expansions.pop(address).stop()
        new = [one for one in self._addresses if is_looked_up(one) and one not in self._expansions]
        for one in new:
            self._expansions[one] = Expansion(
                self._reactor, one, self._network.places, self._random, self._follow_places
            )
        self._follow_places()
        for one in new:
            self._expansions[one].start()

    def stop(self) -> None:
        """Leave all of them. Topics that are held stay so."""
        self._is_over = True
        for expansion in self._expansions.values():
            expansion.stop()
        for link in self._links.values():
            link.stop()
        self._links.clear()
        for starting in list(self._starting.values()):
            starting.cancel()
        _log.info("LOOKUP: closing")

    # -- Directory API

    def born(self, topic: Topic) -> None:
        """Directory API."""
        self._tell(Name(topic.name))
        if not self._addresses or self._broker.stopping:
            return
        if not topic.ephemeral:
            topic.hold()
        self._begin(topic)

    def came(self, topic: str, channel: str) -> None:
        """Directory API."""
        self._tell(Name(topic, channel))

    def gone(self, topic: str, channel: str = "") -> None:
        """Directory API."""
        for link in self._links.values():
            link.gone(Name(topic, channel))

    # -- the connections

    def _tell(self, name: Name) -> None:
        for link in self._links.values():
            link.came(name)

    def _follow_places(self) -> None:
        """Have a link to each place there is, and to no other."""
        wanted = dict.fromkeys(self._places())
        for place in [place for place in self._links if place not in wanted]:
            _log.info("LOOKUP({lookupd}): removing peer", lookupd=str(place))
            self._links.pop(place).stop()
        for place in wanted:
            if place not in self._links:
                link = self._links[place] = Link(
                    self._reactor,
                    str(place),
                    partial(self._network.connect, place),
                    partial(self._speak, str(place)),
                    self._listed,
                    self._random,
                )
                link.start()

    def _places(self) -> Iterator[Place]:
        for address in self._addresses:
            if address in self._expansions:
                yield from self._expansions[address].places
            elif place := fixed_place(address):
                yield place
            else:
                _log.error("LOOKUP({lookupd}): it is no host:port", lookupd=address)

    def _listed(self) -> Iterator[Name]:
        """Everything an nsqlookupd is told of at first: to name a channel is to name its topic."""
        for topic in self._broker.topics.values():
            if not topic.channels:
                yield Name(topic.name)
            for channel in topic.channels:
                yield Name(topic.name, channel)

    def _speak(self, address: str, names: Iterable[Name], now: float) -> Dialogue:
        options = self._broker.options
        introduction = Introduction(
            broadcast_address=options.broadcast_address,
            hostname=hostname(),
            http_port=options.broadcast_http_port,
            tcp_port=options.broadcast_tcp_port,
            topology_region=options.topology_region,
            topology_zone=options.topology_zone,
            version=NSQ_VERSION,
            secret=self._secret_now(),
        )
        first_answer_seconds = TLS_ANSWER_SECONDS if options.lookupd_tls else ANSWER_SECONDS
        return Dialogue(
            address,
            introduction,
            names,
            self._say,
            most_answer_bytes=options.max_body_size,
            now=now,
            first_answer_seconds=first_answer_seconds,
        )

    def _secret_now(self) -> str:
        """What the file has; while it cannot be read, what it had."""
        try:
            self._secret = read_secret(self._broker.options)
        except OptionError as mistake:
            _log.error("LOOKUP: the secret stays as it was - {error}", error=str(mistake))
        return self._secret

    # -- new topics

    def _begin(self, topic: Topic) -> None:
        """Ask about it, and let it start in any case."""
        self._starting[topic] = starting = Deferred.fromCoroutine(self._start_topic(topic))
        starting.addBoth(self._started, topic)

    async def _start_topic(self, topic: Topic) -> None:
        """Make the channels that the topic has elsewhere."""
        found: set[str] = set()
        failures: list[str] = []
        asking = Deferred.fromCoroutine(self._ask_all(topic.name, found, failures))
        try:
            await in_time(asking, self._broker.options.http_client_request_timeout, self._reactor)
        except TimeoutError as late:
            failures.append(str(late))
        if failures:
            text = "failed to query nsqlookupd for channels to pre-create for topic {topic} - {error}"
            _log.warn(text, topic=topic.name, error="; ".join(failures))
        for channel in sorted(found):
            if topic.exiting or self._broker.stopping or self._is_over:
                return
            try:
                topic.channel(channel, self._pump.now())
            except (CapReached, Exiting, BackendError) as error:
                text = "TOPIC({topic}): nsqlookupd knows channel {channel}, which cannot be made - {error}"
                _log.error(text, topic=topic.name, channel=channel, error=str(error))

    def _started(self, outcome: Any, topic: Topic) -> Any:
        """The topic has its channels, or something kept it from them."""
        del self._starting[topic]
        if self._is_over:
            return None
        if not topic.exiting:
            topic.start(self._pump.now())
            self._pump.wake()
        return outcome

    async def _ask_all(self, topic: str, found: set[str], failures: list[str]) -> None:
        """Add the channels of a topic to those found, as answers come."""
        for expansion in list(self._expansions.values()):
            await expansion.settled.wait()
        asked: set[str] = set()
        places = list(self._links)
        asking = [Deferred.fromCoroutine(self._ask(place, asked, topic, found)) for place in places]
        answers: list[tuple[bool, Any]] = await DeferredList(asking, consumeErrors=True)
        for place, (went_well, failure) in zip(places, answers, strict=True):
            if not went_well and not isinstance(failure.value, CancelledError):
                failures.append(f"{place}: {failure.getErrorMessage()}")
        if not asked:
            text = "no available nsqlookupd to query for channels to pre-create for topic {topic}"
            _log.error(text, topic=topic)

    async def _ask(self, place: Place, asked: set[str], topic: str, found: set[str]) -> None:
        """As `_ask_all`, of one nsqlookupd, unless it was asked as another one."""
        link = self._links[place]
        await link.settled.wait()
        address = link.lookupd.http_address if link.lookupd is not None else ""
        if not address or address in asked:
            return
        asked.add(address)
        await self._turns.acquire()
        try:
            found.update(await self._network.ask(address, topic, place.name, self._secret))
        finally:
            self._turns.release()
