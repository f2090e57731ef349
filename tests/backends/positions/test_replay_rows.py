"""The table of how far the messages for other channels are counted in a replay."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint, CursorState, SavedState, TopicState


def save(positions: Positions, counted_to: int | None, replays: int = 9) -> None:
    cursor = CursorState("c", next=1, replays=replays, counted_to=counted_to)
    positions.save(Checkpoint(topics=[TopicState("t", released=9, cursors=[cursor])]))


def change(path: str, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def rows(path: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT count(*) FROM replay").fetchone()[0]
        return found


def counted_to(saved: SavedState) -> int | None:
    return saved.topics[0].cursors[0].counted_to


def reopened(positions: Positions, path: str) -> SavedState:
    positions.close(False)
    store = Positions(path)
    saved = store.load()
    store.close(False)
    return saved


def test_it_is_there_until_all_is_counted(positions: Positions, path: str) -> None:
    save(positions, 5)
    save(positions, 7)
    saved = reopened(positions, path)
    assert (counted_to(saved), saved.topics[0].cursors[0].replays) == (7, 9)
    store = Positions(path)
    store.load()
    save(store, None)
    assert rows(path) == 0
    assert counted_to(reopened(store, path)) is None


@pytest.mark.parametrize(
    "end",
    [
        Checkpoint(deleted_channels=[("t", "c")]),
        Checkpoint(deleted_topics=["t"]),
    ],
)
def test_it_goes_with_its_channel(positions: Positions, path: str, end: Checkpoint) -> None:
    save(positions, 5)
    positions.save(end)
    assert rows(path) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE cursor SET replays = 8",  # an older nsqtw has moved the channel
        "UPDATE replay SET counted_to = 9",
        "UPDATE replay SET counted_to = -1",
        "UPDATE replay SET counted_to = 'x'",
        "UPDATE replay SET cursor = 77",
    ],
)
def test_what_makes_no_sense_is_removed(positions: Positions, path: str, statement: str) -> None:
    save(positions, 5)
    positions.close(False)
    change(path, statement)
    assert counted_to(reopened(positions, path)) is None
    assert rows(path) == 0
