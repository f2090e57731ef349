"""
The statements that save a checkpoint, in the order and with the meaning of `positions.db` (`backends.positions`). Each
one is for all topics and channels of the checkpoint, so that there are few of them, however many channels changed.

In one statement a row may be inserted once only: of several values for one row the last one is sent. No statement has
very many rows, because the server gives up one that takes too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from nsqtw.core.checkpoint import Checkpoint, CursorState, TopicState
from nsqtw.replication.postgres.arrays import Bytes, Numbers, Texts
from nsqtw.replication.postgres.documents import cursor_document, topic_document

Statement = tuple[str, dict[str, Any], int]
"""With its parameters, to which the identity of the data set is added as `data_set`; and for how many rows it is."""
Cursor = tuple[str, str]
"""Topic and channel."""
Run = tuple[str, str, int, int, int]
"""Topic, channel, first sequence, count and due time."""
Row = TypeVar("Row")

ROWS_AT_ONCE = 20_000
"""Of one statement."""

_OF_TOPICS = "WHERE data_set = %(data_set)s AND topic = ANY(%(topics)s::text[])"
_OF_CHANNELS = (
    "USING unnest(%(topics)s::text[], %(channels)s::text[]) AS one (topic, channel)"
    " WHERE data_set = %(data_set)s AND {0}.topic = one.topic AND {0}.channel = one.channel"
)
_OF_ROWS = (
    "USING unnest(%(topics)s::text[], %(channels)s::text[], %(sequences)s::bigint[]) AS one (topic, channel, sequence)"
    " WHERE data_set = %(data_set)s AND {0}.topic = one.topic AND {0}.channel = one.channel AND {0}.sequence {1}"
    " one.sequence"
)
_CURSOR_TABLES = ("nsqtw_cursor", "nsqtw_pending", "nsqtw_held")
_ROW_TABLES = ("nsqtw_pending", "nsqtw_held")
OF_DELETED_TOPICS = ("nsqtw_segment", "nsqtw_pending", "nsqtw_publisher_id")
OF_DELETED_CHANNELS = ("nsqtw_pending",)
"""The tables that may have very many rows of a topic or of a channel."""

_FORGET_STATE = f"UPDATE nsqtw_topic SET state = NULL {_OF_TOPICS}"
_PUT_TOPICS = """
INSERT INTO nsqtw_topic (data_set, topic, state)
SELECT %(data_set)s, one.topic, one.state::json
FROM unnest(%(topics)s::text[], %(states)s::text[]) AS one (topic, state)
ON CONFLICT (data_set, topic) DO UPDATE SET state = excluded.state
"""
_PUT_CURSORS = """
INSERT INTO nsqtw_cursor (data_set, topic, channel, state)
SELECT %(data_set)s, one.topic, one.channel, one.state::json
FROM unnest(%(topics)s::text[], %(channels)s::text[], %(states)s::text[]) AS one (topic, channel, state)
ON CONFLICT (data_set, topic, channel) DO UPDATE SET state = excluded.state
"""
_ON_PENDING = """
ON CONFLICT (data_set, topic, channel, sequence) DO UPDATE SET attempts = excluded.attempts, due_ms = excluded.due_ms
"""
_PUT_PENDING = f"""
INSERT INTO nsqtw_pending (data_set, topic, channel, sequence, attempts, due_ms)
SELECT %(data_set)s, one.* FROM unnest(
    %(topics)s::text[], %(channels)s::text[], %(sequences)s::bigint[], %(attempts)s::bigint[], %(dues)s::bigint[]
) AS one {_ON_PENDING}
"""
_PUT_RUNS = f"""
INSERT INTO nsqtw_pending (data_set, topic, channel, sequence, attempts, due_ms)
SELECT %(data_set)s, one.topic, one.channel, sequence, 0, one.due_ms FROM unnest(
    %(topics)s::text[], %(channels)s::text[], %(firsts)s::bigint[], %(counts)s::bigint[], %(dues)s::bigint[]
) AS one (topic, channel, first, count, due_ms), generate_series(one.first, one.first + one.count - 1) AS sequence
{_ON_PENDING}
"""
_PUT_HELD = """
INSERT INTO nsqtw_held (data_set, topic, channel, sequence, reason, detail, due_ms)
SELECT %(data_set)s, one.* FROM unnest(
    %(topics)s::text[], %(channels)s::text[], %(sequences)s::bigint[], %(reasons)s::text[], %(details)s::bytea[],
    %(dues)s::bigint[]
) AS one
ON CONFLICT (data_set, topic, channel, sequence) DO UPDATE
SET reason = excluded.reason, detail = excluded.detail, due_ms = excluded.due_ms
"""
_PUT_PUBLISHER_IDS = """
INSERT INTO nsqtw_publisher_id (data_set, topic, hash, published_ms, sequence)
SELECT %(data_set)s, one.* FROM unnest(
    %(topics)s::text[], %(hashes)s::bytea[], %(published)s::bigint[], %(sequences)s::bigint[]
) AS one
ON CONFLICT (data_set, topic, hash) DO UPDATE SET published_ms = excluded.published_ms, sequence = excluded.sequence
"""


def replacing(topics: Sequence[str]) -> Iterator[Statement]:
    """Remove what is saved of topics, and not their segments."""
    if topics:
        for table in (*_CURSOR_TABLES, "nsqtw_publisher_id"):
            yield f"DELETE FROM {table} {_OF_TOPICS}", {"topics": Texts(topics)}, 0
        yield _FORGET_STATE, {"topics": Texts(topics)}, 0


def saving(checkpoint: Checkpoint) -> Iterator[Statement]:
    """Save a checkpoint."""
    if checkpoint.deleted_topics:
        for table in (*_CURSOR_TABLES, "nsqtw_publisher_id", "nsqtw_segment", "nsqtw_topic"):
            yield f"DELETE FROM {table} {_OF_TOPICS}", {"topics": Texts(checkpoint.deleted_topics)}, 0
    if checkpoint.deleted_channels:
        channels = _cursors(checkpoint.deleted_channels)
        for table in _CURSOR_TABLES:
            yield f"DELETE FROM {table} {_OF_CHANNELS.format(table)}", channels, 0
    topics = {topic.name: topic for topic in checkpoint.topics}
    if topics:
        states = Texts([topic_document(topic) for topic in topics.values()])
        yield _PUT_TOPICS, {"topics": Texts(topics), "states": states}, len(topics)
    cursors = {(topic.name, cursor.name): cursor for topic in checkpoint.topics for cursor in topic.cursors}
    if cursors:
        states = Texts([cursor_document(cursor) for cursor in cursors.values()])
        yield _PUT_CURSORS, {**_cursors([*cursors]), "states": states}, len(cursors)
        yield from _rows(cursors)
    yield from _publisher_ids(checkpoint.topics)


def _rows(cursors: dict[Cursor, CursorState]) -> Iterator[Statement]:
    """Save the pending rows of channels, and which of them are held."""
    forgotten = [
        (*of, 0 if cursor.emptied else cursor.forgotten_from)
        for of, cursor in cursors.items()
        if cursor.emptied or cursor.forgotten_from is not None
    ]
    yield from _remove(forgotten, ">=", _ROW_TABLES)
    dropped = [(*of, sequence) for of, cursor in cursors.items() for sequence in cursor.dropped_rows]
    yield from _remove(dropped, "=", _ROW_TABLES)
    pending = {(*of, row.sequence): (row.attempts, row.due_ms) for of, one in cursors.items() for row in one.pending}
    # A held row is held until it changes; a run has messages that were never delivered, and so were never held.
    yield from _remove([*pending], "=", ("nsqtw_held",))
    runs = [(*of, run.first, run.count, run.due_ms) for of, cursor in cursors.items() for run in cursor.runs]
    pending.update({run[:3]: (0, run[4]) for run in runs if run[3] == 1})
    for some in _portions([*pending.items()]):
        rows, values = zip(*some, strict=True)
        attempts, dues = zip(*values, strict=True)
        yield _PUT_PENDING, {**_keys(rows), "attempts": Numbers(attempts), "dues": Numbers(dues)}, len(some)
    for pieces in _pieces(sorted(run for run in runs if run[3] > 1)):
        topics, channels, firsts, counts, dues = zip(*pieces, strict=True)
        parameters = {"firsts": Numbers(firsts), "counts": Numbers(counts), "dues": Numbers(dues)}
        yield _PUT_RUNS, {"topics": Texts(topics), "channels": Texts(channels), **parameters}, sum(counts)
    for held in _portions([*{(*of, row.sequence): row for of, one in cursors.items() for row in one.held}.items()]):
        rows, states = zip(*held, strict=True)
        yield (
            _PUT_HELD,
            {
                **_keys(rows),
                "reasons": Texts([row.reason for row in states]),
                "details": Bytes([row.detail.encode("utf-8", "surrogatepass") for row in states]),
                "dues": Numbers([row.due_ms for row in states]),
            },
            len(held),
        )


def _publisher_ids(topics: Sequence[TopicState]) -> Iterator[Statement]:
    # In the order of their hashes, as the index has them.
    found = sorted({(topic.name, one.hash): one for topic in topics for one in topic.publisher_ids}.items())
    for some in _portions(found):
        yield (
            _PUT_PUBLISHER_IDS,
            {
                "topics": Texts([topic for (topic, _), _ in some]),
                "hashes": Bytes([one.hash for _, one in some]),
                "published": Numbers([one.published_ms for _, one in some]),
                "sequences": Numbers([one.sequence for _, one in some]),
            },
            len(some),
        )


def _remove(rows: Sequence[tuple[str, str, Any]], operator: str, tables: Sequence[str]) -> Iterator[Statement]:
    for some in _portions(rows):
        for table in tables:
            yield f"DELETE FROM {table} {_OF_ROWS.format(table, operator)}", _keys(some), len(some)


def _portions(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[start : start + ROWS_AT_ONCE]


def _pieces(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Return the runs, which are in order, in statements of limited size in which none overlaps another one."""
    pieces: list[Run] = []
    room = ROWS_AT_ONCE
    for topic, channel, first, count, due_ms in runs:
        if pieces and pieces[-1][:2] == (topic, channel) and first < pieces[-1][2] + pieces[-1][3]:
            yield pieces
            pieces, room = [], ROWS_AT_ONCE
        while count:
            taken = min(count, room)
            pieces.append((topic, channel, first, taken, due_ms))
            first, count, room = first + taken, count - taken, room - taken
            if not room:
                yield pieces
                pieces, room = [], ROWS_AT_ONCE
    if pieces:
        yield pieces


def _cursors(cursors: Sequence[Cursor]) -> dict[str, Any]:
    return {"topics": Texts([topic for topic, _ in cursors]), "channels": Texts([channel for _, channel in cursors])}


def _keys(rows: Sequence[tuple[str, str, int]]) -> dict[str, Any]:
    topics, channels, sequences = zip(*rows, strict=True)
    return {"topics": Texts(topics), "channels": Texts(channels), "sequences": Numbers(sequences)}
