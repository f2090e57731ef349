"""Moments as people write them."""

from __future__ import annotations

import pytest

from nsqtw.api.log_position import LogPosition, parse_log_position


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("earliest", LogPosition("earliest")),
        ("latest", LogPosition("latest")),
        ("0a1b2c3d4e5f6071", LogPosition(message_id=b"0a1b2c3d4e5f6071")),
        ("0A1B2C3D4E5F6071", LogPosition(message_id=b"0a1b2c3d4e5f6071")),
        ("1234567890123456", LogPosition(message_id=b"1234567890123456")),
        ("0", LogPosition(wall_ms=0)),
        ("1767225600", LogPosition(wall_ms=1767225600000)),
        ("1767225600.25", LogPosition(wall_ms=1767225600250)),
        ("1767225600.0009", LogPosition(wall_ms=1767225600000)),
        ("1767225600000", LogPosition(wall_ms=1767225600000)),
        ("2026-01-01T00:00:00Z", LogPosition(wall_ms=1767225600000)),
        ("2026-01-01t01:00:00.5+01:00", LogPosition(wall_ms=1767225600500)),
        ("2026-01-01T01:00:00 01:00", LogPosition(wall_ms=1767225600000)),
        ("2025-12-31 23:00:00-01:00", LogPosition(wall_ms=1767225600000)),
    ],
)
def test_moments(text: str, moment: LogPosition) -> None:
    assert parse_log_position(text) == moment


@pytest.mark.parametrize(
    "text",
    ["", "now", "-1", "1e9", "1767225600.", "1" * 17, "٣", "2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z"],
)
def test_what_is_none(text: str) -> None:
    assert parse_log_position(text) is None
