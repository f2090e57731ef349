"""When nsqd.dat is written, and what it names then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsqtw.core.checkpoint import NamedChannel, NamedTopic
from nsqtw.core.metadata_sync import DELAY_SECONDS, RETRY_SECONDS
from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness, goes_on


class FailingWorld(BrokerHarness):
    """nsqd.dat cannot be written as long as there is a reason."""

    why = ""

    def write_names(self, topics: Sequence[NamedTopic]) -> None:
        if self.why:
            raise BackendError(self.why)
        super().write_names(topics)

    @property
    def complaints(self) -> list[str]:
        return [text for level, text in self.lines if level == "error"]


def write(harness: BrokerHarness) -> None:
    """Wait until all that is new is written."""
    harness.save()
    harness.wait(DELAY_SECONDS)
    harness.save()


def after_writing(harness: BrokerHarness) -> BrokerHarness:
    """The same harness, all of which is written."""
    write(harness)
    harness.written.clear()
    return harness


def test_a_new_topic_is_written_soon_though_nobody_waits() -> None:
    harness = BrokerHarness()
    harness.topic("a")
    assert goes_on(harness.broker.checkpointer)
    harness.save()
    assert (harness.written, harness.broker.timers.next_due) == ([], harness.now + DELAY_SECONDS)
    harness.wait(DELAY_SECONDS)
    assert goes_on(harness.broker.checkpointer)
    harness.save()
    assert harness.written == [[NamedTopic("a")]]


def test_what_did_not_change_is_not_written_again() -> None:
    harness = BrokerHarness()
    harness.topic("a")
    after_writing(harness)
    harness.put(b"x", topic="a")
    harness.topic("a").empty()
    write(harness)
    assert harness.written == []


def test_channels_are_named_and_what_is_paused() -> None:
    harness = BrokerHarness()
    harness.topic("a").pause()
    harness.channel("c", "a").pause()
    harness.channel("d", "a")
    harness.topic("b")
    write(harness)
    assert harness.written == [[NamedTopic("a", True, (NamedChannel("c", True), NamedChannel("d"))), NamedTopic("b")]]


def test_what_is_deleted_is_named_no_more() -> None:
    harness = BrokerHarness()
    harness.channel("c", "a")
    harness.channel("d", "a")
    harness.topic("b")
    after_writing(harness)
    harness.topic("a").delete_channel("c")
    harness.broker.delete_topic("b")
    harness.save()
    assert harness.written == [[NamedTopic("a", channels=(NamedChannel("d"),))]]


def test_what_is_ephemeral_is_not_named_and_no_reason_to_write() -> None:
    harness = after_writing(BrokerHarness())
    topic = harness.topic("e#ephemeral")
    topic.pause()
    topic.channel("c", harness.now).pause()
    write(harness)
    assert harness.written == []
    harness.channel("f#ephemeral", "t").pause()
    write(harness)
    assert harness.written == [[NamedTopic("t")]]
    after_writing(harness)
    harness.topic().delete_channel("f#ephemeral")
    harness.broker.delete_topic("e#ephemeral")
    write(harness)
    assert harness.written == []


def test_many_new_topics_are_written_together() -> None:
    harness = BrokerHarness()
    for number in range(10):
        harness.topic(f"t{number}")
        harness.save()
        harness.wait(DELAY_SECONDS / 20)
    assert harness.written == []
    write(harness)
    assert harness.written == [[NamedTopic(f"t{number}") for number in range(10)]]
    harness.wait(DELAY_SECONDS)
    assert not goes_on(harness.broker.checkpointer)


def test_who_pauses_or_deletes_is_answered_when_the_file_says_so() -> None:
    harness = BrokerHarness()
    channel = harness.channel("c", "a")
    topic = channel.topic
    write(harness)
    answers: list[Exception | None] = []
    changes: list[Callable[[], None]] = [
        channel.pause,
        channel.unpause,
        topic.pause,
        lambda: topic.unpause(harness.now),
        lambda: topic.delete_channel("c"),
        lambda: harness.broker.delete_topic("a"),
    ]
    for change in changes:
        change()
        harness.broker.checkpointer.ask(answers.append)
        save = harness.begin_save()
        assert (save.names, answers) == (harness.broker.metadata_sync.names(), [])
        harness.broker.checkpointer.end(save, None)
        assert answers.pop() is None


def test_who_makes_a_channel_does_not_wait_for_the_file() -> None:
    harness = BrokerHarness()
    answers: list[Exception | None] = []
    harness.channel("c", "a")
    harness.broker.checkpointer.ask(answers.append)
    harness.save()
    assert (answers, harness.written) == ([None], [])


def test_a_pause_takes_along_what_was_waiting() -> None:
    harness = BrokerHarness()
    harness.topic("b")
    harness.topic("a").pause()
    harness.save()
    harness.wait(DELAY_SECONDS)
    assert harness.written == [[NamedTopic("b"), NamedTopic("a", True)]]
    assert not goes_on(harness.broker.checkpointer)


def test_a_broker_that_stops_writes_the_file_in_any_case() -> None:
    harness = BrokerHarness()
    harness.topic("a")
    write(harness)
    harness.broker.stop(harness.now)
    harness.save()
    assert harness.written == [[NamedTopic("a")], [NamedTopic("a")]]


def test_nothing_is_written_of_what_is_loaded() -> None:
    harness = BrokerHarness()
    harness.crash(named=[NamedTopic("a", True, (NamedChannel("c", True), NamedChannel("d#ephemeral", True)))])
    write(harness)
    assert harness.written == []
    assert harness.broker.metadata_sync.names() == (NamedTopic("a", True, (NamedChannel("c", True),)),)


def test_a_failed_write_fails_nothing_else_and_is_tried_again() -> None:
    harness = FailingWorld()
    harness.why = "no space"
    answers: list[Exception | None] = []
    harness.topic("a").pause()
    harness.broker.checkpointer.ask(answers.append)
    harness.save()
    assert (answers, str(harness.broker.health), goes_on(harness.broker.checkpointer)) == ([None], "OK", False)
    harness.wait(RETRY_SECONDS)
    harness.save()
    harness.why = ""
    harness.wait(RETRY_SECONDS)
    assert goes_on(harness.broker.checkpointer)
    harness.save()
    assert harness.written == [[NamedTopic("a", True)]]
    harness.wait(RETRY_SECONDS)
    assert not goes_on(harness.broker.checkpointer)


def test_the_operator_is_told_once_of_each_reason() -> None:
    harness = FailingWorld()
    topic = harness.topic("a")
    for why in ("no space", "no space", "read-only file system", "", "no space"):
        harness.why = why
        topic.pause()
        harness.save()
    reasons = ("no space", "read-only file system", "no space")
    assert harness.complaints == [f"failed to persist metadata - {why}" for why in reasons]


def test_when_positions_cannot_be_saved_the_names_are_written_later() -> None:
    harness = BrokerHarness()
    harness.topic("a").pause()
    harness.save(BackendError("no space"))
    assert harness.written == []
    harness.wait(RETRY_SECONDS)
    harness.save()
    assert harness.written == [[NamedTopic("a", True)]]
