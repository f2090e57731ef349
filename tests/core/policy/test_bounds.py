"""A channel's backlog stays within its bounds: publishes are refused, or the oldest messages are dropped."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core.segment import BODY_AT
from nsqtw.errors import BackendError, InvalidPolicy, Overflow
from nsqtw.message_headers import encode_headers
from nsqtw.options.channels import ChannelRule
from nsqtw.stats.document import document
from tests.core.harness import BrokerHarness

HOUR = 3600.0
FRAME = 100
BODY = b"x" * (FRAME - BODY_AT)


def bounded(options: dict[str, Any] | None = None, **policy: Any) -> BrokerHarness:
    """A broker with a channel that has these bounds, and one that has none."""
    core = BrokerHarness(**(options or {}))
    core.channel("free")
    core.channel().policies.set(policy)
    core.turn()
    return core


def dropping(options: dict[str, Any] | None = None, **policy: Any) -> BrokerHarness:
    return bounded(options, overflow="drop_oldest", **policy)


def refused(core: BrokerHarness, *bodies: bytes, **settings: Any) -> str | None:
    """Publish in a turn of its own. Returns why it was refused; None when it was accepted."""
    answers = core.put(*bodies, **settings)
    core.turn()
    (error,) = answers
    assert error is None or isinstance(error, Overflow)
    return None if error is None else str(error)


def waiting(core: BrokerHarness, channel: str = "c") -> list[bytes]:
    """What a consumer gets from it."""
    return core.reader(channel, ready=2500).bodies()


# -- reject

MAX_DEPTH = "channel c has reached its max_depth"
MAX_BYTES = "channel c has reached its max_bytes"
MAX_AGE = "channel c has reached its max_age"


def test_a_publish_beyond_max_depth_is_refused_and_stored_nowhere() -> None:
    core = bounded(max_depth=3)
    assert refused(core, b"1", b"2") is None
    assert refused(core, b"3", b"4") == MAX_DEPTH, "all or none"
    assert refused(core, b"3") is None
    assert refused(core, b"4") == MAX_DEPTH
    assert core.topic().rejected_count == 2
    assert core.topic().message_count == 3
    assert waiting(core, "free") == [b"1", b"2", b"3"]
    assert refused(core, b"4") == MAX_DEPTH, "the other channel's consumers change nothing"
    assert waiting(core) == [b"1", b"2", b"3"], "and those are in flight now"
    assert refused(core, b"4") is None


def test_of_the_publishes_of_one_turn_those_that_fit_are_accepted() -> None:
    core = bounded(max_depth=3)
    answers = [core.put(b"%d" % number) for number in range(5)]
    core.turn()
    assert [[str(error) for error in answer] for answer in answers] == [["None"]] * 3 + [[MAX_DEPTH]] * 2


@pytest.mark.parametrize("durability", ["fsync", "os", "memory"])
def test_what_is_on_its_way_to_the_medium_counts(durability: str) -> None:
    core = bounded({"durability": durability}, max_depth=3)
    core.lands_at_once = False
    first = core.put(b"1", b"2")
    core.turn()
    second = core.put(b"3")
    core.turn()
    assert refused(core, b"4") == MAX_DEPTH
    core.lands_at_once = True
    if core.batch is not None:
        core.land()
    core.turn()
    assert first == second == [None]
    assert refused(core, b"4") == MAX_DEPTH
    assert core.channel().depth == 3


def test_what_could_not_be_stored_does_not_count() -> None:
    core = bounded(max_depth=1)
    commit = core.backend.commit
    core.backend.commit = lambda writes, durable: {queue: BackendError("full") for queue, _ in writes}
    answers = core.put(b"1")
    core.turn()
    core.backend.commit = commit
    assert [str(answer) for answer in answers] == ["full"]
    assert refused(core, b"1") is None


def test_a_publisher_that_publishes_from_its_answer_is_not_counted_twice() -> None:
    core = bounded(max_depth=2)
    errors: list[Exception | None] = []
    core.topic().put([b"1"], 0, lambda error: core.topic().put([b"2"], 0, errors.append))
    core.turn()
    assert errors == [None]


def test_deferred_messages_count_and_so_does_what_a_paused_topic_keeps() -> None:
    core = bounded(max_depth=3)
    assert refused(core, b"1", delay_ms=1000) is None
    core.topic().pause()
    assert refused(core, b"2") is None
    assert refused(core, b"3", delay_ms=1000) is None
    assert refused(core, b"4") == MAX_DEPTH
    core.topic().unpause(core.now)
    assert refused(core, b"4") == MAX_DEPTH


def test_requeued_messages_count_again() -> None:
    core = bounded(max_depth=2)
    reader = core.reader(ready=1)
    core.put(b"1")
    (message,) = reader.read()
    assert refused(core, b"2", b"3") is None
    core.channel().set_ready(reader.consumer, 0)
    reader.requeue(message.id)
    assert core.channel().depth == 3, "a message is never refused to come back"
    assert refused(core, b"4") == MAX_DEPTH


def test_a_publish_beyond_max_bytes_is_refused() -> None:
    core = bounded(max_bytes=10 * FRAME)
    for _ in range(10):
        assert refused(core, BODY) is None
    assert refused(core, b"") == MAX_BYTES
    reader = core.reader(ready=1)
    assert len(reader.read()) == 1
    assert refused(core, BODY) is None
    assert refused(core, b"") == MAX_BYTES


@pytest.mark.parametrize("restarts", [False, True])
def test_headers_are_bytes(restarts: bool) -> None:
    headers = encode_headers({"h": "x" * (FRAME - BODY_AT - 1 - 4)})
    core = bounded(max_bytes=10 * FRAME)
    assert [refused(core, b"1", headers=[headers]) for _ in range(10)] == [None] * 10
    if restarts:
        core.save()
        core.crash()
        core.channel().policies.set({"max_bytes": 10 * FRAME})
        core.turn()
    assert refused(core, b"") == MAX_BYTES
    assert len(core.reader(ready=1).read()) == 1
    assert refused(core, b"1", headers=[headers]) is None
    assert refused(core, b"") == MAX_BYTES


def test_as_many_messages_with_headers_are_dropped_as_have_the_bytes() -> None:
    sizes = [100, 300, 50, 150, 400]
    core = dropping(max_bytes=620)
    headers = [encode_headers({"h": "x" * (size - BODY_AT - 1 - 4)}) for size in sizes]
    core.put(*[b"%d" % number for number in range(5)], headers=headers)
    core.turn()
    assert (core.channel().depth, core.channel().dropped_count) == (3, 2)
    assert waiting(core) == [b"2", b"3", b"4"]


def test_a_publish_that_is_larger_than_a_bound_is_told_that() -> None:
    core = bounded(max_depth=3, max_bytes=10 * FRAME)
    core.put(b"1")
    assert refused(core, b"1", b"2", b"3", b"4") == "4 messages exceed the max_depth of channel c, which is 3"
    assert refused(core, b"x" * 10 * FRAME) == "1034 bytes exceed the max_bytes of channel c, which is 1000"
    assert refused(core, b"1", b"2", b"3") == MAX_DEPTH, "this one fits later"
    assert core.topic().rejected_count == 3
    core.channel().policies.set({"max_depth": 3, "overflow": "drop_oldest"})
    assert refused(core, b"1", b"2", b"3", b"4") is None


def test_bytes_of_deferred_messages_and_after_a_restart() -> None:
    core = bounded(max_bytes=10 * FRAME)
    assert refused(core, *[BODY] * 6, delay_ms=1000) is None
    assert refused(core, *[BODY] * 4) is None
    assert refused(core, b"") == MAX_BYTES
    core.save()
    core.crash()
    core.channel().policies.set({"max_bytes": 10 * FRAME})
    core.turn()
    assert refused(core, b"") == MAX_BYTES
    core.channel().policies.set({"max_bytes": 10 * FRAME + BODY_AT})
    core.turn()
    assert refused(core, b"") is None


def test_deferred_messages_alone_have_bytes_after_a_restart() -> None:
    core = bounded(max_bytes=10 * FRAME)
    assert refused(core, *[BODY] * 10, delay_ms=1000) is None
    core.save()
    core.crash()
    core.channel().policies.set({"max_bytes": 10 * FRAME})
    core.turn()
    assert refused(core, b"") == MAX_BYTES


def test_bytes_of_a_message_that_was_in_flight_when_the_bound_was_set() -> None:
    core = BrokerHarness()
    reader = core.reader(ready=1)
    core.put(BODY)
    (message,) = reader.read()
    core.channel().policies.set({"max_bytes": FRAME})
    core.turn()
    core.channel().set_ready(reader.consumer, 0)
    reader.requeue(message.id)
    assert refused(core, BODY) == MAX_BYTES


def test_what_was_emptied_has_no_bytes() -> None:
    core = bounded(max_bytes=10 * FRAME)
    core.topic().pause()
    assert refused(core, *[BODY] * 10) is None
    core.topic().empty()
    core.topic().unpause(core.now)
    assert refused(core, *[BODY] * 10) is None
    assert refused(core, b"") == MAX_BYTES


def test_publishes_are_refused_while_the_oldest_message_is_too_old() -> None:
    core = bounded(max_age=HOUR)
    assert refused(core, b"1") is None
    core.wait(HOUR - 1)
    assert refused(core, b"2") is None
    core.wait(2)
    assert refused(core, b"3") == MAX_AGE
    reader = core.reader(ready=1)
    assert reader.bodies() == [b"1"]
    assert refused(core, b"3") is None, "it was delivered"
    core.wait(HOUR)
    assert refused(core, b"4") == MAX_AGE, "the second one is as old now"


def test_a_requeued_message_can_be_too_old() -> None:
    core = bounded({"msg_timeout": 900.0}, max_age=HOUR)
    reader = core.reader(ready=1)
    core.put(b"1")
    reader.read()
    for _ in range(5):
        core.channel().set_ready(reader.consumer, 1)
        reader.read()
        core.channel().set_ready(reader.consumer, 0)
        core.wait(901)
    core.wait(HOUR / 16)
    assert refused(core, b"2") == MAX_AGE


def test_a_bound_is_live() -> None:
    core = bounded(max_depth=1)
    assert refused(core, b"1") is None
    assert refused(core, b"2") == MAX_DEPTH
    core.channel().policies.set({"max_depth": 2})
    assert refused(core, b"2") is None
    core.channel().policies.set({})
    assert refused(core, b"3", b"4") is None
    assert core.topic().bounds is None


def test_a_deleted_channel_refuses_nothing() -> None:
    core = bounded(max_depth=1)
    core.put(b"1")
    core.turn()
    core.topic().delete_channel("c")
    assert core.topic().bounds is None
    assert refused(core, b"2") is None


def test_a_message_for_another_channel_is_not_refused() -> None:
    core = bounded(max_depth=1)
    core.put(b"1")
    core.turn()
    errors: list[Exception | None] = []
    core.topic().put([b"2"], 0, errors.append, channel="free")
    core.turn()
    assert errors == [None]


# -- drop_oldest


def test_the_oldest_messages_are_dropped_and_counted() -> None:
    core = dropping(max_depth=3)
    for number in range(10):
        core.put(b"%d" % number)
        core.turn()
        assert core.channel().depth == min(3, number + 1)
    assert core.channel().dropped_count == 7
    assert core.topic().rejected_count == 0
    assert waiting(core) == [b"7", b"8", b"9"]
    assert len(waiting(core, "free")) == 10


def test_a_publish_larger_than_the_bound() -> None:
    core = dropping(max_depth=3)
    core.put(*[b"%d" % number for number in range(10)])
    core.turn()
    assert waiting(core) == [b"7", b"8", b"9"]


def test_messages_that_wait_again_go_first_and_deferred_ones_last() -> None:
    core = dropping(max_depth=4)
    reader = core.reader(ready=2)
    core.put(b"1", b"2", b"3")
    first, second = reader.read()
    core.put(b"later", delay_ms=1000)
    core.turn()
    core.channel().set_ready(reader.consumer, 0)
    reader.requeue(first.id)
    reader.requeue(second.id)
    assert (core.channel().depth, core.channel().deferred_count) == (3, 1)
    core.put(b"4")
    core.turn()
    core.turn()
    assert core.channel().depth == 3
    core.channel().policies.set({"max_depth": 2, "overflow": "drop_oldest"})
    core.turn()
    assert (core.channel().depth, core.channel().deferred_count) == (1, 1), "2 and 3 are gone"
    core.channel().policies.set({"max_depth": 1, "overflow": "drop_oldest"})
    core.turn()
    assert (core.channel().depth, core.channel().deferred_count) == (0, 1)
    core.put(*[b"%d" % number for number in range(5, 8)], delay_ms=500)
    core.turn()
    assert core.channel().deferred_count == 1
    core.wait(2)
    assert waiting(core) == [b"later"]


def test_messages_in_flight_are_not_dropped() -> None:
    core = dropping(max_depth=1)
    reader = core.reader(ready=2)
    core.put(b"1", b"2")
    messages = reader.read()
    core.put(b"3", b"4")
    core.turn()
    core.turn()
    assert core.channel().depth == 1
    assert reader.finish(*[message.id for message in messages]) == []
    assert reader.bodies() == [b"4"]


def test_what_the_consumers_take_in_the_same_turn_is_not_dropped() -> None:
    core = dropping(max_depth=3)
    reader = core.reader(ready=8)
    reader.read()
    core.put(*[b"%d" % number for number in range(20)])
    core.turn()
    core.turn()
    assert reader.bodies() == [b"%d" % number for number in range(8)]
    assert core.channel().dropped_count == 9
    assert core.channel().depth == 3


def test_bytes() -> None:
    core = dropping(max_bytes=10 * FRAME)
    core.put(*[BODY] * 25)
    core.turn()
    assert core.channel().depth == 10
    for size in (1, 150, 40, 999, 20, 20, 20):
        core.put(b"y" * size)
        core.turn()
        assert sum(BODY_AT + len(body) for body in _bodies_of(core)) <= 10 * FRAME
    assert core.channel().dropped_count > 15


def _bodies_of(core: BrokerHarness) -> list[bytes]:
    """What waits in the channel, from the log."""
    cursor = core.channel().cursor
    assert cursor is not None
    parts = core.topic().reader.segments(cursor.next, core.topic().released)
    return [part.slice(index, index + 1)[BODY_AT:] for part in parts for index in range(part.count)]


def test_the_log_becomes_free() -> None:
    core = BrokerHarness()
    core.channel().policies.set({"max_depth": 10, "overflow": "drop_oldest"})
    for _ in range(50):
        core.put(*[BODY] * 10)
        core.turn()
        core.save()
    stored = core.backend.queue("t").read(0, 1 << 30)
    assert sum(segment.count for segment in stored) <= 20


def test_age_when_nobody_publishes_and_nobody_consumes() -> None:
    core = dropping(max_age=HOUR)
    core.put(b"1")
    core.turn()
    core.wait(HOUR / 2)
    core.put(b"2", b"3")
    core.turn()
    core.wait(HOUR / 2 - 1)
    assert core.channel().depth == 3
    core.wait(1)
    assert core.channel().depth == 2
    core.wait(HOUR / 2)
    assert core.channel().depth == 0
    assert core.channel().dropped_count == 3
    next_due = core.broker.tick(core.now)
    assert next_due is None or next_due > core.now + HOUR, "nothing is left to look at"


def test_age_of_messages_that_wait_again_and_of_deferred_ones() -> None:
    core = dropping(max_age=HOUR)
    reader = core.reader(ready=2)
    core.put(b"1", b"2")
    first, second = reader.read()
    core.channel().set_ready(reader.consumer, 0)
    reader.requeue(first.id)
    reader.requeue(second.id, 2 * HOUR)
    core.wait(HOUR)
    assert (core.channel().depth, core.channel().deferred_count) == (0, 1)
    core.wait(HOUR)
    core.wait(HOUR / 16)
    assert (core.channel().depth, core.channel().deferred_count) == (0, 0)
    assert core.channel().dropped_count == 2


def test_much_is_dropped_in_several_turns() -> None:
    core = BrokerHarness()
    channel = core.channel()
    core.put(*[b"x" * 10_000] * 4_000)
    core.turn()
    channel.policies.set({"max_depth": 5, "overflow": "drop_oldest"})
    core.turn()
    assert 5 < channel.depth < 4_000
    for _ in range(10):
        core.wait(0.01)
    assert channel.depth == 5
    assert channel.dropped_count == 3_995


def test_after_a_restart_the_bounds_hold_again() -> None:
    core = BrokerHarness()
    core.channel()
    core.put(*[BODY] * 20)
    core.put(*[BODY] * 3, delay_ms=1000)
    core.save()
    core.crash()
    core.channel().policies.set({"max_depth": 7, "overflow": "drop_oldest"})
    core.turn()
    assert (core.channel().depth, core.channel().deferred_count) == (4, 3)
    core.channel().policies.set({"max_bytes": 5 * FRAME, "overflow": "drop_oldest"})
    core.turn()
    assert (core.channel().depth, core.channel().deferred_count) == (2, 3)


DEFERRED, IN_FLIGHT, REQUEUED, REQUEUED_FOR_LATER = "deferred", "in flight", "requeued", "requeued for later"
SECONDS_LATER = 500
ROWS_ONLY = (DEFERRED, IN_FLIGHT, REQUEUED, REQUEUED_FOR_LATER)


def restarted(how: str, seconds_down: float = 0.0, **policy: Any) -> BrokerHarness:
    """A broker after a kill, whose channel had ten messages in one of these states, and nothing unread."""
    core = bounded({"msg_timeout": 60.0}, **policy)
    core.put(*[BODY] * 10, delay_ms=1000 * SECONDS_LATER if how == DEFERRED else 0)
    core.turn()
    if how != DEFERRED:
        reader = core.reader(ready=10)
        messages = reader.read()
        core.channel().set_ready(reader.consumer, 0)
        if how != IN_FLIGHT:
            assert not any(reader.requeue(one.id, SECONDS_LATER * (how != REQUEUED)) for one in messages)
    core.save()
    core.now += seconds_down
    core.crash()
    core.wait(0.01)
    return core


@pytest.mark.parametrize("how", ROWS_ONLY)
def test_bytes_of_pending_rows_alone_after_a_restart(how: str) -> None:
    core = restarted(how, max_bytes=10 * FRAME)
    assert refused(core, b"") == MAX_BYTES
    assert len(waiting(core)) == (10 if how in (IN_FLIGHT, REQUEUED) else 0)


@pytest.mark.parametrize("how", ROWS_ONLY)
def test_pending_rows_alone_are_dropped_after_a_restart(how: str) -> None:
    core = restarted(how, max_bytes=10 * FRAME, overflow="drop_oldest")
    core.put(BODY, BODY)
    core.turn()
    assert core.channel().waiting_count == 10
    assert core.channel().dropped_count == 2


@pytest.mark.parametrize("how", ROWS_ONLY)
def test_age_of_pending_rows_alone_after_a_restart(how: str) -> None:
    core = restarted(how, seconds_down=HOUR, max_age=HOUR)
    assert refused(core, b"") == MAX_AGE
    core = restarted(how, seconds_down=HOUR, max_age=HOUR, overflow="drop_oldest")
    assert (core.channel().waiting_count, core.channel().dropped_count) == (0, 10)


def test_the_mean_size_of_pending_rows_is_that_of_several() -> None:
    core = bounded(max_bytes=40 * FRAME)
    core.put(b"x" * (33 * FRAME - BODY_AT), *[BODY] * 7, delay_ms=1000 * SECONDS_LATER)
    core.put(BODY)
    reader = core.reader(ready=1)
    reader.finish(*[message.id for message in reader.read()])
    core.save()
    core.crash()
    core.wait(0.01)
    assert refused(core, BODY) == MAX_BYTES


@pytest.mark.plain  # what is replaced is a method of the core
def test_a_medium_that_fails_is_tried_again() -> None:
    core = dropping(max_depth=2)
    core.put(b"1", b"2")
    core.turn()
    find = core.topic().log.following
    core.channel().cursor._ahead.clear()  # type: ignore[union-attr]

    def fail(sequence: int) -> Any:
        raise BackendError("EIO")

    core.topic().log.following = fail  # type: ignore[method-assign]
    core.put(b"3")
    core.turn()
    assert core.channel().depth == 3
    core.topic().log.following = find  # type: ignore[method-assign]
    core.wait(1)
    assert core.channel().depth == 2


def test_a_channel_of_an_ephemeral_topic_has_bounds() -> None:
    core = BrokerHarness()
    core.channel("c", "t#ephemeral").policies.set({"max_depth": 2, "overflow": "drop_oldest"})
    core.put(b"1", b"2", b"3", topic="t#ephemeral")
    core.turn()
    assert core.reader("c", "t#ephemeral").bodies() == [b"2", b"3"]


def test_an_ephemeral_channel_has_none() -> None:
    core = BrokerHarness()
    with pytest.raises(InvalidPolicy, match="--mem-queue-size bounds it"):
        core.channel("c#ephemeral").policies.set({"max_depth": 2})
    core.channel("c#ephemeral").policies.set({"max_rate": 2})
    assert core.channel("c#ephemeral").bounds is None


@pytest.mark.parametrize("how", ["requeue", "defer", "time out", "leave"])
def test_messages_that_wait_again_are_within_the_bound(how: str) -> None:
    """As a publish does: the oldest message is dropped, at once, and not when something is published."""
    core = dropping({"requeue_on_disconnect": how == "leave"}, max_depth=1)
    reader = core.reader(ready=2)
    core.put(b"1", b"2")
    first, second = reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    assert refused(core, b"3") is None
    if how == "leave":
        reader.leave()
    elif how == "time out":
        core.wait(61)
    else:
        for message in (first, second):
            assert reader.requeue(message.id, 30.0 if how == "defer" else 0.0) is None
    core.turn()
    core.wait(0.01)
    channel = core.channel()
    assert (channel.waiting_count, channel.dropped_count) == (1, 2)
    core.wait(31)
    left = b"2" if how == "defer" else b"3"
    assert waiting(core) == [left]


def test_what_a_consumer_takes_at_once_is_not_dropped_when_it_waits_again() -> None:
    core = dropping(max_depth=1)
    reader = core.reader(ready=2)
    core.put(b"1", b"2")
    first, second = reader.read()
    core.turn()
    assert reader.requeue(first.id) is None
    assert reader.requeue(second.id) is None
    assert sorted(reader.bodies()) == [b"1", b"2"]
    core.wait(0.01)
    assert core.channel().dropped_count == 0


def test_held_messages_that_are_ready_again_are_within_the_bound() -> None:
    core = dropping(max_depth=1, max_attempts=1)
    core.channel("c", "t.dead").policies.set({"max_depth": 1})
    core.put(b"fill", topic="t.dead")
    reader = core.reader(ready=3)
    core.put(b"1", b"2", b"3")
    for message in reader.read():
        assert reader.requeue(message.id) is None
    reader.leave()
    core.turn()
    channel = core.channel()
    assert (channel.held_count, channel.dropped_count) == (3, 0)
    channel.policies.set({"max_depth": 1, "overflow": "drop_oldest"})
    for _ in range(4):
        core.save()
        core.wait(1.1)
    assert (channel.held_count, channel.depth, channel.dropped_count) == (0, 1, 2)


# -- statistics


def test_stats_have_the_counts_only_where_there_is_a_bound() -> None:
    core = bounded(max_depth=1)
    core.put(b"1")
    core.put(b"2")
    core.turn()
    core.put(b"other", topic="other")
    core.channel(topic="other")
    core.turn()
    shown = document(core.broker, "", now=core.now)["topics"]
    (other, topic) = shown
    assert topic["rejected_count"] == 1
    assert [channel.get("dropped_count") for channel in topic["channels"]] == [0, None]
    assert "rejected_count" not in other
    assert "dropped_count" not in other["channels"][0]


@pytest.mark.plain  # what is replaced is a method of the core
def test_a_channel_that_could_not_be_made_has_no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = ChannelRule("*/*", {"max_depth": 3})
    core = BrokerHarness(channel_rules=(rule,), retention_time=1e9, channel_start="earliest")
    core.put(b"1")
    core.turn()

    def fail(start: int, stop: int) -> int:
        raise BackendError("cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(core.topic().reader, "count", fail)
        with pytest.raises(BackendError):
            core.channel("a")
    reader = core.reader("b")
    for _ in range(5):
        answers = core.put(b"2")
        for message in reader.read():
            reader.finish(message.id)
        assert answers == [None]
    channel = core.channel("a")
    assert channel.depth == 6
    assert isinstance(core.put(b"3")[0], Overflow)
    core.topic().delete_channel("a")
    assert core.topic().bounds is not None
    assert core.put(b"3") == []
