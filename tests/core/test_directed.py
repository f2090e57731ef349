"""Directed segments: messages for one channel of a topic, which all others pass."""

from __future__ import annotations

import pytest

from nsqtw.core.cursor import RETRY_READ_SECONDS
from nsqtw.core.oldest import OldestMessages
from nsqtw.core.peek import peek_channel
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError, ChannelNotFound, Overflow
from nsqtw.options.channels import ChannelRule
from tests.core.harness import BrokerHarness


def put(core: BrokerHarness, *bodies: bytes, channel: str = "a", delay_ms: int = 0) -> list[Exception | None]:
    answers: list[Exception | None] = []
    core.topic().put(bodies, delay_ms, answers.append, None, channel)
    core.turn()
    return answers


def depths(core: BrokerHarness) -> dict[str, tuple[int, int]]:
    return {name: (channel.depth, channel.deferred_count) for name, channel in core.topic().channels.items()}


@pytest.fixture
def core() -> BrokerHarness:
    core = BrokerHarness()
    core.channel("a")
    core.channel("b")
    core.save()
    return core


def test_only_the_named_channel_gets_the_messages(core: BrokerHarness) -> None:
    assert put(core, b"1", b"2") == [None]
    assert depths(core) == {"a": (2, 0), "b": (0, 0)}
    assert core.reader("b").bodies() == []
    assert core.reader("a").bodies() == [b"1", b"2"]
    assert [core.topic().channels[name].message_count for name in "ab"] == [2, 0]


def test_a_channel_that_is_behind_does_not_count_them(core: BrokerHarness) -> None:
    core.put(b"1")
    put(core, b"2")
    core.put(b"3")
    core.turn()
    assert depths(core) == {"a": (3, 0), "b": (2, 0)}
    reader = core.reader("b", ready=1)
    (first,) = reader.read()
    assert first.body == b"1"
    reader.finish(first.id)
    assert reader.bodies() == [b"3"]
    assert depths(core)["b"] == (0, 0)


def test_a_channel_that_has_read_everything_passes_them_at_once(core: BrokerHarness) -> None:
    put(core, b"1")
    core.save()
    assert [channel.next for channel in core.positions.saved.topics[0].cursors if channel.name == "b"] == [
        core.topic().released
    ]


def test_a_start_after_a_crash_gives_them_to_the_named_channel_only(core: BrokerHarness) -> None:
    put(core, b"1")
    core.put(b"2")
    core.turn()
    core.crash()
    assert core.reader("b").bodies() == [b"2"]
    assert core.reader("a").bodies() == [b"1", b"2"]
    assert depths(core) == {"a": (0, 0), "b": (0, 0)}


def test_deferred_ones_wait_in_the_named_channel_only(core: BrokerHarness) -> None:
    put(core, b"1", delay_ms=5000)
    assert depths(core) == {"a": (0, 1), "b": (0, 0)}
    core.save()
    core.crash()
    assert depths(core) == {"a": (0, 1), "b": (0, 0)}
    core.wait(5)
    assert core.reader("a").bodies() == [b"1"]
    assert core.reader("b").bodies() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_paused_topic_keeps_deferred_ones_for_the_named_channel(core: BrokerHarness, restarts: bool) -> None:
    core.topic().pause()
    put(core, b"1", channel="a", delay_ms=1000)
    put(core, b"2", channel="b", delay_ms=1000)
    if restarts:
        core.save()
        core.crash()
    core.topic().unpause(core.now)
    core.turn()
    assert depths(core) == {"a": (0, 1), "b": (0, 1)}
    core.wait(1)
    assert core.reader("a").bodies() == [b"1"]
    assert core.reader("b").bodies() == [b"2"]
    assert depths(core) == {"a": (0, 0), "b": (0, 0)}


def test_an_ephemeral_channel_passes_them(core: BrokerHarness) -> None:
    reader = core.reader("e#ephemeral")
    put(core, b"1")
    put(core, b"2", channel="e#ephemeral")
    assert reader.bodies() == [b"2"]
    assert reader.channel.depth == 0
    assert core.reader("a").bodies() == [b"1"]


def test_a_replay_passes_them_again() -> None:
    core = BrokerHarness(retention_time=3600.0)
    core.channel("a")
    b = core.channel("b")
    put(core, b"1")
    put(core, b"deferred", delay_ms=1000)
    core.put(b"2")
    core.turn()
    reader = core.reader("b")
    assert reader.bodies() == [b"2"]
    core.save()
    b.seek(core.topic().reader.kept_from)
    assert reader.bodies() == [b"2"]
    assert (b.depth, b.deferred_count) == (0, 0)


def test_a_channel_that_does_not_exist_is_refused(core: BrokerHarness) -> None:
    (error,) = put(core, b"1", channel="x")
    assert isinstance(error, ChannelNotFound)
    assert str(error) == "there is no channel x"
    assert core.topic().message_count == 0


