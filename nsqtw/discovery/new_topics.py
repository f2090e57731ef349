"""
The channels that a new topic has on other brokers, created before its first message is released.

    created ─▶ waiting ─▶ every nsqlookupd is asked ─▶ channels are created ─▶ start
                          at most --http-client-request-timeout, then with the answers so far

Theory of operation. While a topic waits for its channels, publishes are stored and answered as usual, but released to
no channel. An nsqlookupd that is being connected to for the first time is waited for as well; one that is known to be
unreachable is not. An ephemeral topic does not wait, because memory has no room for its messages, except while its
channels are created, so that its messages go to all of them.

Each nsqlookupd is asked MAX_QUERIES questions at a time: one that does not answer delays no other.

nsqd asks while it creates the topic: its publishers wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList, DeferredSemaphore
from twisted.internet.error import ConnectingCancelledError
from twisted.logger import Logger

from nsqtw.core.broker import Broker
from nsqtw.core.topic import Topic
from nsqtw.discovery.addresses import LookupdAddress
from nsqtw.discovery.peer import LookupdPeer
from nsqtw.errors import BackendError, CapReached, Exiting
from nsqtw.http.failures import cause_of, reason_of
from nsqtw.runtime.pump import Pump
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.waiting import in_time

MAX_QUERIES = 32
"""Questions that one nsqlookupd is asked at the same time; more wait for their turn."""

Links = Callable[[], Coroutine[Any, Any, Mapping[LookupdAddress, LookupdPeer]]]
"""The connections there are, once it is known which."""
Ask = Callable[[LookupdAddress, str, str], Coroutine[Any, Any, list[str]]]
"""The channels that an nsqlookupd, asked over HTTP at an address, knows of a topic."""

_GIVEN_UP = (CancelledError, ConnectingCancelledError)

_log = Logger()


class NewTopics:
    def __init__(self, reactor: Reactor, broker: Broker, pump: Pump, links: Links, ask: Ask) -> None:
        self._reactor = reactor
        self._broker = broker
        self._pump = pump
        self._links = links
        self._ask = ask
        self._turns: dict[str, DeferredSemaphore] = {}
        """By HTTP address."""
        self._starting: dict[Topic, Deferred[None]] = {}
        self._is_over = False

    def begin(self, topic: Topic) -> None:
        """Ask about a topic, hold it as long as that takes, and let it start in any case."""
        if not topic.ephemeral:
            topic.hold()
        self._starting[topic] = starting = Deferred.fromCoroutine(self._start(topic))
        starting.addBoth(self._started, topic)

    def stop(self) -> None:
        """Ask no more. Topics that wait stay so, and wait again in the next process."""
        self._is_over = True
        for starting in list(self._starting.values()):
            starting.cancel()

    # -- inside

    async def _start(self, topic: Topic) -> None:
        """Make the channels that the topic has elsewhere."""
        channels: set[str] = set()
        failures: list[str] = []
        asking = Deferred.fromCoroutine(self._ask_all(topic.name, channels, failures))
        try:
            await in_time(asking, self._broker.options.http_client_request_timeout, self._reactor)
        except TimeoutError as late:
            failures.append(str(late))
        if failures:
            text = "failed to query nsqlookupd for channels to pre-create for topic {topic} - {error}"
            _log.warn(text, topic=topic.name, error="; ".join(failures))
        topic.hold()
        for channel in sorted(channels):
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

    async def _ask_all(self, topic: str, channels: set[str], failures: list[str]) -> None:
        """Add the channels of a topic to those found, as answers come."""
        links = dict(await self._links())
        asked: set[str] = set()
        asking = [
            Deferred.fromCoroutine(self._ask_one(lookupd, peer, asked, topic, channels))
            for lookupd, peer in links.items()
        ]
        answers: list[tuple[bool, Any]] = await DeferredList(asking, consumeErrors=True)
        for lookupd, (went_well, failure) in zip(links, answers, strict=True):
            if not went_well and not isinstance(cause_of(failure.value), _GIVEN_UP):
                failures.append(f"{lookupd}: {reason_of(failure.value)}")
        if not asked:
            text = "no available nsqlookupd to query for channels to pre-create for topic {topic}"
            _log.error(text, topic=topic)

    async def _ask_one(
        self, lookupd: LookupdAddress, peer: LookupdPeer, asked: set[str], topic: str, channels: set[str]
    ) -> None:
        """Like `_ask_all`, unless this nsqlookupd was `asked` already, by another address."""
        await peer.ready.wait()
        address = peer.lookupd.http_address if peer.lookupd is not None else ""
        if not address or address in asked:
            return
        asked.add(address)
        turns = self._turns.setdefault(address, DeferredSemaphore(MAX_QUERIES))
        await turns.acquire()
        try:
            channels.update(await self._ask(lookupd, address, topic))
        finally:
            turns.release()
            if turns.tokens == turns.limit:
                self._turns.pop(address, None)
