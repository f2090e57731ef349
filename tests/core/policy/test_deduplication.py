"""A repeat of a publish within the window of its topic is answered OK and not stored."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core.segment import sequence_of
from nsqtw.errors import BackendError, Exiting
from nsqtw.message_headers import encode_headers
from nsqtw.stats.document import document
from tests.core.harness import BrokerHarness, Reader
from tests.core.policy.deduplicating import DeduplicatingHarness


@pytest.fixture
def harness() -> DeduplicatingHarness:
    return DeduplicatingHarness(window=60.0)


def fail(harness: BrokerHarness, error: str) -> Any:
    """Let commits fail; returns what undoes it."""
    commit = harness.backend.commit
    harness.backend.commit = lambda writes, durable: {queue: BackendError(error) for queue, _ in writes}
    return lambda: setattr(harness.backend, "commit", commit)


def take(reader: Reader) -> list[bytes]:
    """Read and finish."""
    messages = reader.read()
    reader.finish(*[message.id for message in messages])
    return [message.body for message in messages]


def test_a_repeat_is_answered_and_not_stored(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    assert harness.publish(("1", b"a")) == []
    assert reader.bodies() == [b"a"]
    again = harness.publish(("1", b"a"))
    assert reader.bodies() == []
    assert again == [None]
    assert harness.repeats() == 1
    assert harness.topic().message_count == 1


def test_messages_without_an_id_are_all_stored(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    harness.put(b"a", b"a")
    harness.publish(("", b"a"), ("", b"a"))
    assert reader.bodies() == [b"a"] * 4


def test_only_the_id_counts(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    answers: list[Exception | None] = []
    headers = [
        encode_headers({"id": "1", "a": "b"}),
        encode_headers({"idea": "1"}),
        encode_headers({"x": "\x02id"[1:]}),
    ]
    harness.topic().put([b"a", b"b", b"c"], 0, answers.append, headers)
    harness.publish(("1", b"another body"), ("2", b"d"))
    assert reader.bodies() == [b"a", b"b", b"c", b"d"]


def test_an_id_twice_in_one_publish(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    answers = harness.publish(("1", b"a"), ("2", b"b"), ("1", b"a"), ("", b"c"))
    assert reader.bodies() == [b"a", b"b", b"c"]
    assert (answers, harness.repeats()) == ([None], 1)


def test_two_publishes_of_one_turn(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    first, second = harness.publish(("1", b"a")), harness.publish(("1", b"a"), ("2", b"b"))
    assert reader.bodies() == [b"a", b"b"]
    assert first == second == [None]


def test_answers_come_in_the_order_of_the_publishes(harness: DeduplicatingHarness) -> None:
    harness.publish(("1", b"a"))
    harness.turn()
    order: list[str] = []
    for name, one in (("new", "2"), ("repeat", "1"), ("another", "3")):
        harness.topic().put([b"x"], 0, lambda error, name=name: order.append(name), [encode_headers({"id": one})])
    harness.turn()
    assert order == ["new", "repeat", "another"]


def test_a_repeat_in_a_commit_that_fails_fails_too(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    undo = fail(harness, "full")
    first, second = harness.publish(("1", b"a")), harness.publish(("1", b"a"))
    harness.turn()
    assert [str(error) for error in first + second] == ["full", "full"]
    undo()
    third = harness.publish(("1", b"a"))
    assert reader.bodies() == [b"a"]
    assert third == [None]


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_repeat_while_the_first_one_is_being_synced(is_failing: bool) -> None:
    """It is answered when that is known: as a repeat, or it is stored itself."""
    harness = DeduplicatingHarness(window=60.0, durability="fsync")
    reader = harness.reader()
    harness.lands_at_once = False
    undo = fail(harness, "EIO") if is_failing else lambda: None
    first = harness.publish(("1", b"a"))
    harness.turn()
    assert harness.batch is not None
    second = harness.publish(("1", b"again"))
    harness.turn()
    assert (first, second) == ([], [])
    harness.lands_at_once = True
    harness._land()
    undo()
    assert reader.bodies() == ([b"again"] if is_failing else [b"a"])
    assert [str(error) for error in first] == (["EIO"] if is_failing else ["None"])
    assert second == [None]


def test_class_memory() -> None:
    harness = DeduplicatingHarness(window=60.0, durability="memory")
    reader = harness.reader(ready=1)
    harness.publish(("1", b"a"), ("2", b"b"))
    assert reader.bodies() == [b"a"]
    assert harness.publish(("2", b"b")) == []
    harness.wait(1.0)
    harness.save()
    harness.crash()
    again = harness.publish(("2", b"b"), ("3", b"c"))
    assert harness.reader().bodies() == [b"a", b"b", b"c"]
    assert again == [None]


def test_what_class_memory_lost_is_not_known() -> None:
    harness = DeduplicatingHarness(window=60.0, durability="memory")
    harness.channel()
    harness.publish(("1", b"a"))
    harness.wait(1.0)
    harness.publish(("2", b"lost"))
    harness.save()
    harness.crash()
    harness.publish(("1", b"a"), ("2", b"again"))
    assert harness.reader().bodies() == [b"a", b"again"]


def test_a_refused_publish_leaves_no_id(harness: DeduplicatingHarness) -> None:
    harness.channel()
    harness.broker.begin_drain()
    (error,) = harness.publish(("1", b"a"))
    assert isinstance(error, Exiting)
    harness.broker.is_taking_publishes = True
    harness.publish(("1", b"a"))
    assert harness.reader().bodies() == [b"a"]


def test_the_window_passes(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    harness.publish(("1", b"a"))
    assert take(reader) == [b"a"]
    harness.wait(60.0)
    harness.publish(("1", b"still known"))
    assert take(reader) == []
    harness.wait(0.001)
    harness.publish(("1", b"b"))
    assert take(reader) == [b"b"]


def test_the_window_is_counted_from_the_message_that_was_stored(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    taken = []
    for _ in range(3):
        harness.publish(("1", b"a"))
        taken.append(take(reader))
        harness.wait(40.0)
    assert taken == [[b"a"], [], [b"a"]]


def test_an_idle_broker_knows_the_time(harness: DeduplicatingHarness) -> None:
    """A turn takes publishes before it has looked at the clock."""
    reader = harness.reader()
    harness.publish(("1", b"a"))
    assert take(reader) == [b"a"]
    harness.now += 61.0
    harness.publish(("1", b"a"))
    assert take(reader) == [b"a"]


def test_the_wall_clock_jumps(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    harness.publish(("1", b"a"))
    harness.save()
    for jump in (-3600, 7200):
        harness.wall_ns += jump * 10**9
        harness.broker.follow_wall(harness.wall_ns, harness.now)
        harness.publish(("1", b"a"))
    harness.save()
    assert take(reader) == [b"a"]
    harness.crash()
    harness.publish(("1", b"a"))
    assert harness.reader().bodies() == [b"a"]


def test_the_window_changes_while_the_broker_runs(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    harness.publish(("1", b"a"))
    assert take(reader) == [b"a"]
    harness.wait(30.0)
    harness.change_window(20.0)
    harness.publish(("1", b"b"))
    assert take(reader) == [b"b"]
    harness.wait(30.0)
    harness.change_window(100.0)
    harness.publish(("1", b"c"))
    assert take(reader) == []
    harness.change_window(0.0)
    harness.publish(("1", b"d"))
    assert take(reader) == [b"d"]
    assert harness.repeats() is None


def test_setting_the_policy_of_a_topic() -> None:
    harness = BrokerHarness()
    harness.topic().policies.set({"dedupe_window": 10.0})
    assert harness.topic().deduplicated_count == 0
    harness.topic().policies.set({})
    assert harness.topic().deduplicated_count is None


def test_ids_survive_a_crash_saved_or_not(harness: DeduplicatingHarness) -> None:
    harness.channel()
    harness.publish(("saved", b"a"))
    harness.save()
    harness.publish(("stored", b"b"))
    harness.turn()
    harness.crash()
    harness.publish(("saved", b"x"), ("stored", b"x"), ("new", b"c"))
    assert harness.reader().bodies() == [b"a", b"b", b"c"]
    harness.save()
    harness.crash()
    harness.publish(("saved", b"x"), ("stored", b"x"), ("new", b"x"))
    harness.turn()
    assert harness.repeats() == 3


def test_a_checkpoint_that_is_being_saved_or_fails(harness: DeduplicatingHarness) -> None:
    harness.channel()
    harness.publish(("1", b"a"))
    save = harness.begin_save()
    harness.publish(("1", b"x"), ("2", b"b"))
    harness.turn()
    harness.broker.checkpointer.end(save, BackendError("full"))
    harness.publish(("1", b"x"), ("2", b"x"))
    harness.save()
    harness.publish(("1", b"x"), ("2", b"x"))
    harness.turn()
    assert harness.repeats() == 5
    assert {len(ids) for ids in harness.positions.saved_ids.values()} == {2}


def test_saved_ids_that_cannot_be_read(harness: DeduplicatingHarness) -> None:
    """Nothing is stored that may be a repeat, and nothing is answered OK that may be none."""
    harness.channel()
    harness.publish(("1", b"a"))
    harness.save()
    harness.positions.read_failure = BackendError("EIO")
    answers = harness.publish(("1", b"a"))
    harness.turn()
    assert [str(error) for error in answers] == ["EIO"]
    harness.positions.read_failure = None
    harness.publish(("1", b"a"))
    assert harness.reader().bodies() == [b"a"]


def test_finished_messages_are_known_after_their_log_is_gone(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    harness.publish(("1", b"a"))
    reader.finish(*[message.id for message in reader.read()])
    harness.save()
    harness.backend._queues.clear()
    harness.crash()
    harness.publish(("1", b"a"))
    harness.turn()
    assert harness.repeats() == 1


def test_a_deleted_topic_has_no_ids_and_an_emptied_one_has(harness: DeduplicatingHarness) -> None:
    harness.publish(("1", b"a"))
    harness.turn()
    harness.topic().empty()
    harness.publish(("1", b"a"))
    harness.save()
    assert harness.repeats() == 1
    harness.broker.delete_topic("t")
    harness.save()
    harness.publish(("1", b"a"))
    assert harness.reader().bodies() == [b"a"]


def test_topics_do_not_share_ids(harness: DeduplicatingHarness) -> None:
    harness.publish(("1", b"a"))
    harness.publish(("1", b"b"), topic="u")
    assert harness.reader(topic="u").bodies() == [b"b"]


def test_what_the_broker_publishes_itself_is_never_a_repeat(harness: DeduplicatingHarness) -> None:
    """A dead letter has the headers of the message, and what is redriven goes to one channel."""
    harness.channel()
    harness.publish(("1", b"a"))
    answers: list[Exception | None] = []
    dead = encode_headers({"id": "1", "nsq-reason": "attempts"}, may_be_reserved=True)
    harness.topic().put([b"dead"], 0, answers.append, [dead])
    again = encode_headers({"id": "1", "nsq-redrive-id": "0" * 16}, may_be_reserved=True)
    for _ in range(2):
        harness.topic().put([b"again"], 0, answers.append, [again], "c")
    harness.turn()
    assert harness.repeats() == 0
    harness.crash()
    harness.publish(("1", b"b"), channel="c")
    harness.turn()
    assert harness.repeats() == 0


def test_a_message_for_one_channel_repeats_those_for_this_channel_only(harness: DeduplicatingHarness) -> None:
    told: list[Any] = []
    for channel in ("c", "d"):
        harness.channel(channel)
    harness.save()

    def publish_to_each() -> None:
        for body, channel in ((b"to all", ""), (b"to c", "c"), (b"to d", "d")):
            harness.publish(("1", body), channel=channel, assigned=told.append)
            harness.turn()

    publish_to_each()
    for how in ("again", "saved", "killed", "saved and killed"):
        if "saved" in how:
            harness.save()
        if "killed" in how:
            harness.crash()
        publish_to_each()
        harness.publish(("1", b"x"), ("1", b"x"), channel="c")
        harness.turn()
    assert told == told[:3] * 5, "a repeat has the id of the first message"
    assert len({str(one) for one in told}) == 3
    assert harness.reader("c").bodies() == [b"to all", b"to c"]
    assert harness.reader("d").bodies() == [b"to all", b"to d"]


def test_repeats_for_one_channel_in_a_turn_with_others(harness: DeduplicatingHarness) -> None:
    harness.channel()
    harness.publish(("1", b"a"), ("2", b"b"), ("1", b"x"), channel="c")
    harness.publish(("1", b"for all"))
    harness.publish(("2", b"x"), ("3", b"c"), channel="c")
    assert harness.reader().bodies() == [b"a", b"b", b"for all", b"c"]
    assert harness.repeats() == 2


def test_an_ephemeral_topic_keeps_no_ids(harness: DeduplicatingHarness) -> None:
    reader = harness.reader("c#ephemeral", topic="t#ephemeral")
    harness.publish(("1", b"a"), ("1", b"a"), topic="t#ephemeral")
    assert reader.bodies() == [b"a", b"a"]


# -- the ids of published messages


def test_the_ids_of_messages_are_told(harness: DeduplicatingHarness) -> None:
    reader, told = harness.reader(), []
    harness.put(b"before")
    harness.topic().put([b"a", b"b"], 0, lambda error: told.append(error), assigned=told.append)
    ids = {message.body: int(message.id, 16) for message in reader.read()}
    assert told == [[ids[b"a"], ids[b"b"]], None]


def test_the_id_of_a_repeat_is_that_of_the_first_message(harness: DeduplicatingHarness) -> None:
    reader, told = harness.reader(), []
    harness.publish(("1", b"a"))
    first = {message.body: int(message.id, 16) for message in reader.read()}
    for is_saved in (False, True):
        if is_saved:
            harness.save()
        harness.publish(("new", b"x"), ("1", b"a"), (f"{is_saved}", b"b"), (f"{is_saved}", b"b"), assigned=told.append)
        new = {message.body: int(message.id, 16) for message in reader.read()}
        first = {**new, **first}
        assert told.pop() == [first[b"x"], first[b"a"], new[b"b"], new[b"b"]]


def test_ids_are_not_told_of_what_is_not_taken(harness: DeduplicatingHarness) -> None:
    told: list[Any] = []
    topic = harness.topic()
    topic.put([b"a"], 0, told.append, assigned=lambda ids: told.append("ids"))
    topic.exit()
    topic.put([b"b"], 0, told.append, assigned=lambda ids: told.append("ids"))
    harness.turn()
    assert [type(one) for one in told] == [Exiting, Exiting]


def test_a_message_is_found_by_its_id(harness: DeduplicatingHarness) -> None:
    reader = harness.reader()
    harness.publish(("1", b"a"))
    (message,) = reader.read()
    deduplication = harness.topic().deduplication
    assert deduplication is not None
    assert deduplication.sequence_of("1", harness.now) == sequence_of(message.id)
    assert deduplication.sequence_of("2", harness.now) is None
    assert deduplication.sequence_of("1", harness.now + 61) is None


def test_statistics(harness: DeduplicatingHarness) -> None:
    """They have the count where there is a window only."""
    harness.publish(("1", b"a"), ("1", b"a"))
    harness.turn()

    def shown() -> dict[str, Any]:
        (topic,) = document(harness.broker, "1", now=harness.now)["topics"]
        return topic

    assert shown()["deduplicated_count"] == 1
    harness.change_window(0.0)
    assert "deduplicated_count" not in shown()


def test_each_topic_knows_its_own_ids_after_a_crash(harness: DeduplicatingHarness) -> None:
    for topic in ("a", "b", "c"):
        reader = harness.reader(topic=topic)
        harness.publish((topic, b"saved"), topic=topic)
        assert reader.bodies() == [b"saved"]
    harness.save()
    for topic in ("a", "b", "c"):
        harness.publish((f"{topic}2", b"not saved"), topic=topic)
    harness.turn()
    harness.crash()
    for topic in ("a", "b", "c"):
        harness.publish((topic, b"x"), (f"{topic}2", b"x"), topic=topic)
        harness.turn()
        assert harness.repeats(topic) == 2
        harness.publish(
            *[(other + number, b"y") for other in "abc" if other != topic for number in ("", "2")], topic=topic
        )
        harness.turn()
        assert harness.repeats(topic) == 2
