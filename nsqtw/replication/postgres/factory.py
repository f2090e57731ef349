"""What opens a PostgreSQL replica store: psycopg is imported when one is opened, and not before."""

from __future__ import annotations

from zope.interface import implementer

from nsqtw.errors import OptionError
from nsqtw.interfaces import IReplicaStoreFactory, OperatorLog
from nsqtw.options.files import exposures
from nsqtw.replication.store import IReplicaStore

_FLAG = "--replicate=postgres"


@implementer(IReplicaStoreFactory)
class PostgresFactory:
    """IReplicaStoreFactory API."""

    name = "postgres"
    summary = "a copy in PostgreSQL 12 or newer, which should have a synchronous standby"
    argument_format = "the path of a TOML file with dsn, and perhaps password_file and data_set"

    def open(self, argument: str, timeout: float, log: OperatorLog) -> IReplicaStore:
        """IReplicaStoreFactory API."""
        try:
            import psycopg  # noqa: F401
        except ImportError as failure:
            # Also when it is there, and finds no libpq.
            raise OptionError(f"{_FLAG} needs psycopg 3: pip install nsqtw[postgres]") from failure
        from nsqtw.replication.postgres.settings import read_settings
        from nsqtw.replication.postgres.store import PostgresStore

        settings = read_settings(argument, _FLAG)
        for warning in exposures({_FLAG: settings.path, f"{_FLAG}, password_file": settings.password_file}):
            log("warn", warning)
        return PostgresStore(settings, timeout)
