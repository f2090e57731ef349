"""The broker: what it says of its health, and to its operator."""

from __future__ import annotations

import pytest

from nsqtw.core.checkpoint import CursorState, NamedTopic
from nsqtw.core.cursor import Cursor
from nsqtw.core.sequences import BLOCK_SIZE, RESERVED_BLOCKS
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, Exiting
from nsqtw.runtime.storage_thread import perform
from tests.core.harness import BrokerHarness, goes_on


def test_what_cannot_be_stored_is_said_once_and_when_it_is_over() -> None:
    harness = BrokerHarness()
    harness.reader()
    harness.lines.clear()
    commit = harness.backend.commit
    harness.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    for _ in range(3):
        harness.put(b"a")
        harness.turn()
    assert harness.lines == [("error", "NSQ: messages cannot be stored - no space")]
    assert str(harness.broker.health) == "NOK - no space"
    harness.backend.commit = commit
    harness.put(b"a")
    harness.turn()
    assert harness.lines[1:] == [("info", "NSQ: messages are stored again")]
    assert str(harness.broker.health) == "OK"


def test_a_save_that_fails_is_said_and_tried_again_with_everything_in_it() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"a", b"b")
    first, _ = reader.read()
    reader.requeue(first.id, 100.0)
    waited: list[Exception | None] = []
    harness.broker.checkpointer.ask(waited.append)
    harness.save(BackendError("no space"))
    assert [str(error) for error in waited] == ["no space"]
    assert ("error", "NSQ: positions cannot be stored - no space") in harness.lines
    assert harness.broker.checkpointer.are_wanted
    harness.save()
    harness.crash()
    channel = harness.channel()
    assert (channel.depth, channel.deferred_count) == (1, 1)


@pytest.mark.plain  # what breaks is a method of the core
def test_a_save_that_breaks_before_it_has_begun_fails_as_a_whole_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = BrokerHarness()
    places = [("c", "a"), ("d", "a"), ("c", "b")]
    readers = [harness.reader(*place) for place in places]
    harness.topic("gone")
    harness.save()
    for reader in readers:
        harness.put(b"1", topic=reader.channel.topic.name)
    for reader in readers:
        reader.requeue(reader.read()[0].id, 100.0)
    harness.broker.delete_topic("gone")
    waited: list[Exception | None] = []
    harness.broker.checkpointer.ask(waited.append)
    changes, asked = Cursor.changes, []

    def fail_at_the_second(self: Cursor, name: str, first_deliveries: list[int]) -> CursorState:
        asked.append(name)
        if len(asked) == 2:
            raise ZeroDivisionError("broken")
        return changes(self, name, first_deliveries)

    with monkeypatch.context() as broken:
        broken.setattr(Cursor, "changes", fail_at_the_second)
        with pytest.raises(ZeroDivisionError):
            harness.begin_save()
    assert [str(error) for error in waited] == ["ZeroDivisionError: broken"]
    assert str(harness.broker.health) == "NOK - ZeroDivisionError: broken"
    assert harness.broker.checkpointer.are_wanted
    harness.save()
    assert str(harness.broker.health) == "OK"
    harness.crash()
    assert sorted(harness.broker.topics) == ["a", "b"]
    assert [harness.channel(*place).deferred_count for place in places] == [1, 1, 1]


@pytest.mark.plain  # what breaks is a method of the core
def test_a_save_whose_names_break_leaves_all_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = BrokerHarness()
    harness.topic("a")
    harness.topic("gone")
    harness.save()
    harness.broker.delete_topic("gone")
    waited: list[Exception | None] = []
    harness.broker.checkpointer.ask(waited.append)

    def fail(self: Topic) -> NamedTopic:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(Topic, "named", fail)
        with pytest.raises(ZeroDivisionError):
            harness.begin_save()
    [error] = waited
    assert isinstance(error, BackendError)
    assert not harness.broker.health.is_good
    harness.save()
    assert harness.broker.health.is_good
    assert harness.written[-1] == [NamedTopic("a")]


