"""Histograms of durations, and what the core observes in them."""

from __future__ import annotations

from nsqtw.core.histogram import Histogram


def test_a_value_is_counted_in_the_first_bucket_that_is_not_below_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 2.0):
        histogram.observe(value, 1)
    assert histogram.counts == [2, 1, 1]
    assert histogram.cumulative() == [2, 3, 4]
    assert histogram.sum == 2.65


def test_a_value_may_occur_many_times() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(0.5, 3)
    assert (histogram.cumulative(), histogram.sum) == ([3, 3], 1.5)
