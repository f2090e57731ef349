"""What a broker sees when the database fails, stops, or is another one."""

from __future__ import annotations

import gc
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Event
from typing import Any

import psycopg
import pytest

from nsqtw.core.checkpoint import Checkpoint, CursorState, PendingRow, PendingRun, TopicState
from nsqtw.errors import BackendFull, NoDataSet, NotOwner, ReplicaError, StoreLost
from nsqtw.replication.postgres import saving, schema
from nsqtw.replication.postgres.connection import BoundedConnection, TimedOut
from nsqtw.replication.store import ForgetDelays, IReplicaStore, IReplicaWriter
from nsqtw.testing.contracts import make_segment
from nsqtw.testing.replica_contract import LONG, WRITES, claimed, row_of
from tests.replication.servers import PostgresPair

pytestmark = pytest.mark.process

Open = Callable[..., IReplicaStore]
SLACK = 5.0
"""How much longer a busy machine may take. Without a limit the calls would take forever."""


@pytest.fixture
def data_set(topic: str) -> str:
    """A name for one test."""
    return topic


@pytest.fixture
def store(servers: PostgresPair, open_store: Open, data_set: str) -> Iterator[IReplicaStore]:
    store = open_store(servers.dsn, data_set=data_set)
    store.create()
    yield store
    store.forget()


@pytest.fixture
def writer(store: IReplicaStore) -> Iterator[IReplicaWriter]:
    writer = claimed(store)
    yield writer
    writer.close()


@pytest.fixture
def hasty(servers: PostgresPair, open_store: Open, store: IReplicaStore, data_set: str) -> Iterator[IReplicaWriter]:
    """A writer that waits for a second only."""
    writer = claimed(open_store(servers.dsn, 1.0, data_set))
    yield writer
    writer.close()


def put(writer: IReplicaWriter, first: int) -> None:
    writer.append([("t", [make_segment(first)])])


def firsts(store: IReplicaStore) -> list[tuple[int, int]]:
    return [(one.lsn, one.segment.first) for one in store.segments(0, 1 << 30)]


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds + SLACK


def test_a_server_that_stops_ends_each_call_in_time(
    servers: PostgresPair, open_store: Open, store: IReplicaStore, data_set: str
) -> None:
    """On a connection that is there, and on one that is to be made."""
    asked = open_store(servers.dsn, 0.2, data_set)
    writers: list[IReplicaWriter] = []
    # A busy machine may need more time than that for a connection.
    eventually_succeeds(lambda: writers.append(claimed(asked, forced=True)))
    (hasty,) = writers
    numbers = count(1000)
    eventually_succeeds(lambda: put(hasty, next(numbers)))
    calls: list[Callable[[], Any]] = [
        asked.data_set,
        asked.create,
        lambda: asked.claim("a", "a:1", 1.0),
        lambda: asked.renew(1),
        lambda: asked.segments(0, 1),
        lambda: next(asked.checkpoints()),
        asked.health,
        asked.forget,
        *(lambda write=write: write(hasty) for write in WRITES.values()),
    ]
    with servers.primary.stopped():
        for call in calls:
            with in_time(0.2), pytest.raises(ReplicaError):
                call()
    # The first write was sent, and nobody knows that the server has done it.
    eventually_succeeds(lambda: put(hasty, next(numbers)))
    stored = [first for _, first in firsts(store)]
    assert stored[-1] == next(numbers) - 1 and len({*stored}) == len(stored)
    assert {*stored} <= {100, *range(1000, stored[-1] + 1)}
    assert row_of(store).lsn == hasty.lsn
    hasty.close()


def test_a_server_that_takes_a_connection_and_says_nothing(open_store: Open) -> None:
    """For example one behind a firewall."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        store = open_store(f"host=127.0.0.1 port={port} user=u dbname=d password=secret-password", 0.3)
        with in_time(0.3), pytest.raises(ReplicaError, match=r"did not answer within 0\.3 s"):
            store.data_set()


def test_a_name_that_is_not_found_in_time(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver of the C library has no limit."""
    never = Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **more: [][: never.wait(20)])
    store = open_store("host=db.example user=u dbname=d", 0.3)
    with in_time(0.3), pytest.raises(ReplicaError, match="not found in time"):
        store.data_set()
    never.set()


