"""
A data set in PostgreSQL: who owns it, and what standbys read. What the owner writes is in `writer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any

from zope.interface import implementer

from nsqtw.core.checkpoint import Checkpoint
from nsqtw.errors import DataSetExists, NoDataSet, NotOwner, ReplicaError
from nsqtw.replication.postgres.connection import BoundedConnection, Server, no_data_set
from nsqtw.replication.postgres.health import findings
from nsqtw.replication.postgres.saved_state import read_checkpoints
from nsqtw.replication.postgres.schema import has_tables, make_tables, remove_rows
from nsqtw.replication.postgres.segment_rows import identity_of, read_segments
from nsqtw.replication.postgres.settings import Settings
from nsqtw.replication.postgres.writer import PostgresWriter
from nsqtw.replication.store import (
    FORMAT,
    Behind,
    DataSet,
    Finding,
    IReplicaStore,
    IReplicaWriter,
    Size,
    StandbyReport,
    StoredSegment,
)

_REMOVED = "removed "
_STANDBY_SECONDS = 60

_COLUMNS = """
name, identity, epoch, owner, address, released,
(CASE WHEN released OR epoch = 0 THEN 0
 ELSE least(lease, greatest(0, lease - extract(epoch FROM clock_timestamp() - renewed))) END)::float8,
lsn, checkpoint_lsn, requested_by, format
"""
_DATA_SET = f"SELECT {_COLUMNS} FROM nsqtw_data_set WHERE name = %s"
_CREATE = """
INSERT INTO nsqtw_data_set (name, identity, format) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
"""
_CLAIM = f"""
WITH claimed AS (
    UPDATE nsqtw_data_set
    SET epoch = epoch + 1, owner = %(owner)s, address = %(address)s, lease = %(lease)s, renewed = now(),
        released = false, requested_by = ''
    WHERE name = %(name)s AND format <= {FORMAT} AND (
        %(forced)s OR epoch = 0 OR released OR owner = %(owner)s OR renewed + lease * interval '1 second' <= now()
    )
    RETURNING identity, epoch, lsn, owner
)
INSERT INTO nsqtw_epoch (data_set, epoch, lsn, owner, claimed)
SELECT identity, epoch, lsn, owner, now() FROM claimed RETURNING data_set, epoch, lsn
"""
_RENEW = f"""
UPDATE nsqtw_data_set SET renewed = now() WHERE name = %s AND epoch = %s AND NOT released RETURNING {_COLUMNS}
"""
_REQUEST = "UPDATE nsqtw_data_set SET requested_by = %s WHERE name = %s"
_EPOCH = """
SELECT lsn FROM nsqtw_epoch
WHERE data_set = (SELECT identity FROM nsqtw_data_set WHERE name = %s) AND epoch = %s
"""
_REPORT = """
INSERT INTO nsqtw_standby (data_set, identity, address, lsn, reported)
SELECT identity, %(standby)s, %(address)s, %(lsn)s, now() FROM nsqtw_data_set WHERE name = %(name)s
ON CONFLICT (data_set, identity) DO UPDATE
SET address = excluded.address, lsn = excluded.lsn, reported = excluded.reported
"""
_STANDBYS = f"""
SELECT identity, address, lsn, greatest(0, extract(epoch FROM clock_timestamp() - reported))::float8
FROM nsqtw_standby WHERE data_set = (SELECT identity FROM nsqtw_data_set WHERE name = %s)
    AND reported > now() - interval '{_STANDBY_SECONDS} seconds'
