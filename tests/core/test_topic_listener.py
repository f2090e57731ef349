"""What a directory is told of topics and channels, and a topic that is held until it has its channels."""

from __future__ import annotations

import pytest

from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness


class Entries:
    """A directory that keeps what it is told; new topics are held while `holds`."""

    def __init__(self, *, holds: bool = False) -> None:
        self.told: list[str] = []
        self._holds = holds

    def on_new_topic(self, topic: Topic) -> None:
        self.told.append(f"+{topic.name}")
        if self._holds:
            topic.hold()

    def on_created(self, topic: str, channel: str) -> None:
        self.told.append(f"+{topic}:{channel}")

    def on_deleted(self, topic: str, channel: str = "") -> None:
        self.told.append(f"-{topic}:{channel}" if channel else f"-{topic}")


def listed(*, holds: bool = False, **options: object) -> tuple[BrokerHarness, Entries]:
    """A harness with a directory."""
    harness = BrokerHarness(**options)
    harness.broker.directory = entries = Entries(holds=holds)
    return harness, entries


def test_a_directory_is_told_of_what_comes_and_goes() -> None:
    harness, entries = listed()
    harness.channel("c")
    harness.channel("d")
    harness.topic().delete_channel("d")
    harness.broker.delete_topic("t")
    assert entries.told == ["+t", "+t:c", "+t:d", "-t:d", "-t:c", "-t"]


def test_a_directory_is_told_when_the_last_consumer_takes_what_is_ephemeral_with_it() -> None:
    harness, entries = listed()
    harness.reader("c#ephemeral", "t#ephemeral").leave()
    assert entries.told == ["+t#ephemeral", "+t#ephemeral:c#ephemeral", "-t#ephemeral:c#ephemeral", "-t#ephemeral"]


def test_what_is_published_before_the_start_is_answered_at_once_and_goes_to_all_that_have_come_by_then() -> None:
    harness, _ = listed(holds=True)
    early = harness.reader("early")
    answers = harness.put(b"1", b"2")
    assert early.bodies() == []
    assert (answers, harness.topic().depth) == ([None], 2)
    late, fleeting = harness.reader("late"), harness.reader("fleeting#ephemeral")
    harness.topic().start(harness.now)
    harness.put(b"3")
    for reader in (early, late, fleeting):
        assert reader.bodies() == [b"1", b"2", b"3"]
    assert harness.topic().depth == 0


def test_a_paused_topic_that_starts_stays_paused_and_one_that_is_held_does_not_go_on_with_its_pause() -> None:
    harness, _ = listed(holds=True)
    reader = harness.reader()
    harness.put(b"1")
    harness.topic().pause()
    harness.topic().start(harness.now)
    assert reader.bodies() == []
    harness.topic().hold()
    harness.topic().unpause(harness.now)
    assert reader.bodies() == []
    harness.topic().start(harness.now)
    assert reader.bodies() == [b"1"]


def test_delays_count_from_the_start() -> None:
    harness, _ = listed(holds=True)
    reader = harness.reader()
    harness.put(b"later", delay_ms=1000)
    harness.wait(5)
    harness.topic().start(harness.now)
    assert reader.bodies() == []
    harness.wait(1)
    assert reader.bodies() == [b"later"]


def test_a_topic_without_channels_keeps_its_messages_over_its_start() -> None:
    harness, _ = listed(holds=True)
    harness.put(b"1")
    harness.turn()
    harness.topic().start(harness.now)
    assert harness.reader().bodies() == [b"1"]


def test_a_start_while_the_medium_fails_costs_only_ephemeral_channels_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness, _ = listed(holds=True)
    fleeting, durable = harness.reader("f#ephemeral"), harness.reader("d")
    harness.put(b"1")
    harness.turn()

    def broken(start: int, limit: int) -> None:
        raise BackendError("input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(harness.topic().log.queue, "read", broken)
        harness.topic().start(harness.now)
    assert (fleeting.bodies(), durable.bodies()) == ([], [b"1"])
    assert ("error", "TOPIC(t): failed to read, will try again - input/output error") in harness.lines


def test_a_crash_before_the_start_loses_nothing_of_what_the_channels_were_to_get() -> None:
    harness, _ = listed(holds=True)
    harness.reader("c")
    harness.put(b"1")
    harness.save()
    harness.crash()
    assert harness.reader("c").bodies() == [b"1"]


def test_after_a_crash_a_topic_that_released_nothing_is_held_again_if_there_is_somebody_to_ask() -> None:
    harness, _ = listed(holds=True, lookupd_tcp_address=("l:1",))
    harness.reader("c")
    harness.put(b"1")
    harness.topic("empty")
    harness.put(b"1", topic="started")
    harness.topic("started").start(harness.now)
    harness.reader(topic="started")
    harness.save()
    harness.crash()
    assert [topic.name for topic in harness.broker.topics.values() if topic.is_awaiting_channels] == ["t"]
    early = harness.reader("c")
    assert early.bodies() == []
    late = harness.reader("late")
    harness.topic("t").start(harness.now)
    assert early.bodies() == late.bodies() == [b"1"]
    harness.save()
    harness.crash()
    assert not harness.topic("t").is_awaiting_channels
