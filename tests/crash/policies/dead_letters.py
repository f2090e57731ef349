"""
Dead letters: a message is in its channel or in the dead-letter topic, in one of them; and when it is put back, it is in
its channel only. It is not delivered more often than allowed, but for deliveries that a death has interrupted. Messages
that others publish to the dead-letter topic stay there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

from tests.crash.checks import name as shown
from tests.crash.history import Channel
from tests.crash.policies.aside import tables
from tests.crash.policies.clients import HttpPublisher, Publisher
from tests.crash.policies.notes import Delivered, Draining, Published, Requeued, Saved
from tests.crash.policies.row import Row
from tests.crash.policies.threads import Publishing

_REDRIVES = 0.02
_STRANGERS = 0.1
"""The share of messages that are published to the dead-letter topic."""
_SAVES = 4
"""A letter waits for one save on its way; those of a failed batch wait for the next."""
_ANSWERS = (200, 404, 409)


class DeadLetters(Row):
    """Most messages fail, and some dead letters are put back. Another channel of the topic gets all of them once."""

    name = "letters"
    channel_names = ("work", "other")
    channel_policy = {"max_attempts": 2}
    requeues = 0.7

    @property
    def letters(self) -> Channel:
        """Where the dead letters are."""
        return Channel(f"{self.name}.dead", "work")

    @property
    def all_channels(self) -> tuple[Channel, ...]:
        return (*self.channels, self.letters)

    def config(self) -> str:
        """Strangers are published to the topic of the dead letters, which gets its class from a letter otherwise."""
        text = super().config()
        own = tables(self.letters, {"durability": self.durability}, {})
        return text if own.partition("\n")[0] in text else text + own

    def create(self) -> None:
        super().create()
        self.house.create(*self.letters)

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        if client.chance.random() < _REDRIVES:
            redriver = HttpPublisher(self.house)
            try:
                redriver.order(f"/v2/channel/redrive?topic={self.name}&channel=work", _ANSWERS)
            finally:
                redriver.close()
        super().publish_next(client, publisher)

    def make(self, client: Publishing) -> Published:
        made = super().make(client)
        is_stranger = client.chance.random() < _STRANGERS
        return made._replace(topic=self.letters.topic, headers={}) if is_stranger else made

    def settle(self, await_empty: Callable[[], None]) -> None:
        for _ in range(_SAVES):
            self.house.store()
            await_empty()

    def lost(self) -> Iterator[str]:
        yield from super().lost()
        finished = self.notes.finished(self.letters)
        for body in self.notes.stored:
            if self._is_stranger(body) and body not in finished and body not in self.notes.excused:
                yield f"lost: {shown(body)} was stored and is not in {self.letters}"

    def _is_stranger(self, body: bytes) -> bool:
        return self.notes.published[body].topic != self.name

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        if self._is_stranger(body) and channel != self.letters:
            return True
        if channel.name == "work" and body in self.notes.finished(self.letters):
            return True
        return super().may_be_missing(body, channel)

    def broken(self) -> Iterator[str]:
        begun = max(number for number, _ in self.notes.all(Draining))
        found: dict[bytes, set[tuple[str, bytes]]] = {}
        others: dict[bytes, set[bytes]] = {}
        yield from self._too_often()
        for number, event in self.notes.all(Delivered):
            if event.channel.name == "other":
                others.setdefault(event.body, set()).add(event.id)
            elif number > begun:
                found.setdefault(event.body, set()).add((event.channel.topic, event.id))
        for body, places in found.items():
            if self._is_stranger(body) and {topic for topic, _ in places} != {self.letters.topic}:
                yield f"dead letters: {shown(body)} is no dead letter, and was put back"
            if len(places) > 1 and body not in self.notes.excused:
                yield f"dead letters: {shown(body)} is there {len(places)} times: {sorted(places)}"
        for body, ids in others.items():
            if len(ids) > 1 and body not in self.notes.excused:
                yield f"dead letters: {shown(body)} was put back to {self.name}/other, too"

    def _too_often(self) -> Iterator[str]:
        """Deliveries beyond the last one that is allowed, of which each death may have interrupted one."""
        most = self.channel_policy.get("max_attempts")
        if not isinstance(most, int):
            return
        saved = {event.life: number for number, event in self.notes.all(Saved)}
        failed = {
            event.id: event.life
            for number, event in self.notes.all(Requeued)
            if event.channel == self.channels[0] and event.attempts >= most and number < saved.get(event.life, -1)
        }
        used: dict[bytes, int] = {}
        for _, event in self.notes.all(Delivered):
            if event.channel != self.channels[0] or event.attempts < most or event.body in self.notes.excused:
                continue
            what = f"dead letters: {shown(event.body)} came with {event.attempts} attempts, in life {event.life}"
            if event.attempts - most > event.life - self.notes.published[event.body].life:
                yield what
            elif used.get(event.id) == event.life:
                yield f"{what}, again"
            elif failed.get(event.id, event.life) < event.life:
                yield f"{what}, and had failed for the last time"
            used[event.id] = event.life


_TTL = "ttl"
_LONG = str(1000 * 86_400_000)
"""Milliseconds, and longer than what the wall clock may be moved by."""
_RENAMED = f"nsq-dead-header-{_TTL}"


class ExpiredLetters(DeadLetters):
    """Messages without a time to live of their own expire soon, and are dead letters then. The others do not."""

    name = "stale"
    topic_policy = {"message_ttl": "50ms"}
    channel_policy = {"expired": "dead_letter", "dead_letter_topic": "stale.letters"}
    requeues = 0.2
    # Consumers begin when some have expired.
    backlog = 20

    @property
    def letters(self) -> Channel:
        return Channel(f"{self.name}.letters", "work")

    def headers(self, chance: random.Random) -> dict[str, str]:
        return {_TTL: _LONG} if chance.random() < 0.4 else {}

    def own_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return super().own_headers({_TTL if name == _RENAMED else name: text for name, text in headers.items()})

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        """The other channel has no dead letters: there, what has expired is gone."""
        return super().may_be_missing(body, channel) or (channel.name == "other" and not self._is_lasting(body))

    def broken(self) -> Iterator[str]:
        yield from super().broken()
        for _, event in self.notes.all(Delivered):
            is_lasting = self._is_lasting(event.body) and event.body not in self.notes.damaged
            if event.channel == self.letters and is_lasting:
                yield f"dead letters: {shown(event.body)} expired long before its time"

    def _is_lasting(self, body: bytes) -> bool:
        return _TTL in self.notes.published[body].headers
