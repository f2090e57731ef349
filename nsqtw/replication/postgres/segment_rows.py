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

from nsqtw.backends.checksum import crc32
from nsqtw.backends.header_block import encode_block, has_block, segment_of
from nsqtw.core.segment import Segment
from nsqtw.errors import ReplicaError
from nsqtw.replication.postgres.arrays import Bytes, Numbers, Texts
from nsqtw.replication.postgres.connection import BoundedConnection, no_data_set
from nsqtw.replication.store import StoredSegment, Write

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


def read_segments(connection: BoundedConnection, name: str, after: int, limit: int) -> list[StoredSegment]:
    """Like `IReplicaStore.segments`."""
    parameters = {"data_set": identity_of(connection, name), "after": after, "limit": limit}
    cursor = connection.cursor(binary=True)
    return [_stored(*row) for row in cursor.execute(_READ, parameters)]


def _stored(
    lsn: int,
    topic: str,
    first: int,
    count: int,
    delay_ms: int,
    channel: str,
    frames: bytes,
    headers: bytes,
    checksum: int,
) -> StoredSegment:
    segment: Segment | None = None
    if _checksum(topic, first, count, delay_ms, frames, headers) == checksum:
        segment = (
            segment_of(frames + headers, first, count, delay_ms) if headers else Segment(first, count, delay_ms, frames)
        )
    if segment is None or segment.channel != channel:
        raise ReplicaError(f"PostgreSQL: the segment {first} of topic {topic} is damaged")
    return StoredSegment(lsn, topic, segment)


def _checksum(topic: str, first: int, count: int, delay_ms: int, frames: bytes, block: bytes) -> int:
    numbers = _NUMBERS.pack(first, count, delay_ms)
    return crc32(numbers + topic.encode(), crc32(block, crc32(frames)))
