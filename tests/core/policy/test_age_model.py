"""
`max_age` against a simple model, with and without priorities, through random histories with crashes.

Each rule takes STEP seconds, so the broker has looked at the age of all messages at its end: those that wait again too,
which it looks at each sixteenth of the bound. What waits is then exactly what the model has left, and a publish is
refused exactly when an old message waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqtw.errors import Overflow
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness, Message

MAX_AGE = 100.0
STEP = 7.0
PRIORITIES = ("high", "normal", "low")


class Ages(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.published: dict[bytes, tuple[str, float]] = {}
        self.unread: set[bytes] = set()
        self.again: set[bytes] = set()
        self.in_flight: dict[bytes, Message] = {}
        self.dropped = 0
        """In this process."""

    @initialize(by_priority=st.booleans(), drops=st.booleans())
    def begin(self, by_priority: bool, drops: bool) -> None:
        self.core = BrokerHarness(msg_timeout=900.0, mem_queue_size=3)
        self.by_priority, self.drops = by_priority, drops
        self._subscribe()
        self._apply_policy()

    def _subscribe(self) -> None:
        self.reader = self.core.reader(ready=0)

    def _apply_policy(self) -> None:
        overflow = "drop_oldest" if self.drops else "reject"
        self.core.channel().policies.set({"max_age": MAX_AGE, "overflow": overflow, "priority": self.by_priority})
        self.wait(1)

    # -- publishing and consuming

    @rule(priorities=st.lists(st.sampled_from(PRIORITIES), min_size=1, max_size=5), for_other=st.booleans())
    def publish(self, priorities: Sequence[str], for_other: bool) -> None:
        if for_other:
            self.core.channel("other")
            self.core.put(b"not for this channel", channel="other")
        numbers = range(len(self.published), len(self.published) + len(priorities))
        bodies = [b"%d" % number for number in numbers]
        headers = [encode_headers({"priority": priority}) for priority in priorities]
        answers = self.core.put(*bodies, headers=headers)
        self.core.turn()
        (answer,) = answers
        self.published.update(zip(bodies, ((priority, self.core.now) for priority in priorities), strict=True))
        assert isinstance(answer, Overflow) == (not self.drops and any(map(self._is_old, self.unread | self.again)))
        if answer is None:
            self.unread.update(bodies)
        self.wait(1)

    @rule(count=st.integers(1, 5))
    def consume(self, count: int) -> None:
        self.core.channel().set_ready(self.reader.consumer, len(self.in_flight) + count)
        for message in self.reader.read():
            (self.again if message.body in self.again else self.unread).remove(message.body)
            self.in_flight[message.body] = message
        self.core.channel().set_ready(self.reader.consumer, 0)
        self.wait(1)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), fails=st.booleans())
    def answer(self, data: st.DataObject, fails: bool) -> None:
        body = data.draw(st.sampled_from(sorted(self.in_flight)))
        message = self.in_flight.pop(body)
        if fails:
            self.reader.requeue(message.id)
            self.again.add(body)
        else:
            assert self.reader.finish(message.id) == []
        self.wait(1)

    # -- time, policy, process

    @rule(steps=st.integers(1, 8))
    def wait(self, steps: int) -> None:
        for _ in range(steps):
            for seconds in (STEP - 0.4, *[0.1] * 4):  # dropping takes some turns
                self.core.wait(seconds)
        if self.drops:
            gone = {*filter(self._is_old, self.unread | self.again)}
            self.unread -= gone
            self.again -= gone
            self.dropped += len(gone)

    @rule(by_priority=st.booleans(), drops=st.booleans())
    def change_policy(self, by_priority: bool, drops: bool) -> None:
        self.by_priority, self.drops = by_priority, drops
        self._apply_policy()

    @rule()
    def save_and_crash(self) -> None:
        self.core.save()
        self.core.crash()
        self.again |= self.in_flight.keys()
        self.in_flight.clear()
        self.dropped = 0
        self._subscribe()
        self.wait(1)

    # -- what must be true

    def _is_old(self, body: bytes) -> bool:
        return self.core.now - self.published[body][1] >= MAX_AGE

    @invariant()
    def what_waits_is_what_the_model_has_left(self) -> None:
        if not hasattr(self, "core"):
            return
        channel = self.core.channel()
        assert channel.depth == len(self.unread) + len(self.again)
        assert channel.in_flight_count == len(self.in_flight)
        assert channel.dropped_count == self.dropped
        depths = Counter(self.published[body][0] for body in self.unread)
        assert channel.class_depths == ([depths[name] for name in PRIORITIES] if self.by_priority else None)

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        wanted = sorted(self.unread | self.again)
        self.core.channel().set_ready(self.reader.consumer, 2500)
        assert sorted(message.body for message in self.reader.read()) == wanted


Ages.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAges = Ages.TestCase
