"""How many cores a process may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.runtime.cpu_quota import cpu_quota


@pytest.mark.parametrize(
    ("text", "found"),
    [("max 100000\n", 4.0), ("50000 100000\n", 0.5), ("900000 100000\n", 4.0), ("", 4.0), ("1 0", 4.0)],
)
def test_a_quota_counts_where_there_is_one(
    text: str, found: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2, 3})
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    assert cpu_quota(quota) == found
    assert cpu_quota(tmp_path / "none") == 4.0
