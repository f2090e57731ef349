"""The age of the oldest message that waits in a channel."""

from __future__ import annotations

import pytest

from nsqtw.core.oldest import OldestMessages
from tests.core.harness import BrokerHarness, Reader


@pytest.fixture(params=["c", "c#ephemeral"])
def channel_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def age(harness: BrokerHarness, name: str = "c", reads: int = 10) -> float | None:
    found = OldestMessages().ages(reads).age(harness.channel(name), harness.now)
    return None if found is None else round(found, 3)


def published(harness: BrokerHarness, body: bytes, **how: int) -> None:
    harness.put(body, **how)
    harness.turn()


def test_an_empty_channel_has_none(channel_name: str) -> None:
    harness = BrokerHarness()
    harness.channel(channel_name)
    assert age(harness, channel_name) is None


def test_it_is_that_of_the_first_message_that_was_not_delivered(channel_name: str) -> None:
    harness = BrokerHarness()
    harness.channel(channel_name)
    published(harness, b"a")
    harness.wait(5)
    published(harness, b"b")
    harness.wait(2)
    assert age(harness, channel_name) == 7
    Reader(harness, harness.channel(channel_name), 1).read()
    assert age(harness, channel_name) == 2


def test_a_requeued_message_waits_again(channel_name: str) -> None:
    harness = BrokerHarness()
    reader = harness.reader(channel_name)
    published(harness, b"a")
    (message,) = reader.read()
    harness.channel(channel_name).pause()
    harness.wait(5)
    assert age(harness, channel_name) is None
    reader.requeue(message.id)
    published(harness, b"b")
    assert age(harness, channel_name) == 5


def test_a_deferred_message_waits_when_it_is_due(channel_name: str) -> None:
    harness = BrokerHarness()
    harness.channel(channel_name)
    published(harness, b"later", delay_ms=10_000)
    assert age(harness, channel_name) is None
    harness.wait(3)
    published(harness, b"now")
    assert age(harness, channel_name) == 0
    harness.wait(8)
    assert age(harness, channel_name) == 11


def test_a_message_waits_while_an_earlier_one_of_its_key_is_in_flight() -> None:
    harness = BrokerHarness()
    harness.channel().policies.set({"ordered_by": "json:key"})
    reader = harness.reader()
    published(harness, b'{"key": 1}')
    harness.wait(1)
    published(harness, b'{"key": 1}')
    (first,) = reader.read()
    harness.wait(4)
    assert age(harness) == 4
    published(harness, b'{"key": 1}')
    assert age(harness) == 4
    assert reader.finish(first.id) == []
    assert len(reader.read()) == 1
    assert age(harness) == 0


def test_the_messages_of_a_backlog_are_read_once() -> None:
    harness = BrokerHarness()
    harness.channel()
    published(harness, b"a")
    harness.crash()  # nothing is in memory any more
    harness.wait(4)
    oldest = OldestMessages()
    assert oldest.ages(0).age(harness.channel(), harness.now) is None
    known = oldest.ages(1).age(harness.channel(), harness.now)
    assert known is not None
    harness.wait(1)
    assert oldest.ages(0).age(harness.channel(), harness.now) == pytest.approx(known + 1)


def test_a_deleted_channel_is_forgotten() -> None:
    harness = BrokerHarness()
    harness.channel()
    published(harness, b"a")
    oldest = OldestMessages()
    oldest.ages().age(harness.channel(), harness.now)
    assert oldest._known
    harness.topic().delete_channel("c")
    oldest.ages()
    assert not oldest._known
