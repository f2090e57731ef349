"""What the store in PostgreSQL does beyond the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsqtw.core.checkpoint import Checkpoint, CursorState, HeldRow, PendingRow, PendingRun, PublisherId, TopicState
from nsqtw.errors import NotOwner, ReplicaError
from nsqtw.replication.postgres import schema
from nsqtw.replication.postgres.connection import BoundedConnection
from nsqtw.replication.store import ForgetDelays, IReplicaStore, IReplicaWriter
from nsqtw.testing.contracts import make_segment, make_segment_with_headers
from nsqtw.testing.replica_contract import ALL, LONG, claimed, row_of, saved_state
from tests.replication.servers import PostgresPair

pytestmark = pytest.mark.process

Open = Callable[..., IReplicaStore]


@pytest.fixture
def store(servers: PostgresPair, open_store: Open, topic: str) -> Iterator[IReplicaStore]:
    store = open_store(servers.dsn, data_set=topic)
    store.create()
    yield store
    store.forget()


@pytest.fixture
def writer(store: IReplicaStore) -> Iterator[IReplicaWriter]:
    writer = claimed(store)
    yield writer
    writer.close()


def count(servers: PostgresPair, table: str, store: IReplicaStore) -> int:
    """Return the number of rows that a data set has in a table."""
    where = f"data_set = '{row_of(store).identity}'"
    found: int = servers.primary.execute(f"SELECT count(*) FROM {table} WHERE {where}")[0][0]
    return found


def test_segments_are_stored_in_one_statement(writer: IReplicaWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection waits once for an answer."""
    writer.append([("t", [make_segment(0)])])
    statements = []
    execute = BoundedConnection.execute

    def note(self: BoundedConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        statements.append(query)
        return execute(self, query, *arguments, **more)

    monkeypatch.setattr(BoundedConnection, "execute", note)
    writer.append([("t", [make_segment(1), make_segment_with_headers(2, 3)]), ("u", [make_segment(5)])])
    assert len(statements) == 1


def test_the_server_is_told_to_give_up(
    servers: PostgresPair, store: IReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that a broker no longer waits for goes on there for long."""
    connections = []
    execute = BoundedConnection.execute

    def note(self: BoundedConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        connections.append(self)
        return execute(self, query, *arguments, **more)

    monkeypatch.setattr(BoundedConnection, "execute", note)
    store.data_set()
    names = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "enable_bitmapscan"]
    names += ["client_connection_check_interval", "default_transaction_isolation"]
    values = [execute(connections[0], f"SHOW {name}").fetchall()[0][0] for name in names]
    assert values == ["20s", "10s", "10s", "off", "1s", "read committed"]


def test_nothing_to_store_is_no_transaction(writer: IReplicaWriter) -> None:
    writer.append([])
    writer.append([("t", [])])
    assert writer.lsn == 0


@pytest.mark.parametrize(
    "change",
    [
        "frames = set_byte(frames, 40, 1)",
        "headers = set_byte(headers, 3, 255)",
        "delay_ms = 5",
        "count = count + 1",
        "topic = 'u'",
        "channel = 'x'",
        "headers = ''",
        "first = -1",
        "count = 0",
        "count = -5",
        "count = 1::bigint << 60",
        "delay_ms = -1",
    ],
)
def test_a_damaged_segment_is_found(
    servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter, change: str
) -> None:
    """And not delivered as something else, nor does it keep others back."""
    writer.append([("t", [make_segment_with_headers(0, 3)])])
    servers.primary.execute(f"UPDATE nsqtw_segment SET {change} WHERE data_set = '{row_of(store).identity}'")
    writer.append([("t", [make_segment(50)])])
    with pytest.raises(ReplicaError, match=r"the segment (0|-1) of topic [tu] is damaged"):
        store.segments(0, ALL)
    damaged: list[tuple[Any, ...]] = []
    found = store.segments(0, ALL, lambda *damage: damaged.append(damage))
    assert [(one.lsn, one.segment.first) for one in found] == [(2, 50)]
    ((topic, first, last, why),) = damaged
    assert topic in "tu" and first <= last
    assert why == f"the segment {first} of topic {topic} is damaged"
    spans = [span for name in "tu" for span in store.spans(name) if span != (50, 51)]
    assert len(spans) == (change != "first = -1")
    assert all(first == 0 and 3 <= end < 500 for first, end in spans)


@pytest.mark.parametrize(
    "state", ["{}", "[]", "5", '{"policy": {"no_setting": 1}}', '{"policy": {}, "paused": true, "dropped": [[1]]}']
)
def test_a_state_that_makes_no_sense_is_an_error(
    servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter, state: str
) -> None:
    """One line."""
    writer.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c")])]))
    where = f"WHERE data_set = '{row_of(store).identity}'"
    for table, what in (("nsqtw_cursor", "channel t/c"), ("nsqtw_topic", "topic t")):
        servers.primary.execute(f"UPDATE {table} SET state = '{state}' {where}")
        with pytest.raises(ReplicaError, match=f"what is saved of {what} "):
            list(store.checkpoints())


def test_a_newer_format_is_refused(servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter) -> None:
    """Also by a claim."""
    servers.primary.execute(f"UPDATE nsqtw_data_set SET format = 9 WHERE name = '{row_of(store).name}'")
    for call in (store.data_set, lambda: store.claim("a", "a:1", LONG, forced=True), lambda: store.renew(1)):
        with pytest.raises(ReplicaError, match=r"has format 9, this nsqtw knows 1: install a newer one$"):
            call()


def test_health(servers: PostgresPair, store: IReplicaStore) -> None:
    """Of these servers all is good; without what survives the loss of a machine it is not."""

    def found() -> dict[str, tuple[bool, str]]:
        return {one.name: (one.is_good, one.text) for one in store.health()}

    primary = servers.primary
    assert {name for name, (is_good, _) in found().items() if not is_good} == set()
    try:
        primary.execute("GRANT pg_read_all_stats TO nsqtw")
        assert found()["standby"] == (True, "synchronous standbys connected: 1")
        primary.execute("ALTER ROLE nsqtw SET synchronous_commit = local")
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        primary.execute("SELECT pg_reload_conf()")
        primary.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'nsqtw'")
        bad = {name for name, (is_good, _) in found().items() if not is_good}
        assert bad == {"synchronous_commit", "synchronous_standby_names"}
    finally:
        primary.execute("ALTER ROLE nsqtw RESET synchronous_commit")
        primary.execute("REVOKE pg_read_all_stats FROM nsqtw")
        servers.synchronize()


def test_health_of_a_clock(store: IReplicaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of a broker and of the store are compared by people, in the end."""
    monkeypatch.setattr("nsqtw.replication.postgres.health.time.time", lambda: 1_000_000.0)
    (finding,) = [one for one in store.health() if one.name == "clock"]
    assert not finding.is_good and "s ahead of that of this machine" in finding.text


def test_publishers_ids_are_removed_by_and_by(
    servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are older than the window of their topic, a few with each checkpoint; without a window all."""
    monkeypatch.setattr("nsqtw.replication.postgres.publisher_ids._ROWS_AT_LEAST", 10)

    def ids(start: int) -> list[PublisherId]:
        return [PublisherId(b"%016d" % number, number, number) for number in range(start, start + 50)]

    names = ("plain", "t", "u", "unknown")
    topics = [TopicState(name, publisher_ids=ids(0), dedupe_window_ms=1000) for name in names]
    writer.save(Checkpoint(topics=topics, pending_ms=50))
    assert count(servers, "nsqtw_publisher_id", store) == 200
    windows = {"plain": 0, "t": 100, "u": 20, "unknown": None}
    states = [TopicState(name, dedupe_window_ms=window) for name, window in windows.items()]
    for _ in range(30):
        writer.save(Checkpoint(topics=states, pending_ms=60))
    left: dict[str, set[int]] = {name: set() for name in names}
    for checkpoint in store.checkpoints():
        for topic in checkpoint.topics:
            left[topic.name].update(one.published_ms for one in topic.publisher_ids)
    assert left == {"plain": set(), "t": {*range(50)}, "u": {*range(40, 50)}, "unknown": {*range(50)}}


def test_large_deletions_are_made_in_steps(
    servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much a topic or data set has, each step takes a limited time."""
    monkeypatch.setattr(schema, "KEYS", {table: (key, 7) for table, (key, _) in schema.KEYS.items()})
    cursors = [CursorState(name, pending=[PendingRow(number, 1, 0) for number in range(30)]) for name in ("c", "d")]
    topics = [TopicState(name, cursors=cursors, dedupe_window_ms=5) for name in ("t", "u")]
    writer.append([(name, [make_segment(number) for number in range(30)]) for name in ("t", "u")])
    writer.save(Checkpoint(topics=topics))
    writer.save(Checkpoint(deleted_topics=["t"], deleted_channels=[("u", "d")]))
    assert [count(servers, table, store) for table in ("nsqtw_segment", "nsqtw_pending")] == [30, 30]
    identity = row_of(store).identity
    store.forget()
    for table in schema.KEYS:
        assert servers.primary.execute(f"SELECT count(*) FROM {table} WHERE data_set = '{identity}'") == [(0,)]
    store.create()


def test_an_interrupted_removal_is_finished_later(
    servers: PostgresPair,
    open_store: Open,
    store: IReplicaStore,
    writer: IReplicaWriter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the next one, of any data set. What is left belongs to nobody."""
    writer.append([("t", [make_segment(0)])])
    identity = row_of(store).identity

    def fail(*arguments: Any) -> None:
        raise ReplicaError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr("nsqtw.replication.postgres.store.remove_rows", fail)
        with pytest.raises(ReplicaError, match="interrupted"):
            store.forget()
    assert store.data_set() is None
    assert servers.primary.execute(f"SELECT count(*) FROM nsqtw_segment WHERE data_set = '{identity}'") == [(1,)]
    store.create()
    assert store.segments(0, ALL) == []
    open_store(servers.dsn, data_set="absent").forget()
    assert servers.primary.execute(f"SELECT count(*) FROM nsqtw_segment WHERE data_set = '{identity}'") == [(0,)]


def test_trim_removes_all_that_is_not_needed(store: IReplicaStore, writer: IReplicaWriter) -> None:
    """Also one of the next owner."""
    writer.append([("t", [make_segment(first, 10) for first in range(0, 1000, 10)])])
    writer.trim("t", 500, iter([3, 250, 251]))
    assert [one.segment.first for one in store.segments(0, ALL)] == [0, 250, *range(500, 1000, 10)]
    writer.trim("t", 1000, iter([250]))
    taken = claimed(store, "other", forced=True)
    taken.trim("t", 1000, iter([]))
    assert store.segments(0, ALL) == []
    assert store.kept(["t"]) == {}
    taken.save(Checkpoint(topics=[TopicState("t")]))
    assert store.kept(["t"]) == {"t": None}
    taken.close()


def test_a_claim_after_the_servers_clock_went_back(
    servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter
) -> None:
    """The lease of a lost owner would not end for a day."""
    later = "renewed = now() + interval '1 day'"
    servers.primary.execute(f"UPDATE nsqtw_data_set SET {later} WHERE identity = '{row_of(store).identity}'")
    row = row_of(store)
    assert row.lease_left == row.lease == LONG
    assert store.claim("b", "b:1", LONG) is None
    taken = store.claim("b", "b:1", LONG, unchanged=row)
    assert taken is not None
    with pytest.raises(NotOwner):
        writer.append([("t", [make_segment(0)])])
    taken.close()


def test_renewals_are_told_apart_to_the_microsecond(
    servers: PostgresPair, open_store: Open, store: IReplicaStore, writer: IReplicaWriter
) -> None:
    """In the same words by each session, whatever its time zone."""
    row = row_of(store)
    change = "renewed = renewed + interval '1 microsecond'"
    other = open_store(f"{servers.dsn} options='-c TimeZone=Asia/Tokyo -c DateStyle=German'", data_set=row.name)
    assert row_of(other).renewed == row.renewed
    servers.primary.execute(f"UPDATE nsqtw_data_set SET {change} WHERE identity = '{row.identity}'")
    assert row_of(store).renewed != row.renewed
    assert other.claim("b", "b:1", LONG, unchanged=row) is None
    taken = other.claim("b", "b:1", LONG, unchanged=row_of(store))
    assert taken is not None
    taken.close()


def test_another_claim_of_the_same_epoch(servers: PostgresPair, store: IReplicaStore, writer: IReplicaWriter) -> None:
    """After a server has lost a claim: its token is another one, and who made the lost claim owns nothing."""
    claims = f"UPDATE nsqtw_data_set SET token = 'x', owner = 'b' WHERE identity = '{row_of(store).identity}'"
    servers.primary.execute(claims)
    with pytest.raises(NotOwner):
        store.renew(1)
    for _ in range(2):
        with pytest.raises(NotOwner):
            writer.append([("t", [make_segment(0)])])
    assert row_of(store).lsn == 0


def test_the_last_claims_are_kept(servers: PostgresPair, store: IReplicaStore) -> None:
    """A thousand of them."""
    claimed(store).close()
    identity = row_of(store).identity
    servers.primary.execute(f"UPDATE nsqtw_data_set SET epoch = 1000 WHERE identity = '{identity}'")
    claimed(store, forced=True).close()
    assert store.claim_of(1) is None
    first = store.claim_of(1001)
    claimed(store, forced=True).close()
    assert count(servers, "nsqtw_epoch", store) == 2
    assert store.claim_of(1001) == first is not None


def test_old_reports_of_standbys_are_removed(
    servers: PostgresPair, open_store: Open, store: IReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a data set that was removed; a standby looks for them once an hour."""
    for standby in ("new", "old"):
        store.report(standby, "s:1", 1)
    name, identity = row_of(store).name, row_of(store).identity
    age = f"UPDATE nsqtw_standby SET reported = now() - interval '25 hours' WHERE data_set = '{identity}'"
    servers.primary.execute(f"{age} AND identity = 'old'")
    store.report("new", "s:1", 2)
    assert count(servers, "nsqtw_standby", store) == 2
    open_store(servers.dsn, data_set=name).report("new", "s:1", 3)
    assert count(servers, "nsqtw_standby", store) == 1
    assert [(one.identity, one.lsn) for one in store.standbys()] == [("new", 3)]


def test_the_server_has_as_much_time_as_a_long_save(store: IReplicaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """And afterwards as much as before."""
    writer = claimed(store)
    limits = []
    execute = BoundedConnection.execute

    def note(self: BoundedConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        if query == "BEGIN":
            limits.append(execute(self, "SHOW statement_timeout").fetchall()[0][0])
        return execute(self, query, *arguments, **more)

    monkeypatch.setattr(BoundedConnection, "execute", note)
    few = Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", pending=[PendingRow(1, 1, 0)])])])
    many = Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", runs=[PendingRun(1, 100_000, 5)])])])
    emptied = Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", emptied=True)])])
    deleted = Checkpoint(deleted_channels=[("t", "c"), ("t", "d")])
    for checkpoint in (few, many, few, emptied, deleted, Checkpoint(deleted_topics=["t"])):
        writer.save(checkpoint)
    writer.save(few, [ForgetDelays()])
    assert limits == ["20s", "40s", "20s", "140s", "36s", "36s", "140s"]
    writer.close()


SEQUENCES = st.integers(0, 12)
ROWS = st.builds(PendingRow, SEQUENCES, st.integers(0, 65535), st.sampled_from([0, 0, 7, 1 << 40]))


@st.composite
def cursors(draw: st.DrawFn) -> CursorState:
    pending = [*{row.sequence: row for row in draw(st.lists(ROWS, max_size=4))}.values()]
    due_now = [row for row in pending if row.due_ms == 0]
    held = [row for row in due_now if draw(st.booleans())]
    interrupted = [row.sequence for row in due_now if row not in held and draw(st.booleans())]
    return CursorState(
        draw(st.sampled_from(["a", "b"])),
        paused=draw(st.booleans()),
        next=draw(st.integers(0, 1 << 53)) & (1 << 53) - 1,
        first_deliveries=[*draw(st.sets(SEQUENCES, max_size=3))],
        interrupted=interrupted,
        pending=pending,
        runs=draw(st.lists(st.builds(PendingRun, st.integers(13, 20), st.integers(1, 4), st.just(9)), max_size=2)),
        held=[
            HeldRow(
                row.sequence, row.attempts, draw(st.sampled_from(["requeued", "timed out"])), draw(st.text("\0é x")), 5
            )
            for row in held
        ],
        dropped_rows=draw(st.lists(SEQUENCES.filter(lambda one: one not in interrupted), max_size=3)),
        emptied=draw(st.sampled_from([False, False, False, True])),
        forgotten_from=draw(st.sampled_from([None, None, None, 3, 14])),
        policy=draw(st.sampled_from([{}, {}, {"max_attempts": 5}])),
    )


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    names = st.sampled_from(["t", "u"])
    topics = [
        TopicState(
            name,
            released=draw(st.integers(0, 1 << 50)),
            floor=draw(st.none() | SEQUENCES),
            policy=draw(st.sampled_from([{}, {"message_ttl": 2.5}])),
            cursors=[*{one.name: one for one in draw(st.lists(cursors(), max_size=2))}.values()],
            publisher_ids=[
                PublisherId(b"%016d" % number, number, number) for number in draw(st.sets(SEQUENCES, max_size=3))
            ],
            dedupe_window_ms=1 << 60,
        )
        for name in draw(st.sets(names, max_size=2))
    ]
    return Checkpoint(
        deleted_topics=draw(st.lists(names, max_size=1)),
        deleted_channels=draw(st.lists(st.tuples(names, st.sampled_from(["a", "b"])), max_size=1)),
        topics=topics,
        wall_shift_ms=draw(st.none() | st.integers(-5, 5)),
    )


@pytest.mark.histories
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(checkpoints(), min_size=1, max_size=5))
def test_any_checkpoints_save_the_same_again(
    tmp_path_factory: pytest.TempPathFactory, store: IReplicaStore, history: list[Checkpoint]
) -> None:
    """A `positions.db` made from the store is equal to the one of the owner, whatever was saved."""
    store.forget()
    store.create()
    writer = claimed(store)
    for checkpoint in history:
        writer.save(checkpoint)
    writer.close()
    folders = [tmp_path_factory.mktemp(name) for name in ("direct", "copied")]
    direct, copied = (saved(path, made) for path, made in zip(folders, (history, store.checkpoints()), strict=True))
    assert copied == direct


def saved(folder: Path, made: Any) -> Any:
    return saved_state(str(folder), made)
