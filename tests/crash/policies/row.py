"""
A row of the crash checker: a promise beyond NSQ's, with a topic of its own, clients that use it, and what is checked.

All rows check that nothing is lost, changed or invented; each adds what its policy promises.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar

from tests.crash.checks import name as shown
from tests.crash.harness import Harness
from tests.crash.history import Channel
from tests.crash.policies.aside import Aside, tables
from tests.crash.policies.clients import OVER_BOUND, PUBLISHERS, STORED, Got, HttpPublisher, Publisher, V3Publisher
from tests.crash.policies.notes import Answered, Delivered, Draining, Notes, Published, now
from tests.crash.policies.threads import FINISH, KEEP, Consuming, Publishing
from tests.crash.promises import expect

BROKERS_OWN = "nsq-"


class Row:
    """One promise, on the broker `house`. Its topic has the name of the row."""

    name: ClassVar[str]
    channel_names: ClassVar[tuple[str, ...]] = ("work",)
    topic_policy: ClassVar[Mapping[str, object]] = {}
    channel_policy: ClassVar[Mapping[str, object]] = {}
    """Of the first channel."""
    one_at_a_time: ClassVar[bool] = False
    """Whether consumers are given credit for one message."""
    publishers: ClassVar[tuple[type[HttpPublisher] | type[V3Publisher], ...]] = PUBLISHERS
    keeps: ClassVar[float] = 0.15
    requeues: ClassVar[float] = 0.1
    """The shares of messages that consumers finish later, or requeue."""
    most_kept: ClassVar[int] = 20
    """How many messages a consumer finishes together, later."""
    requeues_at_end: ClassVar[bool] = False
    """Whether consumers that leave requeue what they have kept, and do not finish it."""
    backlog: ClassVar[int] = 0
    """How many messages are stored before consumers of a round begin."""

    def __init__(self, house: Harness, seed: str, durability: str) -> None:
        self.house = house
        self.notes = Notes()
        self.channels = tuple(Channel(self.name, channel) for channel in self.channel_names)
        self.durability = durability
        self.asides: tuple[Aside, ...] = ()
        """Topics beside its own."""
        self._seed = seed
        self._turns = count(1)
        self._rounds = count(1)

    def config(self) -> str:
        """Tables of the config file."""
        own = tables(self.channels[0], {"durability": self.durability, **self.topic_policy}, self.channel_policy)
        return own + "".join(aside.config() for aside in self.asides)

    def create(self) -> None:
        """Create its topics and channels."""
        for channel in self.channels:
            self.house.create(channel.topic, channel.name)
        for aside in self.asides:
            aside.create()

    @property
    def all_channels(self) -> tuple[Channel, ...]:
        """The channels that may have its messages: of its topic, and others."""
        return self.channels

    # -- traffic

    def clients(self) -> tuple[list[Publishing], list[Consuming]]:
        """Those of the next round."""
        seed = f"{self._seed}.{next(self._rounds)}"
        consuming = [
            Consuming(self.house, self, channel, f"{seed}.{number}") for number, channel in enumerate(self.consumed)
        ]
        return [Publishing(self.house, self, seed)], consuming

    @property
    def consumed(self) -> Iterable[Channel]:
        """The channel of each consumer of a round."""
        return self.channels

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        """Publish a message."""
        client.publish(publisher, self.make(client))

    def make(self, client: Publishing) -> Published:
        """Return the next message."""
        headers = self.headers(client.chance)
        return Published(self.name, self.body(), headers, self.delay_ms(client.chance), client.life, client.now())

    def body(self) -> bytes:
        """A new one."""
        return b"%s.%s.%06d" % (self.name.encode(), self._seed.encode(), next(self._turns))

    def headers(self, chance: random.Random) -> dict[str, str]:
        """Those of the next message."""
        return {}

    def delay_ms(self, chance: random.Random) -> int:
        """That of the next message."""
        return 0

    def fate(self, message: Got, chance: random.Random) -> str | int:
        """What a consumer does with a message."""
        share = chance.random()
        if share < self.keeps and not self.one_at_a_time:
            return KEEP
        return 0 if share > 1 - self.requeues else FINISH

    # -- from one life to the next

    def begin(self) -> None:
        """A round begins, and nobody is connected: do what `started` is to look at."""

    def started(self) -> Iterator[str]:
        """The broker runs again, nobody is connected, and messages may be left: tell what is wrong with that."""
        return iter(())

    def close(self) -> None:
        """Leave no connection behind."""

    # -- the end of a chapter

    def drainers(self) -> list[Consuming]:
        """Consumers for everything that is left."""
        self.notes.note(Draining(self.house.life))
        return [Consuming(self.house, self, channel, self._seed, tidy=True) for channel in self.all_channels]

    def settle(self, await_empty: Callable[[], None]) -> None:
        """The channels are empty, and consumers are there: do what may bring more."""

    def probe(self) -> Iterator[str]:
        """Everything is drained and nobody is connected: try what needs quiet, and tell what is wrong."""
        return iter(())

    # -- checks

    def wrongs(self) -> Iterator[str]:
        """All that is wrong when everything is drained."""
        yield from self.lost()
        yield from self.invented()
        yield from self.broken()

    def broken(self) -> Iterator[str]:
        """How the promise of this row was broken."""
        return iter(())

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        """Whether a message that was stored need not have been delivered."""
        return body in self.notes.excused

    def lost(self) -> Iterator[str]:
        stored = self.notes.stored
        for channel in self.channels:
            finished = self.notes.finished(channel)
            for body in stored:
                if body not in finished and not self.may_be_missing(body, channel):
                    yield f"lost: {shown(body)} was stored and is not in {channel}"

    def invented(self) -> Iterator[str]:
        published, refused = self.notes.published, self.notes.answered(OVER_BOUND)
        for _, event in self.notes.all(Delivered):
            what = f"{shown(event.body)} in {event.channel}, life {event.life}"
            sent = published.get(event.body)
            if event.body in self.notes.past:
                yield f"came back: {what}, after all was drained"
            elif sent is None:
                yield f"invented: {what} was never sent"
            elif event.body in refused:
                yield f"invented: {what} was refused because of a bound"
            elif (got := self.own_headers(event.headers)) != dict(sent.headers) and (
                got or event.body not in self.notes.damaged
            ):
                yield f"headers: {what} has {got}, and was sent with {dict(sent.headers)}"

    def own_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers of a delivered message as its publisher gave them."""
        return {name: value for name, value in headers.items() if not name.startswith(BROKERS_OWN)}

    # -- for probes

    def stats(self, channel: Channel) -> dict[str, Any]:
        """What /stats says of a channel."""
        return self.house.channel_stats()[channel][0]

    def publish_quietly(self, publisher: Publisher, headers: Mapping[str, str] | None = None) -> bytes:
        """Publish a message that is not noted. Its body."""
        body = self.body()
        outcome = publisher.publish(self.name, body, headers or {}, 0)
        expect(outcome == STORED, "a publish while nothing fails", outcome)
        return body

    def publish_alone(self, publisher: Publisher, headers: Mapping[str, str] | None = None) -> str:
        """Publish a message that is noted, while no clients are there. The outcome."""
        life, ahead = self.house.life, self.house.control.wall_offset_ns
        message = Published(self.name, self.body(), headers or {}, 0, life, now(ahead))
        self.notes.note(message)
        outcome = publisher.publish(message.topic, message.body, message.headers, 0)
        self.notes.note(Answered(message.body, outcome, life, now(ahead)))
        return outcome

    def take(self, client: type, channel: Channel, number: int) -> list[Got]:
        """Consume and finish so many messages that are not noted, one at a time."""
        consumer = client(self.house, *channel, 1)
        taken: list[Got] = []
        try:
            while len(taken) < number and (message := consumer.next()) is not None:
                taken.append(message)
                consumer.finish(message)
            consumer.leave()
            more = consumer.next()
            expect(more is None, f"a consumer that has taken {number} messages", more)
        finally:
            consumer.close()
        return taken
