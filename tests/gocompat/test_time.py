"""Moments as Go prints them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from nsqtw.gocompat.time import local_time_text


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
