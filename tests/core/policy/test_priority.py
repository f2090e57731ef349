"""Priorities: what a consumer sees of them."""

from __future__ import annotations

from itertools import groupby

import pytest

from nsqtw.core.channel import Channel
from nsqtw.core.peek import READY, peek_channel
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness, Message, Reader

NAMES = {"h": "high", "n": "normal", "l": "low", "u": "urgent"}


@pytest.fixture
def core() -> BrokerHarness:
    return BrokerHarness()


def by_priority(core: BrokerHarness) -> Channel:
    channel = core.channel()
    channel.policies.set({"priority": True})
    return channel


def put(core: BrokerHarness, letters: str, delay_ms: int = 0) -> None:
    """Publish a message for each letter; it is the priority, and "-" is none."""
    headers = [encode_headers({"priority": NAMES[letter]} if letter in NAMES else {}) for letter in letters]
    core.topic().put([letter.encode() for letter in letters], delay_ms, [].append, headers)
    core.turn()


def order_of(messages: list[Message]) -> str:
    return b"".join([message.body for message in messages]).decode()


def take(reader: Reader, count: int) -> str:
    """Take so many messages one by one."""
    taken = ""
    reader.channel.set_ready(reader.consumer, 1)
    for _ in range(count):
        (message,) = reader.read()
        taken += message.body.decode()
        reader.finish(message.id)
    return taken


def test_high_before_normal_before_low(core: BrokerHarness) -> None:
    by_priority(core)
    put(core, "lnh-uhl")
    core.put(b"N")
    reader = core.reader(ready=0)
    assert take(reader, 8) == "hhn-ulNl"
    assert core.channel().depth == 0


def test_the_shares_while_all_wait(core: BrokerHarness) -> None:
    by_priority(core)
    put(core, "lnh" * 60)
    assert take(core.reader(ready=0), 64) == ("h" * 12 + "nnnl") * 4


def test_many_at_once_have_the_same_shares(core: BrokerHarness) -> None:
    by_priority(core)
    put(core, "l" * 50 + "n" * 50 + "h" * 50)
    assert order_of(core.reader(ready=32).read()) == ("h" * 12 + "nnnl") * 2


def test_shares_of_classes_that_have_nothing_go_to_the_others(core: BrokerHarness) -> None:
    by_priority(core)
    put(core, "l" * 5 + "h" * 26)
    runs = [(letter, len([*run])) for letter, run in groupby(take(core.reader(ready=0), 31))]
    assert runs == [("h", 12), ("l", 1), ("h", 12), ("l", 1), ("h", 2), ("l", 3)]


def test_depth_counts_what_waits(core: BrokerHarness) -> None:
    channel = by_priority(core)
    put(core, "lllhhh")
    reader = core.reader(ready=2)
    reader.read()
    assert (channel.depth, channel.in_flight_count) == (4, 2)


def test_a_crash_repeats_nothing_that_was_finished(core: BrokerHarness) -> None:
    by_priority(core)
    put(core, "llnnhh")
    reader = core.reader(ready=0)
    assert take(reader, 3) == "hhn"
    reader.channel.set_ready(reader.consumer, 1)
    (flying,) = reader.read()
    core.save()
    core.crash()
    assert core.channel().depth == 3
    put(core, "h")
    by_priority(core)
    messages = core.reader().read()
    assert order_of(messages) == "nhll"
    assert (messages[0].id, messages[0].attempts) == (flying.id, 2)


def test_switched_off_the_rest_comes_in_the_order_of_the_log(core: BrokerHarness) -> None:
    channel = by_priority(core)
    put(core, "lhnhlnh")
    reader = core.reader(ready=0)
    assert take(reader, 3) == "hhh"
    channel.policies.set({})
    put(core, "hl")
    assert take(reader, 6) == "lnlnhl"
    assert channel.cursor is not None
    assert channel.cursor.priorities is None


def test_a_requeued_message_is_served_in_its_turn(core: BrokerHarness) -> None:
    core = BrokerHarness(mem_queue_size=3)
    by_priority(core)
    put(core, "l" * 5 + "h" * 10)
    reader = core.reader(ready=1)
    (message,) = reader.read()
    reader.requeue(message.id)
    got = []
    for _ in range(5):
        (again,) = reader.read()
        got.append(again.attempts)
        reader.finish(again.id)
    assert got == [1, 1, 1, 2, 1]


