"""
Connections to PostgreSQL on which nothing takes longer than it may.

Theory of operation. psycopg waits for the socket in one method, `wait`, which has a deadline here: it covers all that
one call of the store does. When it has passed, the socket is closed at once, before psycopg does anything else: in a
pipeline it would wait again. Nobody waits for the answer to a cancellation, which may be lost as well. The server
notices by itself: it is told to give up statements, waits for locks and idle transactions after about as long.

A connection is opened by the first call, and again by the first one after an error, whatever the error was: the server
may have become a standby, and another one of the same DSN its primary. Hosts are tried in order, each for its share of
the time that is left, those that failed last come last.

A commit that no longer waits for its synchronous standby, because an operator or the end of the server cancelled the
wait, is reported as done, with a warning. It is on one machine only, so here it is an error.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.waiting import Ready, Wait

from nsqtw.errors import BackendError, BackendFull, NoDataSet, OptionError, ReplicaError
from nsqtw.replication.postgres.addresses import resolved, servers
from nsqtw.replication.postgres.arrays import register_arrays
from nsqtw.replication.postgres.settings import Settings

RV = TypeVar("RV")

_MAX_TEXT = 300
_DISK_FULL = "53100"
_READ_ONLY = "25006"
_UNDEFINED_TABLE = "42P01"
_SYNC_WAIT = "SyncRepWaitForLSN"
"""The function of the server that warns about a cancelled wait: texts are translated, this is not."""
_OUTCOME_UNKNOWN = "the database no longer waits for its synchronous standby: the outcome is not known"

_SESSION = """
SELECT set_config(wanted.name, wanted.value, false) FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)
JOIN pg_settings AS known ON known.name = wanted.name
"""

# psycopg logs what goes wrong while it ends a pipeline on a connection that is lost: the error itself is raised.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class TimedOut(psycopg.OperationalError):
    """The time of a call is over."""


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection with a deadline, in the time of `monotonic`. In autocommit, so a transaction has its own BEGIN."""

    deadline = 0.0
    timeout = 0.0
    limit = 0.0
    """For how many seconds the server lets a call go on."""
    is_unreplicated = False
    """A commit did not wait for the synchronous standby."""

    def wait(self, gen: PQGen[RV], interval: float = 0.0, timeout: float | None = None) -> RV:
        """Like that of psycopg, up to the deadline. TimedOut: the connection is closed."""
        poll = select.poll()
        poll.register(self.pgconn.socket, 0)
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send(_wait(poll, self.pgconn.socket, wanted, self.deadline))
        except StopIteration as end:
            result: RV = end.value
            return result
        except TimedOut as error:
            # A generator that ends a pipeline would wait for the server once more: without a connection it cannot.
            self.pgconn.finish()
            with suppress(psycopg.Error, StopIteration):
                gen.throw(error)
            raise

    def go_on(self) -> None:
        """The call has done a part of very much: the next part has as much time again."""
        self.deadline = monotonic() + self.limit

    def allow(self, seconds: float) -> None:
        """
        Let the call go on for `seconds` more, here and at the server. When these are many, the server is asked first:
        one that does not answer is found out in the time of the call.
        """
        limit = self.timeout + seconds if seconds > self.timeout / 2 else self.timeout
        if limit != self.limit:
            self.configure(time_limits(limit))
            self._keep_for(limit)
            self.limit = limit
        self.deadline += seconds

    def configure(self, settings: Mapping[str, object]) -> None:
        """Make settings of the session. Those that the server does not know are left out."""
        try:
            self.execute(_SESSION, [[*settings], [str(value) for value in settings.values()]])
        except psycopg.Error:
            # An engine without pg_settings, or a system where one of them cannot be set.
            if self.closed or self.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                raise

    @property
    def is_usable(self) -> bool:
        """Whether nothing has come, such as the end of the connection, that no statement asked for."""
        if self.closed or self.pgconn.status != pq.ConnStatus.OK:
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)

    def _keep_for(self, seconds: float) -> None:
        """Let data wait that long in the socket: a server reads none during a statement."""
        with socket.socket(fileno=os.dup(self.pgconn.socket)) as copy:
            if copy.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
                copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))

    def noticed(self, notice: errors.Diagnostic) -> None:
        """Look at a notice of the server."""
        text = notice.message_primary or ""
        if notice.source_function == _SYNC_WAIT or "synchronous replication" in text:
            self.is_unreplicated = True


