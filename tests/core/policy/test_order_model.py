"""
Order by key against a model, through random histories with crashes.

While the policy is on, a message is delivered only when no other one of its key is in flight, none of its key that was
delivered and not finished comes before it, and, if it was never delivered, no earlier one of its key waits. A deferred
message has no place in the order before its first delivery.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from tests.core.policy.channel_histories import DELAYS, ChannelHistories, ModelMessage

KEYS = ["a", "a", "b", "b", "c", "d", "e", None]


class Orders(ChannelHistories):
    def __init__(self) -> None:
        super().__init__({"ordered_by": "json:key"})

    @initialize(
        window=st.sampled_from([1, 2, 5, 10_000]),
        page_rows=st.sampled_from([1, 2, 1024]),
        requeue_on_disconnect=st.booleans(),
    )
    def choose_options(self, window: int, page_rows: int, requeue_on_disconnect: bool) -> None:
        self.window = self.policy["order_window"] = window
        self.begin(page_rows, requeue_on_disconnect=requeue_on_disconnect)

    def publish(self) -> None:
        random = self.random
        keys, delay = [random.choice(KEYS) for _ in range(random.randint(1, 8))], random.choice(DELAYS)
        first = len(self.model.history)
        bodies = [
            b'{"n":%d,"key":"%s"}' % (number, key.encode()) if key else b"%d" % number
            for number, key in enumerate(keys, first)
        ]
        self.add(zip(bodies, keys, strict=True), delay)
        assert self.core.put(*bodies, delay_ms=int(delay * 1000)) == []
        self.deliver()

    def extra(self) -> None:
        """The bounds of the channel drop something."""
        droppable, count = self.channel.droppable, self.random.randint(1, 4)
        kind = self.random.choice(["depth", "age", "deferred"])
        if kind == "age":
            dropped = sorted(droppable.requeued_sequences())[:count]
            droppable.drop_these({*dropped})
        else:
            dropped = droppable.drop_requeued(count) if kind == "depth" else droppable.drop_deferred(count)
        places = {sequence: place for place, sequence in enumerate(self.sequences())} if dropped else {}
        bodies = {message.sequence: body for body, message in self.model.unfinished.items()}
        for sequence in dropped:
            message = self.model.unfinished.pop(bodies[places[sequence]])
            assert message.reader is None, "it is in flight"
        self.channel.wake()  # a bound drops deferred messages only when nothing else waits
        self.deliver()

    def check_delivery(self, message: ModelMessage) -> None:
        if not self.is_on or message.tag is None:
            return
        for other in self.model.unfinished.values():
            if other.tag == message.tag and other is not message:
                assert other.reader is None, "two of a key are in flight"
                if other.attempts:
                    assert message.attempts, "one that was delivered waits"
                elif not message.attempts and not (message.is_deferred or other.is_deferred):
                    assert message.sequence < other.sequence, "an earlier one waits"

    @invariant()
    def whoever_is_ready_gets_what_is_free(self) -> None:
        can_take = any(reader.consumer.room > 0 for reader, _ in self.readers.values()) and not self.model.paused
        if can_take and self.window > len(self.model.unfinished):
            held = {
                message.tag
                for message in self.model.unfinished.values()
                if message.reader or message.due > self.core.now
            }
            for message in self.model.unfinished.values():
                is_held = (
                    message.due > self.core.now
                    or message.reader
                    or (self.is_on and message.tag and message.tag in held)
                )
                assert is_held, message


Orders.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestOrders = Orders.TestCase