def test_messages_of_an_emptied_topic_are_passed_over(core: BrokerHarness) -> None:
    by_priority(core)
    core.topic().pause()
    put(core, "hnl")
    core.topic().empty()
    put(core, "lnh")
    core.topic().unpause(core.now)
    reader = core.reader()
    messages = reader.read()
    assert order_of(messages) == "hnl"
    reader.finish(*[message.id for message in messages])
    assert (core.channel().depth, core.channel().in_flight_count) == (0, 0)


def test_deferred_messages_come_when_they_are_due(core: BrokerHarness) -> None:
    by_priority(core)
    put(core, "ln", delay_ms=5000)
    put(core, "h")
    reader = core.reader()
    assert order_of(reader.read()) == "h"
    core.wait(5.1)
    assert order_of(reader.read()) == "ln"


def test_a_replay_holds_a_deferred_message_once(core: BrokerHarness) -> None:
    core.options.retention_time = 1e9
    core.topic().reader.retention_policy.give((None, None), core.now)
    channel = by_priority(core)
    put(core, "hl", delay_ms=5000)
    put(core, "n")
    reader = core.reader()
    assert order_of(reader.read()) == "n"
    channel.seek(core.topic().reader.kept_from)
    assert order_of(reader.read()) == "n"
    assert channel.deferred_count == 2
    core.wait(5.1)
    assert order_of(reader.read()) == "hl"


def test_a_deferred_message_of_a_replay_that_was_delivered_does_not_wait(core: BrokerHarness) -> None:
    """It is delivered as a normal one, ahead of a low one before it, whatever its header says."""
    core.options.retention_time = 1e9
    core.topic().reader.retention_policy.give((None, None), core.now)
    channel = by_priority(core)
    put(core, "l")
    core.put(b"later", delay_ms=1000, headers=[encode_headers({"priority": "low"})])
    core.turn()
    core.wait(2)
    channel.seek(core.topic().reader.kept_from)
    assert core.reader(ready=1).bodies() == [b"later"]
    assert [message.body for message in peek_channel(channel, READY, 10, core.now).messages] == [b"l"]


def test_a_long_backlog_does_not_hide_what_comes_first(core: BrokerHarness) -> None:
    """The reader of class high looks at a part of the backlog at a time, and normal messages go on."""
    by_priority(core)
    for _ in range(8):
        core.put(*[b"n" * 100_000] * 4)
        core.turn()
    put(core, "h")
    reader = core.reader(ready=1)
    sizes = []
    for _ in range(33):
        (message,) = reader.read()
        sizes.append(len(message.body))
        reader.finish(message.id)
    assert sizes.count(1) == 1
    assert 0 < sizes.index(1) < 12


@pytest.mark.parametrize("after", [{}, {"ordered_by": "header:customer"}])
def test_switched_off_a_class_that_is_far_behind_is_waited_for(core: BrokerHarness, after: dict[str, str]) -> None:
    channel, reader = by_priority(core), core.reader(ready=0)
    put(core, "l")
    for _ in range(12):  # more than is looked through in a turn
        core.put(b"h" + b"x" * 100_000, headers=[encode_headers({"priority": "high"})])
        core.turn()
    channel.set_ready(reader.consumer, 13)
    delivered = reader.read()
    put(core, "12345")
    channel.policies.set(after)
    core.turn()
    channel.set_ready(reader.consumer, 100)
    for _ in range(50):
        delivered += reader.read()
    assert len({message.id for message in delivered}) == len(delivered) == 18
    assert channel.depth == 0


def test_switched_off_a_replay_holds_a_deferred_message_once(core: BrokerHarness) -> None:
    core.options.retention_time = 1e9
    core.topic().reader.retention_policy.give((None, None), core.now)
    channel = by_priority(core)
    put(core, "hh")
    put(core, "n", delay_ms=5000)
    channel.seek(core.topic().reader.kept_from)
    channel.policies.set({})
    assert order_of(core.reader(ready=3).read()) == "hh"
    assert (channel.depth, channel.deferred_count) == (0, 1)
