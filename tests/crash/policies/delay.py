"""
Delay of failed messages: none is delivered again before its delay has passed since its REQ, its timeout or the end of
its connection; and what was requeued not after a restart, either.

The delay begins after the REQ was sent, and the message is read after it was delivered: a slow machine makes the time
between the two longer only. So it does with a timeout, which begins after its connection, and with a disconnect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.crash.checks import SLACK_SECONDS
from tests.crash.checks import name as shown
from tests.crash.policies.clients import CONSUMERS, Got, Publisher
from tests.crash.policies.notes import Abandoned, Delivered, Requeued, Saved
from tests.crash.policies.row import Row
from tests.crash.policies.threads import Consuming, Publishing
from tests.crash.promises import expect
from tests.crash.readers import DAWDLERS_TIMEOUT_MS

_FIRST_MS = 600
_LONGEST_SHARE = 1.8
"""The longest delay, in first ones."""
_SHORTEST_SHARE = 0.8
"""Delays are varied by a fifth."""
_DELAY_OF_STARTS = 2
_PAUSE_SECONDS = 0.005
"""Between two publishes: a round ends after some messages, and shall last longer than a timeout."""
_HELD = 2
_OK = 200


class Delay(Row):
    """Half of the messages are requeued without a delay. One consumer leaves its messages unanswered."""

    name = "delayed"
    channel_policy = {"requeue_delay": f"{_FIRST_MS}ms", "max_requeue_delay": f"{int(_FIRST_MS * _LONGEST_SHARE)}ms"}
    requeues = 0.5
    first_ms = _FIRST_MS

    def create(self) -> None:
        """What is requeued shall wait over a start, which takes long on a slow machine."""
        super().create()
        self.first_ms = max(_FIRST_MS, int(_DELAY_OF_STARTS * self.house.start_seconds * 1000))
        delays = {"requeue_delay": self.first_ms, "max_requeue_delay": int(self.first_ms * _LONGEST_SHARE)}
        document = json.dumps({name: f"{delay_ms}ms" for name, delay_ms in delays.items()})
        path = f"/v2/channel/policy?topic={self.name}&channel={self.channels[0].name}"
        answer = self.house.http("PUT", path, document.encode())
        expect(answer.status == _OK, path, answer)

    def clients(self) -> tuple[list[Publishing], list[Consuming]]:
        publishing, consuming = super().clients()
        return publishing, [*consuming, Silent(self.house, self, self.channels[0], f"{self._seed}.{self.house.life}")]

    def publish_next(self, client: Publishing, publisher: Publisher) -> None:
        client.stopping.wait(_PAUSE_SECONDS)
        super().publish_next(client, publisher)

    def broken(self) -> Iterator[str]:
        saved = {event.life: number for number, event in self.notes.all(Saved)}
        delivered = self.notes.delivered
        failed: list[tuple[int, Requeued | Abandoned]] = [*self.notes.all(Requeued), *self.notes.all(Abandoned)]
        for number, failure in failed:
            due = failure.when.at + self._shortest_seconds(failure.attempts)
            for _, event in delivered[failure.channel][failure.body]:
                is_same_life = event.life == failure.life and event.attempts > failure.attempts
                # A due time outlives the process as one of the wall clock.
                is_saved = isinstance(failure, Requeued) and number < saved.get(failure.life, -1)
                is_kept = event.life > failure.life and is_saved
                is_moved = event.when.ahead != failure.when.ahead
                if failure.body in self.notes.excused:
                    continue
                if (is_same_life or (is_kept and not is_moved)) and event.when.at < due - SLACK_SECONDS:
                    early = due - event.when.at
                    yield f"delay: {shown(event.body)} came {early:.3f} s too early, in life {event.life}"

    def _shortest_seconds(self, attempts: int) -> float:
        """Return the shortest delay after so many deliveries."""
        return _SHORTEST_SHARE * self.first_ms * min(_LONGEST_SHARE, 2 ** (attempts - 1)) / 1000


class Silent(Consuming):
    """
    Answers nothing. With credit for one message it gets a second one when the first one has timed out: then it ends the
    connection, which is the end of the second one's delivery, and makes another one.
    """

    def finish_all(self) -> None:
        self.leave()

    def leave(self) -> None:
        with self._lock:
            if self._consumer is not None and not self._leaving:
                self._consumer.leave()
            self._leaving = True

    def work(self) -> None:
        while not self._leaving:
            self._connect()

    def _connect(self) -> None:
        since = self.now()
        consumer = self.chance.choice(CONSUMERS)(self.house, *self.channel, 1, timeout_ms=0)
        held: list[Got] = []
        try:
            with self._lock:
                self._consumer = consumer
                if self._leaving:
                    consumer.leave()
            while len(held) < _HELD and (message := consumer.next()) is not None:
                held.append(message)
                delivered = Delivered(self.channel, *message, self._connection, self.life, self.now(), since)
                self.row.notes.note(delivered)
        finally:
            with self._lock:
                self._consumer = None
            end = self.now().at
            for number, message in enumerate(held, 1):
                when = since._replace(at=min(end, since.at + number * DAWDLERS_TIMEOUT_MS / 1000))
                self.row.notes.note(Abandoned(self.channel, message.body, self.life, message.attempts, when))
            consumer.close()