@pytest.mark.plain  # what breaks is a method of the core
def test_a_topic_whose_save_does_not_end_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = BrokerHarness()
    for name in ("a", "b", "c"):
        harness.put(b"x", topic=name)
    harness.turn()
    waited: list[Exception | None] = []
    harness.broker.checkpointer.ask(waited.append)
    ended: list[str] = []
    end_checkpoint = Topic.end_checkpoint

    def fail(self: Topic, *, failed: bool) -> None:
        if self.name == "a":
            raise ZeroDivisionError
        ended.append(self.name)
        end_checkpoint(self, failed=failed)

    with monkeypatch.context() as broken:
        broken.setattr(Topic, "end_checkpoint", fail)
        harness.save()
    assert (waited, ended) == ([None], ["b", "c"])
    assert [topic.name for topic in harness.begin_save().checkpoint.topics] == ["a"], "it is saved again"


def test_births_and_deaths_are_said() -> None:
    harness = BrokerHarness()
    harness.channel()
    harness.topic().delete_channel("c")
    harness.channel("d")
    harness.broker.delete_topic("t")
    assert [text for _, text in harness.lines] == [
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
    harness = BrokerHarness(durability=durability)
    harness.channel()
    harness.put(b"a", b"b")
    harness.turn()
    harness.lines.clear()
    harness.broker.stop(harness.now)
    assert [text for _, text in harness.lines] == ["TOPIC(t): closing", "CHANNEL(c): closing", *flushed]


def test_a_cut_has_no_more_than_a_turn_has_time_for_and_the_next_one_is_due_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 4)
    harness = BrokerHarness()
    for name in "abcde":
        harness.channel("c", name)
    harness.save()  # births are waited for
    for name in "abcde":
        harness.put(b"x", topic=name)
    parts = []
    while not parts or goes_on(harness.broker.checkpointer):
        save = harness.begin_save()
        parts.append([topic.name for topic in save.checkpoint.topics])
        harness.broker.checkpointer.end(save, None)
    assert parts == [["a", "b"], ["c", "d"], ["e"]]
    assert not harness.broker.checkpointer.are_wanted


