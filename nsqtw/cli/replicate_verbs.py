"""Verbs about a replica store: `nsqtw replicate init`, `status`, `promote`, `forget`, `detach`."""

from __future__ import annotations

from nsqtw.cli.output import Column, Table
from nsqtw.cli.session import Session
from nsqtw.tools import replicate

_COLUMNS = (
    Column("role", "ROLE"),
    Column("address", "ADDRESS"),
    Column("identity", "IDENTITY"),
    Column("epoch", "EPOCH"),
    Column("lsn", "LSN"),
    Column("behind", "BEHIND"),
    Column("seconds", "SECONDS"),
)


def init(session: Session, store: str, data_path: str, must_replace: bool) -> None:
    """`nsqtw replicate init`."""
    replicate.init(store, data_path, must_replace, session.say)


def status(session: Session, store: str) -> Table:
    """`nsqtw replicate status`."""
    return Table(_COLUMNS, replicate.status(store), "no broker")


def promote(session: Session, store: str, must_force: bool, timeout: float) -> None:
    """`nsqtw replicate promote`."""
    replicate.promote(store, must_force, timeout, session.say)


def forget(session: Session, store: str, must_force: bool) -> None:
    """`nsqtw replicate forget`."""
    session.confirm("Remove the data set from the replica store?")
    replicate.forget(store, must_force, session.say)


def detach(session: Session, data_path: str) -> None:
    """`nsqtw replicate detach`."""
    replicate.detach(data_path, session.say)
