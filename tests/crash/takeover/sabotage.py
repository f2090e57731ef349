"""Brokers that break a promise of replication, each in one place: see `tests.crash.sabotage`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nsqtw.errors import NotOwner
from nsqtw.replication.ownership import Ownership
from nsqtw.replication.standby import Standby
from nsqtw.replication.store import DataSet, OnDamage, Write


def forget_fence() -> None:
    """What an owner writes is stored, whoever owns the data set."""
    from nsqtw.replication.postgres import writer

    def unfenced(statement: str) -> str:
        for condition in (writer._EXPECTED, writer._OWNED, writer._OWN):
            statement = statement.replace(condition, "name = %(name)s ")
        return statement

    for name in ("_APPEND", "_COMMIT", "_RESERVE", "_TRIM", "_STEP"):
        setattr(writer, name, unfenced(getattr(writer, name)))
    look = writer.PostgresWriter._look

    def wrong(self: Any, connection: Any) -> None:
        try:
            look(self, connection)
        except NotOwner:
            self._verdict, self._is_known = None, True

    writer.PostgresWriter._look = wrong  # type: ignore[method-assign]


def claim_without_copy() -> None:
    """A standby copies nothing, and serves what it has."""

    def copy_nothing(self: Standby, data_set: DataSet, on_damage: OnDamage | None = None) -> bool:
        return False

    Standby._copy_some = copy_nothing  # type: ignore[method-assign]


def confirm_before_store() -> None:
    """Says OK for a batch when the batch before is in the store."""
    append = Ownership.append
    waiting: list[Sequence[Write]] = []

    def wrong_append(self: Ownership, writes: Sequence[Write]) -> None:
        late, waiting[:] = waiting[:], [writes]
        for one in late:
            append(self, one)

    Ownership.append = wrong_append  # type: ignore[method-assign]


SABOTAGES: dict[str, Callable[[], None]] = {
    sabotage.__name__: sabotage for sabotage in (forget_fence, claim_without_copy, confirm_before_store)
}