ORDER BY identity
"""
_KEPT = """
SELECT * FROM (
    SELECT one.topic, coalesce(
        (SELECT first FROM nsqtw_segment
         WHERE data_set = %(data_set)s AND nsqtw_segment.topic = one.topic ORDER BY first LIMIT 1),
        (SELECT past FROM nsqtw_topic WHERE data_set = %(data_set)s AND nsqtw_topic.topic = one.topic)
    ) AS first
    FROM unnest(%(topics)s::text[]) AS one (topic)
) AS found WHERE first IS NOT NULL
"""
_BEHIND = """
SELECT coalesce(sum(count), 0)::bigint, coalesce(sum(octet_length(frames) + octet_length(headers)), 0)::bigint
FROM nsqtw_segment WHERE data_set = %(data_set)s AND lsn > %(after)s
"""
_NEXT_BLOCK = "SELECT next_block FROM nsqtw_data_set WHERE name = %s"
_SIZE = """
SELECT count(*), coalesce(sum(count), 0)::bigint,
    coalesce(sum(octet_length(frames) + octet_length(headers)), 0)::bigint,
    (SELECT count(*) FROM nsqtw_pending WHERE data_set = %(data_set)s)
FROM nsqtw_segment WHERE data_set = %(data_set)s
"""
_REMOVALS = f"SELECT name, identity FROM nsqtw_data_set WHERE name LIKE '{_REMOVED}%'"
_REMOVE = f"""
UPDATE nsqtw_data_set SET name = '{_REMOVED}' || identity, epoch = epoch + 1, released = true WHERE name = %s
"""


@implementer(IReplicaStore)
class PostgresStore:
    """The data set that the settings name. Nothing is connected before the first call."""

    def __init__(self, settings: Settings, timeout: float) -> None:
        self._settings = settings
        self._name = settings.data_set
        self._server = Server(settings, timeout)
        self._renewed: tuple[str, str, int] | None = None
        """Identity of the data set, owner and epoch of the last renewal."""

    def data_set(self) -> DataSet | None:
        """IReplicaStore API."""
        try:
            with self._server.call() as connection:
                return self._data_set(connection)
        except NoDataSet:
            # There are no tables.
            return None

    def create(self) -> DataSet:
        """IReplicaStore API."""
        with self._server.call() as connection:
            if not has_tables(connection):
                make_tables(connection)
            identity = token_hex(8)
            if not connection.execute(_CREATE, (self._name, identity, FORMAT)).rowcount:
                raise DataSetExists(f"PostgreSQL has a data set {self._name} already")
            found = self._data_set(connection)
        if found is None or found.identity != identity:
            raise no_data_set(self._name)
        return found

    def forget(self) -> None:
        """IReplicaStore API. Takes longer than the timeout while it removes rows."""
        try:
            with self._server.call() as connection:
                connection.execute(_REMOVE, (self._name,))
                self._finish_removals(connection)
        except NoDataSet:
            # There are no tables.
            return

    def claim(self, owner: str, address: str, lease: float, *, forced: bool = False) -> IReplicaWriter | None:
        """IReplicaStore API."""
        parameters = {"name": self._name, "owner": owner, "address": address, "lease": lease, "forced": forced}
        with self._server.call() as connection:
            row = connection.execute(_CLAIM, parameters).fetchone()
            if row is None:
                if self._data_set(connection) is None:
                    raise no_data_set(self._name)
                return None
        identity, epoch, lsn = row
        server = Server(self._settings, self._server.timeout)
        return PostgresWriter(server, self._name, identity, owner, epoch, lsn)

    def renew(self, epoch: int) -> DataSet:
        """IReplicaStore API."""
        with self._server.call() as connection:
            row = connection.execute(_RENEW, (self._name, epoch)).fetchone()
            if row is None:
                found = self._data_set(connection)
                if found is None:
                    raise no_data_set(self._name)
                raise self._not_owner(found)
        renewed = _read(row)
        claim = (renewed.identity, renewed.owner, epoch)
        if self._renewed is not None and self._renewed != claim and self._renewed[2] == epoch:
            # The same number, of another data set, or of another claim after this one was lost.
            raise self._not_owner(renewed)
        self._renewed = claim
        return renewed

    def request(self, standby: str) -> None:
        """IReplicaStore API."""
        with self._server.call() as connection:
            if not connection.execute(_REQUEST, (standby, self._name)).rowcount:
                raise no_data_set(self._name)

    def epoch_began(self, epoch: int) -> int | None:
        """IReplicaStore API."""
        with self._server.call() as connection:
            row = connection.execute(_EPOCH, (self._name, epoch)).fetchone()
        return row[0] if row else None

    def report(self, standby: str, address: str, lsn: int) -> None:
        """IReplicaStore API."""
        parameters = {"name": self._name, "standby": standby, "address": address, "lsn": lsn}
        with self._server.call() as connection:
            if not connection.execute(_REPORT, parameters).rowcount:
                raise no_data_set(self._name)

    def standbys(self) -> Sequence[StandbyReport]:
        """IReplicaStore API."""
        with self._server.call() as connection:
            return [StandbyReport(*row) for row in connection.execute(_STANDBYS, (self._name,))]

    def segments(self, after: int, limit: int) -> Sequence[StoredSegment]:
        """IReplicaStore API."""
        with self._server.call() as connection:
            return read_segments(connection, self._name, after, limit)

    def behind(self, after: int) -> Behind:
        """IReplicaStore API."""
        with self._server.call() as connection:
            parameters = {"data_set": identity_of(connection, self._name), "after": after}
            row = connection.execute(_BEHIND, parameters).fetchone()
        assert row is not None, "sums have a row"
        return Behind(*row)

    def kept(self, topics: Sequence[str]) -> Mapping[str, int]:
        """IReplicaStore API."""
        with self._server.call() as connection:
            parameters = {"data_set": identity_of(connection, self._name), "topics": [*topics]}
            return dict(connection.execute(_KEPT, parameters).fetchall())

    def checkpoints(self) -> Iterator[Checkpoint]:
        """IReplicaStore API. Each step takes at most the timeout."""
        with self._server.call() as connection:
            identity = identity_of(connection, self._name)
        return read_checkpoints(lambda statement, parameters: self._query(identity, statement, parameters))

    def next_block(self) -> int | None:
        """IReplicaStore API."""
        with self._server.call() as connection:
            row = connection.execute(_NEXT_BLOCK, (self._name,)).fetchone()
        if row is None:
            raise no_data_set(self._name)
        block: int | None = row[0]
        return block

    def size(self) -> Size:
        """IReplicaStore API."""
        with self._server.call() as connection:
            row = connection.execute(_SIZE, {"data_set": identity_of(connection, self._name)}).fetchone()
        assert row is not None, "sums have a row"
        return Size(*row)

    def health(self) -> Sequence[Finding]:
        """IReplicaStore API."""
        with self._server.call() as connection:
            return findings(connection)

    def close(self) -> None:
        """IReplicaStore API."""
        self._server.close()

    # -- inside

    def _data_set(self, connection: BoundedConnection) -> DataSet | None:
        row = connection.execute(_DATA_SET, (self._name,)).fetchone()
        return _read(row) if row is not None else None

    def _finish_removals(self, connection: BoundedConnection) -> None:
        """Remove the rows of removed data sets, also of those whose removal was interrupted."""
        for name, identity in connection.execute(_REMOVALS).fetchall():
            remove_rows(connection, identity)
            connection.execute("DELETE FROM nsqtw_data_set WHERE name = %s", (name,))

    def _query(self, identity: str, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._server.call() as connection:
            cursor = connection.cursor(binary=True)
            return cursor.execute(statement, {**parameters, "data_set": identity}).fetchall()

    def _not_owner(self, found: DataSet) -> NotOwner:
        if found.is_released:
            return NotOwner(f"PostgreSQL: the broker at {found.address} gave the data set {self._name} up")
        return NotOwner(f"PostgreSQL: the broker at {found.address} owns the data set {self._name} now")


def _read(row: tuple[Any, ...]) -> DataSet:
    *values, version = row
    if version > FORMAT:
        raise ReplicaError(
            f"PostgreSQL: the data set {row[0]} has format {version}, this nsqtw knows {FORMAT}: install a newer one"
        )
    return DataSet(*values)
