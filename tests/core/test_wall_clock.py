"""The wall clock jumps: what the broker makes of it."""

from __future__ import annotations

import pytest

from nsqtw.core.wall_clock import WallClock
from tests.core.harness import START, WALL_NS, BrokerHarness

SECOND = 10**9
HOUR = 3600 * SECOND


def test_a_clock_that_is_kept_right_does_not_jump() -> None:
    wall = WallClock()
    assert [wall.record(WALL_NS + step * SECOND // 10, 10.0 + step) for step in range(5)] == [0] * 5


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_message_is_as_old_as_it_is(jump: int) -> None:
    wall = WallClock()
    wall.record(WALL_NS, 10.0)
    assert wall.record(WALL_NS + jump, 20.0) == jump // 1_000_000
    before, after = WALL_NS + 15 * SECOND, WALL_NS + jump + 21 * SECOND
    assert wall.age_ns(before, 25.0, WALL_NS + jump) == 10 * SECOND
    assert wall.age_ns(after, 25.0, WALL_NS + jump) == 4 * SECOND
    wall.record(WALL_NS, 30.0)
    assert wall.age_ns(before, 35.0, WALL_NS) == 20 * SECOND
    assert wall.age_ns(after, 35.0, WALL_NS) == 14 * SECOND
    assert wall.age_ns(WALL_NS + 31 * SECOND, 35.0, WALL_NS) == 4 * SECOND


def test_nothing_is_younger_than_nothing() -> None:
    """A timestamp of another process, whose clock was ahead."""
    wall = WallClock()
    wall.record(WALL_NS, 10.0)
    assert wall.age_ns(WALL_NS + HOUR, 10.0, WALL_NS) == 0


def test_any_number_of_jumps_is_remembered_in_a_few_numbers() -> None:
    wall = WallClock()
    for hours in range(100):
        wall.record(WALL_NS + hours * HOUR, float(hours))
    assert len(wall._eras) < 20
    assert wall.age_ns(WALL_NS + 99 * HOUR + 100 * SECOND, 101.0, WALL_NS + 99 * HOUR) == SECOND


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_what_is_deferred_keeps_its_time_over_a_jump_and_a_crash(jump: int) -> None:
    harness = BrokerHarness()
    topic = harness.broker.topic("t")
    topic.channel("c", harness.now)
    harness.broker.follow_wall(WALL_NS, harness.now)
    topic.put([b"deferred"], 60_000, lambda error: None)
    harness.turn()
    harness.save()
    harness.broker.follow_wall(WALL_NS + jump, harness.now)
    assert harness.broker.checkpointer.are_wanted
    harness.save()
    (saved,) = harness.positions.saved.topics
    (row,) = saved.cursors[0].pending
    assert row.due_ms == WALL_NS // 1_000_000 + (START + 60) * 1000
    assert harness.positions.saved.wall_shift_ms == jump // 1_000_000