class Server:
    """The database of a DSN, with at most one connection to it. Each call takes `timeout` seconds at most."""

    def __init__(self, settings: Settings, timeout: float) -> None:
        self._settings = settings
        self._timeout = timeout
        self._servers = servers(settings.parameters)
        self._connection: BoundedConnection | None = None

    @property
    def timeout(self) -> float:
        """Seconds that a call may take."""
        return self._timeout

    @contextmanager
    def call(self) -> Iterator[BoundedConnection]:
        """Return the connection for one call. ReplicaError, BackendFull and NoDataSet, also for errors inside."""
        deadline = monotonic() + self._timeout
        try:
            connection = self._connected(deadline)
            connection.deadline = deadline
            yield connection
            if connection.is_unreplicated:
                raise ReplicaError(f"PostgreSQL: {_OUTCOME_UNKNOWN}")
        except psycopg.Error as error:
            self.close()
            # Not `from error`: its text was not searched for the password.
            raise self._converted(error) from None
        finally:
            connection_now = self._connection
            if connection_now is not None and (
                connection_now.is_unreplicated or connection_now.pgconn.transaction_status != pq.TransactionStatus.IDLE
            ):
                self.close()

    def close(self) -> None:
        """Close the connection, whatever it does. The next call opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _connected(self, deadline: float) -> BoundedConnection:
        if self._connection is not None and not self._connection.is_usable:
            self.close()
        if self._connection is None:
            self._connection = self._connect(deadline)
        return self._connection

    def _connect(self, deadline: float) -> BoundedConnection:
        """Try the servers. psycopg.Error, with the reason of each."""
        try:
            password = self._settings.password()
        except OptionError as error:
            raise psycopg.OperationalError(str(error)) from None
        defaults = {
            "application_name": "nsqtw",
            "target_session_attrs": "read-write",
            "keepalives_idle": "5",
            "keepalives_interval": "2",
            "keepalives_count": "3",
            "tcp_user_timeout": str(int(self._timeout * 1000)),
        }
        given = {"client_encoding": "UTF8", **({"password": password} if password else {})}
        reasons: list[str] = []
        is_late = False
        for index, one in enumerate([*self._servers]):
            share = (deadline - monotonic()) / (len(self._servers) - index)
            try:
                connection = _connect_to({**defaults, **one, **given}, monotonic() + share)
                self._prepare(connection, monotonic() + share)
            except (psycopg.Error, OSError) as error:
                is_late = is_late or isinstance(error, TimedOut)
                reasons.append(_first_line(str(error)))
                self._servers.remove(one)
                self._servers.append(one)
                continue
            return connection
        if is_late and len(reasons) == 1:
            raise TimedOut(reasons[0])
        raise psycopg.OperationalError("; ".join(dict.fromkeys(reasons)))

    def _prepare(self, connection: BoundedConnection, deadline: float) -> None:
        """
        Have the server end what nobody waits for any more, and plan for how we read. Settings that it does not know are
        left out.
        """
        connection.deadline = deadline
        connection.timeout = connection.limit = self._timeout
        milliseconds = int(self._timeout * 1000)
        settings = {
            **time_limits(self._timeout),
            "lock_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
            # Since PostgreSQL 14: a wait for a lock ends with its connection.
            "client_connection_check_interval": 1000,
            "tcp_keepalives_idle": 5,
            "tcp_keepalives_interval": 2,
            "tcp_keepalives_count": 3,
            "default_transaction_isolation": "read committed",
            # Pages are read in the order of an index. Of a table that was just filled the server may expect a few rows,
            # and would collect and sort all that follow for each page.
            "enable_bitmapscan": "off",
            "enable_seqscan": "off",
        }
        try:
            connection.configure(settings)
        except psycopg.Error:
            connection.close()
            raise
        connection.is_unreplicated = False

    def _converted(self, error: psycopg.Error) -> BackendError:
        """Return the error of nsqtw for one of psycopg: one line, without secrets."""
        state = error.sqlstate or ""
        if isinstance(error, TimedOut):
            return ReplicaError(f"PostgreSQL did not answer within {self._timeout:g} s")
        if state == _UNDEFINED_TABLE:
            return no_data_set(self._settings.data_set)
        text = _first_line(error.diag.message_primary or str(error)) or type(error).__name__
        with suppress(OptionError):
            password = self._settings.password()
            text = text.replace(password, "***") if password else text
        if state == _DISK_FULL:
            return BackendFull(f"PostgreSQL: {text}")
        if state == _READ_ONLY:
            text = f"{text}: the server is a standby now"
        return ReplicaError(f"PostgreSQL: {text}")


def time_limits(seconds: float) -> dict[str, int]:
    """Return settings by which the server ends what takes much longer than a call may."""
    milliseconds = int(2 * seconds * 1000)
    # The second one, since PostgreSQL 17, ends a transaction of which a stopped client has sent a part.
    return {"statement_timeout": milliseconds, "transaction_timeout": milliseconds}


def no_data_set(name: str) -> NoDataSet:
    """The error for a data set that is not there."""
    return NoDataSet(f"PostgreSQL has no data set {name}")


def _connect_to(parameters: Mapping[str, str], deadline: float) -> BoundedConnection:
    """Connect to one server, at any of its addresses. psycopg.Error, OSError."""
    failure: Exception | None = None
    found = resolved(parameters, deadline - monotonic())
    for index, one in enumerate(found):
        try:
            return _opened(one, monotonic() + (deadline - monotonic()) / (len(found) - index))
        except psycopg.Error as error:
            failure = error
    raise failure or OSError("it has no address")


def _opened(parameters: Mapping[str, str], deadline: float) -> BoundedConnection:
    raw = pq.PGconn.connect_start(make_conninfo("", **parameters).encode())
    try:
        wanted = Wait.W
        while True:
            if raw.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError(raw.get_error_message())
            poll = select.poll()
            poll.register(raw.socket, 0)
            _wait(poll, raw.socket, wanted, deadline)
            state = raw.connect_poll()
            if state == pq.PollingStatus.OK:
                break
            if state == pq.PollingStatus.FAILED:
                raise psycopg.OperationalError(raw.get_error_message())
            wanted = Wait.R if state == pq.PollingStatus.READING else Wait.W
        raw.nonblocking = 1
    except BaseException:
        raw.finish()
        raise
    connection = BoundedConnection(raw)
    connection.deadline = deadline
    connection.autocommit = True
    connection.add_notice_handler(connection.noticed)
    register_arrays(connection)
    return connection


def _wait(poll: select.poll, descriptor: int, wanted: Wait, deadline: float) -> Ready:
    events = (select.POLLIN if wanted & Wait.R else 0) | (select.POLLOUT if wanted & Wait.W else 0)
    poll.modify(descriptor, events)
    left = deadline - monotonic()
    found = poll.poll(left * 1000) if left > 0 else []
    if not found:
        raise TimedOut("no answer in time")
    happened = found[0][1]
    if happened & ~(select.POLLIN | select.POLLOUT):
        # The connection has ended: what reads or writes next is told why.
        happened |= events
    ready = (Ready.R if happened & select.POLLIN else 0) | (Ready.W if happened & select.POLLOUT else 0)
    return Ready(ready)


def _first_line(text: str) -> str:
    lines: Iterable[str] = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line), "")[:_MAX_TEXT]
