"""What becomes of deferred messages when the options say that delays are not kept."""

from __future__ import annotations

import pytest

from tests.core.harness import BrokerHarness

HOUR_MS = 3_600_000


@pytest.mark.parametrize("clean", [True, False], ids=["stop", "crash"])
def test_deferred_messages_come_back_as_waiting_ones(clean: bool) -> None:
    harness = BrokerHarness(keep_deferred=False)
    harness.channel()
    harness.put(b"later", delay_ms=HOUR_MS)
    harness.turn()
    assert harness.channel().deferred_count == 1
    if clean:
        harness.stop_and_start()
    else:
        harness.save()
        harness.crash()
    assert (harness.channel().deferred_count, harness.channel().depth) == (0, 1)
    assert [(m.body, m.attempts) for m in harness.reader().read()] == [(b"later", 1)]


def test_a_requeued_message_comes_back_with_its_attempts() -> None:
    harness = BrokerHarness(keep_deferred=False)
    reader = harness.reader()
    harness.put(b"a")
    (message,) = reader.read()
    reader.requeue(message.id, 3600.0)
    harness.stop_and_start()
    assert [(m.body, m.attempts) for m in harness.reader().read()] == [(b"a", 2)]


def test_what_a_paused_topic_keeps_is_not_deferred_any_more() -> None:
    harness = BrokerHarness(keep_deferred=False)
    harness.channel()
    harness.topic().pause()
    harness.put(b"later", delay_ms=HOUR_MS)
    harness.turn()
    harness.stop_and_start()
    reader = harness.reader()
    harness.topic().unpause(harness.now)
    assert reader.bodies() == [b"later"]


def test_what_a_topic_without_a_channel_keeps_is_not_deferred_for_an_ephemeral_one_either() -> None:
    harness = BrokerHarness(keep_deferred=False)
    harness.put(b"later", delay_ms=HOUR_MS)
    harness.turn()
    harness.stop_and_start()
    harness.put(b"put since", delay_ms=HOUR_MS)
    harness.turn()
    reader = harness.reader("c#ephemeral")
    assert (reader.bodies(), reader.channel.deferred_count) == ([b"later"], 1)


def test_with_delays_kept_the_same_message_waits() -> None:
    harness = BrokerHarness()
    harness.channel()
    harness.put(b"later", delay_ms=HOUR_MS)
    harness.turn()
    harness.stop_and_start()
    assert harness.reader().bodies() == []
    assert harness.channel().deferred_count == 1


def test_what_does_not_fit_into_the_memory_queue_is_not_deferred() -> None:
    harness = BrokerHarness(keep_deferred=False, mem_queue_size=1)
    harness.put(b"in memory", delay_ms=HOUR_MS)
    harness.put(b"on disk", delay_ms=HOUR_MS)
    reader = harness.reader()
    assert reader.bodies() == [b"on disk"]
    harness.put(b"flows", delay_ms=HOUR_MS)
    assert (reader.bodies(), harness.channel().deferred_count) == ([], 2)
