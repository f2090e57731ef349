"""
The saved state of a data set, read as checkpoints of limited size that together save it: first all topics with their
channels, then pages of pending rows, then pages of publishers' ids. A page of rows has the whole state of the topics
and channels they belong to, because a checkpoint replaces that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from attrs import evolve

from nsqtw.core.checkpoint import Checkpoint, CursorState, HeldRow, PendingRow, PublisherId, TopicState
from nsqtw.replication.postgres.documents import read_cursor, read_topic

Query = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]
"""Returns the rows of a statement with its parameters, to which the identity of the data set is added."""

_TOPICS_AT_ONCE = 200
_ROWS_AT_ONCE = 20_000

_BROKER = "SELECT wall_shift_ms FROM nsqtw_data_set WHERE identity = %(data_set)s"
_TOPICS = f"""
SELECT topic, state::text FROM nsqtw_topic
WHERE data_set = %(data_set)s AND topic > %(after)s ORDER BY topic LIMIT {_TOPICS_AT_ONCE}
"""
_CURSORS = """
SELECT topic, channel, state::text FROM nsqtw_cursor
WHERE data_set = %(data_set)s AND topic >= %(first)s AND topic <= %(last)s ORDER BY topic, channel
"""
_PENDING = f"""
SELECT pending.topic, pending.channel, pending.sequence, pending.attempts, pending.due_ms,
    held.reason, held.detail, held.due_ms
FROM (
    SELECT * FROM nsqtw_pending
    WHERE data_set = %(data_set)s AND (topic, channel, sequence) > (%(topic)s, %(channel)s, %(sequence)s)
    ORDER BY topic, channel, sequence LIMIT {_ROWS_AT_ONCE}
) AS pending
LEFT JOIN nsqtw_held AS held USING (data_set, topic, channel, sequence)
ORDER BY pending.topic, pending.channel, pending.sequence
"""
_PUBLISHER_IDS = f"""
SELECT topic, hash, published_ms, sequence FROM nsqtw_publisher_id
WHERE data_set = %(data_set)s AND (topic, hash) > (%(topic)s, %(hash)s) ORDER BY topic, hash LIMIT {_ROWS_AT_ONCE}
"""


def read_checkpoints(query: Query) -> Iterator[Checkpoint]:
    """Like `IReplicaStore.checkpoints`. Each step asks once or twice."""
    ((wall_shift_ms,),) = query(_BROKER, {})
    yield Checkpoint(wall_shift_ms=wall_shift_ms)
    states: dict[str, TopicState] = {}
    for topics in _topics(query):
        states.update({topic.name: topic for topic in topics})
        yield Checkpoint(topics=[*topics])
    yield from _pending(query, states)
    yield from _publisher_ids(query, states)


def _topics(query: Query) -> Iterator[list[TopicState]]:
    after = ""
    while rows := query(_TOPICS, {"after": after}):
        topics = {name: read_topic(name, text) for name, text in rows}
        for name, channel, text in query(_CURSORS, {"first": rows[0][0], "last": rows[-1][0]}):
            if name in topics:
                topics[name].cursors.append(read_cursor(name, channel, text))
        yield [*topics.values()]
        after = rows[-1][0]


def _pending(query: Query, states: dict[str, TopicState]) -> Iterator[Checkpoint]:
    cursors = {(topic.name, cursor.name): cursor for topic in states.values() for cursor in topic.cursors}
    topic, channel, sequence = "", "", -1
    while rows := query(_PENDING, {"topic": topic, "channel": channel, "sequence": sequence}):
        topics: dict[str, TopicState] = {}
        for (name, channel_name), group in groupby(rows, itemgetter(0, 1)):
            cursor = cursors.get((name, channel_name))
            if cursor is not None:
                one = topics.setdefault(name, evolve(states[name], cursors=[]))
                one.cursors.append(_with_rows(cursor, [row[2:] for row in group]))
        if topics:
            yield Checkpoint(topics=[*topics.values()])
        topic, channel, sequence = rows[-1][:3]


def _with_rows(cursor: CursorState, rows: list[tuple[Any, ...]]) -> CursorState:
    return evolve(
        cursor,
        pending=[PendingRow(*row[:3]) for row in rows],
        held=[
            HeldRow(sequence, attempts, reason, detail.decode("utf-8", "surrogatepass"), due_ms)
            for sequence, attempts, _, reason, detail, due_ms in rows
            if reason is not None
        ],
    )


def _publisher_ids(query: Query, states: dict[str, TopicState]) -> Iterator[Checkpoint]:
    topic, last = "", b""
    while rows := query(_PUBLISHER_IDS, {"topic": topic, "hash": last}):
        topics = []
        for name, group in groupby(rows, itemgetter(0)):
            if name in states:
                ids = [PublisherId(digest, published_ms, sequence) for _, digest, published_ms, sequence in group]
                topics.append(evolve(states[name], cursors=[], publisher_ids=ids))
        if topics:
            yield Checkpoint(topics=topics)
        topic, last = rows[-1][:2]
