"""A broker whose lease ends delivers nothing and takes nothing, until it is renewed."""

from __future__ import annotations

from math import inf

import pytest

from nsqtw.errors import Suspended
from nsqtw.runtime.leased_pump import LeasedPump
from tests.core.harness import Reader, messages
from tests.runtime.harness import Harness


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.pump = LeasedPump(harness.reactor, harness.broker, harness.writer, harness._now)
    return harness


def publish(harness: Harness, body: bytes) -> list[Exception | None]:
    """Publish, and return the answers as they come."""
    answers: list[Exception | None] = []
    harness.core.topic().put([body], 0, answers.append)
    harness.pump.wake()
    return answers


def delivered(reader: Reader) -> list[bytes]:
    """Return the bodies that a consumer was given, without a turn."""
    return [message.body for message in messages(b"".join(reader.frames))]


def test_with_a_lease_it_serves(harness: Harness) -> None:
    """As any broker does."""
    reader = harness.core.reader()
    harness.pump.serve_until(harness._now() + 3)
    assert publish(harness, b"a") == []
    harness.turn()
    assert delivered(reader) == [b"a"]


def test_it_delivers_nothing_after_the_end_and_goes_on_when_it_is_renewed(harness: Harness) -> None:
    """What came meanwhile waits."""
    reader = harness.core.reader(ready=0)
    assert publish(harness, b"a") == []
    harness.turn()
    harness.pump.serve_until(harness._now() + 3)
    harness.turn()
    harness.reactor.advance(3)
    reader.channel.set_ready(reader.consumer, 5)
    harness.pump.wake()
    harness.turn()
    assert harness.broker.is_suspended
    assert delivered(reader) == []
    harness.pump.serve_until(harness._now() + 3)
    harness.turn()
    assert not harness.broker.is_suspended
    assert delivered(reader) == [b"a"]


def test_a_process_that_was_stopped_delivers_nothing_in_its_first_turn(harness: Harness) -> None:
    """Its lease has ended while it did not run."""
    reader = harness.core.reader()
    harness.pump.serve_until(harness._now() + 3)
    harness.turn()
    harness.core.topic().put([b"a"], 0, lambda error: None)
    harness.reactor.rightNow += 60
    harness.pump.wake()
    harness.turn()
    assert delivered(reader) == []


def test_it_takes_no_publishes_after_the_end(harness: Harness) -> None:
    """The publisher is told, and a topic is not created."""
    topic = harness.core.topic()
    harness.pump.serve_until(-inf)
    harness.turn()
    [refusal] = publish(harness, b"a")
    assert isinstance(refusal, Suspended)
    with pytest.raises(Suspended):
        harness.broker.topic("new")
    assert str(harness.broker.health).startswith("NOK - suspended")
    harness.pump.serve_until(inf)
    harness.turn()
    answers = publish(harness, b"b")
    harness.turn()
    assert answers == [None]
    assert topic.message_count == 1


def test_a_broker_that_drains_takes_no_publishes_after_a_pause_either(harness: Harness) -> None:
    """The drain goes on where it was."""
    harness.broker.begin_drain()
    harness.pump.serve_until(-inf)
    harness.turn()
    harness.pump.serve_until(inf)
    harness.turn()
    assert not harness.broker.is_taking_publishes
