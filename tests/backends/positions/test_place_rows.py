"""The table of what pending rows do not say: which messages are held, and which were interrupted."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from nsqtw.backends.positions import store
from nsqtw.backends.positions.schema import HELD, PLAIN, POLICIES
from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint, CursorState, HeldRow, PendingRow, SavedState, TopicState
from nsqtw.core.due_order import BEFORE_ALL, BEHIND_ALL
from nsqtw.errors import BackendError

ROW = HeldRow(7, 2, "requeued", "no ink", 5)


def save(positions: Positions, held: bool, **more: object) -> None:
    """A channel with one pending row."""
    cursor = CursorState("c", pending=[PendingRow(7, 2, 0)], pending_count=1, held=[ROW] if held else [], **more)
    positions.save(Checkpoint(topics=[TopicState("t", released=9, cursors=[cursor])]))


def version(path: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT version FROM broker").fetchone()[0]
        return found


def change(path: str, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def reopen(path: str) -> tuple[SavedState, Positions]:
    positions = Positions(path)
    return positions.load(), positions


def test_the_version_is_raised_while_a_message_is_held(positions: Positions, path: str) -> None:
    for policy, otherwise in (({}, PLAIN), ({"max_attempts": 2}, POLICIES)):
        save(positions, False, policy=policy)
        assert version(path) == otherwise
        save(positions, True, policy=policy)
        assert version(path) == HELD
        save(positions, False, policy=policy)
        assert version(path) == otherwise


@pytest.mark.parametrize(
    "end",
    [
        Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", dropped_rows=[7])])]),
        Checkpoint(deleted_channels=[("t", "c")]),
        Checkpoint(deleted_topics=["t"]),
    ],
)
def test_the_version_falls_with_the_last_held_message(positions: Positions, path: str, end: Checkpoint) -> None:
    save(positions, True)
    positions.save(end)
    assert version(path) == PLAIN


def test_an_older_nsqtw_says_that_it_does_not_know_the_version(
    positions: Positions, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(positions, True)
    positions.close(True)
    monkeypatch.setattr(store, "VERSION", POLICIES)
    with pytest.raises(BackendError, match=r"positions.db has schema version 6; this nsqtw knows 5"):
        Positions(path).load()


def test_an_older_nsqtw_reads_what_was_interrupted(positions: Positions, path: str) -> None:
    save(positions, False, interrupted=[7])
    assert version(path) == PLAIN


def test_what_is_left_of_a_row_that_an_older_nsqtw_has_removed_is_no_harm(positions: Positions, path: str) -> None:
    save(positions, False, interrupted=[7])
    positions.close(True)
    change(path, "DELETE FROM held")
    saved, positions = reopen(path)
    assert saved.topics[0].cursors[0].interrupted == []
    positions.close(True)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE place SET reason = 'nonsense'",
        "UPDATE place SET detail = x'00ff'",
        "UPDATE place SET due_ms = -1",
        "UPDATE place SET due_ms = 'soon'",
    ],
)
def test_a_row_that_makes_no_sense_is_left_out_and_reported(positions: Positions, path: str, statement: str) -> None:
    save(positions, True)
    positions.close(True)
    change(path, statement)
    saved, positions = reopen(path)
    assert saved.invalid == ["what was saved of 1 held messages makes no sense: they are ready"]
    assert (positions.held("t", "c"), version(path)) == ([], PLAIN)
    assert positions.pending("t", "c", BEFORE_ALL, 9) == ([PendingRow(7, 2, 0)], BEHIND_ALL)
    positions.close(True)


def test_a_save_that_fails_changes_nothing(positions: Positions, path: str) -> None:
    save(positions, True)
    with pytest.raises(BackendError):
        save(positions, False, paused="nonsense", next=None)
    assert positions.held("t", "c") == [ROW]
    assert version(path) == HELD
    save(positions, False)
    assert positions.held("t", "c") == []
