"""How many messages of each class wait."""

from __future__ import annotations

import pytest

from nsqtw.core.policy.priority_depths import LOOKS
from nsqtw.core.segment import SEGMENT_BYTES, Segment
from nsqtw.errors import BackendError
from nsqtw.message_headers import LOW, encode_headers
from tests.core.harness import BrokerHarness
from tests.core.policy.test_priority import NAMES, by_priority, order_of, put

LONG = 4 * LOOKS
"""Parts of a log that is not looked through for one answer."""


@pytest.fixture
def core() -> BrokerHarness:
    return BrokerHarness()


def put_long(core: BrokerHarness) -> None:
    """Publish a message of class low and LONG normal ones, each as large as a part of the log that is looked at."""
    put(core, "l")
    for _ in range(LONG):
        core.put(b"n" * SEGMENT_BYTES)
        core.turn()


def keep_all(core: BrokerHarness) -> None:
    core.options.retention_time = 1e9
    core.topic().reader.retention_policy.give((None, None), core.now)


def test_each_class_is_counted_until_it_is_delivered(core: BrokerHarness) -> None:
    channel = by_priority(core)
    assert channel.class_depths == [0, 0, 0]
    put(core, "hhnl-u")
    core.put(b"without headers")
    core.turn()
    assert channel.class_depths == [2, 4, 1]
    reader = core.reader(ready=3)
    first, *_ = reader.read()
    assert channel.class_depths == [0, 3, 1]
    reader.finish(first.id)
    core.turn()
    assert channel.class_depths == [0, 2, 1]


def test_what_waits_again_or_is_deferred_has_no_class(core: BrokerHarness) -> None:
    channel = by_priority(core)
    put(core, "hl")
    put(core, "h", delay_ms=1000)
    assert channel.class_depths == [1, 0, 1]
    reader = core.reader(ready=1)
    (message,) = reader.read()
    channel.set_ready(reader.consumer, 0)
    reader.requeue(message.id)
    assert (channel.depth, channel.class_depths) == (2, [0, 0, 1])
    core.wait(1.1)
    assert (channel.depth, channel.class_depths) == (3, [0, 0, 1])


def test_a_channel_without_priorities_has_no_counts(core: BrokerHarness) -> None:
    put(core, "h")
    assert core.channel().class_depths is None
    assert core.channel("c#ephemeral").class_depths is None
    channel = by_priority(core)
    put(core, "h")
    channel.policies.set({})
    assert channel.class_depths is None
    put(core, "h")
    channel.policies.set({"priority": True})
    assert channel.class_depths == [3, 0, 0]


def test_expired_messages_do_not_wait(core: BrokerHarness) -> None:
    channel = by_priority(core)
    core.put(b"x", headers=[encode_headers({"priority": "low", "ttl": "1000"})])
    put(core, "l")
    core.wait(2)
    assert channel.class_depths == [0, 0, 2]
    assert core.reader(ready=1).bodies() == [b"l"]
    assert (channel.expired_count, channel.class_depths) == (1, [0, 0, 0])


def test_empty_and_pause(core: BrokerHarness) -> None:
    channel = by_priority(core)
    channel.pause()
    put(core, "hl")
    assert channel.class_depths == [1, 0, 1]
    channel.empty()
    assert channel.class_depths == [0, 0, 0]
    put(core, "n")
    channel.unpause()
    assert channel.class_depths == [0, 1, 0]


def test_a_topic_that_is_paused_and_emptied(core: BrokerHarness) -> None:
    channel = by_priority(core)
    topic = core.topic()
    topic.pause()
    put(core, "hhh")
    assert channel.class_depths == [0, 0, 0]
    topic.empty()
    put(core, "lnh")
    topic.unpause(core.now)
    put(core, "l")
    assert (channel.class_depths, channel.depth) == ([1, 1, 2], 4)
    assert len(core.reader().read()) == 4
    assert channel.class_depths == [0, 0, 0]


