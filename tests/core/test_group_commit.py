"""Class fsync: nothing is answered or seen before its flight has landed; who comes meanwhile shares the next one."""

from __future__ import annotations

from typing import Any

from nsqtw.core.group_commit import COMMITS_WITHOUT_WINDOW, MAX_WINDOW_SECONDS
from nsqtw.errors import BackendError, Exiting
from tests.core.world import World


def fsync_world(**options: Any) -> World:
    world = World(durability="fsync", **options)
    world.lands_at_once = False
    return world


def commits(world: World) -> list[tuple[list[int], bool]]:
    """From now on: for each commit how many messages each queue gets, and whether it is durable."""
    made: list[tuple[list[int], bool]] = []
    commit = world.backend.commit

    def noted(writes: Any, durable: bool) -> Any:
        made.append(([sum(segment.count for segment in segments) for _, segments in writes], durable))
        return commit(writes, durable)

    world.backend.commit = noted
    return made


def test_an_ok_comes_when_the_flight_has_landed_and_the_message_too() -> None:
    world = fsync_world()
    made = commits(world)
    reader = world.reader()
    answers = world.put(b"a")
    assert (reader.bodies(), answers, made) == ([], [], [])
    world.land()
    assert (reader.bodies(), answers, made) == ([b"a"], [None], [([1], True)])


def test_who_comes_while_a_flight_is_out_shares_the_next_one() -> None:
    world = fsync_world()
    made = commits(world)
    reader = world.reader()
    first = world.put(b"a")
    world.turn()
    later = [world.put(b"%d" % n) for n in range(10)]
    world.turn()
    assert world.topic().depth == 0
    world.land()
    assert (first, later) == ([None], [[]] * 10)
    world.land()
    assert (later, world.batch) == ([[None]] * 10, None)
    assert made == [([1], True), ([10], True)]
    assert reader.bodies() == [b"a", *(b"%d" % n for n in range(10))]


def slow_flight(world: World, seconds: float, passengers: int) -> None:
    """One that takes so long, while nobody comes."""
    answers = [world.put(b"slow") for _ in range(passengers)]
    world.turn()
    world.now += seconds
    world.land()
    assert answers == [[None]] * passengers


def test_after_a_slow_flight_the_next_one_waits_for_those_who_come_back() -> None:
    world = fsync_world()
    made = commits(world)
    slow_flight(world, 0.010, passengers=3)
    for body in (b"a", b"b"):
        world.put(body)
        world.turn()
        assert world.batch is None
    world.put(b"c")
    world.turn()
    world.land()
    assert made == [([3], True), ([3], True)]


def test_those_who_waited_at_the_landing_are_expected_too() -> None:
    world = fsync_world()
    made = commits(world)
    world.put(b"a")
    world.turn()
    world.put(b"b")
    world.turn()
    world.now += 0.010
    world.land()
    assert world.batch is None
    world.put(b"a again")
    world.turn()
    world.land()
    assert made == [([1], True), ([2], True)]


def test_who_does_not_come_back_is_waited_for_half_as_long_as_the_flight_took() -> None:
    world = fsync_world()
    slow_flight(world, 0.010, passengers=3)
    answers = world.put(b"a")
    world.wait(0.004)
    assert world.batch is None
    world.wait(0.002)
    world.land()
    assert answers == [None]


def test_after_waiting_in_vain_some_flights_leave_at_once() -> None:
    world = fsync_world()
    slow_flight(world, 0.010, passengers=3)
    world.put(b"a")
    world.wait(0.006)
    group_commit = 0
    while world.batch is not None:
        group_commit += 1
        world.put(b"who comes while it is out")
        world.turn()
        world.now += 0.010
        world.land()
    assert group_commit == 1 + COMMITS_WITHOUT_WINDOW


def test_a_later_gathering_is_not_ended_by_the_moment_of_an_earlier_one() -> None:
    world = fsync_world()
    slow_flight(world, 0.010, passengers=1)
    slow_flight(world, 0.100, passengers=3)
    world.put(b"a")
    world.wait(0.010)
    assert world.batch is None
    world.wait(0.041)
    assert world.batch is not None, "and the later one ends by itself"


def test_who_has_come_back_is_not_waited_for_once_more() -> None:
    world = fsync_world()
    slow_flight(world, 0.100, passengers=3)
    for _ in range(3):
        world.put(b"back")
    world.turn()
    world.land()
    world.put(b"one goes on alone")
    world.turn()
    assert world.batch is not None


def test_however_long_a_flight_took_nobody_is_waited_for_longer_than_a_moment() -> None:
    world = fsync_world()
    slow_flight(world, 10.0, passengers=3)
    world.put(b"a")
    world.turn()
    assert world.batch is None
    world.wait(MAX_WINDOW_SECONDS)
    assert world.batch is not None


def test_nobody_is_waited_for_when_nothing_was_synced() -> None:
    world = World()
    world.lands_at_once = False
    world.backend.in_thread = True
    slow_flight(world, 0.010, passengers=3)
    world.put(b"a")
    world.turn()
    assert world.batch is not None


