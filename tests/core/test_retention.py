"""What is finished is kept as long as the limits say, and not much longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nsqtw.core.retention import Ages, Mark
from nsqtw.core.segment import encode
from nsqtw.message_headers import encode_headers
from nsqtw.options.topics import Retention
from tests.core.harness import BrokerHarness

HOUR = 3600.0
FRAME = 134
"""Bytes of a message of 100 in the log."""


def harness(**options: Any) -> BrokerHarness:
    """A topic with a channel, all of which is finished at once."""
    found = BrokerHarness(**options)
    found.topic()
    found.channel()
    return found


def publish(harness: BrokerHarness, count: int, *, finish: bool = True, headers: Sequence[bytes] | None = None) -> None:
    reader = harness.reader(ready=2500)
    for number in range(count):
        harness.put(b"%0100d" % number, headers=headers)
        harness.turn()
        if finish:
            reader.finish(*(message.id for message in reader.read()))
    reader.leave()


def kept(harness: BrokerHarness) -> int:
    """How many messages the backend has."""
    return sum(segment.count for segment in harness.backend.queue("t").read(0, 1 << 30))


def test_without_retention_nothing_finished_is_kept() -> None:
    one = harness()
    publish(one, 10)
    one.save()
    assert kept(one) == 0
    assert one.topic().reader.kept_from == one.topic().log.end


def test_what_is_finished_is_kept_for_the_time() -> None:
    one = harness(retention_time=HOUR)
    for _ in range(4):
        publish(one, 10)
        one.wait(HOUR / 2 - 1)
        one.save()
    assert kept(one) == 20, "of the last hour"
    one.wait(HOUR)
    assert one.broker.checkpointer.are_wanted, "also when nobody publishes"
    one.save()
    assert kept(one) == 0


def test_what_is_finished_is_kept_up_to_the_size() -> None:
    one = harness(retention_bytes=10 * FRAME)
    publish(one, 100)
    one.wait(1000 * HOUR)
    one.save()
    assert 10 <= kept(one) <= 11


def test_headers_count_in_the_size() -> None:
    one = harness(retention_bytes=10 * FRAME)
    publish(one, 100, headers=[encode_headers({"h": "x" * (FRAME - 4)})])
    one.save()
    assert 5 <= kept(one) <= 6


def test_with_both_limits_what_either_gives_up_goes() -> None:
    one = harness(retention_bytes=10 * FRAME, retention_time=HOUR)
    publish(one, 20)
    one.save()
    assert 10 <= kept(one) <= 11
    one.wait(HOUR + 1)
    one.save()
    assert kept(one) == 0


def test_what_is_not_finished_is_kept_however_old_it_is() -> None:
    one = harness(retention_time=HOUR)
    publish(one, 10)
    publish(one, 5, finish=False)
    one.wait(100 * HOUR)
    one.save()
    assert kept(one) == 5
    assert len(one.reader().bodies()) == 5


@pytest.mark.parametrize("ends", ["crash", "stop_and_start"])
def test_a_restart_forgets_neither_what_is_kept_nor_its_age(ends: str) -> None:
    one = harness(retention_time=HOUR)
    publish(one, 10)
    one.wait(HOUR / 2)
    one.save()
    publish(one, 10)
    getattr(one, ends)()
    assert kept(one) == 20
    one.wait(HOUR / 2 + 1)
    one.save()
    assert kept(one) == 10
    one.wait(HOUR / 2)
    one.save()
    assert kept(one) == (10 if ends == "crash" else 0), "what was finished after the last cut came back"


def test_it_can_be_switched_on_and_off_while_the_broker_runs() -> None:
    one = harness()
    publish(one, 10)
    one.topic().reader.retention_policy.give((HOUR, None), one.now)
    publish(one, 10)
    one.save()
    assert kept(one) >= 10
    one.crash()
    assert one.topic().reader.retention_policy.limits == Retention(HOUR)
    one.topic().reader.retention_policy.give((0.0, None), one.now)
    one.topic().touch()
    one.save()
    assert kept(one) == 0


def test_what_was_there_when_it_was_switched_on_counts_as_of_that_moment() -> None:
    one = harness()
    one.put(*[b"x"] * 5)
    one.wait(10 * HOUR)
    one.topic().reader.retention_policy.give((HOUR, None), one.now)
    one.channel().empty()
    one.save()
    assert kept(one) == 5
    one.wait(HOUR + 1)
    one.save()
    assert kept(one) == 0


def test_options_that_no_longer_ask_for_it_let_go() -> None:
    one = harness(retention_time=HOUR)
    publish(one, 10)
    one.save()
    one.options.retention_time = 0.0
    one.crash()
    one.save()
    assert kept(one) == 0


def test_class_memory_leaves_out_nothing_that_is_retained() -> None:
    one = harness(retention_time=HOUR, durability="memory")
    publish(one, 10)
    one.wait(2.0)
    one.save()
    assert kept(one) == 10


def test_a_clock_that_is_set_back_shortens_nothing() -> None:
    one = harness(retention_time=HOUR)
    publish(one, 1)
    one.broker.wall_offset_ns -= int(2 * HOUR * 1e9)
    publish(one, 1)
    one.wait(HOUR / 2)
    one.save()
    assert kept(one) == 2


def test_many_messages_leave_few_marks() -> None:
    ages = Ages(Retention(100.0, 1_000_000), 0)
    ages.start(0, 0, 0, 0)
    for number in range(100_000):
        segment = encode([b"x" * 66], number, 1, number * 10_000_000)
        ages.on_append(segment)
        if number % 100 == 0:
            ages.expire(number * 10)
    assert len(ages.state()) < 160
    assert 0 <= 100_000 - 10_000 - ages.floor < 200
    again = Ages(ages.limits, 100_000, [Mark(*mark) for mark in ages.state()])
    assert again.state() == ages.state()