def test_messages_for_another_channel(core: BrokerHarness) -> None:
    channel, _ = by_priority(core), core.channel("other")
    high = [encode_headers({"priority": "high"})]
    core.put(b"x", headers=high, channel="other")  # it is passed at once
    put(core, "h")
    core.turn()
    core.put(b"x", headers=high, channel="other")
    core.put(b"x", headers=high, channel="c")
    core.turn()
    assert (channel.class_depths, channel.depth) == ([2, 0, 0], 2)
    keep_all(core)
    channel.seek(core.topic().reader.kept_from)
    assert (channel.class_depths, channel.depth) == ([2, 0, 0], 2)


def test_a_replay_counts_deferred_messages_until_they_are_passed(core: BrokerHarness) -> None:
    keep_all(core)
    channel = by_priority(core)
    put(core, "h", delay_ms=5000)
    put(core, "l")
    channel.seek(core.topic().reader.kept_from)
    assert (channel.class_depths, channel.depth) == ([0, 1, 1], 2)
    core.reader(ready=1).read()
    assert (channel.class_depths, channel.depth, channel.deferred_count) == ([0, 0, 0], 0, 1)


def test_a_crash_after_a_checkpoint(core: BrokerHarness) -> None:
    by_priority(core)
    put(core, "hhnnll")
    core.reader(ready=3).read()
    core.save()
    put(core, "hnl")
    core.crash()
    channel = by_priority(core)
    assert (channel.class_depths, channel.depth) == ([1, 2, 3], 9)  # with those in flight
    put(core, "h")
    assert channel.class_depths == [2, 2, 3]


def test_a_crash_reads_no_more_than_what_was_not_saved(core: BrokerHarness) -> None:
    by_priority(core)
    put_long(core)
    assert core.channel().class_depths == [0, LONG, 1]
    core.save()
    put(core, "h")
    core.crash()
    assert by_priority(core).class_depths == [1, LONG, 1]


@pytest.mark.plain  # a method of a log is replaced
def test_a_long_log_is_looked_through_in_steps(core: BrokerHarness) -> None:
    core.channel()
    put_long(core)
    channel = by_priority(core)
    assert channel.class_depths is None
    put(core, "h")  # meanwhile
    core.reader(ready=1).read()
    for _ in range(LONG):
        core.wait(0.01)
    core.topic().log.read = lambda sequence, limit: pytest.fail("all is counted")
    assert channel.class_depths == [1, LONG - 1, 1]


