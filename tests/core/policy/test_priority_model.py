"""
Priorities against a model, through random histories with crashes.

The model knows every message that is not finished. While the policy is on, the first delivery of a message is that of
the oldest one of its class; while it is off, of the oldest one of all. A deferred message has no place in an order. At
the end everything must come.
"""

from __future__ import annotations

from copy import deepcopy

from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqtw.core.peek import READY, peek_channel
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness, Message, Reader

FOR_EVER = 1e9
LONGER_THAN_ANY_TIMEOUT = 70.0
LONGER_THAN_ANY_DELAY = 250.0
PRIORITIES = st.sampled_from(["high", "low", "normal", "urgent", None])


@define
class ModelMessage:
    priority: str | None
    sequence: int
    is_deferred: bool
    """Whether its publisher deferred it."""
    attempts: int = 0
    reader: int | None = None

    @property
    def is_new(self) -> bool:
        return not self.attempts and not self.is_deferred

    @property
    def known_class(self) -> str:
        return self.priority if self.priority in ("high", "low") else "normal"


@define
class Model:
    unfinished: dict[bytes, ModelMessage] = field(factory=dict)
    history: list[tuple[bytes, ModelMessage]] = field(factory=list)
    """All that was published, as it was then."""
    paused: bool = False

    def check_delivery(self, message: ModelMessage, *, is_on: bool) -> None:
        if message.is_new:
            others = [other for other in self.unfinished.values() if other.is_new]
            if is_on:
                others = [other for other in others if other.known_class == message.known_class]
            assert message.sequence == min(other.sequence for other in others)


