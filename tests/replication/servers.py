"""PostgreSQL for the tests: a primary and a synchronous standby, in temporary folders, with sockets in them."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from nsqtw.plugins import find_replica_store
from nsqtw.replication.store import IReplicaStore

_PROGRAMS = "/usr/lib/postgresql"
_SECONDS = 60
_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = '{folder}'
port = {port}
shared_buffers = 16MB
max_connections = 50
max_wal_senders = 5
max_wal_size = 256MB
wal_keep_size = 64MB
hot_standby = on
cluster_name = '{name}'
primary_conninfo = 'host={folder} port={primary_port} application_name=standby'
wal_receiver_status_interval = 1s
wal_retrieve_retry_interval = 200ms
log_min_messages = fatal
"""


def opened(folder: Path, dsn: str, timeout: float, data_set: str) -> IReplicaStore:
    """Open a store as a broker does; its file is in `folder`."""
    path = folder / f"{data_set}.toml"
    path.write_text(f'dsn = "{dsn}"\ndata_set = "{data_set}"\n')
    path.chmod(0o600)
    factory, argument = find_replica_store(f"postgres:{path}")
    return factory.open(argument, timeout, _no_log)


def _no_log(level: str, text: str, /, **fields: object) -> None:
    pass


def programs() -> Path:
    """Return the folder with the programs of the newest PostgreSQL that is installed."""
    found = sorted(Path(_PROGRAMS).glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not found:
        raise AssertionError(f"there is no PostgreSQL below {_PROGRAMS}: apt-get install postgresql")
    return found[-1].parent


class PostgresServer:
    """One server, with its files in `folder`."""

    def __init__(self, folder: Path, name: str, port: int) -> None:
        self.folder = folder
        self.port = port
        self.name = name
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"host={self.folder.parent} port={self.port} dbname=postgres user=nsqtw"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start it, and do not wait."""
        with open(self.folder / "log", "ab") as log:
            command = [*_as_user(), str(programs() / "postgres"), "-D", str(self.data)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def wait(self) -> None:
        """Wait until it takes connections."""
        end = time.monotonic() + _SECONDS
        while True:
            assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, (self.folder / "log").read_text()
                time.sleep(0.05)

    def execute(self, statement: str, dbname: str = "postgres") -> list[tuple]:
        """Execute a statement as the superuser and return its rows."""
        dsn = f"host={self.folder.parent} port={self.port} dbname={dbname} user=postgres connect_timeout=5"
        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        """End all its processes at once, as a crash does."""
        assert self._process is not None
        children = self._children()
        for pid in (self._process.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        # Their end frees the shared memory, without which it does not start again.
        for pid in children:
            while _is_running(pid):
                time.sleep(0.01)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have it do nothing, without closing any connection."""
        assert self._process is not None
        pids = [self._process.pid, *self._children()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def promote(self) -> None:
        self.execute("SELECT pg_promote(true, 30)")
        self.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        self.execute("SELECT pg_reload_conf()")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.kill()

    def _children(self) -> list[int]:
        assert self._process is not None
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


class PostgresPair:
    """A primary and its standby, which have to be started."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="nsqtw-postgres-", dir="/tmp"))
        self.folder = self._folder
        ports = _free_ports(2)
        self.primary, self.standby = (
            PostgresServer(self._folder / name, name, port)
            for name, port in zip(("primary", "standby"), ports, strict=True)
        )
        for server in (self.primary, self.standby):
            server.folder.mkdir()
        _give_away(self._folder)

    @property
    def dsn(self) -> str:
        """Both."""
        both = (self.primary, self.standby)
        hosts, ports = (",".join(parts) for parts in zip(*((str(self.folder), str(s.port)) for s in both), strict=True))
        return f"host={hosts} port={ports} dbname=postgres user=nsqtw target_session_attrs=read-write"

    def start(self, *, synchronous: bool = True) -> None:
        primary, standby = self.primary, self.standby
        _run("initdb", "-D", str(primary.data), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "-N")
        self._configure(primary)
        primary.start()
        primary.execute("CREATE ROLE nsqtw LOGIN PASSWORD 'secret-password'")
        primary.execute("GRANT ALL ON SCHEMA public TO nsqtw")
        self.copy()
        standby.start()
        if synchronous:
            self.synchronize()

    def copy(self) -> None:
        """Make the standby anew from the primary."""
        primary, standby = self.primary, self.standby
        shutil.rmtree(standby.data, ignore_errors=True)
        where = ["-h", str(self.folder), "-p", str(primary.port), "-U", "postgres"]
        _run("pg_basebackup", *where, "-D", str(standby.data), "-R", "-c", "fast", "--no-sync")
        self._configure(standby)

    def synchronize(self) -> None:
        """Let the primary wait for the standby with each commit."""
        self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        self.primary.execute("SELECT pg_reload_conf()")
        end = time.monotonic() + _SECONDS
        while self.primary.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'") == []:
            assert time.monotonic() < end, "the standby does not connect"
            time.sleep(0.05)

    def close(self) -> None:
        for server in (self.primary, self.standby):
            server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self, server: PostgresServer) -> None:
        values = {"folder": self.folder, "port": server.port, "name": server.name, "primary_port": self.primary.port}
        (server.data / "postgresql.conf").write_text(_SETTINGS.format(**values))


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # What is left of a process whose parent ended waits for the first process of the system.
    return state != "Z"


def _run(program: str, *arguments: str) -> None:
    done = subprocess.run(
        [*_as_user(), str(programs() / program), *arguments], capture_output=True, text=True, cwd="/tmp"
    )
    assert done.returncode == 0, done.stderr


def _as_user() -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.getuid():
        return []
    user = pwd.getpwnam("postgres")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _give_away(folder: Path) -> None:
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    folder.chmod(0o755)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
