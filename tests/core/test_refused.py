"""
Messages that a backend stored and refused: a sync failed after the write. A restart finds them in the log, beside
counts that were saved without them. What lies above a cursor is delivered, whatever the counts say.
"""

from __future__ import annotations

import pytest

from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness

REFUSED = b"refused"


def put_and_refuse(harness: BrokerHarness, *bodies: bytes) -> None:
    """Publish; the backend stores the messages and says that it has not."""
    commit = harness.backend.commit

    def store_and_fail(writes, durable):
        commit(writes, durable)
        return {queue: BackendError("EIO") for queue, _ in writes}

    harness.backend.commit = store_and_fail
    answers = harness.put(*bodies)
    harness.turn()
    harness.backend.commit = commit
    assert [str(answer) for answer in answers] == ["EIO"]


@pytest.fixture
def harness() -> BrokerHarness:
    """Four accepted messages, a refused one, and five accepted ones, all counts saved; then a crash."""
    harness = BrokerHarness()
    harness.channel("c")
    harness.save()
    for number in range(4):
        harness.put(b"%d" % number)
        harness.turn()
    put_and_refuse(harness, REFUSED)
    for number in range(4, 9):
        harness.put(b"%d" % number)
        harness.turn()
    harness.save()
    harness.crash()
    return harness


EXPECTED = [b"0", b"1", b"2", b"3", REFUSED, *(b"%d" % number for number in range(4, 9))]


def test_all_that_lies_above_the_cursor_is_delivered(harness: BrokerHarness) -> None:
    reader = harness.reader(ready=100)
    assert reader.bodies() == EXPECTED
    assert reader.channel.depth == 0


def test_one_at_a_time_and_over_a_crash(harness: BrokerHarness) -> None:
    got = []
    for _ in EXPECTED:
        reader = harness.reader(ready=1)
        (message,) = reader.read()
        got.append(message.body)
        reader.finish(message.id)
        harness.save()
        harness.crash()
    assert got == EXPECTED
    assert harness.reader().bodies() == []
    assert harness.channel().depth == 0
    assert not [line for _, line in harness.lines if "makes no sense" in line]


def test_several_consumers_share_all_of_it(harness: BrokerHarness) -> None:
    readers = [harness.reader(ready=2) for _ in range(5)]
    assert sorted(body for reader in readers for body in reader.bodies()) == sorted(EXPECTED)


def test_a_later_publish_is_counted(harness: BrokerHarness) -> None:
    reader = harness.reader(ready=100)
    reader.read()
    harness.put(b"new")
    assert reader.bodies() == [b"new"]
    assert reader.channel.depth == 0
    reader.channel.set_ready(reader.consumer, 0)
    harness.put(b"newer")
    harness.turn()
    assert reader.channel.depth == 1


def test_a_topic_without_a_channel_gives_them_to_its_first_one() -> None:
    harness = BrokerHarness()
    harness.topic()
    harness.save()
    put_and_refuse(harness, REFUSED)
    harness.put(b"accepted")
    harness.turn()
    harness.save()
    harness.crash()
    assert harness.reader().bodies() == [REFUSED, b"accepted"]


def test_deferred_messages_that_are_lost_are_not_counted() -> None:
    """Two publishes of one delay are one run; the second is lost with the power."""
    harness = BrokerHarness()
    harness.channel("c")
    harness.topic().pause()
    for body in (b"1", b"2"):
        harness.put(body, delay_ms=20_000)
        harness.turn()
    harness.save()
    queue = harness.backend.queue("t")
    queue._segments.pop()
    queue.end = queue._segments[-1].end
    harness.crash()
    harness.topic().unpause(harness.now)
    channel = harness.channel()
    assert (channel.depth, channel.deferred_count) == (0, 1)
    harness.wait(30)
    assert harness.reader().bodies() == [b"1"]
    assert channel.depth == 0


def test_only_refused_ones_are_delivered_to_the_first_channel() -> None:
    harness = BrokerHarness()
    harness.topic()
    put_and_refuse(harness, REFUSED)
    harness.topic().log.end = harness.backend.queue("t").end  # as a restart finds it
    assert harness.topic().depth == 0
    assert harness.reader().bodies() == [REFUSED]
