"""
A data set in PostgreSQL: who owns it, and what standbys read. What the owner writes is in `writer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from time import monotonic
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
    Claim,
    DataSet,
    Finding,
    IReplicaStore,
    IReplicaWriter,
    OnDamage,
    Size,
    StandbyReport,
    StoredSegment,
)

_REMOVED = "removed "
_STANDBY_SECONDS = 60
_TIDY_SECONDS = 3600.0
"""How often a standby looks for reports that are too old."""
_REMOVAL_SECONDS = 60.0
"""For each step of a removal."""
_EPOCHS = 1000
"""How many claims are kept."""
_SPANS_AT_ONCE = 5000

# The same text in each session, whatever its time zone.
_RENEWED = "to_char(renewed AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
_COLUMNS = f"""
name, identity, epoch, owner, address, released,
(CASE WHEN released OR epoch = 0 THEN 0
 ELSE least(lease, greatest(0, lease - extract(epoch FROM clock_timestamp() - renewed))) END)::float8,
lease, {_RENEWED}, token, lsn, checkpoint_lsn, requested_by, format
"""
_DATA_SET = f"SELECT {_COLUMNS} FROM nsqtw_data_set WHERE name = %s"
_CREATE = """
INSERT INTO nsqtw_data_set (name, identity, format) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
"""
_CLAIM = f"""
WITH claimed AS (
    UPDATE nsqtw_data_set
    SET epoch = epoch + 1, token = %(new_token)s, owner = %(owner)s, address = %(address)s, lease = %(lease)s,
        renewed = now(), released = false, requested_by = ''
    WHERE name = %(name)s AND format <= {FORMAT} AND (
        %(forced)s OR epoch = 0 OR released OR renewed + lease * interval '1 second' <= now()
        OR (token = %(token)s AND token <> '')
        OR (identity = %(seen_identity)s AND epoch = %(seen_epoch)s AND token = %(seen_token)s AND lsn = %(seen_lsn)s
            AND {_RENEWED} = %(seen_renewed)s)
    )
    RETURNING identity, epoch, token, lsn, owner
), old AS (
    DELETE FROM nsqtw_epoch USING claimed
    WHERE data_set = claimed.identity AND nsqtw_epoch.epoch <= claimed.epoch - {_EPOCHS}
)
INSERT INTO nsqtw_epoch (data_set, epoch, token, lsn, owner, claimed)
SELECT identity, epoch, token, lsn, owner, now() FROM claimed RETURNING data_set, epoch, lsn
"""
_RENEW = f"""
UPDATE nsqtw_data_set SET renewed = now()
WHERE name = %(name)s AND epoch = %(epoch)s AND NOT released AND (%(token)s = '' OR token = %(token)s)
RETURNING {_COLUMNS}
"""
_REQUEST = "UPDATE nsqtw_data_set SET requested_by = %s WHERE name = %s"
_EPOCH = """
SELECT token, lsn FROM nsqtw_epoch
WHERE data_set = (SELECT identity FROM nsqtw_data_set WHERE name = %s) AND epoch = %s
"""
_REPORT = """
INSERT INTO nsqtw_standby (data_set, identity, address, lsn, reported)
SELECT identity, %(standby)s, %(address)s, %(lsn)s, now() FROM nsqtw_data_set WHERE name = %(name)s
ON CONFLICT (data_set, identity) DO UPDATE
SET address = excluded.address, lsn = excluded.lsn, reported = excluded.reported
"""
_TIDY = "DELETE FROM nsqtw_standby WHERE reported < now() - interval '1 day'"
_STANDBYS = f"""
SELECT identity, address, lsn, greatest(0, extract(epoch FROM clock_timestamp() - reported))::float8
FROM nsqtw_standby WHERE data_set = (SELECT identity FROM nsqtw_data_set WHERE name = %s)
    AND reported > now() - interval '{_STANDBY_SECONDS} seconds'
ORDER BY identity
"""
_KEPT = """
SELECT * FROM (
    SELECT one.topic, (
        SELECT first FROM nsqtw_segment
        WHERE data_set = %(data_set)s AND nsqtw_segment.topic = one.topic ORDER BY first LIMIT 1
    ) AS first
    FROM unnest(%(topics)s::text[]) AS one (topic)
) AS found
WHERE first IS NOT NULL
    OR EXISTS (SELECT 1 FROM nsqtw_topic WHERE data_set = %(data_set)s AND nsqtw_topic.topic = found.topic)