def test_nobody_gets_messages_for_a_channel_that_is_deleted_meanwhile(core: BrokerHarness) -> None:
    answers: list[Exception | None] = []
    core.topic().put((b"1",), 0, answers.append, None, "a")
    core.topic().delete_channel("a")
    core.turn()
    assert answers == [None]
    assert depths(core) == {"b": (0, 0)}


def test_looking_at_a_channel_does_not_show_those_of_others(core: BrokerHarness) -> None:
    core.put(b"1")
    put(core, b"2")
    core.turn()
    found = peek_channel(core.channel("b"), "ready", 10, core.now)
    assert [message.body for message in found.messages] == [b"1"]


def test_the_oldest_message_of_a_channel_is_one_that_it_gets(core: BrokerHarness) -> None:
    core.topic().pause()
    put(core, b"1")
    core.wait(10)
    core.put(b"2")
    core.turn()
    core.wait(5)
    core.topic().unpause(core.now)
    ages = OldestMessages().ages()
    assert ages.age(core.channel("a"), core.now) == pytest.approx(15)
    assert ages.age(core.channel("b"), core.now) == pytest.approx(5)


@pytest.mark.parametrize("how", ["behind", "paused", "recovered"])
@pytest.mark.parametrize("overflow", ["reject", "drop_oldest"])
def test_a_bound_of_another_channel_does_not_see_them(core: BrokerHarness, how: str, overflow: str) -> None:
    policy = {"max_depth": 10, "overflow": overflow}
    core.channel("b").policies.set(policy)
    core.put(b"1", b"2")
    core.turn()
    core.save()
    if how == "paused":
        core.topic().pause()
    put(core, *[b"%d" % number for number in range(20)])
    if how == "recovered":
        core.crash()
        core.channel("b").policies.set(policy)
    elif how == "paused":
        core.topic().unpause(core.now)
    answers = core.put(b"3")
    core.wait(1)
    assert answers == [None]
    assert core.channel("b").depth == 3
    assert core.reader("b").bodies() == [b"1", b"2", b"3"]
    assert core.channel("b").dropped_count == core.channel("b").depth == 0
    assert len(core.reader("a").bodies()) == 23


def test_what_a_paused_topic_kept_for_one_channel_survives_a_start(core: BrokerHarness) -> None:
    core.topic().pause()
    core.put(b"1")
    put(core, b"2", b"3")
    put(core, b"4", delay_ms=5000)
    core.save()
    core.crash()
    core.topic().unpause(core.now)
    core.turn()
    assert depths(core) == {"a": (3, 1), "b": (1, 0)}
    assert core.reader("b").bodies() == [b"1"]
    assert core.reader("a").bodies() == [b"1", b"2", b"3"]
    assert depths(core) == {"a": (0, 1), "b": (0, 0)}


def kept_in_files_only(core: BrokerHarness, delay_ms: int) -> None:
    """A paused topic keeps a message for channel a, one for all, and one for b, and has none of them in memory."""
    core.topic().pause()
    put(core, b"1", channel="a", delay_ms=delay_ms)
    core.put(b"2", delay_ms=delay_ms)
    put(core, b"3", channel="b", delay_ms=delay_ms)
    core.save()
    core.crash()


def let_reading_fail(core: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sequence: int, limit: int) -> list[Segment]:
        raise BackendError("EIO")

    log = core.topic().log
    log._cache.forget_blocks(log)
    monkeypatch.setattr(log.queue, "read", fail)


