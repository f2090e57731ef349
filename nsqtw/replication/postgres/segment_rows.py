"""
The rows of `nsqtw_segment`: how segments are stored, found again and checked.

The checksum is the CRC-32 of the frames, then of the header block, then of first sequence, count and delay (u64, big-
endian) and the name of the topic. The database has checksums of its own; this one is about everything between the
broker that encoded the messages and the one that decodes them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from nsqtw.backends.checksum import crc32
from nsqtw.backends.header_block import encode_block, has_block, segment_of
from nsqtw.core.segment import SEQUENCE_MASK, Segment
from nsqtw.errors import ReplicaError
from nsqtw.replication.postgres.arrays import Bytes, Numbers, Texts
from nsqtw.replication.postgres.connection import BoundedConnection, no_data_set
from nsqtw.replication.store import OnDamage, StoredSegment, Write

_NUMBERS = struct.Struct(">3Q")
_TRANSACTIONS_AT_ONCE = 1000

PUT = """
INSERT INTO nsqtw_segment (data_set, topic, first, lsn, count, delay_ms, channel, frames, headers, checksum)
SELECT owner.identity, one.topic, one.first, owner.lsn, one.count, one.delay_ms, one.channel, one.frames, one.headers,
    one.checksum
FROM owner, unnest(%(topics)s::text[], %(firsts)s::bigint[], %(counts)s::bigint[], %(delays)s::bigint[],
    %(channels)s::text[], %(frames)s::bytea[], %(headers)s::bytea[], %(checksums)s::bigint[])
    AS one (topic, first, count, delay_ms, channel, frames, headers, checksum)
"""
"""Stores the segments of `put_parameters`, with the LSN of `owner`, a query beside this one."""

_READ = f"""
WITH page AS (
    SELECT lsn, sum(octet_length(frames) + octet_length(headers)) AS bytes FROM nsqtw_segment
    WHERE data_set = %(data_set)s AND lsn > %(after)s GROUP BY lsn ORDER BY lsn LIMIT {_TRANSACTIONS_AT_ONCE}
), total AS (
    SELECT lsn, row_number() OVER (ORDER BY lsn) AS number, sum(bytes) OVER (ORDER BY lsn) AS bytes FROM page
)
SELECT lsn, topic, first, count, delay_ms, channel, frames, headers, checksum FROM nsqtw_segment
WHERE data_set = %(data_set)s AND lsn > %(after)s
    AND lsn <= (SELECT max(lsn) FROM total WHERE number = 1 OR bytes < %(limit)s)
ORDER BY lsn, topic, first
"""
_IDENTITY = "SELECT identity FROM nsqtw_data_set WHERE name = %s"


@frozen
class _Row:
    """A row of the table."""

    lsn: int
    topic: str
    first: int
    count: int
    delay_ms: int
    channel: str
    frames: bytes
    headers: bytes
    checksum: int

    def segment(self) -> Segment | None:
        """Return the segment; None when it is damaged."""
        first, count, delay_ms, frames, headers = self.first, self.count, self.delay_ms, self.frames, self.headers
        if first < 0 or count < 1 or first + count - 1 > SEQUENCE_MASK or delay_ms < 0:
            return None
        if _checksum(self.topic, first, count, delay_ms, frames, headers) != self.checksum:
            return None
        segment: Segment | None = (
            segment_of(frames + headers, first, count, delay_ms) if headers else Segment(first, count, delay_ms, frames)
        )
        return None if segment is None or segment.channel != self.channel else segment


def put_parameters(writes: Sequence[Write]) -> dict[str, Any]:
    """Return the parameters of PUT; {} when there is nothing to store."""
    found = [(topic, segment) for topic, segments in writes for segment in segments]
    if not found:
        return {}
    segments = [segment for _, segment in found]
    blocks = [encode_block(segment) if has_block(segment) else b"" for segment in segments]
    return {
        "topics": Texts([topic for topic, _ in found]),
        "firsts": Numbers([segment.first for segment in segments]),
        "counts": Numbers([segment.count for segment in segments]),
        "delays": Numbers([segment.delay_ms for segment in segments]),
        "channels": Texts([segment.channel for segment in segments]),
        "frames": Bytes([segment.frames for segment in segments]),
        "headers": Bytes(blocks),
        "checksums": Numbers(
            [
                _checksum(topic, segment.first, segment.count, segment.delay_ms, segment.frames, block)
                for (topic, segment), block in zip(found, blocks, strict=True)
            ]
        ),
    }


def identity_of(connection: BoundedConnection, name: str) -> str:
    """Return the identity of a data set. NoDataSet."""
    row = connection.execute(_IDENTITY, (name,)).fetchone()
    if row is None:
        raise no_data_set(name)
    identity: str = row[0]
    return identity


def read_segments(
    connection: BoundedConnection, name: str, after: int, limit: int, on_damage: OnDamage | None
) -> list[StoredSegment]:
    """Like `IReplicaStore.segments`."""
    data_set = identity_of(connection, name)
    found: list[StoredSegment] = []
    damaged: list[_Row] = []
    while not found:
        rows = _read_page(connection, {"data_set": data_set, "after": after, "limit": limit})
        if not rows:
            break
        for row in rows:
            segment = row.segment()
            if segment is not None:
                found.append(StoredSegment(row.lsn, row.topic, segment))
            elif on_damage is None:
                raise ReplicaError(f"PostgreSQL: {_damage(row)}")
            else:
                damaged.append(row)
        after = rows[-1].lsn
        connection.go_on()
    for row in damaged:
        # What is behind the last one comes again with the next call.
        if on_damage is not None and (not found or row.lsn <= found[-1].lsn):
            on_damage(row.topic, row.first, max(row.first, row.first + row.count - 1), _damage(row))
    return found


def _read_page(connection: BoundedConnection, parameters: dict[str, Any]) -> list[_Row]:
    return [_Row(*row) for row in connection.cursor(binary=True).execute(_READ, parameters)]


def _damage(row: _Row) -> str:
    return f"the segment {row.first} of topic {row.topic} is damaged"


def _checksum(topic: str, first: int, count: int, delay_ms: int, frames: bytes, block: bytes) -> int:
    numbers = _NUMBERS.pack(first, count, delay_ms)
    return crc32(numbers + topic.encode(), crc32(block, crc32(frames)))
