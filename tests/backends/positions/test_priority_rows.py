"""The positions of channels with priorities, and what an older nsqtw does to them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint, CursorState, TopicState


@pytest.mark.parametrize(
    ("older_next", "expected"),
    [(100, [1500, 100, 700]), (400, [1500, 400, 700]), (1800, [1800, 1800, 1800]), (99, []), (0, [])],
)
def test_an_older_nsqtw_moved_the_channel(tmp_path: Path, older_next: int, expected: list[int]) -> None:
    """It does not know them: what a seek back is to repeat must not be passed by the class that was ahead."""
    path = str(tmp_path / "positions.db")
    positions = Positions(path)
    positions.load()
    cursor = CursorState("c", next=100, positions=[1500, 100, 700], class_depths=[4, 3, 2, 2000])
    topic = TopicState("t", released=2000, end=2000, released_total=9, put_total=9, cursors=[cursor])
    positions.save(Checkpoint(topics=[topic]))
    positions.close(True)
    with sqlite3.connect(path) as older:
        older.execute("UPDATE cursor SET next = ?", (older_next,))
    older.close()
    positions = Positions(path)
    (found,) = positions.load().topics
    positions.close(True)
    assert found.cursors[0].positions == expected
    assert found.cursors[0].class_depths == ([4, 3, 2, 2000] if older_next == 100 else [])
