"""Scheduled messages: not before their time, and not at all when they were cancelled and that was answered."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from tests.crash.checks import SLACK_SECONDS
from tests.crash.checks import name as shown
from tests.crash.history import Channel
from tests.crash.policies.clients import STORED, HttpPublisher, Publisher
from tests.crash.policies.notes import Cancelled, Cancelling, Delivered
from tests.crash.policies.row import Row
from tests.crash.policies.threads import Publishing

_CANCELS = 0.6
_OK, _NOT_DEFERRED, _FAILED = 200, 404, 500


class Schedule(Row):
    """Deferred messages, of which most are cancelled at once."""

    name = "scheduled"
    channel_names = ("one", "two")
    publishers = (HttpPublisher,)

    def delay_ms(self, chance: random.Random) -> int:
        return chance.randint(1, self.house.longest_delay_ms)

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        assert isinstance(publisher, HttpPublisher)
        message = self.make(client)
        self.notes.note(message)
        outcome, answer = publisher.ask(message.topic, message.body, {}, {"defer": message.delay_ms, "ids": "true"})
        client.answered(message.body, outcome)
        if outcome == STORED and client.chance.random() < _CANCELS:
            self.notes.note(Cancelling(message.body, client.life))
            (message_id,) = json.loads(answer)["ids"]
            path = f"/v2/topic/cancel?topic={self.name}&id={message_id}"
            status, answer = publisher.order(path, (_OK, _NOT_DEFERRED, _FAILED))
            if status == _OK:
                of = frozenset(Channel(self.name, channel) for channel in json.loads(answer)["channels"])
                self.notes.note(Cancelled(message.body, of, client.life))

    def may_be_missing(self, body: bytes, channel: Channel) -> bool:
        asked = {event.body for _, event in self.notes.all(Cancelling)}
        return super().may_be_missing(body, channel) or body in asked

    def broken(self) -> Iterator[str]:
        cancelled = {
            (event.body, channel): number for number, event in self.notes.all(Cancelled) for channel in event.channels
        }
        for number, event in self.notes.all(Delivered):
            what = f"{shown(event.body)} in {event.channel}, life {event.life}"
            if cancelled.get((event.body, event.channel), number) < number:
                yield f"schedule: {what} was cancelled"
            sent = self.notes.published[event.body]
            due = sent.when.at + sent.delay_ms / 1000
            # A due time outlives the process as one of the wall clock.
            moved = event.life != sent.life and event.when.ahead != sent.when.ahead
            if not moved and event.when.at < due - SLACK_SECONDS:
                yield f"schedule: {what} came {due - event.when.at:.3f} s too early"
