"""What a directory is told of topics and channels, and a topic that is held until it has its channels."""

from __future__ import annotations

import pytest

from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError
from tests.core.world import World


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


def listed(*, holds: bool = False, **options: object) -> tuple[World, Entries]:
    """A world with a directory."""
    world = World(**options)
    world.broker.directory = entries = Entries(holds=holds)
    return world, entries


def test_a_directory_is_told_of_what_comes_and_goes() -> None:
    world, entries = listed()
    world.channel("c")
    world.channel("d")
    world.topic().delete_channel("d")
    world.broker.delete_topic("t")
    assert entries.told == ["+t", "+t:c", "+t:d", "-t:d", "-t:c", "-t"]


def test_a_directory_is_told_when_the_last_consumer_takes_what_is_ephemeral_with_it() -> None:
    world, entries = listed()
    world.reader("c#ephemeral", "t#ephemeral").leave()
    assert entries.told == ["+t#ephemeral", "+t#ephemeral:c#ephemeral", "-t#ephemeral:c#ephemeral", "-t#ephemeral"]


def test_what_is_published_before_the_start_is_answered_at_once_and_goes_to_all_that_have_come_by_then() -> None:
    world, _ = listed(holds=True)
    early = world.reader("early")
    answers = world.put(b"1", b"2")
    assert early.bodies() == []
    assert (answers, world.topic().depth) == ([None], 2)
    late, fleeting = world.reader("late"), world.reader("fleeting#ephemeral")
    world.topic().start(world.now)
    world.put(b"3")
    for reader in (early, late, fleeting):
        assert reader.bodies() == [b"1", b"2", b"3"]
    assert world.topic().depth == 0


def test_a_paused_topic_that_starts_stays_paused_and_one_that_is_held_does_not_go_on_with_its_pause() -> None:
    world, _ = listed(holds=True)
    reader = world.reader()
    world.put(b"1")
    world.topic().pause()
    world.topic().start(world.now)
    assert reader.bodies() == []
    world.topic().hold()
    world.topic().unpause(world.now)
    assert reader.bodies() == []
    world.topic().start(world.now)
    assert reader.bodies() == [b"1"]


def test_delays_count_from_the_start() -> None:
    world, _ = listed(holds=True)
    reader = world.reader()
    world.put(b"later", delay_ms=1000)
    world.wait(5)
    world.topic().start(world.now)
    assert reader.bodies() == []
    world.wait(1)
    assert reader.bodies() == [b"later"]


def test_a_topic_without_channels_keeps_its_messages_over_its_start() -> None:
    world, _ = listed(holds=True)
    world.put(b"1")
    world.turn()
    world.topic().start(world.now)
    assert world.reader().bodies() == [b"1"]


def test_a_start_while_the_medium_fails_costs_only_ephemeral_channels_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, _ = listed(holds=True)
    fleeting, durable = world.reader("f#ephemeral"), world.reader("d")
    world.put(b"1")
    world.turn()

    def broken(start: int, limit: int) -> None:
        raise BackendError("input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(world.topic().log.queue, "read", broken)
        world.topic().start(world.now)
    assert (fleeting.bodies(), durable.bodies()) == ([], [b"1"])
    assert ("error", "TOPIC(t): failed to read, will try again - input/output error") in world.lines


def test_a_crash_before_the_start_loses_nothing_of_what_the_channels_were_to_get() -> None:
    world, _ = listed(holds=True)
    world.reader("c")
    world.put(b"1")
    world.save()
    world.crash()
    assert world.reader("c").bodies() == [b"1"]


def test_after_a_crash_a_topic_that_released_nothing_is_held_again_if_there_is_somebody_to_ask() -> None:
    world, _ = listed(holds=True, lookupd_tcp_address=("l:1",))
    world.reader("c")
    world.put(b"1")
    world.topic("empty")
    world.put(b"1", topic="started")
    world.topic("started").start(world.now)
    world.reader(topic="started")
    world.save()
    world.crash()
    assert [topic.name for topic in world.broker.topics.values() if topic.is_awaiting_channels] == ["t"]
    early = world.reader("c")
    assert early.bodies() == []
    late = world.reader("late")
    world.topic("t").start(world.now)
    assert early.bodies() == late.bodies() == [b"1"]
    world.save()
    world.crash()
    assert not world.topic("t").is_awaiting_channels