def assert_each_got_its_own(core: BrokerHarness, delay_ms: int) -> None:
    core.wait(delay_ms / 1000)
    assert core.reader("a").bodies() == [b"1", b"2"]
    assert core.reader("b").bodies() == [b"2", b"3"]
    assert depths(core) == {"a": (0, 0), "b": (0, 0)}


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_a_topic_stays_paused_when_it_cannot_read_whom_its_messages_are_for(
    core: BrokerHarness, delay_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_in_files_only(core, delay_ms)
    with monkeypatch.context() as failing, pytest.raises(BackendError):
        let_reading_fail(core, failing)
        core.topic().unpause(core.now)
    assert core.topic().paused
    core.topic().unpause(core.now)
    assert_each_got_its_own(core, delay_ms)


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_a_topic_that_waits_for_its_channels_waits_until_it_can_read_whom_its_messages_are_for(
    core: BrokerHarness, delay_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_in_files_only(core, delay_ms)
    core.topic().hold()
    core.topic().unpause(core.now)
    with monkeypatch.context() as failing:
        let_reading_fail(core, failing)
        core.topic().start(core.now)
        core.wait(RETRY_READ_SECONDS)
        assert core.topic().is_awaiting_channels
    core.wait(RETRY_READ_SECONDS)
    assert_each_got_its_own(core, delay_ms)


def test_no_channel_is_made_while_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    core = BrokerHarness(channel_rules=(ChannelRule("*/*", {"max_depth": 100}),))
    core.channel("a")
    core.channel("b")
    kept_in_files_only(core, 0)
    for name in "ab":
        core.topic().delete_channel(name)
    core.topic().unpause(core.now)
    with monkeypatch.context() as failing, pytest.raises(BackendError):
        let_reading_fail(core, failing)
        core.channel("a")
    assert (core.topic().channels, core.topic().bounds) == ({}, None)
    assert core.reader("a").bodies() == [b"1", b"2"]


def kept(core: BrokerHarness) -> None:
    core.topic().reader.retention_policy.give((1e9, None), core.now)


def put_for_both(core: BrokerHarness) -> None:
    """Three messages for channel a alone, of which one is deferred, and two for both."""
    put(core, b"1", b"2")
    put(core, b"deferred", delay_ms=1000)
    core.put(b"3", b"4")
    core.turn()


@pytest.mark.parametrize("policy", [{}, {"priority": True}, {"ordered_by": "header:k"}])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_seek_does_not_count_them(core: BrokerHarness, policy: dict[str, object], crashes: bool) -> None:
    kept(core)
    core.channel("b").policies.set(policy)
    put_for_both(core)
    first = core.topic().reader.kept_from
    reader = core.reader("b")
    reader.finish(*[message.id for message in reader.read()])
    reader.leave()
    core.save()
    b = core.channel("b")
    foretold = b.preview_seek(first)
    assert foretold == b.seek(first) == (0, 2, 2, 0)
    put(core, b"5")
    if crashes:
        core.save()
        core.crash()
        b = core.channel("b")
    assert (b.depth, b.deferred_count) == (2, 0)
    assert (b.message_count == 4) is not crashes, "two of them twice"
    b.policies.set({**policy, "max_depth": 3})
    core.turn()
    assert core.put(b"6") == []
    core.turn()
    assert core.reader("b", ready=1).bodies() == [b"3"]
    assert b.depth == 2
    assert core.reader("b").bodies() == [b"4", b"6"]
    assert (b.depth, b.deferred_count) == (0, 0)


def test_a_channel_that_starts_at_the_oldest_message_does_not_count_them(core: BrokerHarness) -> None:
    kept(core)
    put_for_both(core)
    late = core.topic().channel("late", core.now, "earliest")
    assert (late.depth, late.message_count) == (2, 2)


def test_what_was_emptied_is_subtracted_once(core: BrokerHarness) -> None:
    kept(core)
    core.topic().pause()
    put_for_both(core)
    core.topic().empty()
    core.topic().unpause(core.now)
    put_for_both(core)
    core.save()
    assert core.channel("b").seek(core.topic().reader.kept_from).depth == 2
    assert core.channel("a").preview_seek(core.topic().reader.kept_from).depth == 5


@pytest.fixture
def long_log(core: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> BrokerHarness:
    """A part of the log that is looked through in a turn has two segments."""
    monkeypatch.setattr("nsqtw.core.for_others._LOOKS", 1)
    monkeypatch.setattr("nsqtw.core.log.SEGMENT_BYTES", 60)
    kept(core)
    for number in range(10):
        put(core, b"a%d" % number)
        core.put(b"%d" % number)
        core.turn()
    core.save()
    return core


@pytest.mark.plain  # the size of a part is a constant of the core
@pytest.mark.parametrize("policy", [{}, {"priority": True}])
@pytest.mark.parametrize("reads", [0, 3, 10])
def test_a_long_log_is_looked_through_in_turns(long_log: BrokerHarness, policy: dict[str, object], reads: int) -> None:
    core = long_log
    late = core.topic().channel("late", core.now, "earliest")
    late.policies.set(policy)
    assert 10 < late.depth < 20
    reader = core.reader("late", ready=reads)
    core.now += 0.0001
    assert len(reader.read()) == reads
    for _ in range(20):
        core.wait(0.01)
    assert (late.depth, late.message_count) == (10 - reads, 10)
    reader.channel.set_ready(reader.consumer, 100)
    assert len(reader.read()) == 10 - reads
    assert (late.depth, late.message_count) == (0, 10)


def test_a_seek_forgets_what_is_looked_for_since_the_last_one(long_log: BrokerHarness) -> None:
    core = long_log
    late = core.topic().channel("late", core.now, "earliest")
    late.seek(core.topic().released)
    for _ in range(20):
        core.wait(0.01)
    assert late.depth == 0
    core.put(b"new")
    core.turn()
    assert late.depth == 1


def look_on(core: BrokerHarness) -> None:
    """Let the log be looked through to its end."""
    for _ in range(20):
        core.wait(0.01)


@pytest.mark.plain  # the size of a part is a constant of the core
@pytest.mark.parametrize("policy", [{}, {"priority": True}])
@pytest.mark.parametrize("reads", [0, 3])
@pytest.mark.parametrize("restarts", [1, 2])
def test_a_restart_goes_on_with_the_count(
    long_log: BrokerHarness, policy: dict[str, object], reads: int, restarts: int
) -> None:
    core = long_log
    late = core.topic().channel("late", core.now, "earliest")
    late.policies.set(policy)
    reader = core.reader("late", ready=reads)
    core.now += 0.0001
    reader.finish(*[message.id for message in reader.read()])
    reader.leave()
    for _ in range(restarts):
        core.save()
        core.crash()
    late = core.channel("late")
    assert late.depth > 10 - reads
    look_on(core)
    assert (late.depth, late.message_count) == (10 - reads, 0)
    core.save()
    core.crash()
    assert core.channel("late").depth == 10 - reads
    assert len(core.reader("late").read()) == 10 - reads


@pytest.mark.plain
@pytest.mark.parametrize("policy", [{}, {"priority": True}])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_bound_waits_for_the_count(long_log: BrokerHarness, policy: dict[str, object], crashes: bool) -> None:
    core = long_log
    late = core.topic().channel("late", core.now)
    late.policies.set({"max_depth": 10, "overflow": "drop_oldest", **policy})
    late.seek(core.topic().reader.kept_from)
    if crashes:
        core.save()
        core.crash()
        late = core.channel("late")
    look_on(core)
    assert (late.depth, late.dropped_count) == (10, 0)
    core.put(b"new")
    look_on(core)
    assert (late.depth, late.dropped_count) == (10, 1)


@pytest.mark.plain
def test_no_publish_is_refused_for_messages_of_others(long_log: BrokerHarness) -> None:
    core = long_log
    late = core.topic().channel("late", core.now)
    late.policies.set({"max_depth": 11})
    late.seek(core.topic().reader.kept_from)
    assert late.depth > 11
    assert core.put(b"new") == []
    look_on(core)
    assert isinstance(core.put(b"one too many")[0], Overflow)


@pytest.mark.plain
def test_a_move_forwards_does_not_skip_what_is_for_others(long_log: BrokerHarness) -> None:
    core = long_log
    first = core.topic().released
    for _ in range(4):
        core.put(b"1")
        core.turn()
    for _ in range(4):
        put(core, b"a")
    late = core.topic().channel("late", core.now)
    late.seek(first)
    core.put(b"2", b"3")
    core.turn()
    assert late.depth > 6, "the log is not looked through"
    last = core.topic().released - 1
    assert late.preview_seek(last).skipped == late.seek(last).skipped == 5


@pytest.mark.plain
def test_what_was_emptied_or_passed_meanwhile_is_not_counted(long_log: BrokerHarness) -> None:
    core = long_log
    emptied = core.topic().channel("emptied", core.now, "earliest")
    late = core.topic().channel("late", core.now, "earliest")
    emptied.empty()
    core.put(b"10", b"11", b"12")
    reader = core.reader("late", ready=12)
    core.now += 0.0001
    assert len(reader.read()) == 12
    put(core, b"x", b"y")
    look_on(core)
    assert (emptied.depth, late.depth) == (3, 1)


@pytest.mark.plain  # what breaks is a method of the core
def test_messages_are_counted_when_they_are_passed_if_the_log_cannot_be_read(
    long_log: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = long_log
    late = core.topic().channel("late", core.now, "earliest")
    with monkeypatch.context() as failing:

        def fail(sequence: int) -> None:
            raise BackendError("EIO")

        failing.setattr(core.topic().log, "directed", fail)
        core.wait(1)
    assert late.depth > 10
    assert len(core.reader("late").read()) == 10
    assert late.depth == 0


def test_many_of_them_are_passed_in_several_turns(core: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.cursor._MAX_PASSED_AT_ONCE", 10)
    core.put(b"1")
    core.turn()
    for _ in range(35):
        put(core, b"x")
    core.put(b"2")
    core.turn()
    cursor = core.channel("b").cursor
    assert cursor is not None and cursor.next_span(core.now) is not None
    cursor.advance(1)
    turns = 0
    while cursor.next_span(core.now) is None:
        turns += 1
        assert core.channel("b").depth == 1
    assert turns == 3
    assert core.reader("b").bodies() == [b"2"]


def test_a_channel_with_priorities_counts_them_once(core: BrokerHarness) -> None:
    core.channel("b").policies.set({"priority": True})
    put(core, b"1", b"2")
    core.put(b"3", b"4", b"5")
    core.turn()
    assert depths(core)["b"] == (3, 0)
    reader = core.reader("b", ready=1)
    (message,) = reader.read()
    assert message.body == b"3"
    assert depths(core)["b"] == (2, 0)
