"""Policies of one topic or channel together: where one of them meets the state of another."""

from __future__ import annotations

import pytest

from nsqtw.errors import Overflow
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness
from tests.core.policy.deduplicating import DeduplicatingHarness
from tests.core.policy.harness import bodies, fail, settle


def test_ids_survive_starts_that_finish_dead_letters() -> None:
    core = DeduplicatingHarness(window=60.0)
    core.channel().policies.set({"max_attempts": 1})
    reader = core.reader()
    for number in ("1", "2"):
        core.publish((number, number.encode()))
        fail(reader)
        settle(core)  # the letter is stored, and the end of its topic is not saved
    core.publish(("3", b"3"))
    core.turn()
    for _ in range(3):
        core.crash()
    assert bodies(core, "t.dead") == [b"1", b"2"]
    core.publish(("1", b"again"), ("2", b"again"), ("3", b"again"))
    core.turn()
    assert core.repeats() == 3


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest"])
@pytest.mark.parametrize("bound", [{"max_bytes": 3000}, {"max_age": 5.0}])
def test_what_waits_for_its_key_is_within_the_bounds(bound: dict[str, object], overflow: str) -> None:
    core = BrokerHarness()
    channel = core.channel()
    channel.policies.set({"ordered_by": "header:key", "overflow": overflow, **bound})
    reader = core.reader()
    for _ in range(50):
        core.topic().put([b"x" * 66], 0, lambda error: None, [encode_headers({"key": "k"})])
        core.turn()
    assert len(reader.read()) == 1
    for _ in range(10):
        core.wait(2.0)
    answers = core.put(b"y")
    core.turn()
    if overflow == "reject":
        assert isinstance(answers[0], Overflow)
    else:
        assert answers == [None]
        assert channel.depth <= 30
        assert channel.depth + channel.dropped_count == 49
