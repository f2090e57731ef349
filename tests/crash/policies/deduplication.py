"""
Deduplication: of all publishes with one id to the topic, or to one channel of it, one is stored, also when the broker
dies before it answers.

A publish that was refused is not repeated: it may be in the log, and then a restart finds it beside the repeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from tests.crash.checks import name as shown
from tests.crash.harness import Harness
from tests.crash.history import Channel
from tests.crash.policies.clients import REFUSED, STORED, HttpPublisher, Publisher
from tests.crash.policies.directed import only_channel
from tests.crash.policies.notes import Published
from tests.crash.policies.row import Row
from tests.crash.policies.threads import Publishing

_REPEATS = 0.3
_RECENT = 20


class Deduplication(Row):
    """A publisher repeats each publish without an answer, and others now and then."""

    name = "once"
    topic_policy = {"dedupe_window": "1000h"}

    def __init__(self, house: Harness, seed: str, durability: str) -> None:
        super().__init__(house, seed, durability)
        self._recent = deque[Published](maxlen=_RECENT)

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        unanswered = self._unanswered()
        # What was lost with its file, or with the power, is not known any more, even if it was finished before.
        recent = [message for message in self._recent if message.body not in self.notes.excused]
        if unanswered:
            client.publish(publisher, unanswered[0])
        elif client.chance.random() < _REPEATS and recent:
            client.publish(publisher, client.chance.choice(recent))
        else:
            message = self.make(client)
            if client.publish(publisher, message) == STORED:
                self._recent.append(message)

    def make(self, client: Publishing) -> Published:
        message = super().make(client)
        return message._replace(headers={"id": message.body.decode()})

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        """A repeat of a message that was finished long ago."""
        return super().may_be_missing(body, channel) or body in self.notes.past

    def _unanswered(self) -> list[Published]:
        answered = self.notes.stored | self.notes.answered(REFUSED)
        return [message for body, message in self.notes.published.items() if body not in answered]

    def broken(self) -> Iterator[str]:
        for channel, bodies in self.notes.delivered.items():
            for body, deliveries in bodies.items():
                ids = {event.id for _, event in deliveries}
                if len(ids) > 1 and body not in self.notes.excused:
                    yield f"deduplication: {shown(body)} is in {channel} {len(ids)} times"


class DirectedDeduplication(Deduplication):
    """Messages for all channels, and for one of two, share their ids. What a body ends with says which channel."""

    name = "once-to-one"
    channel_names = ("one", "two")
    publishers = (HttpPublisher,)

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        assert isinstance(publisher, HttpPublisher)
        super().publish_next(client, _ToOne(publisher))

    def make(self, client: Publishing) -> Published:
        message = super().make(client)
        prefix, _, number = message.body.rpartition(b".")
        number_of_id, audience = divmod(int(number), 1 + len(self.channel_names))
        only = ("", *self.channel_names)[audience]
        headers = {"id": f"{prefix.decode()}.{number_of_id}"}
        return message._replace(body=b"%s.%s" % (message.body, only.encode()), headers=headers)

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        return super().may_be_missing(body, channel) or only_channel(body) not in ("", channel.name)


class _ToOne:
    """A publisher to the channel that a body names."""

    def __init__(self, publisher: HttpPublisher) -> None:
        self._publisher = publisher

    def publish(self, topic: str, body: bytes, headers: Mapping[str, str], delay_ms: int) -> str:
        only = only_channel(body)
        return self._publisher.ask(topic, body, headers, {"channel": only} if only else {})[0]

    def close(self) -> None:
        self._publisher.close()
