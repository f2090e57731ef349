"""
Dead letters: a message is in its channel or in the dead-letter topic, in one of them; and when it is put back, it is in
its channel only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.crash.checks import name as shown
from tests.crash.history import Channel
from tests.crash.policies.clients import HttpPublisher, Publisher
from tests.crash.policies.notes import Delivered, Draining
from tests.crash.policies.row import Row
from tests.crash.policies.threads import Publishing

_REDRIVES = 0.02
_SAVES = 4
"""A letter waits for one save on its way; those of a failed batch wait for the next."""
_ANSWERS = (200, 404, 409, 503)


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

    def create(self) -> None:
        super().create()
        self.house.create(*self.letters)

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        if client.chance.random() < _REDRIVES:
            redriver = HttpPublisher(self.house)
            try:
                status, _ = redriver.order(f"/v2/channel/redrive?topic={self.name}&channel=work")
                assert status in _ANSWERS, status
            finally:
                redriver.close()
        super().publish_next(client, publisher)

    def settle(self, await_empty: Callable[[], None]) -> None:
        for _ in range(_SAVES):
            self.house.store()
            await_empty()

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        if channel.name == "work" and body in self.notes.finished(self.letters):
            return True
        return super().may_be_missing(body, channel)

    def broken(self) -> Iterator[str]:
        begun = max(number for number, _ in self.notes.all(Draining))
        found: dict[bytes, set[tuple[str, bytes]]] = {}
        others: dict[bytes, set[bytes]] = {}
        for number, event in self.notes.all(Delivered):
            if event.channel.name == "other":
                others.setdefault(event.body, set()).add(event.id)
            elif number > begun:
                found.setdefault(event.body, set()).add((event.channel.topic, event.id))
        for body, places in found.items():
            if len(places) > 1 and body not in self.notes.excused:
                yield f"dead letters: {shown(body)} is there {len(places)} times: {sorted(places)}"
        for body, ids in others.items():
            if len(ids) > 1 and body not in self.notes.excused:
                yield f"dead letters: {shown(body)} was put back to {self.name}/other, too"
