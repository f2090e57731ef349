"""
Chapters of a history: traffic, and then everything is drained, checked and forgotten. What brokers do in between, and
what is done to them, is of the campaigns that are made of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.crash.checks import History, counters, repeats, wrongs
from tests.crash.harness import Harness
from tests.crash.history import (
    DRAINED,
    START,
    Channel,
    Connected,
    Counted,
    Delivered,
    Finished,
    Journal,
    Left,
    Stored,
    Tally,
    moment,
)
from tests.crash.policies.table import Rows
from tests.crash.policies.threads import Consuming, Publishing
from tests.crash.promises import Broken
from tests.crash.readers import NEVER_MS, Reader
from tests.crash.writers import Writer
from tests.wire import ANSWER_SECONDS, Message, Refused

Writing = Writer | Publishing
Reading = Reader | Consuming
_MOST_HELD = 5
_SHOWN = 12


class Chapters:
    """What campaigns have in common. `harness` is the broker that serves."""

    harness: Harness
    journal: Journal
    tally: Tally
    about: str
    _directory: Path
    _seed: str
    _chance: random.Random
    _channels: tuple[Channel, ...]
    _rows: Rows
    _clients: list[Writing | Reading]

    def __init__(self) -> None:
        self._counted: dict[tuple[int, Channel], int] = {}
        """How many messages of a life and a channel were counted before this chapter."""

    def _store(self) -> None:
        covers = len(self.journal.events)
        self.harness.store()
        self.journal.record(Stored(self.harness.life, covers))
        self._rows.saved(self.harness.life)

    def _count(self, when: str, only: Channel | None = None, held: int = 0) -> list[Counted]:
        """Note what /stats says."""
        counts = [
            Counted(
                when,
                place,
                depth=channel["depth"],
                in_flight=channel["in_flight_count"],
                deferred=channel["deferred_count"],
                topic_depth=topic["depth"],
                message_count=channel["message_count"] - self._counted.get((self.harness.life, place), 0),
                topic_message_count=topic["message_count"] - self._counted.get((self.harness.life, place), 0),
                life=self.harness.life,
                held=held,
            )
            for place, (channel, topic) in self.harness.channel_stats().items()
            if place in self._channels and only in (None, place)
        ]
        self.journal.record(*counts)
        return counts

    def _recount(self) -> None:
        """What the broker says it has after a start, and while a consumer holds some of it."""
        counts = self._count(START)
        if len(counts) != len(self._channels):
            raise Broken(f"channels are missing: there are {[count.channel for count in counts]}")
        history = History(self.journal)
        if certain := [one for one in counts if one.waiting and not history.may_have_lost(one.channel.topic)]:
            some = self._chance.choice(certain)
            self._hold(some.channel, min(_MOST_HELD, some.waiting))
        self._raise_for(list(counters(History(self.journal))))

    def _hold(self, channel: Channel, number: int) -> None:
        """Take so many messages, look at the counters, finish them."""
        life, connection = self.harness.life, -self.harness.life
        self.journal.record(Connected(channel, connection, True, life))
        with self.harness.client() as client:
            client.identify(msg_timeout=NEVER_MS)
            client.sub(*channel, ready=number)
            messages: list[Message] = []
            for _ in range(number):
                try:
                    one = client.message()
                except TimeoutError:
                    raise Broken(f"{channel}: {number} messages wait, it says; {len(messages)} of them came") from None
                messages.append(one)
                self.journal.record(Delivered(channel, one.id, one.body, one.attempts, connection, life, moment()))
            self._count(START, channel, number)
            client.rdy(0)
            client.fin(messages)
            self.journal.record(*[Finished(channel, one.id, one.attempts, connection, life) for one in messages])
            client.cls()
        self.journal.record(Left(channel, connection, True, life))

    def _drain(self) -> None:
        """Consume everything there is, check all that happened, and begin a new page."""
        readers: list[Reading] = [
            Reader(self.harness, self.journal, channel, f"{self._seed}.drain.{channel}", prompt=True)
            for channel in self._channels
        ]
        readers += self._rows.drainers()
        self._clients = [*readers]
        for reader in readers:
            reader.tidy = True
            reader.start()
        self._await_empty(self._channels)
        self._rows.settle(self._await_empty)
        for reader in readers:
            reader.leave()
        for reader in readers:
            reader.join()
        self._raise_failures()
        counts = self._count(DRAINED)
        self._store()
        self._check()
        for count in counts:
            place = count.life, count.channel
            self._counted[place] = self._counted.get(place, 0) + count.message_count

    def _await_empty(self, channels: Sequence[Channel]) -> None:
        """Return when nothing is left; Broken when nothing moves any more."""
        before: object = None
        deadline = 0.0
        while True:
            self._raise_failures()
            counts = {
                place: (channel["depth"], channel["in_flight_count"], channel["deferred_count"])
                for place, (channel, _) in self.harness.channel_stats().items()
                if place in channels
            }
            if not any(map(any, counts.values())):
                return
            now = time.monotonic()
            if counts != before:
                before, deadline = counts, now + ANSWER_SECONDS
            if now > deadline:
                self._raise_for([f"stuck: {place} has {count} and nothing moves" for place, count in counts.items()])
            time.sleep(0.01)  # between two looks at /stats; how many there are decides nothing

    # -- what comes of it

    def _check(self) -> None:
        found = [*wrongs(self.journal), *self._rows.wrongs()]
        self._store()  # what was finished to find that out
        tally = self.tally
        stored, delivered = self._rows.counts()
        tally.acknowledged += len(History(self.journal).good) + stored
        tally.delivered += sum(isinstance(event, Delivered) for event in self.journal.events) + delivered
        tally.repeats += repeats(self.journal)
        tally.lost += sum(wrong.startswith("lost") for wrong in found)
        self._raise_for(found)
        self.journal.archive()
        self._rows.archive()

    def _raise_for(self, found: list[str]) -> None:
        if found:
            raise Broken("\n".join([f"{len(found)} wrong", *found[:_SHOWN]]))

    def _raise_failures(self) -> None:
        """Raise what has ended a client, and first of all what it has found."""
        failures = [client.failure for client in self._clients if client.failure is not None]
        if failures:
            raise min(failures, key=lambda failure: not isinstance(failure, (Broken, Refused)))

    def _report(self, found: str) -> str:
        """What was found, when, and where more is written."""
        journal = self._directory / "journal"
        events = [*self.journal.events, *self._rows.events()]
        journal.write_text("".join(f"{number} {event}\n" for number, event in enumerate(events)))
        return f"{self.about}, life {self.harness.life}, events in {journal}: {found}"
