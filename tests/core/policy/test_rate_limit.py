"""A channel delivers no more than max_rate, and not less."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.stats.metrics import CHANNEL_METRICS
from tests.core.harness import BrokerHarness


def limited(rate: float, name: str = "c", **options: Any) -> BrokerHarness:
    """A broker with 100 messages in a channel, and its limit."""
    core = BrokerHarness(**options)
    core.channel(name).policies.set({"max_rate": rate})
    core.put(*[b"%d" % number for number in range(100)])
    return core


@pytest.mark.parametrize("name", ["c", "c#ephemeral"])
def test_a_burst_has_the_tokens_of_a_second_and_then_they_come_one_by_one(name: str) -> None:
    core = limited(10, name)
    reader = core.reader(name)
    assert len(reader.read()) == 10
    for _ in range(20):
        core.wait(0.09)
        assert reader.bodies() == []
        core.wait(0.01)
        assert len(reader.read()) == 1
    core.wait(60)
    assert len(reader.read()) == 10, "no more than a second's tokens are kept"


def test_a_fraction_of_a_message_a_second() -> None:
    core = limited(0.25)
    reader = core.reader()
    assert reader.bodies() == [b"0"]
    core.wait(3.9)
    assert reader.bodies() == []
    core.wait(0.1)
    assert reader.bodies() == [b"1"]


def test_later_deliveries_take_tokens_too() -> None:
    core = limited(2)
    reader = core.reader(ready=2)
    first, second = reader.read()
    reader.requeue(first.id)
    reader.requeue(second.id)
    assert reader.read() == []
    core.wait(1)
    assert len(reader.read()) == 2


def test_a_timer_wakes_the_channel_once_for_each_token_and_rests_when_nothing_waits() -> None:
    core = limited(4)
    reader = core.reader()
    assert len(reader.read()) == 4
    assert core.broker.tick(core.now) == pytest.approx(core.now + 0.25)
    assert not core.broker.to_serve, "no turn follows at once"
    core.wait(100)
    while reader.read():
        core.wait(1)
    core.wait(1)
    reader.finish(*reader.consumer.in_flight._table)
    limit = reader.channel.rate_limit
    assert limit is not None
    assert limit.due_at > core.now + 1000


def test_many_tokens_a_second_wake_the_channel_a_hundred_times() -> None:
    core = limited(10_000)
    core.put(*[b"x"] * 20_000)
    reader = core.reader(ready=2500)
    wakes = 0
    while reader.read() and wakes < 3:
        reader.finish(*(message_id for message_id, _ in reader.consumer.in_flight.items()))
        core.turn()
        wakes += 1
    next_due = core.broker.tick(core.now)
    assert next_due is not None
    assert next_due >= core.now + 0.009


def test_the_time_that_messages_waited_is_counted() -> None:
    core = limited(0.5)
    channel, reader = core.channel(), core.reader(ready=2)
    assert CHANNEL_METRICS.numbers_of(channel)["rate_limited_ms"] == 0
    assert len(reader.read()) == 1
    core.wait(1.5)
    core.turn()
    assert CHANNEL_METRICS.numbers_of(channel)["rate_limited_ms"] == 0, "the wait goes on"
    core.wait(0.5)
    assert len(reader.read()) == 1
    core.wait(60)
    assert CHANNEL_METRICS.numbers_of(channel)["rate_limited_ms"] == 2000, "no consumer was ready for more"


def test_no_message_and_a_higher_rate_end_a_wait() -> None:
    core = limited(1)
    channel, reader = core.channel(), core.reader()
    assert len(reader.read()) == 1
    core.wait(0.25)
    channel.policies.set({"max_rate": 100})
    core.wait(0.25)
    while reader.read():
        core.wait(1)
    assert channel.rate_limit is not None
    waited = channel.rate_limit.waited_seconds
    assert 0.25 <= waited < 2
    core.wait(60)
    assert channel.rate_limit.waited_seconds == waited, "an empty channel waits for nothing"


def test_consumers_share_the_tokens() -> None:
    core = limited(6)
    readers = [core.reader() for _ in range(3)]
    assert [len(reader.read()) for reader in readers] == [2, 2, 2]
    for _ in range(6):
        core.wait(1 / 6)
        core.put(b"more")
    assert [len(reader.read()) for reader in readers] == [2, 2, 2]


def test_fewer_tokens_than_consumers() -> None:
    core = limited(1)
    readers = [core.reader() for _ in range(3)]
    assert sum(len(reader.read()) for reader in readers) == 1


def test_the_limit_changes_while_messages_are_delivered() -> None:
    core = limited(1)
    channel, reader = core.channel(), core.reader()
    assert len(reader.read()) == 1
    channel.policies.set({"max_rate": 20})
    assert reader.read() == [], "the bucket is empty"
    core.wait(0.5)
    assert len(reader.read()) == 10
    channel.policies.set({})
    assert channel.rate_limit is None
    assert len(reader.read()) == 89


def test_a_channel_without_a_limit_has_no_engine() -> None:
    core = BrokerHarness()
    assert core.channel().rate_limit is None
    assert core.channel().requeue_delay is None
    assert core.channel().bounds is None
    assert core.topic().bounds is None


def test_a_deleted_channel_waits_for_nothing() -> None:
    core = limited(1)
    core.reader().read()
    limit = core.channel().rate_limit
    assert limit is not None
    core.topic().delete_channel("c")
    assert limit.item is None
