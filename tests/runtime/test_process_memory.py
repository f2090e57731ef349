"""The memory block of /stats on systems that tell more or less."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.runtime import process_memory
from nsqtw.runtime.process_memory import memory


def test_what_is_resident_now_and_what_once_was_more() -> None:
    found = memory()
    assert found["heap_in_use_bytes"] > 0
    assert found["heap_released_bytes"] == found["heap_idle_bytes"] >= 0


def test_the_peak_stands_for_now_where_the_system_tells_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process_memory, "_STATM", str(tmp_path / "none"))
    found = memory()
    assert found["heap_in_use_bytes"] > 0
    assert found["heap_released_bytes"] == 0