def test_the_next_host_has_its_share_of_the_time(servers: PostgresPair, open_store: Open) -> None:
    """A silent host, or one that is a standby, is passed over; afterwards the good one comes first."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1,{servers.folder},{servers.folder}"
        ports = f"{silent.getsockname()[1]},{servers.standby.port},{servers.primary.port}"
        store = open_store(f"host={hosts} port={ports} user=nsqtw dbname=postgres", 1.5, "hosts")
        store.create()
        with in_time(0):
            store.forget()


def test_a_commit_that_waits_for_the_standby_is_found_out(
    servers: PostgresPair, store: IReplicaStore, hasty: IReplicaWriter
) -> None:
    """It was not acknowledged, and is stored; what came while it waited is not."""
    put(hasty, 0)
    with servers.standby.stopped():
        for first in (1, 2, 3):
            with in_time(1), pytest.raises(ReplicaError, match="did not answer within 1 s"):
                put(hasty, first)
    assert hasty.lsn == 1
    eventually(lambda: row_of(store).lsn == 2)
    put(hasty, 4)
    assert hasty.lsn == 3
    assert firsts(store) == [(1, 0), (2, 1), (3, 4)]


def test_a_wait_for_the_standby_that_is_cancelled_is_no_success(
    servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter
) -> None:
    """The server says that it is committed, with a warning: on one machine."""
    put(writer, 0)
    with servers.standby.stopped(), ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(put, writer, 1)
        cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        eventually(lambda: servers.primary.execute(cancel) != [])
        with pytest.raises(ReplicaError, match="the outcome is not known"):
            waiting.result()
    assert writer.lsn == 1
    put(writer, 2)
    assert writer.lsn == 3
    assert firsts(store) == [(1, 0), (2, 1), (3, 2)]


def test_an_idle_connection_that_ended_is_noticed(
    servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter
) -> None:
    """Nothing was sent on it, so nothing fails."""
    put(writer, 0)
    end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'nsqtw'"
    servers.primary.execute(end)
    put(writer, 1)
    assert row_of(store).lsn == writer.lsn == 2


def test_a_server_that_becomes_read_only(servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter) -> None:
    """Writes fail until it, or another one, takes them again."""
    put(writer, 0)
    try:
        servers.primary.execute("ALTER ROLE nsqtw SET default_transaction_read_only = on")
        servers.primary.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'nsqtw'")
        for _ in range(2):
            with pytest.raises(ReplicaError, match="read-only"):
                put(writer, 1)
    finally:
        servers.primary.execute("ALTER ROLE nsqtw RESET default_transaction_read_only")
    put(writer, 2)
    assert firsts(store) == [(1, 0), (2, 2)]


def test_a_connection_to_what_is_now_a_standby(
    store: IReplicaStore, writer: IReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error ends the connection: the next call looks for the primary."""
    put(writer, 0)
    execute = BoundedConnection.execute

    def refuse(self: BoundedConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        execute(self, "SET default_transaction_read_only = on")
        return execute(self, query, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(BoundedConnection, "execute", refuse)
        with pytest.raises(ReplicaError, match="is a standby now"):
            put(writer, 1)
    put(writer, 2)
    assert firsts(store) == [(1, 0), (2, 2)]


def test_a_full_disk(writer: IReplicaWriter, store: IReplicaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the error of a backend whose disk is full."""

    def fail(*arguments: Any, **more: Any) -> Any:
        raise psycopg.errors.DiskFull("could not extend file: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(BoundedConnection, "execute", fail)
        with pytest.raises(BackendFull, match="No space left"):
            put(writer, 0)
    put(writer, 1)
    assert firsts(store) == [(1, 1)]


def test_a_stopped_owner_has_no_lock_on_the_data_set(
    store: IReplicaStore, writer: IReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before the end of a checkpoint; when it goes on, nothing of it is saved."""
    put(writer, 0)
    reached, go_on = Event(), Event()
    execute = BoundedConnection.execute

    def stop(self: BoundedConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        if more.get("prepare") is False:
            reached.set()
            assert go_on.wait(30)
        return execute(self, query, *arguments, **more)

    state = Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", pending=[PendingRow(0, 1, 0)])])])
    monkeypatch.setattr(BoundedConnection, "execute", stop)
    with ThreadPoolExecutor(1) as thread:
        saving = thread.submit(writer.save, state)
        assert reached.wait(30)
        taken = claimed(store, "other", forced=True)
        put(taken, 1)
        go_on.set()
        with pytest.raises(NotOwner):
            saving.result()
    assert [checkpoint for checkpoint in store.checkpoints() if checkpoint.topics] == []
    assert firsts(store) == [(1, 0), (2, 1)]
    taken.close()


def test_one_of_many_claims_at_the_same_time(servers: PostgresPair, open_store: Open, store: IReplicaStore) -> None:
    """However many brokers find it free."""
    name = row_of(store).name
    stores = [open_store(servers.dsn, data_set=name) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        claims = [
            threads.submit(one.claim, f"broker-{number}", f"h{number}:1", LONG) for number, one in enumerate(stores)
        ]
        writers = [claim.result() for claim in claims]
    (owner,) = [writer for writer in writers if writer is not None]
    put(owner, 0)
    assert row_of(store).epoch == 1
    owner.close()


def test_the_server_is_killed_during_a_commit(pair: PostgresPair, open_store: Open) -> None:
    """After its start the transaction is there or not; the next one follows in both cases."""
    store = open_store(pair.primary.dsn, 3.0)
    store.create()
    writer = claimed(store)
    put(writer, 0)
    with pair.standby.stopped(), ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(put, writer, 1)
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        eventually(lambda: pair.primary.execute(waits) != [])
        pair.primary.kill()
        with pytest.raises(ReplicaError):
            waiting.result()
        with pytest.raises(ReplicaError):
            put(writer, 2)
    pair.primary.start()
    eventually_succeeds(lambda: put(writer, 3))
    assert [first for _, first in firsts(store)] in ([0, 3], [0, 1, 3])
    assert row_of(store).lsn == writer.lsn
    writer.close()


def test_the_standby_takes_over(pair: PostgresPair, open_store: Open) -> None:
    """The primary is killed while a broker writes: what was acknowledged is there, and the broker goes on."""
    store = open_store(pair.dsn, 3.0)
    store.create()
    writer = claimed(store)
    acknowledged = []
    for first in range(400):
        if first == 200:
            pair.primary.kill()
            with pytest.raises(ReplicaError):
                put(writer, 10_000)
            pair.standby.promote()
        eventually_succeeds(lambda number=first: put(writer, number))
        acknowledged.append(first)
    stored = [first for _, first in firsts(store)]
    assert [first for first in stored if first < 10_000] == acknowledged
    assert row_of(store).lsn == writer.lsn
    assert store.renew(1).epoch == 1
    writer.close()


def test_a_standby_that_has_less_is_a_lost_store(pair: PostgresPair, open_store: Open) -> None:
    """With asynchronous replication a failover loses what was acknowledged: the owner says so and stops."""
    store = open_store(pair.dsn, 3.0)
    store.create()
    writer = claimed(store)
    for first in range(3):
        put(writer, first)
    pair.primary.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
    pair.primary.execute("SELECT pg_reload_conf()")
    pair.standby.kill()
    put(writer, 3)
    put(writer, 4)
    pair.primary.kill()
    pair.standby.start()
    pair.standby.promote()
    eventually(lambda: lost(writer))
    for write in WRITES.values():
        with pytest.raises(StoreLost, match="has lost 2 transactions"):
            write(writer)
    assert firsts(store) == [(1, 0), (2, 1), (3, 2)]
    writer.close()


def lost(writer: IReplicaWriter) -> bool:
    """Return whether the writer has found out."""
    try:
        put(writer, 5)
    except StoreLost:
        return True
    except ReplicaError:
        return False
    raise AssertionError("it was written")


def eventually(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def eventually_succeeds(call: Callable[[], None]) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            return call()
        except ReplicaError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_checkpoint_of_very_many_rows_has_its_time(
    servers: PostgresPair, store: IReplicaStore, hasty: IReplicaWriter
) -> None:
    """No single statement takes long, and each row adds to the time of the call, also one of a run."""
    runs = [PendingRun(1_000_000, 300_000, 5)]
    hasty.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", runs=runs)])]))
    assert store.size().pending_rows == 300_000
    hasty.save(Checkpoint(), [ForgetDelays()])
    hasty.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", forgotten_from=1_100_000)])]))
    assert store.size().pending_rows == 100_000


def test_a_removal_has_as_much_time_as_it_needs(
    servers: PostgresPair, open_store: Open, store: IReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a call is for each of its steps, here of one row."""
    name = row_of(store).name
    writer = claimed(store)
    writer.append([("t", [make_segment(number) for number in range(60)])])
    writer.close()
    monkeypatch.setattr(schema, "KEYS", {table: (key, 1) for table, (key, _) in schema.KEYS.items()})
    hasty = open_store(servers.dsn, 0.5, name)
    deadlines = []
    execute = BoundedConnection.execute

    def slow(self: BoundedConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        if "DELETE FROM nsqtw_segment" in str(query):
            deadlines.append(self.deadline)
            time.sleep(0.02)
        return execute(self, query, *arguments, **more)

    monkeypatch.setattr(BoundedConnection, "execute", slow)
    hasty.forget()
    assert len(deadlines) > 60 and deadlines == sorted(deadlines)
    assert store.data_set() is None


def test_a_removal_that_is_interrupted_hinders_nobody(
    servers: PostgresPair, open_store: Open, store: IReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is free before anything is removed."""
    writer = claimed(store)
    put(writer, 0)
    before = row_of(store)
    hasty = open_store(servers.dsn, 0.5, before.name)
    execute = BoundedConnection.execute

    def stop(self: BoundedConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        if "DELETE" in str(query):
            raise TimedOut("no answer in time")
        return execute(self, query, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(BoundedConnection, "execute", stop)
        with pytest.raises(ReplicaError, match="did not answer"):
            hasty.forget()
    created = store.create()
    assert created.identity != before.identity and store.segments(0, 1 << 30) == []
    with pytest.raises(NoDataSet):
        put(writer, 1)
    writer.close()
    again = claimed(store)
    put(again, 5)
    hasty.forget()
    rows = f"SELECT count(*) FROM nsqtw_segment WHERE data_set = '{before.identity}'"
    assert servers.primary.execute(rows) == [(0,)]
    again.close()


@pytest.mark.parametrize("where", ["at the begin", "while rows are sent", "at the end"])
def test_a_server_that_stops_during_a_checkpoint(
    servers: PostgresPair,
    store: IReplicaStore,
    open_store: Open,
    data_set: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    where: str,
) -> None:
    """One error and nothing else, wherever it is in the pipeline; the next checkpoint is saved."""
    hasty = claimed(open_store(servers.dsn, 0.5, data_set))
    put(hasty, 0)
    pending = [PendingRow(sequence, 1, 0) for sequence in range(1 if where != "while rows are sent" else 25_000)]
    state = Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", pending=pending)])])
    unraisable: list[Any] = []
    execute = BoundedConnection.execute
    stopped = ExitStack()

    def stop(self: BoundedConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        is_there = more.get("prepare") is False if where == "at the end" else query == "BEGIN"
        if is_there:
            stopped.enter_context(servers.primary.stopped())
        return execute(self, query, *arguments, **more)

    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with monkeypatch.context() as patch, stopped:
        patch.setattr(BoundedConnection, "execute", stop)
        with in_time(4), pytest.raises(ReplicaError) as caught:
            hasty.save(state)
    gc.collect()
    assert str(caught.value) == "PostgreSQL did not answer within 0.5 s"
    del caught
    gc.collect()
    assert unraisable == []
    assert capfd.readouterr() == ("", "")
    eventually_succeeds(lambda: hasty.save(state))
    assert row_of(store).lsn == row_of(store).checkpoint_lsn == hasty.lsn
    assert store.size().pending_rows == len(pending)
    hasty.close()


def test_a_server_that_reads_nothing_for_long(
    servers: PostgresPair, open_store: Open, store: IReplicaStore, data_set: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As during a long statement: what is behind it waits in the sockets, longer than the time of a call."""
    dsn = f"host=127.0.0.1 port={servers.primary.port} dbname=postgres user=nsqtw"
    hasty = claimed(open_store(dsn, 0.5, data_set))
    monkeypatch.setattr(saving, "_FORGET_DELAYS", "SELECT pg_sleep(3)")
    pending = [PendingRow(sequence, 1, 0) for sequence in range(100_000)]
    state = Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", pending=pending)])])
    hasty.save(state, [ForgetDelays()])
    assert store.size().pending_rows == 100_000
    hasty.close()


def test_a_commit_has_no_more_time_than_others(
    servers: PostgresPair, store: IReplicaStore, hasty: IReplicaWriter
) -> None:
    """However long the statements before it may take."""
    hasty.save(Checkpoint(), [ForgetDelays()])
    with servers.standby.stopped(), in_time(1), pytest.raises(ReplicaError, match="did not answer"):
        hasty.save(Checkpoint(), [ForgetDelays()])
    eventually_succeeds(lambda: hasty.save(Checkpoint()))
    assert row_of(store).lsn == hasty.lsn
