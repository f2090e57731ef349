"""
The owner's side of a data set in PostgreSQL.

Theory of operation. The row of the data set has the identity of the data set, the epoch and the owner of the last
claim, and the LSN. Whatever is written is one transaction with a change of that row, which finds it only if all of them
are as expected. A write of segments is a single statement, so it takes one round trip, and a broker that is stopped in
the middle of it has sent nothing that the server could begin with. A checkpoint is several statements; they touch rows
that nobody else needs, and the row of the data set is changed with COMMIT in one message at the end: so a broker that
is stopped at any point has no lock that another one needs to claim the data set.

After a failure nobody knows whether the transaction was committed. The next write looks at the row first: its LSN is
the one before, or one more. If the transaction is still going on, it finds another LSN than it expects, or the next one
does. Whatever happens, the two cannot both be committed.

    lsn .................. acknowledged: the store has lost something if the row has less
    _base ................ what the next write expects: `lsn`, or one more after a failure
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from psycopg import errors, sql
from zope.interface import implementer

from nsqtw.core.checkpoint import Checkpoint
from nsqtw.errors import NoDataSet, NotOwner, ReplicaError, StoreLost
from nsqtw.replication.postgres import segment_rows
from nsqtw.replication.postgres.arrays import Number, Numbers, Texts
from nsqtw.replication.postgres.connection import BoundedConnection, Server
from nsqtw.replication.postgres.publisher_ids import Sweep
from nsqtw.replication.postgres.saving import (
    OF_DELETED_CHANNELS,
    OF_DELETED_TOPICS,
    Statement,
    replacing,
    saving,
)
from nsqtw.replication.postgres.schema import removals
from nsqtw.replication.postgres.trimming import PAGE, Span, Trimmed
from nsqtw.replication.store import IReplicaWriter, Write

_ROWS_IN_A_SECOND = 10_000
"""As long as a database may take for a checkpoint of very many rows. One on a good machine saves ten times as many."""

_OWN = """
name = %(name)s AND identity = %(data_set)s AND epoch = %(epoch)s AND owner = %(owner)s AND NOT released
"""
_EXPECTED = f"{_OWN} AND lsn = %(lsn)s"
_OWNED = f"{_OWN} AND lsn >= %(lsn)s"

_APPEND = f"""
WITH owner AS (
    UPDATE nsqtw_data_set SET lsn = lsn + 1, renewed = now() WHERE {_EXPECTED} RETURNING identity, lsn
) {segment_rows.PUT}
"""
_COMMIT = f"""
WITH owner AS (
    UPDATE nsqtw_data_set SET lsn = lsn + 1, checkpoint_lsn = lsn + 1, renewed = now(),
        wall_shift_ms = coalesce(%(wall_shift_ms)s, wall_shift_ms)
    WHERE {_EXPECTED} RETURNING lsn
) SELECT 1 / count(*) FROM owner;
COMMIT
"""
"""Without a row it is a division by zero, and the server does not go on to COMMIT."""
_RESERVE = f"""
UPDATE nsqtw_data_set SET next_block = greatest(coalesce(next_block, 0), %(next_block)s), renewed = now() WHERE {_OWNED}
"""
_RELEASE = f"UPDATE nsqtw_data_set SET released = true, requested_by = '' WHERE {_OWN}"
_LOOK = """
SELECT identity, epoch, owner, address, released, lsn FROM nsqtw_data_set WHERE name = %(name)s
"""
_SPANS = f"""
SELECT first, first + count FROM nsqtw_segment
WHERE data_set = %(data_set)s AND topic = %(topic)s AND first >= %(start)s AND first < %(below)s
ORDER BY first LIMIT {PAGE}
"""
_TRIM = f"""
WITH owner AS (
    UPDATE nsqtw_data_set SET renewed = now() WHERE {_OWNED} RETURNING identity
), removed AS (
    DELETE FROM nsqtw_segment USING owner
    WHERE data_set = owner.identity AND topic = %(topic)s AND first = ANY(%(firsts)s)
)
INSERT INTO nsqtw_topic (data_set, topic, past)
SELECT identity, %(topic)s, %(past)s FROM owner
ON CONFLICT (data_set, topic) DO UPDATE SET past = greatest(nsqtw_topic.past, excluded.past)
"""
_STEP = f"""
WITH owner AS (UPDATE nsqtw_data_set SET renewed = now() WHERE {_OWNED} RETURNING identity) {{0}}
AND EXISTS (SELECT 1 FROM owner)
"""


@implementer(IReplicaWriter)
class PostgresWriter:
    """The data set `name` of this identity, claimed by `owner` with `epoch` when its LSN was `lsn`."""

    def __init__(self, server: Server, name: str, identity: str, owner: str, epoch: int, lsn: int) -> None:
        self.epoch = epoch
        self.lsn = lsn
        self._server = server
        self._own = {"name": name, "data_set": identity, "epoch": Number(epoch), "owner": owner}
        self._name = name
        self._identity = identity
        self._owner = owner
        self._base = lsn
        self._is_known = True
        """Whether the outcome of all transactions is known."""
        self._verdict: NotOwner | StoreLost | None = None
        self._trimmed: dict[str, Trimmed] = {}
        self._sweep = Sweep()

    def append(self, writes: Sequence[Write]) -> None:
        """IReplicaWriter API."""
        segments = segment_rows.put_parameters(writes)
        if not segments:
            return
        with self._writing() as connection:
            for _ in range(2):
                parameters = {**self._own, **segments, "lsn": Number(self._base)}
                if connection.execute(_APPEND, parameters, prepare=True).rowcount:
                    break
                self._look(connection)
            else:
                raise ReplicaError("PostgreSQL: an earlier transaction goes on")
        self._committed()

    def save(self, checkpoints: Iterable[Checkpoint], replaced: Sequence[str] = ()) -> None:
        """IReplicaWriter API. Takes longer than the timeout only with tens of thousands of rows, when these do."""
        saved = [*checkpoints]
        wall_shift_ms = None
        for checkpoint in saved:
            wall_shift_ms = wall_shift_ms if checkpoint.wall_shift_ms is None else checkpoint.wall_shift_ms
        with self._writing() as connection:
            self._shrink(connection, saved)
            self._sweep.saving(saved)
            with connection.pipeline():
                connection.execute("BEGIN")
                self._execute_all(connection, replacing(replaced))
                for checkpoint in saved:
                    self._execute_all(connection, saving(checkpoint))
                swept = self._sweep.begin(connection, self._identity)
            self._sweep.end(swept)
            values = {**self._own, "epoch": self.epoch, "lsn": self._base, "wall_shift_ms": wall_shift_ms}
            try:
                connection.execute(_in_one_message(_COMMIT, values), prepare=False)
            except errors.DivisionByZero:
                connection.execute("ROLLBACK")
                self._look(connection)
                raise ReplicaError("PostgreSQL: an earlier transaction goes on") from None
        self._committed()
        for checkpoint in saved:
            for topic in checkpoint.deleted_topics:
                self._trimmed.pop(topic, None)

    def reserve(self, next_block: int) -> None:
        """IReplicaWriter API."""
        with self._calling() as connection:
            parameters = {**self._own, "lsn": Number(self.lsn), "next_block": Number(next_block)}
            self._expect(connection, connection.execute(_RESERVE, parameters).rowcount)

    def trim(self, topic: str, below: int, keep: Iterable[int]) -> None:
        """IReplicaWriter API."""
        trimmed = self._trimmed.setdefault(topic, Trimmed())
        # Until it is done nothing is known: a failure may be one after a removal.
        del self._trimmed[topic]
        self._check()
        with ExitStack() as stack:
            # Mostly the database is not asked; when it is, all of it is one call.
            connections: list[BoundedConnection] = []

            def connected() -> BoundedConnection:
                if not connections:
                    connections.append(stack.enter_context(self._calling()))
                return connections[0]

            trimmed.trim(
                below,
                keep,
                lambda start, end: self._spans(connected(), topic, start, end),
                lambda spans: self._free(connected(), topic, spans),
            )
        self._trimmed[topic] = trimmed

    def release(self) -> None:
        """IReplicaWriter API."""
        with self._calling() as connection:
            self._expect(connection, connection.execute(_RELEASE, self._own).rowcount)
        self._verdict = NotOwner(f"PostgreSQL: this broker gave the data set {self._name} up")

    def close(self) -> None:
        """IReplicaWriter API."""
        self._server.close()

    # -- inside

    def _check(self) -> None:
        if self._verdict is not None:
            raise self._verdict

    @contextmanager
    def _calling(self) -> Iterator[BoundedConnection]:
        """The connection, for what does not change the LSN."""
        self._check()
        with self._server.call() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[BoundedConnection]:
        """The connection, for a transaction with an LSN. `_committed` is called behind it."""
        with self._calling() as connection:
            if not self._is_known:
                self._look(connection)
            self._is_known = False
            yield connection

    def _committed(self) -> None:
        self._base += 1
        self.lsn = self._base
        self._is_known = True

    def _expect(self, connection: BoundedConnection, count: int) -> None:
        """A statement has changed as many rows: with none, say why."""
        if not count:
            self._look(connection)
            raise ReplicaError(f"PostgreSQL: the data set {self._name} changed meanwhile")

    def _look(self, connection: BoundedConnection) -> None:
        """Find out where the data set is. NoDataSet, NotOwner, StoreLost."""
        row = connection.execute(_LOOK, self._own).fetchone()
        if row is None or row[0] != self._identity:
            what = "was removed, and another one has its name" if row else "was removed"
            raise NoDataSet(f"PostgreSQL: the data set {self._name} {what}")
        _, epoch, owner, address, is_released, lsn = row
        if lsn < self.lsn or epoch < self.epoch:
            self._verdict = StoreLost(
                f"PostgreSQL has lost {max(self.lsn - lsn, 0)} transactions of the data set {self._name} that it had"
                f" committed: its last one is {lsn}, and was {self.lsn}"
            )
        elif (epoch, owner) != (self.epoch, self._owner):
            self._verdict = NotOwner(f"PostgreSQL: the broker at {address} owns the data set {self._name} now")
        elif is_released:
            self._verdict = NotOwner(f"PostgreSQL: this broker gave the data set {self._name} up")
        elif lsn > self._base + 1:
            self._verdict = StoreLost(
                f"PostgreSQL has {lsn - self._base} transactions of the data set {self._name} that this broker did not"
                " write: it is not the store that was written before"
            )
        self._check()
        self._base = lsn
        self._is_known = True

    def _execute_all(self, connection: BoundedConnection, statements: Iterable[Statement]) -> None:
        for statement, parameters, rows in statements:
            # Rows have their own time: with very many of them a checkpoint would never be saved otherwise.
            connection.deadline += rows / _ROWS_IN_A_SECOND
            connection.execute(statement, {**parameters, "data_set": self._identity})

    def _shrink(self, connection: BoundedConnection, checkpoints: Sequence[Checkpoint]) -> None:
        """
        Remove most of what belongs to deleted topics and channels, in steps that are transactions of their own: all of
        it at once might take longer than a call may, each time; so a call that takes too long has removed some. What
        is removed is not needed, also if the checkpoint is not saved.
        """
        created: set[str] = set()
        for checkpoint in checkpoints:
            topics = [topic for topic in checkpoint.deleted_topics if topic not in created]
            created.update(topic.name for topic in checkpoint.topics)
            for table in OF_DELETED_TOPICS if topics else ():
                self._remove_in_steps(connection, table, "AND topic = ANY(%(topics)s)", {"topics": Texts(topics)})
            for topic, channel in checkpoint.deleted_channels:
                for table in OF_DELETED_CHANNELS:
                    where = "AND topic = %(topic)s AND channel = %(channel)s"
                    self._remove_in_steps(connection, table, where, {"topic": topic, "channel": channel})

    def _remove_in_steps(
        self, connection: BoundedConnection, table: str, where: str, parameters: dict[str, Any]
    ) -> None:
        given = {**parameters, **self._own, "lsn": Number(self.lsn)}
        step, rest = (_STEP.format(statement) for statement in removals(table, where))
        while connection.execute(step, given).rowcount:
            pass
        connection.execute(rest, given)

    def _spans(self, connection: BoundedConnection, topic: str, start: int, below: int) -> Sequence[Span]:
        parameters = {"data_set": self._identity, "topic": topic, "start": Number(start), "below": Number(below)}
        return connection.execute(_SPANS, parameters).fetchall()

    def _free(self, connection: BoundedConnection, topic: str, spans: Sequence[Span]) -> None:
        parameters = {
            **self._own,
            "lsn": Number(self.lsn),
            "topic": topic,
            "firsts": Numbers([first for first, _ in spans]),
            "past": Number(max(end for _, end in spans)),
        }
        self._expect(connection, connection.execute(_TRIM, parameters).rowcount)


def _in_one_message(statement: str, values: dict[str, Any]) -> sql.Composed:
    """Return statements with their values in them: those that have parameters are messages of their own."""
    text = statement
    for name in values:
        text = text.replace(f"%({name})s", f"{{{name}}}")
    return sql.SQL(text).format(**{name: sql.Literal(value) for name, value in values.items()})
