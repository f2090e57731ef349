"""Durations and moments as Go prints them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from nsqtw.gocompat.time import duration_text, local_time_text

SECOND = 10**9


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (999, "999ns"),
        (1_000, "1µs"),
        (24_616, "24.616µs"),
        (1_500_000, "1.5ms"),
        (999_999_999, "999.999999ms"),
        (SECOND, "1s"),
        (10 * SECOND, "10s"),
        (1_801_597_766, "1.801597766s"),
        (60 * SECOND, "1m0s"),
        (65 * SECOND, "1m5s"),
        (60 * SECOND + SECOND // 2, "1m0.5s"),
        (3600 * SECOND, "1h0m0s"),
        (100 * 3600 * SECOND + 61 * SECOND, "100h1m1s"),
    ],
)
def test_durations(ns: int, text: str) -> None:
    assert duration_text(ns) == text


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("UTC0", "2023-11-14T22:13:20Z"),
        ("XXX-1", "2023-11-14T23:13:20+01:00"),
        ("YYY+5:30", "2023-11-14T16:43:20-05:30"),
    ],
)
def test_moments_are_local(zone: pytest.MonkeyPatch, name: str, text: str) -> None:
    zone.setenv("TZ", name)
    time.tzset()
    assert local_time_text(1_700_000_000) == text