@pytest.mark.plain  # a method of a log is replaced
def test_what_a_read_finds_to_be_lost_is_counted_anew(core: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    core.channel()
    put(core, "h")
    put(core, "hl")
    put_long(core)
    channel, log = by_priority(core), core.topic().log
    read, kept_from = log.read, core.topic().reader.kept_from

    def damaged(sequence: int, limit: int) -> list[Segment]:
        """Find, behind the first part, that the first message is lost."""
        if sequence > kept_from:
            monkeypatch.setattr(log, "read", lambda sequence, limit: read(max(sequence, kept_from + 1), limit))
            core.topic().forget_lost(kept_from, kept_from + 1, "")
        return read(sequence, limit)

    monkeypatch.setattr(log, "read", damaged)
    for _ in range(LONG):
        depths = channel.class_depths
        core.wait(0.01)
    assert depths is not None
    assert (sum(depths), depths[LOW]) == (channel.depth, 2)


@pytest.mark.plain  # a method of a log is replaced
def test_a_deleted_channel_is_not_counted_on(core: BrokerHarness) -> None:
    core.channel()
    put_long(core)
    channel = by_priority(core)
    cursor = channel.cursor
    assert cursor is not None
    assert channel.class_depths is None
    core.topic().delete_channel("c")
    core.topic().log.read = lambda sequence, limit: pytest.fail("it is read")
    core.wait(1)
    assert cursor.class_depths is None


def test_more_messages_than_were_counted(core: BrokerHarness) -> None:
    """As they are in the log when a publish was refused after its write."""
    channel = by_priority(core)
    put(core, "hnn")
    assert channel.cursor is not None
    priorities = channel.cursor.priorities
    assert priorities is not None
    priorities.depths.counts[:] = [0, 1, 0]
    core.reader(ready=2).read()
    assert channel.class_depths == [0, 1, 0]


@pytest.mark.plain  # a method of a log is replaced
def test_what_cannot_be_read_is_not_known(core: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    core.channel()
    put_long(core)
    channel = by_priority(core)
    read = core.topic().log.read

    def failing(sequence: int, limit: int) -> None:
        raise BackendError("bad disk")

    monkeypatch.setattr(core.topic().log, "read", failing)
    assert channel.class_depths is None
    monkeypatch.setattr(core.topic().log, "read", read)
    assert channel.class_depths is None
    monkeypatch.setattr(core.topic().log, "read", failing)
    core.wait(1)  # the timer fails
    monkeypatch.setattr(core.topic().log, "read", read)
    core.wait(1)
    assert channel.class_depths is None
    for _ in range(LONG):
        core.wait(0.01)
    assert channel.class_depths == [0, LONG, 1]


# -- overflow = drop_oldest


DROPPING = {"priority": True, "max_depth": 4, "overflow": "drop_oldest"}


def rest(core: BrokerHarness) -> str:
    """Return what is left, in the order of its delivery."""
    return order_of(core.reader(ready=100).read())


def test_the_oldest_of_the_lowest_class_are_dropped_first(core: BrokerHarness) -> None:
    channel = core.channel()
    channel.policies.set(DROPPING)
    core.put(*b"1 2 3 4 5 6".split(), headers=headers_of("hlnlhl"))
    core.turn()
    core.turn()
    assert (channel.dropped_count, channel.class_depths) == (2, [2, 1, 1])
    core.put(*b"7 8 9".split(), headers=headers_of("hhl"))
    core.turn()
    core.turn()
    assert (channel.dropped_count, channel.class_depths) == (5, [4, 0, 0])
    core.save()
    core.crash()
    assert (core.channel().class_depths, core.channel().depth) == ([4, 0, 0], 4)
    assert rest(core) == "1578"


def test_what_waits_again_goes_before_normal_ones_and_deferred_ones_last(core: BrokerHarness) -> None:
    channel = core.channel()
    channel.policies.set({"priority": True})
    put(core, "h")
    reader = core.reader(ready=1)
    (message,) = reader.read()
    channel.set_ready(reader.consumer, 0)
    reader.requeue(message.id)
    put(core, "h", delay_ms=1000)
    put(core, "nlh")
    left = []
    for most in (4, 3, 2, 1):
        channel.policies.set({**DROPPING, "max_depth": most})
        core.wait(0.01)
        assert channel.class_depths is not None
        left.append((*channel.class_depths, channel.depth, channel.deferred_count))
    assert left == [(1, 1, 0, 3, 1), (1, 1, 0, 2, 1), (1, 0, 0, 1, 1), (0, 0, 0, 0, 1)]


def test_much_is_dropped_in_a_long_log(core: BrokerHarness) -> None:
    """Also where a class has nothing for many parts of the log, and messages of all classes are mixed."""
    channel = core.channel()
    channel.pause()
    put_long(core)
    put(core, "lnh" * 1000)
    assert channel.class_depths is None
    channel.policies.set({**DROPPING, "max_depth": 1010})
    assert (channel.class_depths, channel.dropped_count) == (None, 0), "nothing is dropped before all is counted"
    for _ in range(100):
        core.wait(0.1)
    assert (channel.class_depths, channel.dropped_count) == ([1000, 10, 0], 3001 + LONG - 1010)
    assert channel.cursor is not None
    assert core.topic().log.end - channel.cursor.next == 3 * 1000 - 2, "the log before the first high one is free"


def test_a_depth_that_is_too_high_is_corrected(core: BrokerHarness) -> None:
    """As it is when messages were lost on the medium."""
    channel = core.channel()
    channel.policies.set({"priority": True})
    put(core, "n")
    assert channel.cursor is not None
    channel.cursor.taken_total -= 10
    channel.policies.set({**DROPPING, "max_depth": 5})
    core.wait(0.2)
    core.wait(0.2)
    assert (channel.depth, channel.dropped_count) == (0, 1)


def headers_of(letters: str) -> list[bytes]:
    return [encode_headers({"priority": NAMES[letter]}) for letter in letters]
