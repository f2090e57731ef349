"""The broker: what it says of its health, and to its operator."""

from __future__ import annotations

import pytest

from nsqtw.core.broker import RESERVED_BLOCKS
from nsqtw.core.checkpoint import CursorState, NamedTopic
from nsqtw.core.cursor import Cursor
from nsqtw.core.publish_buffer import BLOCK_SIZE
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, Exiting
from nsqtw.runtime.storage_thread import perform
from tests.core.world import World, goes_on


def test_what_cannot_be_stored_is_said_once_and_when_it_is_over() -> None:
    world = World()
    world.reader()
    world.lines.clear()
    commit = world.backend.commit
    world.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    for _ in range(3):
        world.put(b"a")
        world.turn()
    assert world.lines == [("error", "NSQ: messages cannot be stored - no space")]
    assert str(world.broker.health) == "NOK - no space"
    world.backend.commit = commit
    world.put(b"a")
    world.turn()
    assert world.lines[1:] == [("info", "NSQ: messages are stored again")]
    assert str(world.broker.health) == "OK"


def test_a_save_that_fails_is_said_and_tried_again_with_everything_in_it() -> None:
    world = World()
    reader = world.reader()
    world.put(b"a", b"b")
    first, _ = reader.read()
    reader.requeue(first.id, 100.0)
    waited: list[Exception | None] = []
    world.broker.checkpointer.ask(waited.append)
    world.save(BackendError("no space"))
    assert [str(error) for error in waited] == ["no space"]
    assert ("error", "NSQ: positions cannot be stored - no space") in world.lines
    assert world.broker.checkpointer.are_wanted
    world.save()
    world.crash()
    channel = world.channel()
    assert (channel.depth, channel.deferred_count) == (1, 1)


@pytest.mark.plain  # what breaks is a method of the core
def test_a_save_that_breaks_before_it_has_begun_fails_as_a_whole_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    places = [("c", "a"), ("d", "a"), ("c", "b")]
    readers = [world.reader(*place) for place in places]
    world.topic("gone")
    world.save()
    for reader in readers:
        world.put(b"1", topic=reader.channel.topic.name)
    for reader in readers:
        reader.requeue(reader.read()[0].id, 100.0)
    world.broker.delete_topic("gone")
    waited: list[Exception | None] = []
    world.broker.checkpointer.ask(waited.append)
    changes, asked = Cursor.changes, []

    def fail_at_the_second(self: Cursor, name: str, first_deliveries: list[int]) -> CursorState:
        asked.append(name)
        if len(asked) == 2:
            raise ZeroDivisionError("broken")
        return changes(self, name, first_deliveries)

    with monkeypatch.context() as broken:
        broken.setattr(Cursor, "changes", fail_at_the_second)
        with pytest.raises(ZeroDivisionError):
            world.begin_save()
    assert [str(error) for error in waited] == ["ZeroDivisionError: broken"]
    assert str(world.broker.health) == "NOK - ZeroDivisionError: broken"
    assert world.broker.checkpointer.are_wanted
    world.save()
    assert str(world.broker.health) == "OK"
    world.crash()
    assert sorted(world.broker.topics) == ["a", "b"]
    assert [world.channel(*place).deferred_count for place in places] == [1, 1, 1]


@pytest.mark.plain  # what breaks is a method of the core
def test_a_save_whose_names_break_leaves_all_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.topic("a")
    world.topic("gone")
    world.save()
    world.broker.delete_topic("gone")
    waited: list[Exception | None] = []
    world.broker.checkpointer.ask(waited.append)

    def fail(self: Topic) -> NamedTopic:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(Topic, "named", fail)
        with pytest.raises(ZeroDivisionError):
            world.begin_save()
    [error] = waited
    assert isinstance(error, BackendError)
    assert not world.broker.health.is_good
    world.save()
    assert world.broker.health.is_good
    assert world.written[-1] == [NamedTopic("a")]


@pytest.mark.plain  # what breaks is a method of the core
def test_a_topic_whose_save_does_not_end_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.put(b"x", topic=name)
    world.turn()
    waited: list[Exception | None] = []
    world.broker.checkpointer.ask(waited.append)
    ended: list[str] = []
    end_checkpoint = Topic.end_checkpoint

    def fail(self: Topic, *, failed: bool) -> None:
        if self.name == "a":
            raise ZeroDivisionError
        ended.append(self.name)
        end_checkpoint(self, failed=failed)

    with monkeypatch.context() as broken:
        broken.setattr(Topic, "end_checkpoint", fail)
        world.save()
    assert (waited, ended) == ([None], ["b", "c"])
    assert [topic.name for topic in world.begin_save().checkpoint.topics] == ["a"], "it is saved again"


def test_births_and_deaths_are_said() -> None:
    world = World()
    world.channel()
    world.topic().delete_channel("c")
    world.channel("d")
    world.broker.delete_topic("t")
    assert [text for _, text in world.lines] == [
        "TOPIC(t): created",
        "TOPIC(t): new channel(c)",
        "TOPIC(t): deleting channel c",
        "CHANNEL(c): deleting",
        "TOPIC(t): new channel(d)",
        "TOPIC(t): deleting",
        "CHANNEL(d): deleting",
    ]


