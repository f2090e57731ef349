"""Cancelling deferred messages, wherever they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from nsqtw.core.segment import SEQUENCE_MASK
from nsqtw.core.topic import Cancelled
from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness
from tests.core.test_model import DEFERRED, REPLAYED, Histories

PAGE_ROWS = 4
IN_C = Cancelled(is_released=True, channels=["c"])


class Scheduler(BrokerHarness):
    """Remembers the sequence of each message."""

    def __init__(self, **options: Any) -> None:
        super().__init__(PAGE_ROWS, **options)
        self.sequences: dict[bytes, int] = {}
        self.channel()
        self.save()

    def put(self, *bodies: bytes, delay_ms: int = 0, topic: str = "t", channel: str = "") -> list[Exception | None]:
        answers: list[Exception | None] = []

        def assigned(ids: list[int]) -> None:
            self.sequences.update({body: one & SEQUENCE_MASK for body, one in zip(bodies, ids, strict=True)})

        self.topic(topic).put(bodies, delay_ms, answers.append, None, channel, assigned)
        return answers

    def defer(self, *bodies: bytes, seconds: float = 10.0) -> None:
        assert self.put(*bodies, delay_ms=round(seconds * 1000)) == []
        self.turn()

    def cancel(self, body: bytes, channel: str = "", topic: str = "t") -> Cancelled | None:
        return self.topic(topic).cancel(self.sequences[body], self.now, channel)

    def received(self, channel: str = "c", topic: str = "t") -> list[bytes]:
        """All that comes, finished, in a while."""
        self.wait(20.0)
        reader, bodies = self.reader(channel, topic), []
        while messages := reader.read():
            bodies += [message.body for message in messages]
            reader.finish(*[message.id for message in messages])
        reader.leave()
        return bodies


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def deferred(scheduler: Scheduler) -> int:
    return scheduler.channel().deferred_count


def test_one_that_is_in_memory(scheduler: Scheduler) -> None:
    scheduler.defer(b"a", b"b")
    assert scheduler.cancel(b"a") == IN_C
    assert deferred(scheduler) == 1
    assert scheduler.cancel(b"a") is None
    assert scheduler.received() == [b"b"]


def test_one_of_a_run_that_is_in_memory_as_a_whole(scheduler: Scheduler) -> None:
    bodies = [b"%d" % number for number in range(50)]
    scheduler.defer(*bodies)
    for body in (bodies[0], bodies[20], bodies[21], bodies[49]):
        assert scheduler.cancel(body) == IN_C
    assert scheduler.cancel(bodies[20]) is None
    assert deferred(scheduler) == 46
    assert scheduler.received() == [body for body in bodies if body not in (b"0", b"20", b"21", b"49")]


@pytest.mark.parametrize("is_saved", [True, False])
def test_one_that_is_only_in_positions_db(scheduler: Scheduler, is_saved: bool) -> None:
    """Before its removal is saved, and after."""
    bodies = [b"%d" % number for number in range(50)]
    scheduler.defer(*bodies)
    scheduler.save()
    assert scheduler.cancel(bodies[40]) == scheduler.cancel(bodies[30]) == IN_C
    assert scheduler.cancel(bodies[40]) is None
    if is_saved:
        scheduler.save()
    else:
        scheduler.save(BackendError("full"))
    assert deferred(scheduler) == 48
    scheduler.wait(10.0)
    assert (scheduler.channel().depth, deferred(scheduler)) == (48, 0)
    assert len(scheduler.received()) == 48
    assert (scheduler.channel().depth, deferred(scheduler)) == (0, 0)


def test_one_that_waits_behind_the_border_to_be_saved(scheduler: Scheduler) -> None:
    for number in range(20):
        scheduler.defer(b"%d" % number, seconds=1 + number / 10)
    scheduler.save()
    scheduler.defer(b"late", b"later", seconds=9)
    assert scheduler.cancel(b"late") == IN_C
    scheduler.save()
    assert scheduler.received() == [*(b"%d" % number for number in range(20)), b"later"]


def test_a_crash_after_it_is_saved(scheduler: Scheduler) -> None:
    bodies = [b"%d" % number for number in range(20)]
    scheduler.defer(*bodies)
    scheduler.save()
    scheduler.cancel(bodies[3])
    scheduler.cancel(bodies[15])
    scheduler.save()
    scheduler.crash()
    assert deferred(scheduler) == 18
    assert scheduler.received() == [body for body in bodies if body not in (b"3", b"15")]


def test_what_is_due_in_flight_or_requeued_is_not_cancelled(scheduler: Scheduler) -> None:
    scheduler.put(b"plain")
    scheduler.defer(b"flying", b"requeued", b"again", seconds=1.0)
    scheduler.defer(b"due", seconds=2.0)
    scheduler.wait(1.0)
    reader = scheduler.reader(ready=4)
    ids = {message.body: message.id for message in reader.read()}
    reader.requeue(ids[b"requeued"], 30.0)
    reader.channel.set_ready(reader.consumer, 0)
    reader.requeue(ids[b"again"])
    scheduler.wait(1.0)
    for body in (b"plain", b"flying", b"requeued", b"again", b"due"):
        assert scheduler.cancel(body) is None, body
    assert deferred(scheduler) == 1


def test_in_one_channel_of_several(scheduler: Scheduler) -> None:
    scheduler.channel("d")
    scheduler.defer(b"a", b"b")
    assert scheduler.cancel(b"a", "d") == Cancelled(is_released=True, channels=["d"])
    assert scheduler.cancel(b"a", "unknown") is None
    assert scheduler.cancel(b"b") == Cancelled(is_released=True, channels=["c", "d"])
    assert scheduler.received("c") == [b"a"]
    assert scheduler.received("d") == []


def test_in_ephemeral_channels(scheduler: Scheduler) -> None:
    reader = scheduler.reader("e#ephemeral")
    scheduler.defer(b"a", b"b", b"c")
    assert scheduler.cancel(b"b") == Cancelled(is_released=True, channels=["c", "e#ephemeral"])
    assert reader.channel.deferred_count == 2
    scheduler.wait(10.0)
    assert reader.bodies() == [b"a", b"c"]


def test_in_an_ephemeral_topic(scheduler: Scheduler) -> None:
    scheduler.channel("c", topic="t#ephemeral")
    assert scheduler.put(b"a", b"b", delay_ms=5000, topic="t#ephemeral") == []
    scheduler.turn()
    assert scheduler.cancel(b"b", topic="t#ephemeral") == IN_C
    assert scheduler.received("c", "t#ephemeral") == [b"a"]


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("channel", ["c", "e#ephemeral"])
def test_one_that_was_not_released(scheduler: Scheduler, channel: str, crashes: bool) -> None:
    scheduler.topic().pause()
    scheduler.defer(b"a", b"b", b"c", b"d")
    scheduler.put(b"plain")
    scheduler.turn()
    assert scheduler.cancel(b"b") == scheduler.cancel(b"d") == Cancelled(is_released=False, channels=[])
    assert scheduler.cancel(b"b") is None
    assert scheduler.cancel(b"a", "c") is None
    assert scheduler.cancel(b"plain") is None
    assert scheduler.topic().depth == 3
    scheduler.save()
    if crashes:
        scheduler.crash()
        assert scheduler.topic().depth == 3
    scheduler.channel(channel)
    scheduler.topic().unpause(scheduler.now)
    assert sorted(scheduler.received(channel)) == [b"a", b"c", b"plain"]
    assert scheduler.channel(channel).depth == 0


def test_of_a_topic_without_channels() -> None:
    scheduler = Scheduler()
    assert scheduler.put(b"a", b"b", delay_ms=5000, topic="u") == []
    scheduler.turn()
    assert scheduler.cancel(b"a", topic="u") == Cancelled(is_released=False, channels=[])
    scheduler.channel("first", topic="u")
    assert scheduler.received("first", "u") == [b"b"]


def test_unknown_ones(scheduler: Scheduler) -> None:
    scheduler.defer(b"a")
    for sequence in (0, scheduler.sequences[b"a"] + 1, SEQUENCE_MASK):
        assert scheduler.topic().cancel(sequence, scheduler.now) is None


def test_positions_that_cannot_be_read(scheduler: Scheduler) -> None:
    scheduler.defer(*[b"%d" % number for number in range(50)])
    scheduler.save()
    scheduler.positions.read_failure = BackendError("EIO")
    with pytest.raises(BackendError):
        scheduler.cancel(b"40")
    scheduler.positions.read_failure = None
    assert scheduler.cancel(b"40") == IN_C


class CancellingHistories(Histories):
    """The histories of `test_model`, in which deferred messages are cancelled, too."""

    @precondition(lambda self: any(channel.messages for channel in self.model.channels.values()))
    @rule(data=st.data(), is_saved=st.booleans(), only_one=st.booleans())
    def cancel(self, data: st.DataObject, is_saved: bool, only_one: bool) -> None:
        channels = self.model.channels
        body = data.draw(st.sampled_from(sorted({body for channel in channels.values() for body in channel.messages})))
        only = data.draw(st.sampled_from(sorted(channels))) if only_one else ""
        self._save()
        cancelled = self.core.topic().cancel(self.sequences[body], self.core.now, only)
        assert cancelled is None or cancelled.is_released
        names = [] if cancelled is None else cancelled.channels
        for name, channel in channels.items():
            message = channel.messages.get(body)
            if message is None or only not in ("", name):
                assert name not in names
            elif message.state != REPLAYED:  # a replay comes to it some time, and defers it then
                is_deferred = message.state == DEFERRED and not message.attempts and message.due > self.core.now
                assert (name in names) == is_deferred
            if name in names:
                del channel.messages[body]
        if is_saved:
            self._save()

    @precondition(lambda self: not self.core.options.retention_time and any(self.model.waiting.values()))
    @rule(data=st.data(), is_saved=st.booleans())
    def cancel_before_its_release(self, data: st.DataObject, is_saved: bool) -> None:
        body = data.draw(st.sampled_from(sorted(body for body, delay in self.model.waiting.items() if delay)))
        self._save()
        assert self.core.topic().cancel(self.sequences[body], self.core.now) == Cancelled(False, [])
        del self.model.waiting[body]
        if is_saved:
            self._save()


CancellingHistories.TestCase.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCancellingHistories = CancellingHistories.TestCase
