"""What a topic has and does not release yet: deferred messages, and what ephemeral channels and topics keep of it."""

from __future__ import annotations

from nsqtw.core.backlog import Backlog
from nsqtw.core.checkpoint import Waiting
from nsqtw.core.segment import SEGMENT_BYTES, Segment, encode
from tests.core.harness import BrokerHarness


def segment(first: int, *bodies: bytes, delay_ms: int = 0) -> Segment:
    return encode([*bodies], first, 617, 1, delay_ms)


def places(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(one.first, one.count) for one in segments]


def test_deferred_messages_that_follow_each_other_with_one_delay_are_one_run() -> None:
    unreleased = Backlog(BrokerHarness().topic())
    unreleased.restore([Waiting(3, 2, 100)])
    for one in (
        segment(5, b"a", b"b", delay_ms=100),
        segment(7, b"c", delay_ms=200),
        segment(9, b"d", delay_ms=200),
    ):
        unreleased.on_append(one)
    assert unreleased.waiting == [Waiting(3, 4, 100), Waiting(7, 1, 200), Waiting(9, 1, 200)]
    unreleased.forget()
    assert unreleased.waiting == []


def test_the_delay_of_a_deferred_message_starts_when_it_is_released() -> None:
    harness = BrokerHarness()
    harness.put(b"a", delay_ms=5000)
    harness.turn()
    harness.wait(100)
    reader = harness.reader()
    assert (reader.bodies(), reader.channel.deferred_count) == ([], 1)
    harness.wait(5.1)
    assert reader.bodies() == [b"a"]


def test_delays_are_forgotten_where_nsqd_would_write_to_disk_if_the_options_say_so() -> None:
    for keep_deferred, mem_queue_size, deferred in ((True, 1, 2), (False, 2, 1), (False, 1, 0), (False, 10, 2)):
        harness = BrokerHarness(keep_deferred=keep_deferred, mem_queue_size=mem_queue_size)
        harness.put(b"first")
        harness.put(b"second", delay_ms=60_000)
        harness.turn()
        harness.put(b"third", delay_ms=60_000)
        harness.turn()
        channel = harness.channel()
        assert (channel.deferred_count, channel.depth) == (deferred, 3 - deferred)


def test_what_was_put_in_this_turn_counts_for_that_too() -> None:
    harness = BrokerHarness(keep_deferred=False, mem_queue_size=4)
    for bodies in ([b"1"], [b"2", b"3"]):
        harness.put(*bodies)
        harness.put(b"later", delay_ms=60_000)
        harness.put(b"later or on disk", delay_ms=60_000)
        harness.turn()
    assert (harness.channel().deferred_count, harness.channel().depth) == (2, 5)


def test_many_deferred_publishes_in_a_turn_are_not_counted_again_for_each() -> None:
    class Bodies(list[bytes]):
        def __len__(self) -> int:
            lengths.append(super().__len__())
            return lengths[-1]

    lengths: list[int] = []
    harness = BrokerHarness(keep_deferred=False)
    for _ in range(100):
        harness.topic().put(Bodies([b"x"]), 60_000, lambda error: None)
    assert len(lengths) <= 200


def test_delays_are_kept_while_the_topic_flows() -> None:
    harness = BrokerHarness(keep_deferred=False, mem_queue_size=0)
    channel = harness.channel()
    harness.put(b"x", delay_ms=60_000)
    harness.turn()
    assert (channel.deferred_count, channel.depth) == (1, 0)


def test_it_is_as_much_as_an_ephemeral_channel_could_take_deferred_messages_not_counted() -> None:
    harness = BrokerHarness(mem_queue_size=2)
    for delay_ms in (0, 500, 0, 0):
        harness.put(b"x" * SEGMENT_BYTES, delay_ms=delay_ms)
        harness.turn()
    topic = harness.topic()
    unreleased = topic._backlog
    assert [one.delay_ms for one in unreleased.segments()] == [0, 500, 0]
    assert unreleased.for_ephemeral(topic.channels.values()) == [], "there is no such channel"
    topic.pause()
    harness.channel("c#ephemeral")
    assert places(unreleased.for_ephemeral(topic.channels.values())) == places(unreleased.segments())


def test_an_ephemeral_topic_is_told_what_fits_and_what_does_not() -> None:
    harness = BrokerHarness(mem_queue_size=3)
    whole, parted, none = segment(1, b"a", b"b"), segment(5, b"c", b"d", delay_ms=7), segment(9, b"e")
    fitting, rest = Backlog(harness.topic("t#ephemeral")).fitting([whole, parted, none])
    assert places(fitting) == [(1, 2), (5, 1)]
    assert places(rest) == [(6, 1), (9, 1)]
    assert b"".join(one.frames for one in (fitting[1], rest[0])) == parted.frames
