"""
Bounds of a backlog against a simple model, through random histories with crashes and changes of the policy.

The model is the messages that wait in the channel, in three lists: those that wait again in the order of their turns,
unread ones, and deferred ones by the time when they are due. Everything else is in flight or finished. After each step
the counts are the model's, and with `drop_oldest` exactly the messages are left that the model has left. With
priorities each message has one of three classes, and bytes are those of the log from the oldest unread message on,
those of messages that were delivered before their turn included.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqtw.core.segment import BODY_AT
from nsqtw.errors import LargerThanBound, Overflow
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness, Message

SIZE = 100
PRIORITIES = ("high", "normal", "low")
LONG = 1000.0
"""A delay that no history is long enough for, until `wait`."""


@define
class Backlog:
    """What waits in the channel, by body."""

    by_priority: bool
    by_log: bool = False
    """Whether what counts is the log from the oldest unread message on."""
    log: list[bytes] = field(factory=list)
    again: list[bytes] = field(factory=list)
    unread: list[bytes] = field(factory=list)
    deferred: list[tuple[float, int, bytes]] = field(factory=list)  # when due, and the number of the message

    @property
    def count(self) -> int:
        unread = len(self.unread)
        if self.by_log and unread:
            unread = len(self.log) - self.log.index(self.unread[0])
        return len(self.again) + unread + len(self.deferred)

    def drop(self, most: int) -> None:
        """Drop messages until no more than `most` are left."""
        while self.count > most:
            gone = self.in_order()[0]
            self.again[:] = [body for body in self.again if body != gone]
            self.unread[:] = [body for body in self.unread if body != gone]
            self.deferred[:] = [entry for entry in self.deferred if entry[2] != gone]

    def in_order(self) -> list[bytes]:
        """Return all in the order in which they are dropped."""
        deferred = [body for _, _, body in self.deferred]
        if not self.by_priority or self.by_log:
            return [*self.again, *self.unread, *deferred]
        high, normal, low = (self.of_class(name) for name in PRIORITIES)
        return [*low, *self.again, *normal, *high, *deferred]

    def of_class(self, name: str) -> list[bytes]:
        """Return the unread messages of a priority."""
        return [body for body in self.unread if _priority(body) == name]


class Bounds(RuleBasedStateMachine):
    by_priority = False

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.limit = 0
        self.drops = False
        self.by_bytes = False
        self.model = Backlog(self.by_priority)
        self.in_flight: dict[bytes, Message] = {}

    @initialize(page_rows=st.sampled_from([1, 2, 1024]), durability=st.sampled_from(["os", "fsync"]))
    def begin(self, page_rows: int, durability: str) -> None:
        self.core = BrokerHarness(page_rows, durability=durability, mem_queue_size=3)
        self._subscribe()
        self._remove_bound()
        self.core.save()

    def _subscribe(self) -> None:
        self.reader = self.core.reader(ready=0)

    # -- publishing

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=4), is_deferred=st.booleans())
    def publish(self, counts: Sequence[int], is_deferred: bool) -> None:
        """Several publishes in one turn."""
        if self.model.by_log and self.limit:
            self.core.channel().bounds.look_soon()
            self.core.turn()
        due = self.core.now + LONG if is_deferred else 0.0
        waiting = self.model.count
        for count in counts:
            numbers = range(self.number, self.number + count)
            self.number += count
            bodies = [_body(number, self.by_priority) for number in numbers]
            headers = [*map(_headers, bodies)] if self.by_priority else None
            answers = self.core.put(*bodies, delay_ms=int(1000 * LONG) if is_deferred else 0, headers=headers)
            if self.limit and not self.drops and waiting + count > self.limit:
                (answer,) = answers
                assert isinstance(answer, LargerThanBound if count > self.limit else Overflow)
                continue
            waiting += count
            for number, body in zip(numbers, bodies, strict=True):
                if is_deferred:
                    insort(self.model.deferred, (due, number, body))
                else:
                    self.model.unread.append(body)
                    self.model.log.append(body)
        self._end()

    def _end(self) -> None:
        """The turn ends; what a bound drops is dropped at the start of the next one."""
        self.core.turn()
        self.core.turn()
        if self.limit and self.drops:
            self.model.drop(self.limit)

    # -- consuming

    @precondition(lambda self: self.model.unread or self.model.again)
    @rule(count=st.integers(1, 5))
    def consume(self, count: int) -> None:
        """Whatever is delivered first: that is not about bounds."""
        self.core.channel().set_ready(self.reader.consumer, len(self.in_flight) + count)
        for message in self.reader.read():
            (self.model.again if message.body in self.model.again else self.model.unread).remove(message.body)
            self.in_flight[message.body] = message
        self.core.channel().set_ready(self.reader.consumer, 0)
        self.core.turn()

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), delay=st.sampled_from([0.0, LONG]))
    def requeue(self, data: st.DataObject, delay: float) -> None:
        body = data.draw(st.sampled_from(sorted(self.in_flight)))
        self.reader.requeue(self.in_flight.pop(body).id, delay)
        if delay:
            insort(self.model.deferred, (self.core.now + delay, int(body[:6]), body))
        else:
            self.model.again.append(body)
        self.core.wait(0.01)
        self._end()

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(sorted(self.in_flight)))
        assert self.reader.finish(self.in_flight.pop(body).id) == []

    # -- time, policy, process

    @precondition(lambda self: not self.in_flight)
    @rule()
    def wait(self) -> None:
        """Everything that is deferred becomes due."""
        self.core.wait(2 * LONG)
        self.core.wait(1)
        self.model.again += [body for _, _, body in self.model.deferred]
        self.model.deferred.clear()

    @rule(limit=st.integers(0, 6), drops=st.booleans(), by_bytes=st.booleans())
    def change_policy(self, limit: int, drops: bool, by_bytes: bool) -> None:
        self.limit, self.drops, self.by_bytes = limit, drops, by_bytes
        self.model.by_log = by_bytes and self.by_priority
        self._apply_policy()

    def _apply_policy(self) -> None:
        overflow = "drop_oldest" if self.drops else "reject"
        bound = {"max_bytes": SIZE * self.limit} if self.by_bytes else {"max_depth": self.limit}
        self.core.channel().policies.set({**bound, "overflow": overflow, "priority": self.by_priority})
        self.core.wait(0.01)
        self._end()

    def _remove_bound(self) -> None:
        self.core.channel().policies.set({"priority": self.by_priority})

    @rule()
    def save(self) -> None:
        self.core.save()

    @rule()
    def save_and_crash(self) -> None:
        """
        What was in flight waits again, before all that did so before. The bound is off meanwhile: which of these
        messages it drops depends on their order.
        """
        self._remove_bound()
        self.core.save()
        self.core.crash()
        in_flight, self.in_flight = self.in_flight, {}
        again = {*in_flight, *self.model.again}
        self._subscribe()
        self.core.turn()
        self.core.channel().set_ready(self.reader.consumer, len(again))
        for message in self.reader.read():
            assert message.body in again
            self.in_flight[message.body] = message
        self.core.channel().set_ready(self.reader.consumer, 0)
        assert len(self.in_flight) == len(again)
        self.model.again.clear()
        self._apply_policy()

    # -- what must be true

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        if not hasattr(self, "core"):
            return
        channel = self.core.channel()
        assert channel.depth == len(self.model.again) + len(self.model.unread)
        assert channel.deferred_count == len(self.model.deferred)
        assert channel.in_flight_count == len(self.in_flight)
        depths = [len(self.model.of_class(name)) for name in PRIORITIES]
        assert channel.class_depths == (depths if self.by_priority else None)

    def teardown(self) -> None:
        """A drain brings exactly what the model has left."""
        if not hasattr(self, "core"):
            return
        self.wait_for_all()
        wanted = sorted([*self.model.again, *self.model.unread, *[body for _, _, body in self.model.deferred]])
        self.core.channel().set_ready(self.reader.consumer, 2500)
        found: list[bytes] = []
        while more := self.reader.read():
            found += [message.body for message in more]
            self.reader.finish(*[message.id for message in more])
            self.core.save()
            self.core.wait(0.2)
        assert sorted(found) == wanted

    def wait_for_all(self) -> None:
        self.reader.finish(*[message.id for message in self.in_flight.values()])
        self.in_flight.clear()
        self.core.save()
        self.core.wait(2 * LONG)
        self.core.wait(1)


def _body(number: int, by_priority: bool) -> bytes:
    """All messages have one size with their headers, so that bytes are counted exactly."""
    body = b"%06d" % number
    return body.ljust(SIZE - BODY_AT - (len(_headers(body)) if by_priority else 0), b"x")


def _headers(body: bytes) -> bytes:
    return encode_headers({"priority": _priority(body)})


def _priority(body: bytes) -> str:
    return PRIORITIES[int(body[:6]) * 7 % 11 % 3]


class BoundsOfPriorities(Bounds):
    by_priority = True


TestBoundsOfPriorities = BoundsOfPriorities.TestCase
TestBoundsOfPriorities.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestBounds = Bounds.TestCase
TestBounds.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_saved_bound_is_in_force_after_a_restart() -> None:
    core = BrokerHarness()
    core.channel().policies.set({"max_depth": 2, "overflow": "drop_oldest"})
    core.put(b"1", b"2")
    reader = core.reader(ready=2)
    assert len(reader.read()) == 2
    core.put(b"3", b"4")
    core.turn()
    core.save()
    core.crash()
    core.wait(1)
    assert core.channel().depth == 2
    assert core.channel().policy.max_depth == 2
