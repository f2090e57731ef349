"""Class fsync: nothing is answered or seen before its flight has landed; who comes meanwhile shares the next one."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core.group_commit import COMMITS_WITHOUT_WINDOW, MAX_WINDOW_SECONDS
from nsqtw.errors import BackendError, Exiting
from tests.core.harness import BrokerHarness


def fsync_harness(**options: Any) -> BrokerHarness:
    harness = BrokerHarness(durability="fsync", **options)
    harness.lands_at_once = False
    return harness


def commits(harness: BrokerHarness) -> list[tuple[list[int], bool]]:
    """From now on: for each commit how many messages each queue gets, and whether it is durable."""
    made: list[tuple[list[int], bool]] = []
    commit = harness.backend.commit

    def noted(writes: Any, durable: bool) -> Any:
        made.append(([sum(segment.count for segment in segments) for _, segments in writes], durable))
        return commit(writes, durable)

    harness.backend.commit = noted
    return made


def test_an_ok_comes_when_the_flight_has_landed_and_the_message_too() -> None:
    harness = fsync_harness()
    made = commits(harness)
    reader = harness.reader()
    answers = harness.put(b"a")
    assert (reader.bodies(), answers, made) == ([], [], [])
    harness.land()
    assert (reader.bodies(), answers, made) == ([b"a"], [None], [([1], True)])


def test_who_comes_while_a_flight_is_out_shares_the_next_one() -> None:
    harness = fsync_harness()
    made = commits(harness)
    reader = harness.reader()
    first = harness.put(b"a")
    harness.turn()
    later = [harness.put(b"%d" % n) for n in range(10)]
    harness.turn()
    assert harness.topic().depth == 0
    harness.land()
    assert (first, later) == ([None], [[]] * 10)
    harness.land()
    assert (later, harness.batch) == ([[None]] * 10, None)
    assert made == [([1], True), ([10], True)]
    assert reader.bodies() == [b"a", *(b"%d" % n for n in range(10))]


def slow_flight(harness: BrokerHarness, seconds: float, passengers: int) -> None:
    """One that takes so long, while nobody comes."""
    answers = [harness.put(b"slow") for _ in range(passengers)]
    harness.turn()
    harness.now += seconds
    harness.land()
    assert answers == [[None]] * passengers


def test_after_a_slow_flight_the_next_one_waits_for_those_who_come_back() -> None:
    harness = fsync_harness()
    made = commits(harness)
    slow_flight(harness, 0.010, passengers=3)
    for body in (b"a", b"b"):
        harness.put(body)
        harness.turn()
        assert harness.batch is None
    harness.put(b"c")
    harness.turn()
    harness.land()
    assert made == [([3], True), ([3], True)]


def test_those_who_waited_at_the_landing_are_expected_too() -> None:
    harness = fsync_harness()
    made = commits(harness)
    harness.put(b"a")
    harness.turn()
    harness.put(b"b")
    harness.turn()
    harness.now += 0.010
    harness.land()
    assert harness.batch is None
    harness.put(b"a again")
    harness.turn()
    harness.land()
    assert made == [([1], True), ([2], True)]


def test_who_does_not_come_back_is_waited_for_half_as_long_as_the_flight_took() -> None:
    harness = fsync_harness()
    slow_flight(harness, 0.010, passengers=3)
    answers = harness.put(b"a")
    harness.wait(0.004)
    assert harness.batch is None
    harness.wait(0.002)
    harness.land()
    assert answers == [None]


def test_after_waiting_in_vain_some_flights_leave_at_once() -> None:
    harness = fsync_harness()
    slow_flight(harness, 0.010, passengers=3)
    harness.put(b"a")
    harness.wait(0.006)
    group_commit = 0
    while harness.batch is not None:
        group_commit += 1
        harness.put(b"who comes while it is out")
        harness.turn()
        harness.now += 0.010
        harness.land()
    assert group_commit == 1 + COMMITS_WITHOUT_WINDOW


def test_a_later_gathering_is_not_ended_by_the_moment_of_an_earlier_one() -> None:
    harness = fsync_harness()
    slow_flight(harness, 0.010, passengers=1)
    slow_flight(harness, 0.100, passengers=3)
    harness.put(b"a")
    harness.wait(0.010)
    assert harness.batch is None
    harness.wait(0.041)
    assert harness.batch is not None, "and the later one ends by itself"


def test_who_has_come_back_is_not_waited_for_once_more() -> None:
    harness = fsync_harness()
    slow_flight(harness, 0.100, passengers=3)
    for _ in range(3):
        harness.put(b"back")
    harness.turn()
    harness.land()
    harness.put(b"one goes on alone")
    harness.turn()
    assert harness.batch is not None


def test_however_long_a_flight_took_nobody_is_waited_for_longer_than_a_moment() -> None:
    harness = fsync_harness()
    slow_flight(harness, 10.0, passengers=3)
    harness.put(b"a")
    harness.turn()
    assert harness.batch is None
    harness.wait(MAX_WINDOW_SECONDS)
    assert harness.batch is not None


def test_nobody_is_waited_for_when_nothing_was_synced() -> None:
    harness = BrokerHarness()
    harness.lands_at_once = False
    harness.backend.in_thread = True
    slow_flight(harness, 0.010, passengers=3)
    harness.put(b"a")
    harness.turn()
    assert harness.batch is not None


def test_nobody_is_waited_for_after_a_quick_flight_or_when_the_broker_stops() -> None:
    harness = fsync_harness()
    slow_flight(harness, 0.0005, passengers=3)
    slow_flight(harness, 0.010, passengers=3)
    harness.put(b"a")
    harness.turn()
    assert harness.batch is None
    harness.broker.stopping = True
    harness.turn()
    assert harness.batch is not None


def test_a_failed_flight_tells_everybody_on_it_and_nobody_else() -> None:
    harness = fsync_harness()
    answers = harness.put(b"never")
    harness.turn()
    later = harness.put(b"b")
    harness.turn()
    commit = harness.backend.commit
    harness.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    harness.land()
    harness.backend.commit = commit
    assert [str(answer) for answer in answers] == ["no space"]
    assert str(harness.broker.health) == "NOK - no space"
    harness.land()
    assert (later, str(harness.broker.health)) == ([None], "OK")
    harness.lands_at_once = True
    assert harness.reader().bodies() == [b"b"]


def test_a_backend_that_raises_fails_the_flight() -> None:
    harness = fsync_harness()
    answers = harness.put(b"never")
    harness.turn()
    harness.backend.commit = lambda writes, durable: 1 / 0
    harness.land()
    assert [str(answer) for answer in answers] == ["ZeroDivisionError: division by zero"]


def test_a_topic_that_is_deleted_while_its_flight_is_out() -> None:
    harness = fsync_harness()
    answers = harness.put(b"a")
    harness.turn()
    harness.broker.delete_topic("t")
    harness.land()
    assert [type(answer) for answer in answers] == [Exiting]


def test_a_topic_with_a_flight_out_waits_for_it_also_after_its_class_has_changed() -> None:
    harness = fsync_harness()
    made = commits(harness)
    harness.put(b"a")
    harness.turn()
    harness.topic().durability = "os"
    answers = harness.put(b"b")
    harness.turn()
    assert (answers, made) == ([], [])
    harness.land()
    harness.land()
    assert (answers, made) == ([None], [([1], True), ([1], False)])


def test_topics_of_class_os_do_not_wait_for_others() -> None:
    harness = fsync_harness()
    harness.topic("quick").durability = "os"
    slow = harness.put(b"a")
    quick = harness.put(b"b", topic="quick")
    harness.turn()
    assert (slow, quick) == ([], [None])


def test_ephemeral_topics_never_fly() -> None:
    harness = fsync_harness()
    assert harness.put(b"a", topic="t#ephemeral") == []
    harness.turn()
    assert harness.batch is None


def test_a_backend_that_works_in_the_thread_gets_every_commit_there() -> None:
    harness = BrokerHarness()
    harness.lands_at_once = False
    harness.backend.in_thread = True
    made = commits(harness)
    answers = harness.put(b"a")
    harness.turn()
    assert answers == []
    harness.land()
    assert (answers, made) == ([None], [([1], False)])


def test_class_os_is_synced_once_in_a_while() -> None:
    harness = BrokerHarness(sync_timeout=2.0)
    made = commits(harness)
    harness.put(b"a", b"b")
    harness.turn()
    harness.wait(1.0)
    harness.put(b"c")
    harness.wait(0.9)
    assert made == [([2], False), ([1], False)]
    harness.wait(0.2)
    assert made[2:] == [([], True)]
    harness.wait(10.0)
    assert len(made) == 3, "what is synced is not synced again"


def test_a_sync_that_fails_is_told_to_the_operator_and_to_nobody_else() -> None:
    harness = BrokerHarness(sync_timeout=2.0)
    harness.put(b"a")
    harness.turn()
    queue = harness.topic().log.queue
    harness.backend.commit = lambda writes, durable: {queue: BackendError("bad sector")}
    harness.wait(2.1)
    assert harness.lines[-1] == ("error", "NSQ: what was stored may not survive a power loss - bad sector")
    assert str(harness.broker.health) == "OK"


def test_the_birth_of_a_channel_somebody_waits_for_is_durable() -> None:
    harness = fsync_harness()
    harness.channel()
    harness.save()
    harness.topic().touch()
    save = harness.begin_save()
    assert save.checkpoint.topics and not save.checkpoint.durable
    harness.broker.checkpointer.end(save, None)
    harness.channel("d")
    harness.broker.checkpointer.ask(lambda error: None)
    assert harness.begin_save().checkpoint.durable


def test_a_sync_that_cannot_even_be_tried_is_told_too() -> None:
    harness = BrokerHarness(sync_timeout=2.0)
    harness.put(b"a")
    harness.turn()

    def broken(writes: object, durable: bool) -> dict[object, BackendError]:
        raise BackendError("the medium is gone")

    harness.backend.commit = broken
    harness.wait(2.1)
    assert harness.lines[-1] == ("error", "NSQ: what was stored may not survive a power loss - the medium is gone")


def test_class_os_is_synced_in_a_backend_that_works_in_the_thread_too() -> None:
    harness = BrokerHarness(sync_timeout=2.0)
    harness.backend.in_thread = True
    made = commits(harness)
    harness.put(b"a")
    harness.turn()
    harness.wait(1.9)
    assert made == [([1], False)]
    harness.wait(0.2)
    assert made[1:] == [([], True)]
    harness.wait(10.0)
    assert len(made) == 2


def test_the_time_from_publish_to_answer_is_observed_for_each_batch() -> None:
    harness = fsync_harness()
    harness.put(b"a")
    harness.turn()
    harness.now += 0.2
    harness.put(b"b")
    harness.put(b"c")
    harness.turn()
    harness.now += 0.2
    harness.land()
    harness.wait(0.2)
    harness.land()
    observed = harness.broker.publish_ack
    assert observed.cumulative()[-1] == 3
    assert observed.sum == pytest.approx(3 * 0.4)


def test_a_commit_that_reached_stable_storage_is_observed() -> None:
    harness = fsync_harness()
    harness.put(b"a")
    harness.turn()
    assert harness.batch is not None
    harness.batch.seconds = 0.003
    harness.land()
    assert (harness.broker.fsync.cumulative()[-1], harness.broker.fsync.sum) == (1, 0.003)


def test_a_commit_that_failed_is_not_observed_as_a_sync() -> None:
    harness = fsync_harness()
    harness.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    harness.put(b"a")
    harness.turn()
    harness.land()
    assert harness.broker.fsync.cumulative()[-1] == 0
