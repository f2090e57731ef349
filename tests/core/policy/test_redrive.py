"""Redrive: dead letters return to their channel, each once, and no other channel sees them again."""

from __future__ import annotations

import pytest

from nsqtw.core.channel import Channel
from nsqtw.core.peek import peek_channel
from nsqtw.core.policy import redrive as redrive_module
from nsqtw.core.policy.redrive import Redrive
from nsqtw.errors import BackendError
from nsqtw.stats.metrics import redrive_left
from tests.core.harness import WALL_NS, BrokerHarness, Message
from tests.core.policy.harness import FailingCommits, put, settle, stored


class Core(BrokerHarness):
    """A topic `t` with channels `c`, whose messages die at their first failure, and `other`."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.channel("other")
        self.follow()

    def follow(self) -> None:
        for name in ("c", "d"):
            self.channel(name).policies.set({"max_attempts": 1})

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
    channel = core.topic().channels["c"]
    assert channel.redrive_left is None
    redrive = core.redrive()
    assert redrive_left(channel) == 2
    assert redrive.progress() == {
        "state": "running",
        "total": 2,
        "redriven": 0,
        "others": 0,
        "rate": 0,
        "started": 1_700_001_000,
        "error": "",
    }
    settle(core)
    assert (redrive.state, redrive.redriven, redrive.others) == ("done", 2, 0)
    assert redrive_left(channel) == 0
    assert core.topic("t.dead").channels["c"].depth == 0
    reader = core.reader()
    assert [(message.body, message.attempts) for message in reader.read()] == [(b"1", 1), (b"2", 1)]
    assert core.got("other") == core.got("d") == []


def test_the_headers_of_a_message_return_with_it() -> None:
    core = Core()
    published_ns = WALL_NS + round(core.now * 10**9)
    put(core, b"1", color="red", ttl="3600000", id="x")
    reader = core.reader()
    (message,) = reader.read()
    reader.requeue(message.id)
    settle(core)
    (letter,) = core.reader("spy", "t.dead").channel.topic.log.queue.read(0, 1)
    core.wait(60.0)
    core.redrive()
    settle(core)
    assert stored(core, "t")[b"1"] == {
        "color": "red",
        "ttl": "3600000",
        "id": "x",
        "nsq-redrives": "1",
        "nsq-redrive-topic": "t.dead",
        "nsq-redrive-id": letter.ids[0].decode(),
        "nsq-first-timestamp": str(published_ns),
        "nsq-first-id": message.id.decode(),
    }
    core.wait(60.0)
    (again,) = reader.read()
    reader.requeue(again.id)
    settle(core)
    second = stored(core, "t.dead")[b"1"]
    assert (second["nsq-dead-timestamp"], second["nsq-dead-id"]) == (str(published_ns), again.id.decode())
    core.redrive()
    settle(core)
    third = stored(core, "t")[b"1"]
    assert third["nsq-redrives"] == "2"
    assert (third["nsq-first-timestamp"], third["nsq-first-id"]) == (str(published_ns), message.id.decode())


def test_letters_of_other_channels_stay_as_they_were() -> None:
    core = Core()
    core.die(b"c1")
    core.die(b"d1", channel="d")
    core.die(b"c2")
    core.put(b"no letter", topic="t.dead")
    core.turn()
    redrive = core.redrive()
    settle(core)
    assert (redrive.state, redrive.redriven, redrive.others) == ("done", 2, 2)
    assert core.got() == [b"c1", b"c2"]
    letters = core.topic("t.dead").channels["c"]
    assert (letters.depth, letters.in_flight_count, letters.deferred_count) == (2, 0, 0)
    reader = core.reader("c", "t.dead")
    assert [(message.body, message.attempts) for message in reader.read()] == [(b"d1", 1), (b"no letter", 1)]


class SharedCore(BrokerHarness):
    """Topics with a channel `billing` each, whose messages die at their first failure, in one dead-letter topic."""

    def __init__(self, page_rows: int = 1024, letters: dict[str, object] | None = None, **options: object) -> None:
        super().__init__(page_rows, **options)
        self.letters_policy = letters or {}
        self.follow()

    def follow(self) -> None:
        for topic in ("orders", "invoices"):
            self.channel("billing", topic).policies.set({"max_attempts": 1, "dead_letter_topic": "dead"})
        self.letters.policies.set(self.letters_policy)

    @property
    def letters(self) -> Channel:
        return self.channel("billing", "dead")

    def die(self, topic: str, *messages: bytes, **headers: str) -> None:
        put(self, *messages, topic=topic, **headers)
        reader = self.reader("billing", topic)
        while found := reader.read():
            for message in found:
                reader.requeue(message.id)
        reader.leave()
        settle(self)

    def redrive(self, topic: str = "orders", limit: int = 0) -> Redrive:
        channel = self.topic(topic).channels["billing"]
        return Redrive(self.topic(topic), channel, self.topic("dead"), self.letters, 0, limit, self.now)

    def got(self, topic: str) -> list[tuple[bytes, int]]:
        reader = self.reader("billing", topic)
        settle(self)
        found: list[Message] = []
        while more := reader.read():
            reader.finish(*[message.id for message in more])
            found += more
        reader.leave()
        return [(message.body, message.attempts) for message in found]


KINDS = [
    pytest.param({}, id="plain"),
    pytest.param({"ordered_by": "header:key"}, id="ordered"),
    pytest.param({"priority": True}, id="priority"),
]


@pytest.mark.parametrize("letters", KINDS)
@pytest.mark.parametrize("page_rows", [1, 1024])
def test_letters_of_other_topics_wait_for_their_own_redrive(letters: dict[str, object], page_rows: int) -> None:
    core = SharedCore(page_rows, letters)
    for number in range(6):
        priority = ("low", "normal", "high")[number % 3]
        core.die(("orders", "invoices")[number % 2], b"%d" % number, key="k", priority=priority)
    redrive = core.redrive()
    core.die("orders", b"later", key="k", priority="high")
    settle(core, 60)
    assert (redrive.state, redrive.redriven, redrive.others) == ("done", 3, 3)
    assert sorted(body for body, _ in core.got("orders")) == [b"0", b"2", b"4"]
    assert core.got("invoices") == []
    assert (core.letters.depth, core.letters.in_flight_count, core.letters.consumers) == (4, 0, [])
    redrive = core.redrive("invoices")
    settle(core, 60)
    assert (redrive.state, redrive.redriven, redrive.others) == ("done", 3, 1)
    assert sorted(core.got("invoices")) == [(b"1", 1), (b"3", 1), (b"5", 1)]
    assert core.got("dead") == [(b"later", 1)]


def test_the_others_keep_their_order_and_attempts() -> None:
    core = SharedCore(letters={"ordered_by": "header:key"})
    for number in range(4):
        core.die("invoices", b"%d" % number, key="k")
    reader = core.reader("billing", "dead")
    for _ in range(2):
        (first,) = reader.read()
        reader.requeue(first.id)
    reader.leave()
    core.die("orders", b"mine", key="k")
    core.redrive()
    core.die("invoices", b"4", key="k")
    settle(core, 60)
    assert core.got("orders") == [(b"mine", 1)]
    assert core.got("dead") == [(b"0", 3), (b"1", 1), (b"2", 1), (b"3", 1), (b"4", 1)]


@pytest.mark.parametrize("letters", KINDS)
@pytest.mark.parametrize("steps", range(0, 12, 2))
@pytest.mark.parametrize("is_saved", [False, True])
def test_after_a_crash_in_a_redrive_no_letter_of_others_is_lost(
    letters: dict[str, object], steps: int, is_saved: bool
) -> None:
    core = SharedCore(1, letters)
    core.die("invoices", b"a", key="k")
    core.die("orders", b"b", key="k")
    core.die("invoices", b"c", key="k")
    core.save()
    core.redrive()
    settle(core, steps)
    if is_saved:
        core.save()
    core.crash()
    core.follow()
    settle(core)
    assert core.letters.depth >= 2
    core.redrive("invoices")
    settle(core, 60)
    assert sorted(body for body, _ in core.got("invoices")) == [b"a", b"c"]
    found = core.got("orders") + core.got("dead")
    assert [body for body, _ in found] == [b"b"]


def test_letters_that_come_later_and_first_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "BATCH", 1)
    core = SharedCore(letters={"priority": True})
    core.die("orders", b"1", b"2", b"3", priority="low")
    redrive = core.redrive()
    put(core, b"later", topic="dead", priority="high")
    settle(core, 60)
    assert (redrive.state, redrive.redriven, redrive.others) == ("done", 3, 0)
    assert core.got("orders") == [(b"1", 1), (b"2", 1), (b"3", 1)]
    assert core.got("dead") == [(b"later", 1)]


def test_it_ends_though_letters_keep_arriving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "BATCH", 1)
    core = SharedCore()
    core.die("orders", *[b"%d" % number for number in range(20)])
    redrive = core.redrive()
    core.letters.empty()
    for _ in range(10):
        put(core, b"later", topic="dead")
        core.turn()
    assert (redrive.state, redrive.total) == ("done", 0)
    assert core.got("dead") == [(b"later", 1)] * 10


def test_a_new_order_meanwhile_does_not_wait_for_withheld_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "BATCH", 1)
    core = SharedCore(letters={"ordered_by": "header:key"})
    core.die("invoices", b"1", key="k")
    core.die("orders", b"mine", key="k")
    redrive = core.redrive()
    while not redrive.others:
        core.broker.serve(core.now)
        core.broker.tick(core.now)
    core.letters.policies.ungroup()
    settle(core, 60)
    assert (redrive.state, redrive.redriven) == ("done", 1)
    assert (core.got("orders"), core.got("dead")) == ([(b"mine", 1)], [(b"1", 1)])


def test_withheld_letters_are_counted_and_can_be_dropped() -> None:
    core = SharedCore()
    core.die("invoices", b"1", b"2")
    core.die("orders", b"mine")
    redrive = core.redrive()
    while not core.broker.checkpointer.are_waited_for:
        core.turn()
    assert (core.letters.depth, core.letters.in_flight_count) == (2, 1)
    assert len(peek_channel(core.letters, "ready", 10, core.now).messages) == 2
    core.letters.empty()
    assert core.letters.unfinished_count == 0
    settle(core)
    assert redrive.state == "done"
    assert core.got("dead") == []


def test_so_many_of_others_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "MAX_WITHHELD", 2)
    monkeypatch.setattr(redrive_module, "BATCH", 1)
    core = SharedCore()
    core.die("invoices", b"1", b"2", b"3")
    core.die("orders", b"mine")
    redrive = core.redrive()
    settle(core, 60)
    assert (redrive.state, redrive.redriven, redrive.others) == ("failed", 0, 2)
    assert redrive.error.endswith("give the channel a dead_letter_topic of its own")
    assert [body for body, _ in core.got("dead")] == [b"1", b"2", b"3", b"mine"]


def test_a_bound_of_the_channel_is_waited_for_in_parts() -> None:
    core = Core()
    core.die(*[b"%d" % number for number in range(7)])
    core.channel("c").policies.set({"max_depth": 2})
    redrive = core.redrive()
    settle(core, 60)
    assert (redrive.state, redrive.redriven, redrive.error) == ("running", 2, "channel c has reached its max_depth")
    found: list[bytes] = []
    for _ in range(4):
        assert core.channel("c").depth <= 2
        found += core.got()
        core.wait(1)
        settle(core, 60)
    assert found == [b"%d" % number for number in range(7)]
    assert (redrive.state, redrive.redriven, redrive.error) == ("done", 7, "")


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
