"""Publishers and consumers of one policy, which note what they do and what comes of it."""

from __future__ import annotations

import random
import threading
import time
from itertools import count
from typing import TYPE_CHECKING

from tests.crash.harness import Harness
from tests.crash.history import Channel
from tests.crash.policies.clients import CONSUMERS, OVER_BOUND, REFUSED, STORED, Consumer, Got, Publisher
from tests.crash.policies.notes import Answered, Delivered, Finished, Published, Requeued, Wall, now
from tests.crash.writers import AFTER_REFUSAL_SECONDS
from tests.wire import Closed

if TYPE_CHECKING:
    from tests.crash.policies.row import Row

FINISH, KEEP = "finish", "keep"
"""What becomes of a message that was delivered; a number: it is requeued with this delay, in ms."""
_CREDIT = 40
_LOOK_AGAIN_SECONDS = 0.005
_connections = count(1)


class Client(threading.Thread):
    """One client in one life of the broker."""

    def __init__(self, house: Harness, row: Row, seed: str) -> None:
        super().__init__(name=f"{row.name} {seed}")
        self.house = house
        self.row = row
        self.chance = random.Random(f"{row.name} {seed}")
        self.life = house.life
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except (Closed, OSError) as failure:
            if self.house.is_alive(self.life):
                self.failure = failure
        except BaseException as failure:
            self.failure = failure

    def work(self) -> None:
        """All it does."""
        raise NotImplementedError

    def now(self) -> Wall:
        return now(self.house.control.wall_offset_ns)


class Publishing(Client):
    """Publishes what its row makes, one message at a time, until it is told to stop or the broker is gone."""

    def __init__(self, house: Harness, row: Row, seed: str) -> None:
        super().__init__(house, row, seed)
        self.stopping = threading.Event()
        self.acknowledged = 0

    def work(self) -> None:
        publisher = self.chance.choice(self.row.publishers)(self.house)
        try:
            while not self.stopping.is_set():
                self.row.publish_next(self, publisher)
        finally:
            publisher.close()

    def publish(self, publisher: Publisher, message: Published) -> str:
        """Publish a message, which may be a repeat. The outcome."""
        self.row.notes.note(message)
        outcome = publisher.publish(message.topic, message.body, message.headers, message.delay_ms)
        self.answered(message.body, outcome)
        return outcome

    def answered(self, body: bytes, outcome: str) -> None:
        """Note what became of a publish."""
        self.row.notes.note(Answered(body, outcome, self.life, self.now()))
        self.acknowledged += outcome in (STORED, OVER_BOUND)
        if outcome == REFUSED:
            self.stopping.wait(AFTER_REFUSAL_SECONDS)


class Consuming(Client):
    """Consumes one channel until it is told to leave or the broker is gone. Nothing times out."""

    def __init__(self, house: Harness, row: Row, channel: Channel, seed: str, *, tidy: bool = False) -> None:
        super().__init__(house, row, f"{channel} {seed}")
        self.channel = channel
        self.tidy = tidy
        """Whether everything is finished as it comes."""
        self._connection = next(_connections)
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._leaving = False
        self._kept: list[Got] = []

    def finish_all(self) -> None:
        """From now on finish everything at once, what is kept too."""
        self.tidy = True
        with self._lock:
            self._finish_kept()

    def leave(self) -> None:
        """The thread ends when the broker has done all it was told. What is kept is finished or requeued before."""
        with self._lock:
            self._leaving = True
            if self._consumer is not None:
                if self.row.requeues_at_end:
                    self._requeue_kept(self._consumer)
                self._finish_kept()
                self._consumer.leave()

    def work(self) -> None:
        while not (self.tidy or self._leaving) and len(self.row.notes.stored) < self.row.backlog:
            if not (self.house.life == self.life and self.house.runs):
                return
            # A broker that may be killed at any time announces nothing: its publishers' notes are looked at instead.
            time.sleep(_LOOK_AGAIN_SECONDS)
        since = granted = self.now()
        credit = 1 if self.row.one_at_a_time else _CREDIT
        consumer = self.chance.choice(CONSUMERS)(self.house, *self.channel, credit)
        try:
            with self._lock:
                self._consumer = consumer
                if self._leaving:
                    consumer.leave()
            while (message := consumer.next()) is not None:
                # A turn has sent this message, after the credit for it was given; the next one is of a later turn.
                delivered = Delivered(self.channel, *message, self._connection, self.life, self.now(), since)
                self.row.notes.note(delivered)
                with self._lock:
                    since, granted = (granted, self.now()) if self.row.one_at_a_time else (since, granted)
                    self._decide(consumer, message)
        finally:
            with self._lock:
                self._consumer = None
            consumer.close()

    def _decide(self, consumer: Consumer, message: Got) -> None:
        fate = FINISH if self.tidy or self._leaving else self.row.fate(message, self.chance)
        if fate == KEEP:
            self._kept.append(message)
            if len(self._kept) >= self.row.most_kept:
                self.chance.shuffle(self._kept)
                self._finish_kept()
        elif fate == FINISH:
            self._finish(consumer, message)
        else:
            assert isinstance(fate, int)
            self._requeue(consumer, message, fate)

    def _finish_kept(self) -> None:
        for message in self._kept if self._consumer is not None else ():
            assert self._consumer is not None
            self._finish(self._consumer, message)
        self._kept.clear()

    def _requeue_kept(self, consumer: Consumer) -> None:
        consumer.pause()  # or they come back at once
        for message in self._kept:
            self._requeue(consumer, message, 0)
        self._kept.clear()

    def _requeue(self, consumer: Consumer, message: Got, delay_ms: int) -> None:
        requeued = Requeued(
            self.channel, message.id, message.body, self._connection, self.life, message.attempts, self.now()
        )
        self.row.notes.note(requeued)
        consumer.requeue(message, delay_ms)

    def _finish(self, consumer: Consumer, message: Got) -> None:
        self.row.notes.note(Finished(self.channel, message.id, message.body, self._connection, self.life))
        consumer.finish(message)
