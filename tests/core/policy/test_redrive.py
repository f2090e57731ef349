"""Redrive: dead letters return to their channel, each once, and no other channel sees them again."""

from __future__ import annotations

import pytest

from nsqtw.core.policy.redrive import Redrive
from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness
from tests.core.policy.harness import FailingCommits, put, settle, stored


class Core(BrokerHarness):
    """A topic `t` with channels `c`, whose messages die at their first failure, and `other`."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.channel("other")
        self.follow()

    def follow(self) -> None:
        for name in ("c", "d"):
            self.channel(name).set_policy({"max_attempts": 1})

    def die(self, *messages: bytes, channel: str = "c") -> None:
        """Publish messages that become dead letters of a channel; all others finish them."""
        put(self, *messages)
        for name in ("c", "d", "other"):
            reader = self.reader(name)
            for message in reader.read():
                if name == channel:
                    reader.requeue(message.id)
                else:
                    reader.finish(message.id)
            reader.leave()
        settle(self)

    def redrive(self, *, rate: int = 0, limit: int = 0) -> Redrive:
        topic, letter_topic = self.topic(), self.topic("t.dead")
        letters = letter_topic.channels["c"]
        return Redrive(topic, topic.channels["c"], letter_topic, letters, rate, limit, self.now)

    def start_again(self) -> None:
        self.crash()
        self.follow()
        settle(self)

    def got(self, channel: str = "c", topic: str = "t") -> list[bytes]:
        reader = self.reader(channel, topic)
        settle(self)
        found = reader.read()
        reader.finish(*[message.id for message in found])
        reader.leave()
        return [message.body for message in found]


def test_letters_return_to_their_channel_only() -> None:
    core = Core()
    core.die(b"1", b"2")
    redrive = core.redrive()
    assert redrive.progress() == {
        "state": "running",
        "total": 2,
        "redriven": 0,
        "passed": 0,
        "rate": 0,
        "started": 1_700_001_000,
        "error": "",
    }
    settle(core)
    assert (redrive.state, redrive.redriven, redrive.passed) == ("done", 2, 0)
    assert core.topic("t.dead").channels["c"].depth == 0
    reader = core.reader()
    assert [(message.body, message.attempts) for message in reader.read()] == [(b"1", 1), (b"2", 1)]
    assert core.got("other") == core.got("d") == []


def test_the_headers_of_a_message_return_with_it() -> None:
    core = Core()
    put(core, b"1", color="red", ttl="3600000", id="x")
    reader = core.reader()
    (message,) = reader.read()
    reader.requeue(message.id)
    settle(core)
    (letter,) = core.reader("spy", "t.dead").channel.topic.log.queue.read(0, 1)
    core.redrive()
    settle(core)
    assert stored(core, "t")[b"1"] == {
        "color": "red",
        "ttl": "3600000",
        "id": "x",
        "nsq-redrives": "1",
        "nsq-redrive-topic": "t.dead",
        "nsq-redrive-id": letter.ids[0].decode(),
    }
    (again,) = reader.read()
    reader.requeue(again.id)
    settle(core)
    core.redrive()
    settle(core)
    assert stored(core, "t")[b"1"]["nsq-redrives"] == "2"


def test_letters_of_other_channels_are_passed() -> None:
    core = Core()
    core.die(b"c1")
    core.die(b"d1", channel="d")
    core.die(b"c2")
    core.put(b"no letter", topic="t.dead")
    core.turn()
    redrive = core.redrive()
    settle(core)
    assert (redrive.state, redrive.redriven, redrive.passed) == ("done", 2, 2)
    assert core.got() == [b"c1", b"c2"]
    assert core.got("d", "t.dead") == [b"d1", b"c2", b"no letter"]


def test_letters_that_come_later_are_left() -> None:
    core = Core()
    core.die(b"1", b"2")
    redrive = core.redrive(limit=1)
    core.die(b"3")
    settle(core)
    assert (redrive.state, redrive.redriven) == ("done", 1)
    assert core.topic("t.dead").channels["c"].depth == 2


def test_what_fails_again_is_a_letter_of_the_next_redrive() -> None:
    core = Core()
    core.die(b"1")
    redrive = core.redrive()
    settle(core)
    reader = core.reader()
    (message,) = reader.read()
    reader.requeue(message.id)
    settle(core)
    assert (redrive.state, redrive.redriven) == ("done", 1)
    assert core.topic("t.dead").channels["c"].depth == 1


def test_a_rate_spreads_it() -> None:
    core = Core()
    core.die(*[b"%d" % number for number in range(30)])
    redrive = core.redrive(rate=10)
    for _ in range(10):
        core.wait(0.1)
        settle(core, 6)
    assert 8 <= redrive.redriven <= 12
    for _ in range(30):
        core.wait(0.1)
        settle(core, 6)
    assert (redrive.state, redrive.redriven) == ("done", 30)


def test_a_failed_commit_is_repeated() -> None:
    core = Core()
    core.die(b"1")
    with FailingCommits(core, "t"):
        redrive = core.redrive()
        settle(core)
        assert (redrive.state, redrive.redriven, redrive.error) == ("running", 0, "no space")
        core.wait(1)
        settle(core)
    core.wait(1)
    settle(core)
    assert (redrive.state, redrive.redriven, redrive.error) == ("done", 1, "")
    assert core.got() == [b"1"]


def test_a_failed_save_is_repeated() -> None:
    core = Core()
    core.die(b"1")
    redrive = core.redrive()
    while not core.broker.checkpointer.are_waited_for:
        core.turn()
    core.save(BackendError("no space"))
    assert redrive.error == "no space"
    core.turn()
    core.wait(1)
    settle(core)
    assert (redrive.state, redrive.redriven) == ("done", 1)


def test_it_can_be_stopped_and_begun_again() -> None:
    core = Core()
    core.die(b"1", b"2")
    redrive = core.redrive()
    core.turn()
    redrive.stop()
    settle(core)
    assert (redrive.state, redrive.redriven) == ("stopped", 0)
    letters = core.topic("t.dead").channels["c"]
    assert (letters.depth, letters.consumers, letters.in_flight_count) == (2, [], 0)
    redrive = core.redrive()
    settle(core)
    assert (redrive.state, redrive.redriven) == ("done", 2)
    assert core.got() == [b"1", b"2"]


def test_a_stop_waits_for_the_batch_that_is_being_stored() -> None:
    core = Core(durability="fsync")
    core.die(b"1")
    core.lands_at_once = False
    redrive = core.redrive()
    while core.batch is None or not core.batch.sealed:
        settle(core, 1)
        if core.batch is not None and not core.batch.sealed:
            core.land()
    redrive.stop()
    core.turn()
    assert redrive.state == "running"
    core.land()
    assert (redrive.state, redrive.redriven) == ("stopped", 1)
    core.lands_at_once = True
    assert core.got() == [b"1"]
    assert core.got(topic="t.dead") == []


@pytest.mark.parametrize(("topic", "error"), [("t", "the channel is deleted"), ("t.dead", "letters is deleted")])
def test_a_deleted_channel_ends_it(topic: str, error: str) -> None:
    core = Core()
    core.die(b"1")
    redrive = core.redrive()
    core.turn()
    core.topic(topic).delete_channel("c")
    settle(core)
    assert redrive.state == "failed"
    assert redrive.error.endswith(error)


def test_a_drain_ends_it() -> None:
    core = Core()
    core.die(b"1")
    redrive = core.redrive()
    core.broker.begin_drain()
    settle(core)
    assert (redrive.state, redrive.error) == ("stopped", "draining")
    assert core.topic("t.dead").channels["c"].in_flight_count == 0


def test_a_paused_channel_is_said_to_be_so() -> None:
    core = Core()
    core.die(b"1")
    letters = core.topic("t.dead").channels["c"]
    letters.pause()
    redrive = core.redrive()
    settle(core)
    core.wait(1)
    assert redrive.error == "the channel of the dead letters delivers nothing: it is paused, or cannot be read"
    letters.unpause()
    core.wait(1)
    settle(core)
    assert (redrive.state, redrive.error) == ("done", "")


@pytest.mark.parametrize("steps", range(10))
def test_a_crash_after_any_step_leaves_each_message_in_one_place(steps: int) -> None:
    core = Core()
    core.die(b"1", b"2")
    core.save()
    published = core.topic().put_total
    core.redrive()
    for _ in range(steps):
        if core.broker.checkpointer.are_waited_for:
            core.save()
        else:
            core.broker.tick(core.now)
            core.broker.commit(core.now)
            core.broker.serve(core.now)
    was_stored = [b"1", b"2"][: core.topic().put_total - published]
    core.start_again()
    core.start_again()
    assert core.got() == was_stored
    letters = core.got(topic="t.dead")
    assert letters + was_stored == [b"1", b"2"]


def test_a_crash_after_a_redrive_into_class_memory_loses_nothing() -> None:
    """The letters are finished only when what class memory answered is stored."""
    core = Core(durability="memory")
    core.die(b"1", b"2")
    core.wait(1.0)
    redrive = core.redrive()
    settle(core)
    assert (redrive.state, redrive.redriven) == ("done", 2)
    core.save()
    core.start_again()
    assert sorted(core.got()) == [b"1", b"2"]


def test_a_redrive_into_class_memory_waits_for_a_medium_that_fails() -> None:
    core = Core(durability="memory")
    core.die(b"1")
    core.wait(1.0)
    redrive = core.redrive()
    with FailingCommits(core, "t"):
        settle(core)
        assert (redrive.state, redrive.redriven) == ("running", 0)
    core.wait(2.0)
    settle(core)
    assert (redrive.state, redrive.redriven) == ("done", 1)
    core.save()
    core.start_again()
    assert core.got() == [b"1"]