class Priorities(RuleBasedStateMachine):
    """One channel. Small steps take too little time for any timeout or delay."""

    def __init__(self) -> None:
        super().__init__()
        self.core = BrokerHarness(mem_queue_size=3)
        self.core.options.retention_time = FOR_EVER
        self.core.topic().reader.retention_policy.give((None, None), self.core.now)
        self.model = self.saved = Model()
        self.readers: dict[int, tuple[Reader, dict[bytes, Message]]] = {}
        self.is_on = True

    @initialize(page_rows=st.sampled_from([1, 2, 1024]), requeue_on_disconnect=st.booleans())
    def choose_options(self, page_rows: int, requeue_on_disconnect: bool) -> None:
        self.core.page_rows = self.core.broker.page_rows = page_rows
        self.core.options.requeue_on_disconnect = requeue_on_disconnect
        self.channel.set_policy({"priority": True})
        self.subscribe(2)
        self.save()

    @property
    def channel(self):
        return self.core.channel()

    # -- publishers and consumers

    @rule(priorities=st.lists(PRIORITIES, min_size=1, max_size=20), delay=st.sampled_from([0.0, 0.0, 0.0, 30.0]))
    def publish(self, priorities: list[str | None], delay: float) -> None:
        bodies = []
        for priority in priorities:
            number = len(self.model.history)
            body = b"%d" % number
            message = ModelMessage(priority, number, delay > 0)
            self.model.history.append((body, message))
            self.model.unfinished[body] = deepcopy(message)
            bodies.append(body)
        headers = [encode_headers({"priority": priority} if priority else {}) for priority in priorities]
        self.core.topic().put(bodies, int(delay * 1000), [].append, headers if any(headers) else None)
        self.deliver()

    @rule(ready=st.integers(0, 3))
    def subscribe(self, ready: int) -> None:
        reader = self.core.reader(ready=ready)
        self.readers[max(self.readers, default=0) + 1] = (reader, {})
        self.deliver()

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), ready=st.integers(0, 3))
    def rdy(self, data: st.DataObject, ready: int) -> None:
        reader, _ = self.readers[data.draw(st.sampled_from(sorted(self.readers)))]
        reader.channel.set_ready(reader.consumer, ready)
        self.deliver()

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.readers)))
        reader, inbox = self.readers.pop(number)
        reader.leave()
        if self.core.options.requeue_on_disconnect:
            for body in inbox:
                self.model.unfinished[body].reader = None
        self.deliver()

    @precondition(lambda self: any(inbox for _, inbox in self.readers.values()))
    @rule(data=st.data(), action=st.sampled_from(["finish", "finish", "requeue", "defer"]))
    def act(self, data: st.DataObject, action: str) -> None:
        reader, inbox = data.draw(st.sampled_from([entry for entry in self.readers.values() if entry[1]]))
        body = data.draw(st.sampled_from(sorted(inbox)))
        message = inbox.pop(body)
        if action == "finish":
            assert reader.finish(message.id) == []
            del self.model.unfinished[body]
        else:
            assert reader.requeue(message.id, 30.0 if action == "defer" else 0.0) is None
            self.model.unfinished[body].reader = None
        self.deliver()

    # -- administration

    @rule(is_on=st.booleans())
    def switch(self, is_on: bool) -> None:
        self.is_on = is_on
        self.channel.set_policy({"priority": is_on})
        self.deliver()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.channel.pause() if paused else self.channel.unpause()
        self.model.paused = paused
        self.save()

    @rule()
    def empty(self) -> None:
        self.channel.empty()
        self.model.unfinished.clear()
        for _, inbox in self.readers.values():
            inbox.clear()

    @precondition(lambda self: self.model.history)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        self.save()
        parts = self.core.topic().reader.read(0, 1 << 40).parts
        sequences = [sequence for part in parts for sequence in range(part.first, part.end)]
        place = data.draw(st.integers(0, len(sequences)))
        sequence = [*sequences, self.core.topic().released][place]
        is_forwards = sequence >= self.channel.cursor.next
        preview = self.channel.preview_seek(sequence)
        assert self.channel.seek(sequence) == preview
        before = self.model.unfinished
        self.model.unfinished = {
            body: message for body, message in before.items() if message.sequence < place and not is_forwards
        }
        for body, message in self.model.history[place:]:
            self.model.unfinished[body] = deepcopy(message)
        for _, inbox in self.readers.values():
            for body in [body for body in inbox if is_forwards or self.model.unfinished[body].reader is None]:
                del inbox[body]
        self.save()

    # -- time, saving and dying

    @rule()
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
        self.core.wait(0.2)  # a broker that had no room for what is due looks ten times a second
        self.deliver()

    @rule()
    def save(self) -> None:
        self.deliver()
        self.core.save()
        self.saved = deepcopy(self.model)

    @rule()
    def crash(self) -> None:
        self.core.crash()
        self.readers = {}
        published = self.model.history[len(self.saved.history) :]
        self.model = deepcopy(self.saved)
        self.model.history += deepcopy(published)
        self.model.unfinished.update(deepcopy(published))
        for message in self.model.unfinished.values():
            message.reader = None
        self.channel.set_policy({"priority": self.is_on})
        self.save()

    # -- the model's side

    def deliver(self) -> None:
        self.core.turn()
        for number, (reader, inbox) in self.readers.items():
            for message in reader.read():
                known = self.model.unfinished[message.body]
                assert known.reader is None and not self.model.paused
                assert message.attempts == known.attempts + 1
                if len(self.readers) == 1:
                    self.model.check_delivery(known, is_on=self.is_on)
                known.attempts, known.reader = message.attempts, number
                inbox[message.body] = message

    @invariant()
    def nothing_is_lost(self) -> None:
        self.deliver()
        channel = self.channel
        assert channel.depth + channel.in_flight_count + channel.deferred_count == len(self.model.unfinished)

    @invariant()
    def whoever_is_ready_gets_what_there_is(self) -> None:
        if any(reader.consumer.room > 0 for reader, _ in self.readers.values()) and not self.model.paused:
            assert self.channel.depth == 0

    @invariant()
    def what_waits_is_shown(self) -> None:
        peek = peek_channel(self.channel, READY, 1000, self.core.now)
        waiting = {body for body, message in self.model.unfinished.items() if message.is_new}
        assert waiting <= {message.body for message in peek.messages} <= self.model.unfinished.keys()

    def teardown(self) -> None:
        self.pause(False)
        self._wait(LONGER_THAN_ANY_DELAY)
        for reader, _ in self.readers.values():
            reader.channel.set_ready(reader.consumer, 1)
        self.subscribe(5)
        for _ in range(len(self.model.history) + 1):
            for reader, inbox in self.readers.values():
                assert reader.finish(*[message.id for message in inbox.values()]) == []
                for body in inbox:
                    del self.model.unfinished[body]
                inbox.clear()
            self.deliver()
        assert not self.model.unfinished
        assert self.channel.depth == self.channel.in_flight_count == 0


Priorities.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPriorities = Priorities.TestCase
