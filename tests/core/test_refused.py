"""
Messages that a backend stored and refused: a sync failed after the write. A restart finds them in the log, beside
counts that were saved without them. What lies above a cursor is delivered, whatever the counts say.
"""

from __future__ import annotations

import pytest

from nsqtw.errors import BackendError
from tests.core.world import World

REFUSED = b"refused"


def put_and_refuse(world: World, *bodies: bytes) -> None:
    """Publish; the backend stores the messages and says that it has not."""
    commit = world.backend.commit

    def store_and_fail(writes, durable):
        commit(writes, durable)
        return {queue: BackendError("EIO") for queue, _ in writes}

    world.backend.commit = store_and_fail
    answers = world.put(*bodies)
    world.turn()
    world.backend.commit = commit
    assert [str(answer) for answer in answers] == ["EIO"]


@pytest.fixture
def world() -> World:
    """Four accepted messages, a refused one, and five accepted ones, all counts saved; then a crash."""
    world = World()
    world.channel("c")
    world.save()
    for number in range(4):
        world.put(b"%d" % number)
        world.turn()
    put_and_refuse(world, REFUSED)
    for number in range(4, 9):
        world.put(b"%d" % number)
        world.turn()
    world.save()
    world.crash()
    return world


EXPECTED = [b"0", b"1", b"2", b"3", REFUSED, *(b"%d" % number for number in range(4, 9))]


def test_all_that_lies_above_the_cursor_is_delivered(world: World) -> None:
    reader = world.reader(ready=100)
    assert reader.bodies() == EXPECTED
    assert reader.channel.depth == 0


def test_one_at_a_time_and_over_a_crash(world: World) -> None:
    got = []
    for _ in EXPECTED:
        reader = world.reader(ready=1)
        (message,) = reader.read()
        got.append(message.body)
        reader.finish(message.id)
        world.save()
        world.crash()
    assert got == EXPECTED
    assert world.reader().bodies() == []
    assert world.channel().depth == 0
    assert not [line for _, line in world.lines if "makes no sense" in line]


def test_several_consumers_share_all_of_it(world: World) -> None:
    readers = [world.reader(ready=2) for _ in range(5)]
    assert sorted(body for reader in readers for body in reader.bodies()) == sorted(EXPECTED)


def test_a_later_publish_is_counted(world: World) -> None:
    reader = world.reader(ready=100)
    reader.read()
    world.put(b"new")
    assert reader.bodies() == [b"new"]
    assert reader.channel.depth == 0
    reader.channel.set_ready(reader.consumer, 0)
    world.put(b"newer")
    world.turn()
    assert reader.channel.depth == 1


def test_a_topic_without_a_channel_gives_them_to_its_first_one() -> None:
    world = World()
    world.topic()
    world.save()
    put_and_refuse(world, REFUSED)
    world.put(b"accepted")
    world.turn()
    world.save()
    world.crash()
    assert world.reader().bodies() == [REFUSED, b"accepted"]


def test_deferred_messages_that_are_lost_are_not_counted() -> None:
    """Two publishes of one delay are one run; the second is lost with the power."""
    world = World()
    world.channel("c")
    world.topic().pause()
    for body in (b"1", b"2"):
        world.put(body, delay_ms=20_000)
        world.turn()
    world.save()
    queue = world.backend.queue("t")
    queue._segments.pop()
    queue.end = queue._segments[-1].end
    world.crash()
    world.topic().unpause(world.now)
    channel = world.channel()
    assert (channel.depth, channel.deferred_count) == (0, 1)
    world.wait(30)
    assert world.reader().bodies() == [b"1"]
    assert channel.depth == 0


def test_only_refused_ones_are_delivered_to_the_first_channel() -> None:
    world = World()
    world.topic()
    put_and_refuse(world, REFUSED)
    world.topic().log.end = world.backend.queue("t").end  # as a restart finds it
    assert world.topic().depth == 0
    assert world.reader().bodies() == [REFUSED]
