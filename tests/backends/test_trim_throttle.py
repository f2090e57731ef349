"""How often a topic with very many unfinished messages is trimmed."""

from __future__ import annotations

from nsqtw.backends.trim_throttle import TrimPace


def test_few_wanted_messages_are_looked_at_each_time() -> None:
    pace = TrimPace()
    for _ in range(3):
        assert pace.is_due(1)
        pace.looked_at(9_999, 1)


def test_a_million_are_looked_at_every_hundredth_time() -> None:
    pace = TrimPace()
    assert pace.is_due(3)
    pace.looked_at(1_000_000, 3)
    assert [pace.is_due(3) for _ in range(101)] == [False] * 100 + [True]


def test_another_file_that_could_be_freed_is_looked_at_at_once() -> None:
    pace = TrimPace()
    assert pace.is_due(3)
    pace.looked_at(1_000_000, 2)
    assert not pace.is_due(2)
    assert pace.is_due(3)