def test_what_changes_while_a_cut_is_saved_in_parts_is_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a broker with many busy topics would do nothing but save."""
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 4)
    harness = BrokerHarness()
    for name in "abcde":
        harness.channel("c", name)
    harness.save()
    rounds = []
    for _ in range(2):
        parts = []
        for _ in range(5):
            for name in "abcde":
                harness.put(b"x", topic=name)
            save = harness.begin_save()
            parts.append([topic.name for topic in save.checkpoint.topics])
            harness.broker.checkpointer.end(save, None)
            if not goes_on(harness.broker.checkpointer):
                break
        assert harness.broker.checkpointer.are_wanted
        rounds.append(parts)
    assert rounds == [[["a", "b"], ["c", "d"], ["e"]], [["a", "b"], ["c", "d"], ["e"]]]


def test_a_topic_that_is_gone_before_its_part_of_a_cut_keeps_nobody_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    harness = BrokerHarness()
    for _ in range(2):
        harness.save()  # births are waited for
        for name in ("a", "b#ephemeral", "c#ephemeral"):
            harness.put(b"x", topic=name)
    save = harness.begin_save()
    harness.broker.checkpointer.end(save, None)
    harness.broker.delete_topic("b#ephemeral")
    harness.broker.delete_topic("c#ephemeral")
    assert not goes_on(harness.broker.checkpointer)
    harness.put(b"x", topic="a")
    harness.turn()
    assert harness.broker.checkpointer.are_wanted
    assert not goes_on(harness.broker.checkpointer)


def test_who_waits_for_a_cut_is_told_after_its_last_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 4)
    harness = BrokerHarness()
    for name in "abcde":
        harness.put(b"x", topic=name)
    answers: list[Exception | None] = []
    harness.broker.checkpointer.ask(answers.append)
    first = harness.begin_save()
    harness.put(b"x", topic="later")
    harness.broker.checkpointer.ask(answers.append)
    harness.broker.checkpointer.end(first, None)
    assert (len(first.checkpoint.topics), answers) == (4, [])
    last = harness.begin_save()
    assert (len(last.checkpoint.topics), answers) == (1, [])
    harness.broker.checkpointer.end(last, None)
    assert answers == [None]
    assert goes_on(harness.broker.checkpointer)
    harness.save()
    assert answers == [None, None]
    assert not goes_on(harness.broker.checkpointer)


def test_who_comes_while_a_cut_nobody_waits_for_is_saved_waits_for_all_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    harness = BrokerHarness()
    for name in "ab":
        harness.put(b"x", topic=name)
    parts = [harness.begin_save()]
    harness.broker.checkpointer.end(parts[0], None)
    answers: list[Exception | None] = []
    harness.put(b"x", topic="c")
    harness.broker.checkpointer.ask(answers.append)
    while not answers:
        parts.append(harness.begin_save())
        harness.broker.checkpointer.end(parts[-1], None)
    assert [topic.name for part in parts for topic in part.checkpoint.topics] == ["a", "b", "c"]


def test_who_waits_for_a_cut_is_told_which_of_its_parts_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    harness = BrokerHarness()
    for name in "ab":
        harness.channel("c", name)
    answers: list[Exception | None] = []
    harness.broker.checkpointer.ask(answers.append)
    error = BackendError("EIO")
    harness.broker.checkpointer.end(harness.begin_save(), error)
    assert answers == [error]
    harness.wait(2.0)
    harness.save()
    assert [[topic.name for topic in names] for names in harness.written] == [["a", "b"]]


def test_names_come_with_the_last_part_and_name_what_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 1)
    harness = BrokerHarness()
    for name in "ab":
        harness.channel("c", name)
    harness.broker.metadata_sync.change(at_once=True)
    first = harness.begin_save()
    harness.channel("c", "later")
    harness.broker.metadata_sync.change(at_once=True)
    harness.broker.checkpointer.end(first, None)
    last = harness.begin_save()
    assert first.names is None and last.names is not None
    assert [topic.name for topic in last.names] == ["a", "b"]
    harness.broker.checkpointer.end(last, None)
    harness.save()
    assert [topic.name for topic in harness.written[-1]] == ["a", "b", "later"]


def test_a_part_of_a_cut_that_could_not_be_saved_waits_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.checkpointer.SAVED_AT_ONCE", 4)
    harness = BrokerHarness()
    for name in "abcde":
        harness.channel("c", name)
    harness.save()
    for name in "abcde":
        harness.put(b"x", topic=name)
    harness.save(BackendError("EIO"))
    assert harness.broker.checkpointer.are_wanted and not goes_on(harness.broker.checkpointer)
    saved = []
    while harness.broker.checkpointer.are_wanted:
        save = harness.begin_save()
        saved += [topic.name for topic in save.checkpoint.topics]
        harness.broker.checkpointer.end(save, None)
    assert sorted(saved) == ["a", "b", "c", "d", "e"]


def test_blocks_that_cannot_be_reserved_fail_the_publish_that_needed_them() -> None:
    harness = BrokerHarness()
    harness.broker.sequences._reserved_blocks = harness.broker.sequences._next_block

    def refuse(block: int) -> None:
        raise BackendError("no space")

    reserve = harness.positions.reserve
    harness.positions.reserve = refuse  # type: ignore[method-assign]
    answers = harness.put(b"a")
    harness.turn()
    assert [str(answer) for answer in answers] == ["no space"]
    harness.positions.reserve = reserve  # type: ignore[method-assign]
    assert harness.put(b"b") == []
    harness.turn()
    assert harness.topic().depth == 1


def test_blocks_are_reserved_ahead_with_a_save_before_they_run_out() -> None:
    harness = BrokerHarness()
    broker = harness.broker
    before = harness.positions.load().next_block
    while broker.sequences.to_reserve() is None:
        broker.sequences.take(1)
    harness.save()
    after = harness.positions.load().next_block
    assert before is not None and after is not None
    assert after > before
    assert broker.sequences.to_reserve() is None


def test_blocks_taken_while_a_save_reserves_stay_reserved() -> None:
    harness = BrokerHarness()
    broker = harness.broker
    broker.sequences.take(RESERVED_BLOCKS - 100)
    save = harness.begin_save()
    assert save.reserve is not None
    taken = broker.sequences.take(2 * RESERVED_BLOCKS) + 2 * RESERVED_BLOCKS
    broker.checkpointer.end(save, perform(save, harness.positions, harness.log))
    harness.crash()
    assert harness.broker.sequences.take(1) >= taken


def test_no_block_under_the_end_of_a_log_is_handed_out_whatever_was_saved() -> None:
    harness = BrokerHarness()
    harness.put(b"a")
    harness.turn()
    end = harness.topic().log.end
    harness.broker.sequences.start(1, end)
    assert harness.broker.sequences.take(1) * BLOCK_SIZE >= end


def test_a_topic_that_breaks_does_not_keep_others_from_their_answer() -> None:
    harness = BrokerHarness()
    harness.put(b"a", topic="good")
    harness.turn()
    harness.broker.sequences._reserved_blocks = harness.broker.sequences._next_block

    def fail(block: int) -> None:
        raise ZeroDivisionError("broken")

    harness.positions.reserve = fail  # type: ignore[method-assign]
    bad, good = harness.put(b"a", topic="bad"), harness.put(b"b", topic="good")
    harness.turn()
    assert ([str(error) for error in bad], good) == (["ZeroDivisionError: broken"], [None])


def test_a_stopping_broker_takes_no_message() -> None:
    harness = BrokerHarness()
    topic = harness.topic()
    harness.broker.stop(harness.now)
    answers: list[Exception | None] = []
    topic.put([b"a"], 0, answers.append)
    assert isinstance(answers[0], Exiting)


def test_a_stopping_broker_takes_no_new_topic() -> None:
    harness = BrokerHarness()
    harness.broker.stop(harness.now)
    with pytest.raises(Exiting):
        harness.topic("new")


def test_a_broken_consumer_does_not_keep_others_from_their_messages() -> None:
    harness = BrokerHarness()
    broken, good = harness.reader("broken"), harness.reader("good")

    def fail(frames: bytes) -> None:
        raise ZeroDivisionError

    broken.consumer.deliver = fail
    harness.put(b"a")
    assert good.bodies() == [b"a"]
    assert ("critical", "CHANNEL(broken): serving it failed") in harness.lines


def test_a_channel_that_counts_what_it_cannot_deliver_does_not_keep_the_broker_busy() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    assert reader.channel.cursor is not None
    rows = reader.channel.cursor._pending
    rows._due_unsaved_count = 1
    harness.put(b"a")
    assert reader.bodies() == [b"a"]
    error = ("error", "CHANNEL(c): messages that are counted as ready cannot be delivered: 1")
    assert harness.lines.count(error) == 1
    assert not harness.broker.serve(harness.now)
    harness.wait(1.0)
    assert harness.lines.count(error) == 1
    harness.put(b"b")
    assert reader.bodies() == [b"b"]
    rows._due_unsaved_count = 0
    harness.wait(1.0)
    assert reader.channel in reader.channel.topic.caught_up


def test_a_broken_waiter_does_not_keep_others_from_their_answer() -> None:
    harness = BrokerHarness()

    def fail(error: Exception | None) -> None:
        raise ZeroDivisionError

    harness.topic().put([b"a"], 0, fail)
    answers = harness.put(b"b")
    harness.turn()
    assert answers == [None]
    assert ("critical", "NSQ: answering a publisher failed") in harness.lines


def test_a_backend_that_raises_fails_the_publishes_of_that_turn() -> None:
    harness = BrokerHarness()
    commit = harness.backend.commit

    def fail(writes: object, durable: bool) -> None:
        raise ZeroDivisionError("broken")

    harness.backend.commit = fail
    answers = harness.put(b"a")
    harness.turn()
    assert [str(answer) for answer in answers] == ["ZeroDivisionError: broken"]
    harness.backend.commit = commit
    assert harness.put(b"b") == []
    harness.turn()
    assert harness.topic().depth == 1
