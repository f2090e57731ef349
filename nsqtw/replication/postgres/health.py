"""What an operator may have set up wrong in PostgreSQL: an OK that does not survive the loss of a machine, mostly."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg

from nsqtw.replication.postgres.connection import BoundedConnection, TimedOut
from nsqtw.replication.store import Finding

_LOWEST_VERSION = 12
_MAX_SKEW_SECONDS = 1.0
_MANY_DEAD = 1_000_000
_NAMES = (
    *("server_version", "server_version_num", "synchronous_commit", "synchronous_standby_names", "fsync"),
    *("full_page_writes", "autovacuum"),
)

_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
_STANDBYS = "SELECT sync_state, state FROM pg_stat_replication"
_TABLES = """
SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables
WHERE relname LIKE 'nsqtw!_%%' ESCAPE '!' AND n_dead_tup > %s AND n_dead_tup > 2 * n_live_tup ORDER BY n_dead_tup DESC
"""

Check = Callable[[BoundedConnection, Mapping[str, str]], Finding]


def findings(connection: BoundedConnection) -> Sequence[Finding]:
    """Like `IReplicaStore.health`. What an engine does not know is a finding, too."""
    settings: dict[str, str] = {}
    try:
        settings.update(connection.execute(_SETTINGS, ([*_NAMES],)).fetchall())
    except psycopg.Error as error:
        _raise_if_lost(connection, error)
    found = []
    for name, check in _CHECKS.items():
        try:
            found.append(check(connection, settings))
        except psycopg.Error as error:
            _raise_if_lost(connection, error)
            found.append(Finding(name, True, "this server does not tell"))
    return found


def _raise_if_lost(connection: BoundedConnection, error: psycopg.Error) -> None:
    if connection.closed or isinstance(error, TimedOut):
        raise error


def _version(_connection: BoundedConnection, settings: Mapping[str, str]) -> Finding:
    number = int(settings.get("server_version_num", 0)) // 10_000
    shown = settings.get("server_version", "")
    if not shown:
        return Finding("version", True, "this is no PostgreSQL, but speaks its protocol")
    text = f"PostgreSQL {shown}"
    return Finding("version", number >= _LOWEST_VERSION, text if number >= _LOWEST_VERSION else f"{text} is too old")


def _commit(_connection: BoundedConnection, settings: Mapping[str, str]) -> Finding:
    value = settings.get("synchronous_commit", "on")
    name = "synchronous_commit"
    if value == "off":
        return Finding(name, False, "it is off: a crash of the server loses what was acknowledged; set it to on")
    if value == "local":
        return Finding(name, False, "it is local: the loss of the machine loses what was acknowledged; set it to on")
    if value == "remote_write":
        return Finding(name, True, "it is remote_write: a power loss of both machines may lose what was acknowledged")
    return Finding(name, True, f"it is {value}")


def _standby_names(_connection: BoundedConnection, settings: Mapping[str, str]) -> Finding:
    name = "synchronous_standby_names"
    if name in settings and not settings[name]:
        text = "it is empty: what was acknowledged is lost with the server's machine; name a standby, or use one of a"
        return Finding(name, False, f"{text} service that replicates below the database")
    return Finding(name, True, settings.get(name, "this server does not tell"))


def _standby(connection: BoundedConnection, settings: Mapping[str, str]) -> Finding:
    name = "standby"
    if not settings.get("synchronous_standby_names"):
        return Finding(name, True, "none is asked for")
    states = connection.execute(_STANDBYS).fetchall()
    synchronous = sum(state in ("sync", "quorum") for state, _ in states)
    if synchronous:
        return Finding(name, True, f"synchronous standbys connected: {synchronous}")
    if any(state is None for state, _ in states):
        return Finding(name, True, "this user cannot see whether it is connected: GRANT pg_read_all_stats")
    return Finding(name, False, "no synchronous standby is connected: nothing can be acknowledged until one is")


def _durable(_connection: BoundedConnection, settings: Mapping[str, str]) -> Finding:
    off = [name for name in ("fsync", "full_page_writes") if settings.get(name) == "off"]
    if off:
        return Finding("fsync", False, f"{' and '.join(off)} off: a power loss may damage the database; set it to on")
    return Finding("fsync", True, "it is on")


def _clock(connection: BoundedConnection, _settings: Mapping[str, str]) -> Finding:
    before = time.time()
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    after = time.time()
    shift: float = row[0] - (before + after) / 2 if row else 0.0
    # What the round trip may hide does not count.
    is_good = abs(shift) - (after - before) / 2 <= _MAX_SKEW_SECONDS
    if is_good:
        return Finding("clock", True, "it is that of this machine")
    way = "ahead of" if shift > 0 else "behind"
    return Finding("clock", False, f"the server's clock is {abs(shift):.1f} s {way} that of this machine")


def _bloat(connection: BoundedConnection, settings: Mapping[str, str]) -> Finding:
    if settings.get("autovacuum") == "off":
        return Finding("vacuum", False, "autovacuum is off: the tables grow without end; set it to on")
    rows: list[Any] = connection.execute(_TABLES, (_MANY_DEAD,)).fetchall()
    if not rows:
        return Finding("vacuum", True, "the tables are clean")
    table, live, dead, size = rows[0]
    text = f"{table} has {dead} dead rows, {live} live ones and {size >> 20} MB: is an old transaction open?"
    return Finding("vacuum", False, text)


_CHECKS: dict[str, Check] = {
    "version": _version,
    "synchronous_commit": _commit,
    "synchronous_standby_names": _standby_names,
    "standby": _standby,
    "fsync": _durable,
    "clock": _clock,
    "vacuum": _bloat,
}