@pytest.mark.parametrize(
    ("durability", "flushed"), [("os", []), ("memory", ["TOPIC(t): flushing 2 memory messages to backend"])]
)
def test_a_clean_stop_says_what_is_closed_and_what_had_to_be_written(durability: str, flushed: list[str]) -> None:
    world = World(durability=durability)
    world.channel()
    world.put(b"a", b"b")
    world.turn()
    world.lines.clear()
    world.broker.stop(world.now)
    assert [text for _, text in world.lines] == ["TOPIC(t): closing", "CHANNEL(c): closing", *flushed]


def test_a_cut_has_no_more_than_a_turn_has_time_for_and_the_next_one_is_due_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 4)
    world = World()
    for name in "abcde":
        world.channel("c", name)
    world.save()  # births are waited for
    for name in "abcde":
        world.put(b"x", topic=name)
    parts = []
    while not parts or goes_on(world.broker.checkpointer):
        save = world.begin_save()
        parts.append([topic.name for topic in save.checkpoint.topics])
        world.broker.checkpointer.end(save, None)
    assert parts == [["a", "b"], ["c", "d"], ["e"]]
    assert not world.broker.checkpointer.are_wanted


def test_what_changes_while_a_cut_is_saved_in_parts_is_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a broker with many busy topics would do nothing but save."""
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 4)
    world = World()
    for name in "abcde":
        world.channel("c", name)
    world.save()
    rounds = []
    for _ in range(2):
        parts = []
        for _ in range(5):
            for name in "abcde":
                world.put(b"x", topic=name)
            save = world.begin_save()
            parts.append([topic.name for topic in save.checkpoint.topics])
            world.broker.checkpointer.end(save, None)
            if not goes_on(world.broker.checkpointer):
                break
        assert world.broker.checkpointer.are_wanted
        rounds.append(parts)
    assert rounds == [[["a", "b"], ["c", "d"], ["e"]], [["a", "b"], ["c", "d"], ["e"]]]


def test_a_topic_that_is_gone_before_its_part_of_a_cut_keeps_nobody_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    world = World()
    for _ in range(2):
        world.save()  # births are waited for
        for name in ("a", "b#ephemeral", "c#ephemeral"):
            world.put(b"x", topic=name)
    save = world.begin_save()
    world.broker.checkpointer.end(save, None)
    world.broker.delete_topic("b#ephemeral")
    world.broker.delete_topic("c#ephemeral")
    assert not goes_on(world.broker.checkpointer)
    world.put(b"x", topic="a")
    world.turn()
    assert world.broker.checkpointer.are_wanted
    assert not goes_on(world.broker.checkpointer)


def test_who_waits_for_a_cut_is_told_after_its_last_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 4)
    world = World()
    for name in "abcde":
        world.put(b"x", topic=name)
    answers: list[Exception | None] = []
    world.broker.checkpointer.ask(answers.append)
    first = world.begin_save()
    world.put(b"x", topic="later")
    world.broker.checkpointer.ask(answers.append)
    world.broker.checkpointer.end(first, None)
    assert (len(first.checkpoint.topics), answers) == (4, [])
    last = world.begin_save()
    assert (len(last.checkpoint.topics), answers) == (1, [])
    world.broker.checkpointer.end(last, None)
    assert answers == [None]
    assert goes_on(world.broker.checkpointer)
    world.save()
    assert answers == [None, None]
    assert not goes_on(world.broker.checkpointer)


def test_who_comes_while_a_cut_nobody_waits_for_is_saved_waits_for_all_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    world = World()
    for name in "ab":
        world.put(b"x", topic=name)
    parts = [world.begin_save()]
    world.broker.checkpointer.end(parts[0], None)
    answers: list[Exception | None] = []
    world.put(b"x", topic="c")
    world.broker.checkpointer.ask(answers.append)
    while not answers:
        parts.append(world.begin_save())
        world.broker.checkpointer.end(parts[-1], None)
    assert [topic.name for part in parts for topic in part.checkpoint.topics] == ["a", "b", "c"]


def test_who_waits_for_a_cut_is_told_which_of_its_parts_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    world = World()
    for name in "ab":
        world.channel("c", name)
    answers: list[Exception | None] = []
    world.broker.checkpointer.ask(answers.append)
    error = BackendError("EIO")
    world.broker.checkpointer.end(world.begin_save(), error)
    assert answers == [error]
    world.wait(2.0)
    world.save()
    assert [[topic.name for topic in names] for names in world.written] == [["a", "b"]]


def test_names_come_with_the_last_part_and_name_what_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    world = World()
    for name in "ab":
        world.channel("c", name)
    world.broker.metadata_sync.change(at_once=True)
    first = world.begin_save()
    world.channel("c", "later")
    world.broker.metadata_sync.change(at_once=True)
    world.broker.checkpointer.end(first, None)
    last = world.begin_save()
    assert first.names is None and last.names is not None
    assert [topic.name for topic in last.names] == ["a", "b"]
    world.broker.checkpointer.end(last, None)
    world.save()
    assert [topic.name for topic in world.written[-1]] == ["a", "b", "later"]


def test_a_part_of_a_cut_that_could_not_be_saved_waits_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 4)
    world = World()
    for name in "abcde":
        world.channel("c", name)
    world.save()
    for name in "abcde":
        world.put(b"x", topic=name)
    world.save(BackendError("EIO"))
    assert world.broker.checkpointer.are_wanted and not goes_on(world.broker.checkpointer)
    saved = []
    while world.broker.checkpointer.are_wanted:
        save = world.begin_save()
        saved += [topic.name for topic in save.checkpoint.topics]
        world.broker.checkpointer.end(save, None)
    assert sorted(saved) == ["a", "b", "c", "d", "e"]


def test_blocks_that_cannot_be_reserved_fail_the_publish_that_needed_them() -> None:
    world = World()
    world.broker._reserved_blocks = world.broker._next_block

    def refuse(block: int) -> None:
        raise BackendError("no space")

    reserve = world.positions.reserve
    world.positions.reserve = refuse  # type: ignore[method-assign]
    answers = world.put(b"a")
    world.turn()
    assert [str(answer) for answer in answers] == ["no space"]
    world.positions.reserve = reserve  # type: ignore[method-assign]
    assert world.put(b"b") == []
    world.turn()
    assert world.topic().depth == 1


def test_blocks_are_reserved_ahead_with_a_save_before_they_run_out() -> None:
    world = World()
    broker = world.broker
    before = world.positions.load().next_block
    while broker.blocks_to_reserve() is None:
        broker.take_blocks(1)
    world.save()
    after = world.positions.load().next_block
    assert before is not None and after is not None
    assert after > before
    assert broker.blocks_to_reserve() is None


def test_blocks_taken_while_a_save_reserves_stay_reserved() -> None:
    world = World()
    broker = world.broker
    broker.take_blocks(RESERVED_BLOCKS - 100)
    save = world.begin_save()
    assert save.reserve is not None
    taken = broker.take_blocks(2 * RESERVED_BLOCKS) + 2 * RESERVED_BLOCKS
    broker.checkpointer.end(save, perform(save, world.positions, world.log))
    world.crash()
    assert world.broker.take_blocks(1) >= taken


def test_no_block_under_the_end_of_a_log_is_handed_out_whatever_was_saved() -> None:
    world = World()
    world.put(b"a")
    world.turn()
    end = world.topic().log.end
    world.broker.start_blocks(1, end)
    assert world.broker.take_blocks(1) * BLOCK_SIZE >= end


def test_a_topic_that_breaks_does_not_keep_others_from_their_answer() -> None:
    world = World()
    world.put(b"a", topic="good")
    world.turn()
    world.broker._reserved_blocks = world.broker._next_block

    def fail(block: int) -> None:
        raise ZeroDivisionError("broken")

    world.positions.reserve = fail  # type: ignore[method-assign]
    bad, good = world.put(b"a", topic="bad"), world.put(b"b", topic="good")
    world.turn()
    assert ([str(error) for error in bad], good) == (["ZeroDivisionError: broken"], [None])


def test_a_stopping_broker_takes_no_message() -> None:
    world = World()
    topic = world.topic()
    world.broker.stop(world.now)
    answers: list[Exception | None] = []
    topic.put([b"a"], 0, answers.append)
    assert isinstance(answers[0], Exiting)


def test_a_stopping_broker_takes_no_new_topic() -> None:
    world = World()
    world.broker.stop(world.now)
    with pytest.raises(Exiting):
        world.topic("new")


def test_a_broken_consumer_does_not_keep_others_from_their_messages() -> None:
    world = World()
    broken, good = world.reader("broken"), world.reader("good")

    def fail(frames: bytes) -> None:
        raise ZeroDivisionError

    broken.consumer.deliver = fail
    world.put(b"a")
    assert good.bodies() == [b"a"]
    assert ("critical", "CHANNEL(broken): serving it failed") in world.lines


def test_a_broken_waiter_does_not_keep_others_from_their_answer() -> None:
    world = World()

    def fail(error: Exception | None) -> None:
        raise ZeroDivisionError

    world.topic().put([b"a"], 0, fail)
    answers = world.put(b"b")
    world.turn()
    assert answers == [None]
    assert ("critical", "NSQ: answering a publisher failed") in world.lines


def test_a_backend_that_raises_fails_the_publishes_of_that_turn() -> None:
    world = World()
    commit = world.backend.commit

    def fail(writes: object, durable: bool) -> None:
        raise ZeroDivisionError("broken")

    world.backend.commit = fail
    answers = world.put(b"a")
    world.turn()
    assert [str(answer) for answer in answers] == ["ZeroDivisionError: broken"]
    world.backend.commit = commit
    assert world.put(b"b") == []
    world.turn()
    assert world.topic().depth == 1
