"""The saved state of a topic as checkpoints, to copy it to a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from attrs import evolve

from nsqtw.core.checkpoint import Checkpoint, CursorState, HeldRow, PendingRow, PublisherId, TopicState
from nsqtw.core.pending import all_rows
from nsqtw.core.positions import IPositions

Row = TypeVar("Row")

ROWS_AT_ONCE = 10_000
"""Rows in one checkpoint."""


def _without_rows(cursor: CursorState) -> CursorState:
    """Return the state of a cursor without the rows to write."""
    return evolve(cursor, pending=[], runs=[], held=[], dropped_rows=[], emptied=False, forgotten_from=None)


def snapshot(positions: IPositions, topic: TopicState) -> Iterator[Checkpoint]:
    """
    Return checkpoints that together save all that is saved of a topic. `topic` is its state with those of all its
    cursors; the rows are read. BackendError.
    """
    cursors = [_without_rows(cursor) for cursor in topic.cursors]
    state = evolve(topic, cursors=cursors, publisher_ids=[], dedupe_window_ms=None)
    yield Checkpoint(topics=[state])
    for cursor in cursors:
        held = {row.sequence: row for row in positions.held(topic.name, cursor.name)}
        yield from _pending_checkpoints(state, cursor, all_rows(positions, topic.name, cursor.name), held)
    yield from _id_checkpoints(state, positions.all_publisher_ids(topic.name))


def _pending_checkpoints(
    topic: TopicState, cursor: CursorState, rows: Iterable[PendingRow], held: dict[int, HeldRow]
) -> Iterator[Checkpoint]:
    """Return checkpoints that save pending rows of a cursor."""
    for page in _pages(rows):
        of_page = [held[row.sequence] for row in page if row.sequence in held]
        yield Checkpoint(topics=[evolve(topic, cursors=[evolve(cursor, pending=page, held=of_page)])])


def _id_checkpoints(topic: TopicState, ids: Sequence[PublisherId]) -> Iterator[Checkpoint]:
    """Return checkpoints that save publishers' ids of a topic."""
    for page in _pages(ids):
        yield Checkpoint(topics=[evolve(topic, cursors=[], publisher_ids=page)])


def _pages(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Return the rows in lists of limited length."""
    iterator = iter(rows)
    while page := list(islice(iterator, ROWS_AT_ONCE)):
        yield page
