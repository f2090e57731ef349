"""The history of a cluster. Time is a number."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping

import pytest

from nsqtw.admin.history import COARSE_SAMPLES, FINE_SAMPLES, History, Subject

TOPIC: Subject = ("topic", "orders")
OTHER: Subject = ("topic", "clicks")


def add(history: History, now: float, samples: Mapping[Subject, Mapping[str, float]]) -> None:
    """Add a whole sample."""
    history.begin(now)
    for subject, figures in samples.items():
        history.put(subject, figures)
    for _ in history.end():
        pass


def known(values: list[float]) -> list[float | None]:
    """None for NaN, which equals nothing."""
    return [None if math.isnan(value) else value for value in values]


def test_a_sample_is_found_by_subject_and_figure() -> None:
    history = History()
    add(history, 0, {TOPIC: {"depth": 3, "in": 1.5}})
    add(history, 5, {TOPIC: {"depth": 4, "in": 2.5}})
    assert history.recent(TOPIC, "depth").values == [3, 4]
    assert history.last(TOPIC, "in") == 2.5


def test_what_was_never_sampled_is_unknown() -> None:
    history = History()
    add(history, 0, {TOPIC: {"depth": 3}})
    assert math.isnan(history.last(OTHER, "depth"))
    assert math.isnan(history.last(TOPIC, "in"))
    assert known(history.points(OTHER, "depth", 600).values) == [None]


def test_a_new_subject_has_a_gap_before_it() -> None:
    history = History()
    add(history, 0, {TOPIC: {"depth": 3}})
    add(history, 5, {TOPIC: {"depth": 3}, OTHER: {"depth": 7}})
    add(history, 10, {TOPIC: {"depth": 3}, OTHER: {"depth": 8}})
    assert known(history.recent(OTHER, "depth").values) == [None, 7, 8]


def test_a_subject_or_a_figure_that_is_missing_has_a_gap() -> None:
    history = History()
    add(history, 0, {TOPIC: {"depth": 3, "in": 1}, OTHER: {"depth": 7}})
    add(history, 5, {TOPIC: {"depth": 3}})
    add(history, 10, {TOPIC: {"depth": 3, "in": 1}, OTHER: {"depth": 7}})
    assert known(history.recent(OTHER, "depth").values) == [7, None, 7]
    assert known(history.recent(TOPIC, "in").values) == [1, None, 1]


def test_a_sample_that_is_being_written_is_not_seen() -> None:
    history = History()
    for number in range(FINE_SAMPLES + 10):
        add(history, number * 5, {TOPIC: {"depth": number}})
    before = history.recent(TOPIC, "depth").values
    history.begin(10_000)
    history.put(TOPIC, {"depth": 9999})
    assert history.recent(TOPIC, "depth").values == before
    assert history.last(TOPIC, "depth") == before[-1]
    for _ in history.end():
        pass
    assert history.recent(TOPIC, "depth").values == [9999]


def test_the_last_ten_minutes_are_kept_as_they_were_and_the_hour_as_means() -> None:
    history = History()
    for number in range(800):
        add(history, number * 5, {TOPIC: {"depth": number}})
    points = history.points(TOPIC, "depth", 3600)
    assert len(history.recent(TOPIC, "depth").values) == FINE_SAMPLES
    assert points.times == sorted(points.times)
    assert points.times[-1] == 799 * 5 and points.values[-1] == 799
    assert points.times[-1] - points.times[0] == pytest.approx(3600, abs=60)
    # Six samples make a mean; it stands at the time of the last one.
    [first] = [value for at, value in zip(points.times, points.values, strict=True) if at == points.times[0]]
    assert first == pytest.approx(points.times[0] / 5 - 2.5)
    assert len(points.times) <= FINE_SAMPLES + COARSE_SAMPLES


def test_a_shorter_time_has_only_its_own_points() -> None:
    history = History()
    for number in range(800):
        add(history, number * 5, {TOPIC: {"depth": number}})
    points = history.points(TOPIC, "depth", 60)
    assert points.times == [795 * 5 - 40 + 5 * step for step in range(13)]


def test_a_constant_has_its_history_too_when_it_changes() -> None:
    history = History()
    for number in range(20):
        add(history, number * 5, {TOPIC: {"depth": 2}} if number >= 5 else {OTHER: {"depth": 1}})
    add(history, 100, {TOPIC: {"depth": 3}})
    assert known(history.recent(TOPIC, "depth").values) == [None] * 5 + [2] * 15 + [3]


def test_a_subject_that_is_gone_is_forgotten() -> None:
    history = History()
    add(history, 0, {TOPIC: {"depth": 3}, OTHER: {"depth": 7}})
    for number in range(1, FINE_SAMPLES + 1):
        add(history, number * 5, {TOPIC: {"depth": 3}})
    assert len(history) == 1


def test_what_never_changes_takes_little_memory() -> None:
    history = History()
    for number in range(3):
        add(history, number * 5, {("channel", "t", str(name)): {"depth": 0, "in": 0} for name in range(100)})
    series = history._records["channel", "t", "0"].series["depth"]
    assert series._fine is None and series._coarse is None
    add(history, 15, {("channel", "t", "0"): {"depth": 1, "in": 0}})
    assert series._fine is not None and sys.getsizeof(series._fine) < 600


def test_the_end_of_a_sample_of_many_subjects_is_in_steps() -> None:
    history = History()
    history.begin(0)
    for number in range(2000):
        history.put(("topic", str(number)), {"depth": 0})
    steps: Iterator[None] = history.end()
    assert len(list(steps)) == 20
