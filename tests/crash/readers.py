"""
Consumers that note what is delivered to them, and what they say of it.

A *prompt* reader has a timeout that never runs out: it finishes most messages at once, some later in another order, and
requeues some, now or with a delay. A *dawdler* has a short one, keeps messages beyond it, touches some, and may leave
without a word, and come back on another connection.
"""

from __future__ import annotations

import random
import threading
from itertools import count

from tests.crash.harness import Harness
from tests.crash.history import (
    Channel,
    Connected,
    Delivered,
    Failed,
    Finished,
    Journal,
    Left,
    Requeued,
    moment,
)
from tests.crash.promises import expect
from tests.wire import CLOSE_WAIT, ERROR, MESSAGE, Client, Closed, Message, message_of

READY = 60
MOST_KEPT = 20
"""Messages left unanswered at a time; fewer than it is ready for, so that it always gets more."""
DAWDLERS_TIMEOUT_MS = 250
"""Below what a consumer may ask for: the broker's own."""
NEVER_MS = 900_000
_LEAVES = 0.005
_FAILURES = (b"E_FIN_FAILED ", b"E_REQ_FAILED ", b"E_TOUCH_FAILED ")

_connections = count(1)


class Reader(threading.Thread):
    """Consumes one channel until it is told to leave or the broker is gone."""

    def __init__(self, harness: Harness, journal: Journal, channel: Channel, seed: str, *, prompt: bool) -> None:
        super().__init__(name=f"reader {channel} {seed}")
        self._house = harness
        self._journal = journal
        self._channel = channel
        self._chance = random.Random(seed)
        self._prompt = prompt
        self._life = harness.life
        self._lock = threading.Lock()
        self._kept: list[Message] = []
        self._client: Client | None = None
        self._connection = 0
        self.tidy = False
        """Whether from now on everything is finished as it comes."""
        self._leaving = False
        self.failure: BaseException | None = None

    # -- what others tell it

    def finish_all(self) -> None:
        """From now on finish everything at once, what is kept too."""
        self.tidy = True
        with self._lock:
            self._finish(self._kept)

    def leave(self) -> None:
        """Say CLS: the thread ends when the broker has answered, and what it keeps stays unfinished."""
        with self._lock:
            self._leaving = True
            if self._client is not None:
                self._client.send(b"CLS\n")

    # -- its life

    def run(self) -> None:
        try:
            while not self._leaving:
                with self._house.client() as client:
                    if not self._consume(client):
                        return
        except (Closed, OSError) as failure:
            if self._house.is_alive(self._life):
                self.failure = failure
        except BaseException as failure:
            self.failure = failure

    def _consume(self, client: Client) -> bool:
        """Whether it wants to come back."""
        self._connection = next(_connections)
        client.identify(**({"msg_timeout": NEVER_MS} if self._prompt else {}))
        self._journal.record(Connected(self._channel, self._connection, self._prompt, self._life))
        settled = False
        try:
            client.sub(*self._channel, ready=READY)
            with self._lock:
                self._client = client
                if self._leaving:
                    client.send(b"CLS\n")
            while not (settled := self._read(client)):
                if not (self._prompt or self.tidy) and self._chance.random() < _LEAVES:
                    return True
            return False
        finally:
            with self._lock:
                self._client = None
                self._kept.clear()
            self._journal.record(Left(self._channel, self._connection, settled, self._life))

    def _read(self, client: Client) -> bool:
        """One frame; whether it is the last one."""
        frame = client.frame()
        if frame.kind == MESSAGE:
            message = message_of(frame.data)
            self._journal.record(
                Delivered(
                    self._channel,
                    message.id,
                    message.body,
                    message.attempts,
                    self._connection,
                    self._life,
                    moment(),
                )
            )
            with self._lock:
                self._decide(message)
        elif frame.kind == ERROR:
            # E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight
            expect(frame.data.startswith(_FAILURES), f"a consumer of {self._channel}", frame)
            _, verb, message_id, _ = frame.data.split(b" ", 3)
            self._journal.record(Failed(self._channel, message_id, verb.decode(), self._connection, self._life))
        else:
            expect(frame.data == CLOSE_WAIT, f"a consumer of {self._channel}", frame)
            return True
        return False

    def _decide(self, message: Message) -> None:
        """What becomes of a message."""
        fate = self._chance.random()
        if self.tidy or fate < 0.75:
            self._finish([message])
        elif fate < 0.85 or (fate < 0.92 and not self._prompt):
            self._kept.append(message)
            if not self._prompt and fate < 0.8:
                self._send(b"TOUCH %s\n" % message.id)
        else:
            delay_ms = 0 if fate < 0.95 or not self._prompt else self._chance.randint(1, self._house.longest_delay_ms)
            self._journal.record(
                Requeued(
                    self._channel,
                    message.id,
                    message.attempts,
                    delay_ms,
                    self._connection,
                    self._life,
                    moment(),
                )
            )
            self._send(b"REQ %s %d\n" % (message.id, delay_ms))
        if len(self._kept) > MOST_KEPT:
            self._chance.shuffle(self._kept)
            self._finish(self._kept)

    def _finish(self, messages: list[Message]) -> None:
        fins = [Finished(self._channel, one.id, one.attempts, self._connection, self._life) for one in messages]
        self._send(b"".join(b"FIN %s\n" % one.id for one in messages))
        self._journal.record(*fins)
        if messages is self._kept:
            messages.clear()

    def _send(self, data: bytes) -> None:
        if self._client is not None:
            self._client.send(data)