def test_nobody_is_waited_for_after_a_quick_flight_or_when_the_broker_stops() -> None:
    world = fsync_world()
    slow_flight(world, 0.0005, passengers=3)
    slow_flight(world, 0.010, passengers=3)
    world.put(b"a")
    world.turn()
    assert world.batch is None
    world.broker.stopping = True
    world.turn()
    assert world.batch is not None


def test_a_failed_flight_tells_everybody_on_it_and_nobody_else() -> None:
    world = fsync_world()
    answers = world.put(b"never")
    world.turn()
    later = world.put(b"b")
    world.turn()
    commit = world.backend.commit
    world.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    world.land()
    world.backend.commit = commit
    assert [str(answer) for answer in answers] == ["no space"]
    assert str(world.broker.health) == "NOK - no space"
    world.land()
    assert (later, str(world.broker.health)) == ([None], "OK")
    world.lands_at_once = True
    assert world.reader().bodies() == [b"b"]


def test_a_backend_that_raises_fails_the_flight() -> None:
    world = fsync_world()
    answers = world.put(b"never")
    world.turn()
    world.backend.commit = lambda writes, durable: 1 / 0
    world.land()
    assert [str(answer) for answer in answers] == ["ZeroDivisionError: division by zero"]


def test_a_topic_that_is_deleted_while_its_flight_is_out() -> None:
    world = fsync_world()
    answers = world.put(b"a")
    world.turn()
    world.broker.delete_topic("t")
    world.land()
    assert [type(answer) for answer in answers] == [Exiting]


def test_a_topic_with_a_flight_out_waits_for_it_also_after_its_class_has_changed() -> None:
    world = fsync_world()
    made = commits(world)
    world.put(b"a")
    world.turn()
    world.topic().durability = "os"
    answers = world.put(b"b")
    world.turn()
    assert (answers, made) == ([], [])
    world.land()
    world.land()
    assert (answers, made) == ([None], [([1], True), ([1], False)])


def test_topics_of_class_os_do_not_wait_for_others() -> None:
    world = fsync_world()
    world.topic("quick").durability = "os"
    slow = world.put(b"a")
    quick = world.put(b"b", topic="quick")
    world.turn()
    assert (slow, quick) == ([], [None])


def test_ephemeral_topics_never_fly() -> None:
    world = fsync_world()
    assert world.put(b"a", topic="t#ephemeral") == []
    world.turn()
    assert world.batch is None


def test_a_backend_that_works_in_the_thread_gets_every_commit_there() -> None:
    world = World()
    world.lands_at_once = False
    world.backend.in_thread = True
    made = commits(world)
    answers = world.put(b"a")
    world.turn()
    assert answers == []
    world.land()
    assert (answers, made) == ([None], [([1], False)])


def test_class_os_is_synced_once_in_a_while() -> None:
    world = World(sync_timeout=2.0)
    made = commits(world)
    world.put(b"a", b"b")
    world.turn()
    world.wait(1.0)
    world.put(b"c")
    world.wait(0.9)
    assert made == [([2], False), ([1], False)]
    world.wait(0.2)
    assert made[2:] == [([], True)]
    world.wait(10.0)
    assert len(made) == 3, "what is synced is not synced again"


def test_a_sync_that_fails_is_told_to_the_operator_and_to_nobody_else() -> None:
    world = World(sync_timeout=2.0)
    world.put(b"a")
    world.turn()
    queue = world.topic().log.queue
    world.backend.commit = lambda writes, durable: {queue: BackendError("bad sector")}
    world.wait(2.1)
    assert world.lines[-1] == ("error", "NSQ: what was stored may not survive a power loss - bad sector")
    assert str(world.broker.health) == "OK"


def test_the_birth_of_a_channel_somebody_waits_for_is_durable() -> None:
    world = fsync_world()
    world.channel()
    world.save()
    world.topic().touch()
    save = world.begin_save()
    assert save.checkpoint.topics and not save.checkpoint.durable
    world.broker.checkpointer.end(save, None)
    world.channel("d")
    world.broker.checkpointer.ask(lambda error: None)
    assert world.begin_save().checkpoint.durable


def test_a_sync_that_cannot_even_be_tried_is_told_too() -> None:
    world = World(sync_timeout=2.0)
    world.put(b"a")
    world.turn()

    def broken(writes: object, durable: bool) -> dict[object, BackendError]:
        raise BackendError("the medium is gone")

    world.backend.commit = broken
    world.wait(2.1)
    assert world.lines[-1] == ("error", "NSQ: what was stored may not survive a power loss - the medium is gone")


def test_class_os_is_synced_in_a_backend_that_works_in_the_thread_too() -> None:
    world = World(sync_timeout=2.0)
    world.backend.in_thread = True
    made = commits(world)
    world.put(b"a")
    world.turn()
    world.wait(1.9)
    assert made == [([1], False)]
    world.wait(0.2)
    assert made[1:] == [([], True)]
    world.wait(10.0)
    assert len(made) == 2
