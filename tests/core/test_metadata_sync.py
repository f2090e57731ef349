"""When nsqd.dat is written, and what it names then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsqtw.core.checkpoint import NamedChannel, NamedTopic
from nsqtw.core.metadata_sync import DELAY_SECONDS, RETRY_SECONDS
from nsqtw.errors import BackendError
from tests.core.world import World, goes_on


class FailingWorld(World):
    """nsqd.dat cannot be written as long as there is a reason."""

    why = ""

    def write_names(self, topics: Sequence[NamedTopic]) -> None:
        if self.why:
            raise BackendError(self.why)
        super().write_names(topics)

    @property
    def complaints(self) -> list[str]:
        return [text for level, text in self.lines if level == "error"]


def write(world: World) -> None:
    """Wait until all that is new is written."""
    world.save()
    world.wait(DELAY_SECONDS)
    world.save()


def after_writing(world: World) -> World:
    """The same world, all of which is written."""
    write(world)
    world.written.clear()
    return world


def test_a_new_topic_is_written_soon_though_nobody_waits() -> None:
    world = World()
    world.topic("a")
    assert goes_on(world.broker.checkpointer)
    world.save()
    assert (world.written, world.broker.timers.next_due) == ([], world.now + DELAY_SECONDS)
    world.wait(DELAY_SECONDS)
    assert goes_on(world.broker.checkpointer)
    world.save()
    assert world.written == [[NamedTopic("a")]]


def test_what_did_not_change_is_not_written_again() -> None:
    world = World()
    world.topic("a")
    after_writing(world)
    world.put(b"x", topic="a")
    world.topic("a").empty()
    write(world)
    assert world.written == []


def test_channels_are_named_and_what_is_paused() -> None:
    world = World()
    world.topic("a").pause()
    world.channel("c", "a").pause()
    world.channel("d", "a")
    world.topic("b")
    write(world)
    assert world.written == [[NamedTopic("a", True, (NamedChannel("c", True), NamedChannel("d"))), NamedTopic("b")]]


def test_what_is_deleted_is_named_no_more() -> None:
    world = World()
    world.channel("c", "a")
    world.channel("d", "a")
    world.topic("b")
    after_writing(world)
    world.topic("a").delete_channel("c")
    world.broker.delete_topic("b")
    world.save()
    assert world.written == [[NamedTopic("a", channels=(NamedChannel("d"),))]]


def test_what_is_ephemeral_is_not_named_and_no_reason_to_write() -> None:
    world = after_writing(World())
    topic = world.topic("e#ephemeral")
    topic.pause()
    topic.channel("c", world.now).pause()
    write(world)
    assert world.written == []
    world.channel("f#ephemeral", "t").pause()
    write(world)
    assert world.written == [[NamedTopic("t")]]
    after_writing(world)
    world.topic().delete_channel("f#ephemeral")
    world.broker.delete_topic("e#ephemeral")
    write(world)
    assert world.written == []


def test_many_new_topics_are_written_together() -> None:
    world = World()
    for number in range(10):
        world.topic(f"t{number}")
        world.save()
        world.wait(DELAY_SECONDS / 20)
    assert world.written == []
    write(world)
    assert world.written == [[NamedTopic(f"t{number}") for number in range(10)]]
    world.wait(DELAY_SECONDS)
    assert not goes_on(world.broker.checkpointer)


def test_who_pauses_or_deletes_is_answered_when_the_file_says_so() -> None:
    world = World()
    channel = world.channel("c", "a")
    topic = channel.topic
    write(world)
    answers: list[Exception | None] = []
    changes: list[Callable[[], None]] = [
        channel.pause,
        channel.unpause,
        topic.pause,
        lambda: topic.unpause(world.now),
        lambda: topic.delete_channel("c"),
        lambda: world.broker.delete_topic("a"),
    ]
    for change in changes:
        change()
        world.broker.checkpointer.ask(answers.append)
        save = world.begin_save()
        assert (save.names, answers) == (world.broker.metadata_sync.names(), [])
        world.broker.checkpointer.end(save, None)
        assert answers.pop() is None


def test_who_makes_a_channel_does_not_wait_for_the_file() -> None:
    world = World()
    answers: list[Exception | None] = []
    world.channel("c", "a")
    world.broker.checkpointer.ask(answers.append)
    world.save()
    assert (answers, world.written) == ([None], [])


def test_a_pause_takes_along_what_was_waiting() -> None:
    world = World()
    world.topic("b")
    world.topic("a").pause()
    world.save()
    world.wait(DELAY_SECONDS)
    assert world.written == [[NamedTopic("b"), NamedTopic("a", True)]]
    assert not goes_on(world.broker.checkpointer)


def test_a_broker_that_stops_writes_the_file_in_any_case() -> None:
    world = World()
    world.topic("a")
    write(world)
    world.broker.stop(world.now)
    world.save()
    assert world.written == [[NamedTopic("a")], [NamedTopic("a")]]


def test_nothing_is_written_of_what_is_loaded() -> None:
    world = World()
    world.crash(named=[NamedTopic("a", True, (NamedChannel("c", True), NamedChannel("d#ephemeral", True)))])
    write(world)
    assert world.written == []
    assert world.broker.metadata_sync.names() == (NamedTopic("a", True, (NamedChannel("c", True),)),)


def test_a_failed_write_fails_nothing_else_and_is_tried_again() -> None:
    world = FailingWorld()
    world.why = "no space"
    answers: list[Exception | None] = []
    world.topic("a").pause()
    world.broker.checkpointer.ask(answers.append)
    world.save()
    assert (answers, str(world.broker.health), goes_on(world.broker.checkpointer)) == ([None], "OK", False)
    world.wait(RETRY_SECONDS)
    world.save()
    world.why = ""
    world.wait(RETRY_SECONDS)
    assert goes_on(world.broker.checkpointer)
    world.save()
    assert world.written == [[NamedTopic("a", True)]]
    world.wait(RETRY_SECONDS)
    assert not goes_on(world.broker.checkpointer)


def test_the_operator_is_told_once_of_each_reason() -> None:
    world = FailingWorld()
    topic = world.topic("a")
    for why in ("no space", "no space", "read-only file system", "", "no space"):
        world.why = why
        topic.pause()
        world.save()
    reasons = ("no space", "read-only file system", "no space")
    assert world.complaints == [f"failed to persist metadata - {why}" for why in reasons]


def test_when_positions_cannot_be_saved_the_names_are_written_later() -> None:
    world = World()
    world.topic("a").pause()
    world.save(BackendError("no space"))
    assert world.written == []
    world.wait(RETRY_SECONDS)
    world.save()
    assert world.written == [[NamedTopic("a", True)]]
