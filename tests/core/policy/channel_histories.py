"""
Random histories of one channel with a policy, against a model: consumers, an administrator, time, saves and crashes.

The model knows every message that is not finished. What a policy promises of a delivery is `check_delivery` of the
subclass, which publishes, too. At the end everything must come.

Events are drawn from a list, because rules that need nothing would be drawn too often.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from random import Random
from typing import Any

from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nsqtw.core.channel import Channel
from tests.core.harness import BrokerHarness, Message, Reader

FOR_EVER = 1e9
LONGER_THAN_ANY_TIMEOUT = 70.0
LONGER_THAN_ANY_DELAY = 250.0
DELAYS = [0.0, 0.0, 0.0, 30.0]
EVENTS = [
    *["publish"] * 8,
    *["answer"] * 12,
    *["finish_all"] * 3,
    *["rdy", "subscribe", "leave", "save", "crash", "long_wait"] * 2,
    *["switch", "pause", "empty", "seek", "wait_while_saving", "extra"],
]
ANSWERS = ["finish", "finish", "finish", "requeue", "defer"]


@define
class ModelMessage:
    tag: str | None
    """The key or the priority."""
    sequence: int
    is_deferred: bool
    """Whether its publisher deferred it."""
    due: float
    attempts: int = 0
    reader: int | None = None


@define
class Model:
    unfinished: dict[bytes, ModelMessage] = field(factory=dict)
    history: list[tuple[bytes, ModelMessage]] = field(factory=list)
    """All that was published, as it was then."""
    paused: bool = False


class ChannelHistories(RuleBasedStateMachine):
    """One channel. Small steps take too little time for any timeout or delay."""

    def __init__(self, policy: dict[str, Any]) -> None:
        super().__init__()
        self.core = BrokerHarness(mem_queue_size=3)
        self.core.options.retention_time = FOR_EVER
        self.core.topic().reader.retention_policy.give((None, None), self.core.now)
        self.model = self.saved = Model()
        self.readers: dict[int, tuple[Reader, dict[bytes, Message]]] = {}
        self.policy = policy
        self.is_on = True

    def begin(self, page_rows: int, *, requeue_on_disconnect: bool) -> None:
        """What a subclass does first, with options of its choice."""
        self.core.page_rows = self.core.broker.page_rows = page_rows
        self.core.options.requeue_on_disconnect = requeue_on_disconnect
        self.channel.policies.set(self.policy)
        self.subscribe(3)
        self.save()

    def check_delivery(self, message: ModelMessage) -> None:
        """Check that it is the turn of a message."""
        raise NotImplementedError

    @property
    def channel(self) -> Channel:
        return self.core.channel()

    @rule(event=st.sampled_from(EVENTS), random=st.randoms(use_true_random=False))
    def go_on(self, event: str, random: Random) -> None:
        self.random = random
        getattr(self, event)()

    # -- publishers and consumers

    def publish(self) -> None:
        raise NotImplementedError

    def extra(self) -> None:
        """What happens to the channels of a subclass only."""

    def add(self, messages: Iterable[tuple[bytes, str | None]], delay: float) -> None:
        """These are published: the body and the tag of each."""
        for body, tag in messages:
            message = ModelMessage(tag, len(self.model.history), delay > 0, self.core.now + delay)
            self.model.history.append((body, message))
            self.model.unfinished[body] = deepcopy(message)

    def subscribe(self, ready: int | None = None) -> None:
        reader = self.core.reader(ready=self.random.randint(0, 6) if ready is None else ready)
        self.readers[max(self.readers, default=0) + 1] = (reader, {})
        self.deliver()

    def rdy(self) -> None:
        if self.readers:
            reader, _ = self.readers[self.random.choice(sorted(self.readers))]
            reader.channel.set_ready(reader.consumer, self.random.randint(0, 6))
            self.deliver()

    def leave(self) -> None:
        if not self.readers:
            return
        reader, inbox = self.readers.pop(self.random.choice(sorted(self.readers)))
        reader.leave()
        if self.core.options.requeue_on_disconnect:
            for body in inbox:
                self.model.unfinished[body].reader = None
        self.deliver()

    def answer(self) -> None:
        """Of one message, the first one or any other."""
        busy = [entry for entry in self.readers.values() if entry[1]]
        if not busy:
            return
        reader, inbox = self.random.choice(busy)
        body = self.random.choice([next(iter(inbox)), *inbox])
        message, action = inbox.pop(body), self.random.choice(ANSWERS)
        if action == "finish":
            assert reader.finish(message.id) == []
            del self.model.unfinished[body]
        else:
            delay = 30.0 if action == "defer" else 0.0
            assert reader.requeue(message.id, delay) is None
            self.model.unfinished[body].reader = None
            self.model.unfinished[body].due = self.core.now + delay
        self.deliver()

    def finish_all(self) -> None:
        """All messages of a consumer, or the first ones."""
        busy = [entry for entry in self.readers.values() if entry[1]]
        if not busy:
            return
        reader, inbox = self.random.choice(busy)
        bodies = [*inbox][: self.random.randint(1, len(inbox))]
        assert reader.finish(*[inbox.pop(body).id for body in bodies]) == []
        for body in bodies:
            del self.model.unfinished[body]
        self.deliver()

    # -- administration

    def switch(self) -> None:
        self.is_on = not self.is_on
        self.channel.policies.set(self.policy if self.is_on else {})
        self.deliver()

    def pause(self) -> None:
        self._set_paused(not self.model.paused)

    def _set_paused(self, paused: bool) -> None:
        self.channel.pause() if paused else self.channel.unpause()
        self.model.paused = paused
        self.save()

    def empty(self) -> None:
        self.channel.empty()
        self.model.unfinished.clear()
        for _, inbox in self.readers.values():
            inbox.clear()

    def seek(self) -> None:
        if not self.model.history:
            return
        self.save()
        place, previews = self.random.randint(0, len(self.model.history)), self.random.choice([True, False])
        sequences = self.sequences()
        sequence = sequences[place] if place < len(sequences) else self.core.topic().released
        is_forwards = sequence > self.channel.cursor.next
        preview = self.channel.preview_seek(sequence) if previews else None
        moved = self.channel.seek(sequence)
        assert preview in (None, moved)
        before = self.model.unfinished.keys()
        self.model.unfinished = {
            body: message
            for body, message in self.model.unfinished.items()
            if message.sequence < place and not is_forwards
        }
        for body, message in self.model.history[place:]:
            self.model.unfinished[body] = deepcopy(message)
        after = self.model.unfinished.keys()
        assert (moved.skipped, moved.replayed) == (len(before - after), len(after - before))
        for _, inbox in self.readers.values():
            for body in [body for body in inbox if is_forwards or self.model.unfinished[body].reader is None]:
                del inbox[body]
        self.save()

    # -- time, saving and dying

    def long_wait(self) -> None:
        self._wait(LONGER_THAN_ANY_TIMEOUT)

    def _wait(self, seconds: float) -> None:
        self.core.now += seconds
        self.core.broker.tick(self.core.now)
        for message in self.model.unfinished.values():
            message.reader = None
        for _, inbox in self.readers.values():
            inbox.clear()
        self.deliver()
        self._look_again()

    def _look_again(self) -> None:
        """A broker that had no room for what is due, or was saving it, looks ten times a second."""
        self.core.wait(0.2)
        self.deliver()

    def save(self) -> None:
        self.deliver()
        self.core.save()
        self.saved = deepcopy(self.model)

    def wait_while_saving(self) -> None:
        save = self.core.begin_save()
        self.deliver()
        self.core.positions.save(save.checkpoint)
        self._wait(31.0 + LONGER_THAN_ANY_TIMEOUT)
        self.core.broker.checkpointer.end(save, None)
        self._look_again()
        self.save()

    def crash(self) -> None:
        self.core.crash()
        self.readers = {}
        published = self.model.history[len(self.saved.history) :]
        self.model = deepcopy(self.saved)
        self.model.history += deepcopy(published)
        self.model.unfinished.update(deepcopy(published))
        for message in self.model.unfinished.values():
            message.reader = None
        self.channel.policies.set(self.policy if self.is_on else {})
        self.save()

    # -- the model's side

    def sequences(self) -> list[int]:
        """The sequences that the broker has given to the messages of the history."""
        extract = self.core.topic().reader.read(0, 1 << 40)
        return [sequence for part in extract.parts for sequence in range(part.first, part.end)]

    def deliver(self) -> None:
        self.core.turn()
        for number, (reader, inbox) in self.readers.items():
            for message in reader.read():
                known = self.model.unfinished[message.body]
                assert known.reader is None and not self.model.paused
                assert message.attempts == known.attempts + 1
                self.check_delivery(known)
                known.attempts, known.reader = message.attempts, number
                inbox[message.body] = message

    @invariant()
    def nothing_is_lost(self) -> None:
        self.deliver()
        channel = self.channel
        assert channel.depth + channel.in_flight_count + channel.deferred_count == len(self.model.unfinished)

    def teardown(self) -> None:
        self._set_paused(False)
        self._wait(LONGER_THAN_ANY_DELAY)
        for number, (reader, _) in self.readers.items():
            reader.channel.set_ready(reader.consumer, number % 3 + 1)
        self.subscribe(2)
        for _ in range(2 * len(self.model.history) + 2):
            for reader, inbox in self.readers.values():
                assert reader.finish(*[message.id for message in inbox.values()]) == []
                for body in inbox:
                    del self.model.unfinished[body]
                inbox.clear()
            self.deliver()
            self.core.now += 0.2
            self.core.broker.tick(self.core.now)
            self.deliver()
        assert not self.model.unfinished
        assert self.channel.depth == self.channel.in_flight_count == 0
