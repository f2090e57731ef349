"""A message that failed waits, longer each time, and not as long as all the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.core.harness import BrokerHarness, Reader


def delaying(random: Callable[[], float] = lambda: 0.5, name: str = "c", **options: Any) -> BrokerHarness:
    """A broker whose channel delays by 1 s, then 2, 4, 5, 5; `random` varies it."""
    core = BrokerHarness(**options)
    channel = core.channel(name)
    channel.policies.set({"requeue_delay": 1.0, "max_requeue_delay": 5.0})
    assert channel.requeue_delay is not None
    channel.requeue_delay._random = random
    return core


def fail_in_time(core: BrokerHarness, reader: Reader, delays: list[float], fail: Callable[[bytes], object]) -> None:
    """Have each delivery of a message fail, and see that the next one comes after the delay."""
    core.put(b"a")
    (message,) = reader.read()
    for attempts, delay in enumerate(delays, 2):
        fail(message.id)
        core.turn()
        core.wait(delay - 0.01)
        assert reader.read() == []
        core.wait(0.02)
        (message,) = reader.read()
        assert message.attempts == attempts


@pytest.mark.parametrize("name", ["c", "c#ephemeral"])
def test_the_delay_doubles_up_to_the_longest_one(name: str) -> None:
    core = delaying(name=name)
    reader = core.reader(name)
    fail_in_time(core, reader, [1, 2, 4, 5, 5], reader.requeue)
    assert core.channel(name).requeue_count == 5


@pytest.mark.parametrize(("random", "delays"), [(0.0, [0.8, 1.6]), (0.99, [1.2, 2.4])])
def test_it_is_varied_by_a_fifth(random: float, delays: list[float]) -> None:
    core = delaying(lambda: random)
    reader = core.reader()
    fail_in_time(core, reader, delays, reader.requeue)


def test_a_delay_of_its_own_is_kept() -> None:
    core = delaying()
    reader = core.reader()
    fail_in_time(core, reader, [9.0, 9.0], lambda message_id: reader.requeue(message_id, 9.0))


def test_what_times_out_waits() -> None:
    core = delaying(msg_timeout=60.0)
    reader = core.reader()
    core.put(b"a")
    reader.read()
    core.wait(60.1)
    assert reader.read() == []
    assert core.channel().timeout_count == 1
    assert core.channel().deferred_count == 1
    core.wait(1.1)
    assert [message.attempts for message in reader.read()] == [2]


def test_what_a_consumer_leaves_waits_and_is_in_one_place_all_the_time() -> None:
    core = delaying(requeue_on_disconnect=True)
    channel, reader = core.channel(), core.reader()
    core.put(b"a", b"b")
    reader.read()
    reader.leave()
    assert (channel.in_flight_count, channel.depth, channel.deferred_count) == (2, 0, 0)
    core.turn()
    assert (channel.in_flight_count, channel.depth, channel.deferred_count) == (0, 0, 2)
    assert channel.requeue_count == 2
    assert channel.former_consumers == []
    other = core.reader()
    core.wait(0.9)
    assert other.read() == []
    core.wait(0.1)
    assert [message.attempts for message in other.read()] == [2, 2]


def test_a_crash_between_a_disconnect_and_its_turn_loses_nothing() -> None:
    core = delaying(requeue_on_disconnect=True)
    reader = core.reader()
    core.put(b"a")
    reader.read()
    reader.leave()
    job = core.broker.checkpointer.begin(core.now)
    core.broker.checkpointer.end(job, None)
    assert [cursor.first_deliveries for topic in job.checkpoint.topics for cursor in topic.cursors] != [[]]


def test_due_times_outlive_a_restart() -> None:
    core = delaying()
    reader = core.reader()
    core.put(b"a")
    reader.requeue(reader.read()[0].id)
    core.save()
    core.crash()
    again = core.reader()
    assert again.read() == []
    core.wait(1.1)
    assert [message.attempts for message in again.read()] == [2]


def test_without_a_delay_any_more_a_message_comes_at_once() -> None:
    core = delaying(requeue_on_disconnect=True)
    reader = core.reader()
    core.put(b"a")
    reader.read()
    reader.leave()
    core.channel().policies.set({})
    assert core.reader().bodies() == [b"a"]


def test_messages_that_time_out_together_become_due_in_few_steps() -> None:
    core = BrokerHarness(msg_timeout=60.0)
    core.channel().policies.set({"requeue_delay": 10.0})
    reader = core.reader(ready=2500)
    core.put(*[b"x"] * 2500)
    assert len(reader.read()) == 2500
    core.wait(61)
    reader.channel.set_ready(reader.consumer, 0)
    channel, moments = core.channel(), []
    while channel.deferred_count:
        next_due = core.broker.tick(core.now)
        assert next_due is not None
        core.now = next_due
        moments.append(next_due)
        core.turn()
    assert channel.depth == 2500
    assert len(set(moments)) < 80
    assert moments[-1] - moments[0] > 3, "and not all at once"
