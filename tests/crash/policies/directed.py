"""
Messages for one channel: no other channel gets them, and this one gets them once, also when the topic was paused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.crash.checks import name as shown
from tests.crash.history import Channel
from tests.crash.policies.clients import HttpPublisher, Publisher
from tests.crash.policies.notes import Delivered
from tests.crash.policies.row import Row
from tests.crash.policies.threads import Consuming, Publishing
from tests.crash.promises import expect

_PAUSES = 0.03
_PUBLISHED_PAUSED = 4
_DELAYED = 0.2
_LONGEST_DELAY_MS = 300
_OK, _FAILED = 200, 500


class Directed(Row):
    """Most messages are for one of two channels; some are deferred. What a body ends with says which channel."""

    name = "directed"
    channel_names = ("one", "two")
    publishers = (HttpPublisher,)

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        assert isinstance(publisher, HttpPublisher)
        if client.chance.random() >= _PAUSES:
            self._publish(client, publisher)
            return
        publisher.order(f"/topic/pause?topic={self.name}", (_OK, _FAILED))
        for _ in range(_PUBLISHED_PAUSED):
            self._publish(client, publisher)
        publisher.order(f"/topic/unpause?topic={self.name}", (_OK, _FAILED))

    def _publish(self, client: Publishing, publisher: HttpPublisher) -> None:
        only = client.chance.choice(("", *self.channel_names))
        delay_ms = client.chance.randint(1, _LONGEST_DELAY_MS) if client.chance.random() < _DELAYED else 0
        message = self.make(client)
        message = message._replace(body=b"%s.%s" % (message.body, only.encode()), delay_ms=delay_ms)
        self.notes.note(message)
        options = {**({"defer": delay_ms} if delay_ms else {}), **({"channel": only} if only else {})}
        outcome, _ = publisher.ask(message.topic, message.body, {}, options)
        client.answered(message.body, outcome)

    def drainers(self) -> list[Consuming]:
        path = f"/topic/unpause?topic={self.name}"
        answer = self.house.http("POST", path)
        expect(answer.status == _OK, path, answer)
        return super().drainers()

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        return super().may_be_missing(body, channel) or only_channel(body) not in ("", channel.name)

    def broken(self) -> Iterator[str]:
        times: Counter[tuple[Channel, bytes, int, int]] = Counter()
        for _, event in self.notes.all(Delivered):
            if only_channel(event.body) not in ("", event.channel.name):
                yield f"directed: {shown(event.body)} is in {event.channel}, too"
            times[event.channel, event.id, event.attempts, event.life] += 1
        for (channel, message_id, attempts, life), count in times.items():
            if count > 1:
                what = f"{message_id.decode()} came {count} times to {channel} with {attempts} attempts"
                yield f"directed: {what} in life {life}"


def only_channel(body: bytes) -> str:
    """The channel that a message is for; "" for all."""
    return body.rpartition(b".")[2].decode()
