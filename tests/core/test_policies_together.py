"""Policies of one topic or channel together: where one of them meets the state of another."""

from __future__ import annotations

from tests.core.deduplicating import DeduplicatingHarness
from tests.core.policy_harness import bodies, fail, settle


def test_ids_survive_starts_that_finish_dead_letters() -> None:
    core = DeduplicatingHarness(window=60.0)
    core.channel().set_policy({"max_attempts": 1})
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
