"""Durability class memory: the same promises while the broker runs, and a late commit."""

from __future__ import annotations

from typing import Any

from nsqtw.core.write_behind import WRITE_BEHIND_BYTES
from nsqtw.errors import BackendError
from tests.core.world import World


def memory_world(**options: Any) -> World:
    return World(durability="memory", **options)


def fail(world: World, text: str) -> Any:
    """Let commits fail; returns what undoes it."""
    commit = world.backend.commit
    world.backend.commit = lambda writes, durable: {queue: BackendError(text) for queue, _ in writes}
    return lambda: setattr(world.backend, "commit", commit)


def test_an_ok_comes_before_the_commit_and_the_commit_within_a_second() -> None:
    world = memory_world()
    reader = world.reader(ready=1)
    answers = world.put(b"a", b"b")
    assert [m.body for m in reader.read()] == [b"a"]
    assert (answers, world.topic().log.queue.size) == ([None], 0)
    world.wait(1.0)
    assert world.topic().log.queue.size > 0


def test_what_every_channel_has_finished_is_never_written() -> None:
    world = memory_world()
    one, two = world.reader("one"), world.reader("two")
    world.put(b"a")
    for reader in (one, two):
        reader.finish(*[m.id for m in reader.read()])
    world.wait(1.0)
    assert world.topic().log.queue.size == 0
    world.put(b"b")
    one.finish(*[m.id for m in one.read()])
    two.read()
    world.wait(1.0)
    assert world.topic().log.queue.size > 0, "one of two has it in flight"


def test_what_a_topic_keeps_for_its_first_channel_is_written() -> None:
    world = memory_world()
    world.put(b"a")
    world.turn()
    world.wait(1.0)
    world.save()
    world.crash()
    assert world.reader().bodies() == [b"a"]


def test_a_clean_stop_commits_the_rest() -> None:
    world = memory_world()
    world.reader(ready=0)
    world.put(b"a")
    world.turn()
    world.stop_and_start()
    assert world.reader().bodies() == [b"a"]


def test_a_crash_before_the_commit_loses_it_and_nothing_else() -> None:
    world = memory_world()
    reader = world.reader(ready=0)
    world.put(b"a")
    world.turn()
    world.wait(1.0)
    world.put(b"b")
    world.turn()
    world.save()
    world.crash()
    reader = world.reader()
    assert reader.bodies() == [b"a"]
    world.put(b"c")
    assert reader.bodies() == [b"c"]
    assert reader.channel.depth == 0


def test_while_commits_fail_publishes_go_on_until_the_memory_for_it_is_full() -> None:
    world = memory_world()
    reader = world.reader(ready=0)
    heal = fail(world, "no space")
    chunk = [b"x" * 1_000_000] * 3
    answers = [world.put(*chunk) for _ in range(3)]
    world.turn()
    world.wait(1.0)
    assert answers == [[None]] * 3
    assert str(world.broker.health) == "NOK - no space"
    refused = world.put(b"more")
    world.turn()
    assert [str(answer) for answer in refused] == ["no space"]
    heal()
    world.wait(1.0)
    assert str(world.broker.health) == "OK"
    assert world.put(b"again") == []
    world.turn()
    assert reader.channel.depth == 10


def test_a_burst_larger_than_the_window_is_committed_in_between() -> None:
    world = memory_world()
    world.reader(ready=0)
    answers = []
    for _ in range(4):
        answers += world.put(*[b"x" * (WRITE_BEHIND_BYTES // 3)])
        world.turn()
    world.turn()
    assert world.topic().log.queue.size > 0
    assert world.topic().depth == 0


def test_no_more_messages_of_a_topic_wait_than_a_memory_queue_holds() -> None:
    world = memory_world(mem_queue_size=2)
    world.reader(ready=0)
    world.put(b"a", b"b")
    world.turn()
    assert world.topic().log.queue.size == 0
    world.put(b"c")
    world.turn()
    world.turn()
    assert world.topic().log.queue.size > 0
    world.crash()
    assert world.broker.topics["t"].depth == 3


def test_without_a_memory_queue_everything_is_written_at_once() -> None:
    world = memory_world(mem_queue_size=0)
    world.put(b"a")
    world.turn()
    world.turn()
    assert world.topic().log.queue.size > 0


def test_a_backend_that_raises_what_it_should_not_loses_nothing_once_it_works_again() -> None:
    def commit_badly(writes: Any, durable: bool) -> None:
        raise RuntimeError("unforeseen")

    world = memory_world()
    world.channel()
    world.put(b"a")
    world.turn()
    commit, world.backend.commit = world.backend.commit, commit_badly
    world.wait(1.0)
    assert str(world.broker.health) == "NOK - RuntimeError: unforeseen"
    world.backend.commit = commit
    world.wait(1.0)
    assert str(world.broker.health) == "OK"
    world.put(b"b")
    world.turn()
    world.backend.commit = commit_badly
    world.stop_and_start()  # this ends all the same
    assert world.reader().bodies() == [b"a"]


def test_a_stop_tries_again_when_the_commit_fails_once() -> None:
    world = memory_world()
    world.channel()
    world.put(b"a")
    world.turn()
    commit = world.backend.commit
    failures = [BackendError("EIO")]

    def fail_once(writes: Any, durable: bool) -> Any:
        return {queue: failures.pop() for queue, _ in writes} if failures and writes else commit(writes, durable)

    world.backend.commit = fail_once
    world.stop_and_start()
    assert world.reader().bodies() == [b"a"]


def test_a_stop_says_what_could_not_be_stored() -> None:
    world = memory_world()
    world.channel()
    world.put(b"a", b"b")
    world.turn()
    heal = fail(world, "EIO")
    world.broker.stop(world.now)
    assert world.lines[-1] == ("error", "TOPIC(t): 2 memory messages could not be stored - EIO")
    heal()