"""
_ENDS = """
SELECT one.topic, last.first + last.count
FROM unnest(%(topics)s::text[]) AS one (topic)
JOIN LATERAL (
    SELECT first, count FROM nsqtw_segment
    WHERE data_set = %(data_set)s AND nsqtw_segment.topic = one.topic ORDER BY first DESC LIMIT 1
) AS last ON true
"""
# Who frees what is not there must not be told too little: a damaged count is taken for the highest possible one.
_SPANS = f"""
SELECT first, first + CASE WHEN count BETWEEN 1 AND octet_length(frames) THEN count ELSE 1 + octet_length(frames) END
FROM nsqtw_segment
WHERE data_set = %(data_set)s AND topic = %(topic)s AND first > %(after)s
ORDER BY first LIMIT {_SPANS_AT_ONCE}
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
        self._claim = (0, "")
        """Epoch and token of the last claim, or of the last one that was renewed."""
        self._tidied: float | None = None

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
                # From here on another one of the same name can be created.
                connection.allow(_REMOVAL_SECONDS)
                self._finish_removals(connection)
        except NoDataSet:
            # There are no tables.
            return

    def claim(
        self,
        owner: str,
        address: str,
        lease: float,
        *,
        token: str = "",
        unchanged: DataSet | None = None,
        forced: bool = False,
    ) -> IReplicaWriter | None:
        """IReplicaStore API."""
        new_token = token_hex(16)
        parameters = {
            "name": self._name,
            "owner": owner,
            "address": address,
            "lease": lease,
            "new_token": new_token,
            "forced": forced,
            "token": token,
            "seen_identity": unchanged.identity if unchanged else "",
            "seen_epoch": unchanged.epoch if unchanged else -1,
            "seen_token": unchanged.token if unchanged else "",
            "seen_lsn": unchanged.lsn if unchanged else -1,
            "seen_renewed": unchanged.renewed if unchanged else "",
        }
        with self._server.call() as connection:
            row = connection.execute(_CLAIM, parameters).fetchone()
            if row is None:
                if self._data_set(connection) is None:
                    raise no_data_set(self._name)
                return None
        identity, epoch, lsn = row
        self._claim = (epoch, new_token)
        server = Server(self._settings, self._server.timeout)
        return PostgresWriter(server, self._name, identity, new_token, epoch, lsn)

    def renew(self, epoch: int) -> DataSet:
        """IReplicaStore API."""
        known, token = self._claim
        # The same epoch may be one of another claim, in a store that has lost this one.
        parameters = {"name": self._name, "epoch": epoch, "token": token if known == epoch else ""}
        with self._server.call() as connection:
            row = connection.execute(_RENEW, parameters).fetchone()
            if row is None:
                found = self._data_set(connection)
                if found is None:
                    raise no_data_set(self._name)
                raise self._not_owner(found)
        renewed = _read(row)
        self._claim = (epoch, renewed.token)
        return renewed

    def request(self, standby: str) -> None:
        """IReplicaStore API."""
        with self._server.call() as connection:
            if not connection.execute(_REQUEST, (standby, self._name)).rowcount:
                raise no_data_set(self._name)

    def claim_of(self, epoch: int) -> Claim | None:
        """IReplicaStore API. Of the last thousand claims."""
        with self._server.call() as connection:
            row = connection.execute(_EPOCH, (self._name, epoch)).fetchone()
        return Claim(*row) if row else None

    def report(self, standby: str, address: str, lsn: int) -> None:
        """IReplicaStore API."""
        parameters = {"name": self._name, "standby": standby, "address": address, "lsn": lsn}
        with self._server.call() as connection:
            if not connection.execute(_REPORT, parameters).rowcount:
                raise no_data_set(self._name)
            if self._tidied is None or monotonic() - self._tidied > _TIDY_SECONDS:
                # Of every data set: also of those that were removed while a standby reported.
                connection.execute(_TIDY)
                self._tidied = monotonic()

    def standbys(self) -> Sequence[StandbyReport]:
        """IReplicaStore API."""
        with self._server.call() as connection:
            return [StandbyReport(*row) for row in connection.execute(_STANDBYS, (self._name,))]

    def segments(self, after: int, limit: int, on_damage: OnDamage | None = None) -> Sequence[StoredSegment]:
        """
        IReplicaStore API. With `on_damage` transactions of which nothing can be read are passed over: [] says that
        nothing behind `after` can be read, and not that nothing is there. All is copied then that the data set had up
        to the LSN that it had before this call.
        """
        with self._server.call() as connection:
            return read_segments(connection, self._name, after, limit, on_damage)

    def behind(self, after: int) -> Behind:
        """IReplicaStore API."""
        with self._server.call() as connection:
            parameters = {"data_set": identity_of(connection, self._name), "after": after}
            row = connection.execute(_BEHIND, parameters).fetchone()
        assert row is not None, "sums have a row"
        return Behind(*row)

    def kept(self, topics: Sequence[str]) -> Mapping[str, int | None]:
        """IReplicaStore API."""
        with self._server.call() as connection:
            parameters = {"data_set": identity_of(connection, self._name), "topics": [*topics]}
            return dict(connection.execute(_KEPT, parameters).fetchall())

    def ends(self, topics: Sequence[str]) -> Mapping[str, int]:
        """IReplicaStore API."""
        with self._server.call() as connection:
            parameters = {"data_set": identity_of(connection, self._name), "topics": [*topics]}
            return dict(connection.execute(_ENDS, parameters).fetchall())

    def spans(self, topic: str) -> Iterator[tuple[int, int]]:
        """IReplicaStore API. Each step takes at most the timeout."""
        with self._server.call() as connection:
            identity = identity_of(connection, self._name)
        return self._spans(identity, topic)

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

    def _spans(self, identity: str, topic: str) -> Iterator[tuple[int, int]]:
        after = -1
        while rows := self._query(identity, _SPANS, {"topic": topic, "after": after}):
            yield from rows
            after = rows[-1][0]

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
