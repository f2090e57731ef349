"""`max_age` and `max_bytes` of a channel with priorities: the oldest message of any class decides."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core.policy.priority import LOOK_BYTES
from nsqtw.errors import Overflow
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness

HOUR = 3600.0
NAMES = {"h": "high", "n": "normal", "l": "low"}


def aging(overflow: str = "drop_oldest", **options: Any) -> BrokerHarness:
    core = BrokerHarness(**options)
    core.channel().policies.set({"priority": True, "max_age": HOUR, "overflow": overflow})
    core.turn()
    return core


def put(core: BrokerHarness, letters: str, size: int = 1) -> list[Exception | None]:
    """Publish a message for each letter, which is its priority."""
    headers = [encode_headers({"priority": NAMES[letter]}) for letter in letters]
    answers = core.put(*[letter.encode() * size for letter in letters], headers=headers)
    core.turn()
    return answers


def is_refused(core: BrokerHarness) -> bool:
    (error,) = put(core, "n")
    assert error is None or (isinstance(error, Overflow) and str(error) == "channel c has reached its max_age")
    return error is not None


def state(core: BrokerHarness) -> tuple[list[int] | None, int]:
    channel = core.channel()
    return channel.class_depths, channel.dropped_count


@pytest.mark.parametrize("oldest", "hnl")
def test_publishes_are_refused_until_the_oldest_message_of_any_class_is_delivered(oldest: str) -> None:
    core = aging("reject")
    put(core, oldest)
    core.wait(HOUR - 1)
    put(core, "lnh")
    assert not is_refused(core)
    core.wait(2)
    assert is_refused(core)
    reader = core.reader(ready=0)
    taken = b""
    while oldest.encode() not in taken:
        assert is_refused(core)
        core.channel().set_ready(reader.consumer, 1)
        (message,) = reader.read()
        core.channel().set_ready(reader.consumer, 0)
        reader.finish(message.id)
        taken += message.body
    assert not is_refused(core)
    core.wait(HOUR)
    assert is_refused(core), "another one is as old now"


def test_old_messages_of_all_classes_are_dropped_while_nobody_publishes_or_consumes() -> None:
    core = aging()
    put(core, "lnhlnh")
    core.wait(HOUR / 2)
    put(core, "hl")
    core.wait(HOUR / 2 - 1)
    assert state(core) == ([3, 2, 3], 0)
    core.wait(1)
    assert state(core) == ([1, 0, 1], 6)
    assert core.channel().depth == 2
    core.wait(HOUR / 2)
    assert state(core) == ([0, 0, 0], 8)
    assert core.channel().depth == 0
    next_due = core.broker.tick(core.now)
    assert next_due is None or next_due > core.now + HOUR, "nothing is left to look at"


def test_a_part_of_a_segment_is_old() -> None:
    core = aging()
    for letter in "lhnlhn":
        put(core, letter)
        core.wait(1)
    core.save()
    core.crash()
    core.wait(HOUR - 4)
    assert state(core) == ([1, 1, 1], 3)
    core.wait(1)
    assert state(core) == ([1, 1, 0], 4)


def test_messages_that_were_delivered_ahead_are_not_dropped_again() -> None:
    core = aging()
    put(core, "lhlhnh")
    reader = core.reader(ready=2)
    assert reader.bodies() == [b"h", b"h"]
    core.channel().set_ready(reader.consumer, 0)
    core.wait(HOUR)
    core.wait(HOUR / 16)
    assert state(core) == ([0, 0, 0], 6)
    assert core.channel().depth == 0


def test_the_age_survives_a_crash() -> None:
    core = aging("reject")
    put(core, "lh")
    core.wait(HOUR / 2)
    assert core.reader(ready=1).bodies() == [b"h"]
    core.save()
    core.crash()
    core.wait(HOUR / 2 - 1)
    assert not is_refused(core)
    core.wait(1)
    assert is_refused(core)


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest"])
def test_the_oldest_message_is_looked_for_in_several_turns(overflow: str) -> None:
    core = aging(overflow)
    core.channel("other")
    put(core, "h")
    for _ in range(20):
        core.put(b"x" * (LOOK_BYTES // 2), channel="other")
        core.turn()
    put(core, "l")
    reader = core.reader(ready=1)
    (message,) = reader.read()
    core.channel().set_ready(reader.consumer, 0)
    reader.finish(message.id)
    core.now += HOUR
    turns = 0
    while not (core.channel().dropped_count or is_refused(core)):
        core.wait(0.01)
        turns += 1
    assert 2 < turns < 20


def bounded_by_bytes(overflow: str) -> BrokerHarness:
    """A broker whose channel has room for six messages and a half."""
    core = BrokerHarness()
    core.channel().policies.set({"priority": True, "max_bytes": 1000, "overflow": overflow})
    core.turn()
    return core


@pytest.mark.parametrize("restarts", [False, True])
def test_bytes_are_those_of_the_log_from_the_oldest_message_on(restarts: bool) -> None:
    core = bounded_by_bytes("reject")
    assert put(core, "lhhhhh", 100) == [None]
    reader = core.reader(ready=5)
    messages = reader.read()
    assert [message.body[:1] for message in messages] == [b"h"] * 5
    core.channel().set_ready(reader.consumer, 0)
    reader.finish(*[message.id for message in messages])
    if restarts:
        core.save()
        core.crash()
        core.wait(1)
        reader = core.reader(ready=0)
    (error,) = put(core, "n", 100)
    assert str(error) == "channel c has reached its max_bytes", (
        "only the low one waits, and the log is kept from there on"
    )
    core.channel().set_ready(reader.consumer, 1)
    assert len(reader.read()) == 1
    assert put(core, "n", 100) == [None]


def test_the_oldest_messages_are_dropped_of_whatever_class_until_the_log_is_within_the_bound() -> None:
    core = bounded_by_bytes("drop_oldest")
    put(core, "hnlhhl", 100)
    assert state(core) == ([3, 1, 2], 0)
    put(core, "ll", 100)
    core.turn()
    assert state(core) == ([2, 0, 4], 2)


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest"])
def test_switched_off_and_on_while_messages_wait(overflow: str) -> None:
    core = aging(overflow)
    put(core, "lnh")
    assert core.reader(ready=1).bodies() == [b"h"]
    bound = {"max_age": HOUR, "overflow": overflow}
    core.channel().policies.set(bound)
    core.wait(HOUR - 1)
    assert core.channel().dropped_count == 0
    core.wait(1)
    if overflow == "reject":
        assert is_refused(core)
        core.channel().policies.set({**bound, "priority": True})
        core.wait(1)
        assert is_refused(core)
    else:
        core.wait(HOUR / 16)
        assert core.channel().depth == 0


def test_switched_off_nothing_is_dropped_twice() -> None:
    core = aging("reject")
    put(core, "hnlh")
    core.save()
    core.crash()  # each class is at its first message
    core.wait(HOUR)
    core.channel().policies.set({"max_age": HOUR, "overflow": "drop_oldest"})
    core.wait(1)
    assert (core.channel().depth, core.channel().dropped_count) == (0, 4)
