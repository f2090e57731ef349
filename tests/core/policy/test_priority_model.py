"""
Priorities against a model, through random histories with crashes.

While the policy is on, the first delivery of a message is that of the oldest one of its class; while it is off, of the
oldest one of all. A deferred message has no place in an order.

The counts of the classes are asked for after each step, or for some time not at all.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from nsqtw.core.peek import READY, peek_channel
from nsqtw.message_headers import HIGH, LOW, NORMAL, encode_headers
from tests.core.policy.channel_histories import DELAYS, ChannelHistories, ModelMessage

PRIORITIES = ["high", "low", "normal", "urgent", None]


def is_new(message: ModelMessage) -> bool:
    return not message.attempts and not message.is_deferred


def class_of(message: ModelMessage) -> str:
    return message.tag if message.tag in ("high", "low") else "normal"


class Priorities(ChannelHistories):
    def __init__(self) -> None:
        super().__init__({"priority": True})
        self.counts_are_asked_for = True

    @initialize(page_rows=st.sampled_from([1, 2, 1024]), requeue_on_disconnect=st.booleans())
    def choose_options(self, page_rows: int, requeue_on_disconnect: bool) -> None:
        self.begin(page_rows, requeue_on_disconnect=requeue_on_disconnect)

    def publish(self) -> None:
        random = self.random
        priorities = [random.choice(PRIORITIES) for _ in range(random.randint(1, 20))]
        first, delay = len(self.model.history), random.choice(DELAYS)
        bodies = [b"%d" % number for number in range(first, first + len(priorities))]
        self.add(zip(bodies, priorities, strict=True), delay)
        headers = [encode_headers({"priority": priority} if priority else {}) for priority in priorities]
        self.core.topic().put(bodies, int(delay * 1000), [].append, headers if any(headers) else None)
        self.deliver()

    def extra(self) -> None:
        self.counts_are_asked_for = not self.counts_are_asked_for

    def check_delivery(self, message: ModelMessage) -> None:
        # Among several consumers a single turn delivers in the order of the consumers, which the model cannot see.
        if is_new(message) and len(self.readers) == 1:
            others = [other for other in self.model.unfinished.values() if is_new(other)]
            if self.is_on:
                others = [other for other in others if class_of(other) == class_of(message)]
            assert message.sequence == min(other.sequence for other in others)

    @invariant()
    def whoever_is_ready_gets_what_there_is(self) -> None:
        if any(reader.consumer.room > 0 for reader, _ in self.readers.values()) and not self.model.paused:
            assert self.channel.depth == 0

    @invariant()
    def the_waiting_messages_of_each_class_are_counted(self) -> None:
        if not self.counts_are_asked_for:
            return
        cursor = self.channel.cursor
        depths = cursor.class_depths
        if not self.is_on:
            assert depths is None
            return
        waiting = Counter(class_of(message) for message in self.model.unfinished.values() if is_new(message))
        assert depths is not None
        assert (depths[HIGH], depths[LOW]) == (waiting["high"], waiting["low"])
        # Deferred messages of a replay count as normal until they are passed.
        assert waiting["normal"] <= depths[NORMAL]
        assert sum(depths) == cursor.depth - cursor.redelivery_count

    @invariant()
    def what_waits_is_shown(self) -> None:
        peek = peek_channel(self.channel, READY, 1000, self.core.now)
        waiting = {body for body, message in self.model.unfinished.items() if is_new(message)}
        assert waiting <= {message.body for message in peek.messages} <= self.model.unfinished.keys()


Priorities.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPriorities = Priorities.TestCase
