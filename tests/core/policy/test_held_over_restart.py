"""
Held messages, and messages whose last allowed delivery a restart has interrupted: the broker's own end is no failure of
a consumer, and what waits for the dead-letter topic goes on waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsqtw.core.policy.undelivered import MAX_INTERRUPTIONS
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness, Reader
from tests.core.policy.harness import bodies, fail, put, retry, settle, stored

Restart = Callable[[BrokerHarness], None]


def stop(core: BrokerHarness) -> None:
    """SIGTERM and a start."""
    core.stop_and_start()


def kill(core: BrokerHarness) -> None:
    """SIGKILL a while after the last change, and a start."""
    core.save()
    core.crash()


@pytest.fixture(params=[stop, kill])
def restart(request: pytest.FixtureRequest) -> Restart:
    found: Restart = request.param
    return found


def with_full_dead_letter_topic(**policy: object) -> BrokerHarness:
    """A channel with dead letters, whose topic has no room for them."""
    core = BrokerHarness()
    core.channel().policies.set({"max_attempts": 1, **policy})
    core.channel("c", "t.dead").policies.set({"max_depth": 1})
    put(core, b"fill", topic="t.dead")
    return core


def make_room(core: BrokerHarness) -> None:
    core.channel("c", "t.dead").policies.set({})
    for _ in range(2):
        retry(core)


def dead(core: BrokerHarness) -> list[bytes]:
    return sorted(body for body in bodies(core, "t.dead") if body != b"fill")


def in_flight(core: BrokerHarness, *messages: bytes) -> Reader:
    """Messages on their first delivery."""
    put(core, *messages)
    reader = core.reader()
    assert reader.bodies() == [*messages]
    return reader


# -- held messages


def test_held_messages_are_held_after_a_restart_and_leave_without_a_consumer(restart: Restart) -> None:
    core = with_full_dead_letter_topic()
    put(core, b"1", b"2")
    fail(core.reader())
    retry(core)
    for _ in range(2):
        restart(core)
        retry(core)
        channel = core.channel()
        assert (channel.depth, channel.held_count, channel.waiting_count) == (2, 2, 0)
        assert core.reader().bodies() == []
    make_room(core)
    assert (channel.depth, dead(core)) == (0, [b"1", b"2"])


@pytest.mark.parametrize("policy", [{"max_depth": 2, "overflow": "drop_oldest"}, {"max_depth": 2}])
def test_a_bound_does_not_see_held_messages_after_a_restart(restart: Restart, policy: dict[str, object]) -> None:
    core = with_full_dead_letter_topic(**policy)
    for body in (b"1", b"2", b"3"):
        put(core, body)
        reader = core.reader()
        assert fail(reader) == [body]
        reader.leave()
    put(core, b"4")
    restart(core)
    put(core, b"5")
    settle(core)
    channel = core.channel()
    assert (channel.held_count, channel.waiting_count, channel.dropped_count) == (3, 2, 0)
    make_room(core)
    assert (dead(core), core.reader().bodies()) == ([b"1", b"2", b"3"], [b"4", b"5"])


def test_a_time_to_live_does_not_end_for_held_messages(restart: Restart) -> None:
    core = with_full_dead_letter_topic()
    core.topic().policies.set({"message_ttl": 30.0})
    put(core, b"1")
    fail(core.reader())
    restart(core)
    core.wait(60.0)
    assert core.reader().bodies() == []
    assert core.channel().expired_count == 0
    make_room(core)
    assert dead(core) == [b"1"]


def test_the_reason_of_a_dead_letter_survives(restart: Restart) -> None:
    core = with_full_dead_letter_topic(expired="dead_letter")
    reader = in_flight(core, b"nack")
    (message_id,) = [message_id for message_id, _ in reader.consumer.in_flight.items()]
    core.channel().requeue(reader.consumer, message_id, 0.0, core.now, "out of stock")
    settle(core)
    put(core, b"slow")
    assert reader.bodies() == [b"slow"]
    core.wait(61.0)
    reader.leave()
    put(core, b"old", ttl="1000")
    core.wait(2.0)
    assert core.reader().bodies() == []
    restart(core)
    make_room(core)
    letters = stored(core, "t.dead")
    assert {body: letter["nsq-dead-reason"] for body, letter in letters.items() if letter} == {
        b"nack": "requeued",
        b"slow": "timed out",
        b"old": "expired",
    }
    assert letters[b"nack"]["nsq-dead-detail"] == "out of stock"


def test_without_the_policy_held_messages_are_ready_after_a_restart(restart: Restart) -> None:
    core = with_full_dead_letter_topic()
    put(core, b"1")
    reader = core.reader()
    fail(reader)
    reader.leave()
    settle(core)
    core.channel().policies.set({})
    restart(core)
    (message,) = core.reader().read()
    assert (message.body, message.attempts, core.channel().held_count) == (b"1", 2, 0)


def test_messages_held_under_a_policy_of_the_config_file_are_ready_when_it_is_gone(restart: Restart) -> None:
    core = with_full_dead_letter_topic()
    put(core, b"1")
    fail(core.reader())
    settle(core)
    core.save()
    for topic in core.positions.saved.topics:
        for cursor in topic.cursors:
            cursor.policy = {}
    core.crash()
    assert core.reader().bodies() == [b"1"]
    restart(core)
    assert core.positions.held("t", "c") == []


def test_without_max_attempts_only_what_expired_stays_held(restart: Restart) -> None:
    core = with_full_dead_letter_topic(expired="dead_letter")
    put(core, b"old", ttl="1000")
    core.wait(2.0)
    put(core, b"failed")
    fail(core.reader())
    settle(core)
    assert core.channel().held_count == 2
    restart(core)
    core.channel().policies.set({"expired": "dead_letter"})
    restart(core)
    (message,) = core.reader().read()
    assert (message.body, message.attempts, core.channel().held_count) == (b"failed", 2, 1)
    make_room(core)
    assert dead(core) == [b"old"]


def test_what_is_ready_again_is_not_held_after_the_next_start(restart: Restart) -> None:
    core = with_full_dead_letter_topic()
    put(core, b"1")
    fail(core.reader())
    settle(core)
    core.save()
    for topic in core.positions.saved.topics:
        for cursor in topic.cursors:
            cursor.policy = {}
    core.crash()
    core.channel().policies.set({"max_attempts": 20})
    restart(core)
    assert (core.channel().held_count, core.channel().waiting_count) == (0, 1)
    (message,) = core.reader().read()
    assert (message.body, message.attempts) == (b"1", 2)


def test_emptying_and_deleting_forget_held_messages_for_good(restart: Restart) -> None:
    core = with_full_dead_letter_topic()
    put(core, b"1", b"2")
    fail(core.reader())
    settle(core)
    restart(core)
    core.channel().empty()
    restart(core)
    make_room(core)
    assert (core.channel().depth, dead(core), core.positions.held("t", "c")) == (0, [], [])


def test_a_held_letter_is_deferred_after_a_restart() -> None:
    core = BrokerHarness()
    core.channel().policies.set({"max_attempts": 1})
    core.channel("c", "t.dead").policies.set({"max_attempts": 1})
    put(core, b"m")
    fail(core.reader())
    settle(core)
    reader = core.reader(topic="t.dead")
    (letter,) = reader.read()
    reader.requeue(letter.id, 30.0)
    core.broker.checkpointer.ask(lambda error: None)
    job = core.broker.checkpointer.begin(core.now)  # before the next turn, in which it turns out to be a letter
    core.positions.save(job.checkpoint)
    core.crash()
    settle(core)
    reader = core.reader(topic="t.dead")
    assert (reader.bodies(), core.channel(topic="t.dead").deferred_count) == ([], 1)
    core.wait(31.0)
    assert reader.bodies() == [b"m"]


@pytest.mark.parametrize("policy", [{"ordered_by": "header:key"}, {"priority": True}])
def test_held_messages_of_other_policies_leave_once(restart: Restart, policy: dict[str, object]) -> None:
    core = with_full_dead_letter_topic(**policy)
    headers = [encode_headers({"key": key, "priority": "high"}) for key in "aab"]
    core.put(b"a1", b"a2", b"b1", headers=headers)
    reader = core.reader()
    assert fail(reader)[0] == b"a1"
    settle(core)
    restart(core)
    assert core.channel().held_count > 0
    reader = core.reader()
    settle(core)
    got = reader.read()
    assert b"a2" not in [message.body for message in got] or "priority" in policy  # its key waits for a1
    make_room(core)
    got += reader.read()
    reader.finish(*[message.id for message in got])
    assert sorted([message.body for message in got] + dead(core)) == [b"a1", b"a2", b"b1"]
    assert core.channel().depth == 0


# -- the last delivery


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_message_on_its_last_delivery_is_delivered_once_more(restart: Restart, max_attempts: int) -> None:
    core = BrokerHarness()
    core.channel().policies.set({"max_attempts": max_attempts})
    put(core, b"m")
    reader = core.reader()
    for _ in range(max_attempts - 1):
        assert fail(reader) == [b"m"]
    assert reader.bodies() == [b"m"]
    restart(core)
    restart(core)  # the second one finds it ready
    reader = core.reader()
    settle(core)
    (message,) = reader.read()
    assert (message.body, message.attempts) == (b"m", max_attempts + 1)
    reader.requeue(message.id)
    settle(core)
    letter = stored(core, "t.dead")[b"m"]
    assert (letter["nsq-dead-reason"], letter["nsq-dead-attempts"]) == ("requeued", str(max_attempts + 1))


def test_a_message_that_was_finished_after_the_last_checkpoint_is_delivered_again() -> None:
    core = BrokerHarness()
    core.channel().policies.set({"max_attempts": 1})
    reader = in_flight(core, b"m")
    core.save()
    reader.finish(*[message_id for message_id, _ in reader.consumer.in_flight.items()])
    core.crash()
    settle(core)
    assert (core.reader().bodies(), dead(core) if "t.dead" in core.broker.topics else []) == ([b"m"], [])


def test_restarts_alone_deliver_a_message_ten_times_more(restart: Restart) -> None:
    core = BrokerHarness()
    core.channel().policies.set({"max_attempts": 2})
    put(core, b"m")
    attempts = []
    for _ in range(2 + MAX_INTERRUPTIONS):
        attempts += [message.attempts for message in core.reader().read()]
        restart(core)
    assert attempts == [*range(1, 3 + MAX_INTERRUPTIONS)]
    reader = core.reader()
    settle(core)
    assert reader.read() == []
    letter = stored(core, "t.dead")[b"m"]
    assert (letter["nsq-dead-reason"], letter["nsq-dead-attempts"]) == ("too many attempts", "12")


def test_a_message_that_had_failed_before_the_policy_leaves_after_a_restart_too(restart: Restart) -> None:
    core = BrokerHarness()
    put(core, b"m")
    reader = core.reader()
    for _ in range(3):
        fail(reader)
    reader.leave()
    core.channel().policies.set({"max_attempts": 2})
    restart(core)
    reader = core.reader()
    settle(core)
    assert (reader.read(), dead(core)) == ([], [b"m"])


def test_a_policy_that_comes_during_the_last_delivery_counts_no_restart(restart: Restart) -> None:
    core = BrokerHarness()
    put(core, b"m")
    reader = core.reader()
    for _ in range(3):
        fail(reader)
    assert reader.bodies() == [b"m"]
    core.save()
    core.channel().policies.set({"max_attempts": 2})
    restart(core)
    assert core.reader().bodies() == [b"m"]


def test_a_stop_is_no_failure_of_a_consumer_whose_connection_it_ends() -> None:
    core = BrokerHarness(requeue_on_disconnect=True)
    core.channel().policies.set({"max_attempts": 1})
    reader = in_flight(core, b"m")
    core.broker.begin_stop()
    reader.leave()
    settle(core)
    core.stop_and_start()
    settle(core)
    (message,) = core.reader().read()
    assert (message.body, message.attempts) == (b"m", 2)


def test_a_message_that_was_withheld_on_an_extra_delivery_is_delivered(restart: Restart) -> None:
    core = BrokerHarness()
    core.channel().policies.set({"max_attempts": 1})
    in_flight(core, b"m")
    restart(core)
    channel = core.channel()
    reader = core.reader()
    ids = [message.id for message in reader.read()]
    channel.withhold(reader.consumer, ids)
    restart(core)
    reader.leave()
    settle(core)
    assert [(message.body, message.attempts) for message in core.reader().read()] == [(b"m", 2)]


def test_a_channel_without_dead_letters_saves_nothing_of_it(restart: Restart) -> None:
    core = BrokerHarness()
    reader = in_flight(core, b"1", b"2")
    fail_one, _ = next(iter(reader.consumer.in_flight.items()))
    reader.requeue(fail_one)
    assert reader.bodies() == [b"1"]
    restart(core)
    core.save()
    (cursor,) = core.positions.saved.topics[0].cursors
    assert (cursor.held, cursor.interrupted) == ([], [])
