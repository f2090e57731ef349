"""
Damage to messages.db, met by a real broker with the backend sqlite: it starts, says what is wrong, delivers the rest
and takes more; and the same after a repair. docs/how-to/recovery.md has this in words.

All odd values are in one database, each in a topic of its own: a row costs that row.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import field, frozen

from nsqtw.backends.sqlite.backend import SqliteBackend
from nsqtw.cli.main import run_nsqtw
from nsqtw.errors import BackendError
from nsqtw.testing.contracts import make_segment, messages, read_all
from tests.process import ForkedNsqd, NsqdProcess
from tests.tools.fsck.data_path import findings, repair_path, whats

FLAGS = ("--backend=sqlite",)
BODIES = [b"%05d" % number + b"x" * 3000 for number in range(5)]
REST = [*BODIES[:2], *BODIES[3:]]
HUGE = 9223372036854775807

NUMBERS = "its numbers are not those that were stored"
FRAMES = "the checksum of the frames is wrong"
ELSEWHERE = "it is not where it was stored"
NO_TOPIC = "it belongs to no topic"


@frozen
class Case:
    """What somebody does to the row {row} or the topic {topic}, and what comes of it."""

    sql: str
    logged: str | None
    found: list[str] = field(factory=lambda: ["damaged record"])
    delivered: list[bytes] = field(factory=lambda: REST)
    repaired: list[bytes] = field(factory=lambda: BODIES)
    """What is delivered after a repair."""


def row(assignment: str, logged: str, *, can_be_repaired: bool = True) -> Case:
    """A value of the third message's row is another."""
    found = ["damaged record"] if can_be_repaired else ["damaged record", "missing messages"]
    return Case(
        f"UPDATE segment SET {assignment} WHERE id = {{row}}",
        logged,
        found,
        repaired=BODIES if can_be_repaired else REST,
    )


def of_topic(assignment: str, *found: str) -> Case:
    """A value of the topic's own row is another: nothing is lost."""
    return Case(f"UPDATE topic SET {assignment} WHERE id = {{topic}}", None, list(found), BODIES)


CASES = {
    "checksum": row("crc = crc + 1", FRAMES, can_be_repaired=False),
    "body": row("frames = CAST(substr(frames, 1, 200) || 'y' AS BLOB)", FRAMES, can_be_repaired=False),
    "frames-null": row("frames = NULL", FRAMES, can_be_repaired=False),
    "frames-text": row("frames = 'text'", FRAMES, can_be_repaired=False),
    "frames-number": row("frames = 7", FRAMES, can_be_repaired=False),
    "frames-empty": row("frames = x''", FRAMES, can_be_repaired=False),
    "crc-null": row("crc = NULL", NUMBERS, can_be_repaired=False),
    "crc-huge": row(f"crc = {HUGE}", FRAMES, can_be_repaired=False),
    "first-null": row("first = NULL", NUMBERS),
    "first-text": row("first = 'text'", NUMBERS),
    "first-negative": row("first = -5", NUMBERS),
    "first-of-others": row("first = first - 2", NUMBERS),
    "last-null": row("last = NULL", ELSEWHERE),
    "last-text": row("last = 'text'", ELSEWHERE),
    "last-blob": row("last = x'00ff'", ELSEWHERE),
    "last-between": row("last = last + 0.5", NUMBERS),
    "last-negative": row("last = -1", ELSEWHERE),
    "last-huge": row(f"last = {HUGE}", ELSEWHERE),
    "delay-null": row("delay = NULL", NUMBERS),
    "delay-negative": row("delay = -1", NUMBERS),
    "delay-huge": row(f"delay = {HUGE}", NUMBERS),
    "topic-null": row("topic = NULL", NO_TOPIC, can_be_repaired=False),
    "topic-text": row("topic = 'text'", NO_TOPIC, can_be_repaired=False),
    "topic-unknown": row("topic = 777", NO_TOPIC, can_be_repaired=False),
    "twice": Case(
        "INSERT INTO segment (topic, last, first, delay, crc, frames, head)"
        " SELECT topic, last + 0.5, first, delay, crc, frames, head FROM segment WHERE id = {row}",
        NUMBERS,
        delivered=BODIES,
    ),
    "end-null": of_topic("end_sequence = NULL", "damaged topic"),
    "end-text": of_topic("end_sequence = 'x'", "damaged topic"),
    "end-negative": of_topic("end_sequence = -1", "damaged topic"),
    "end-huge": of_topic(f"end_sequence = {HUGE}", "damaged topic"),
    "end-too-low": of_topic("end_sequence = 5"),
    "bytes-null": of_topic("bytes = NULL"),
    "bytes-negative": of_topic("bytes = -7"),
    "nothing": of_topic("bytes = bytes"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data path of a killed broker with a topic for each case, of which the channel `c` has read nothing."""
    nsqd = ForkedNsqd(tmp_path_factory.mktemp("whole"), *FLAGS)
    try:
        nsqd.start()
        for name in CASES:
            nsqd.create(name, "c")
            nsqd.publish(name, BODIES)
        nsqd.store()
        nsqd.kill()
    finally:
        nsqd.close()
    allow_anything(nsqd.data_path / "messages.db")
    assert findings(nsqd.data_path) == []
    return nsqd.data_path


@pytest.fixture
def nsqd(tmp_path: Path, whole: Path) -> Iterator[NsqdProcess]:
    """One that was not started yet, on a copy of it."""
    nsqd = ForkedNsqd(tmp_path, *FLAGS)
    shutil.copytree(whole, nsqd.data_path, dirs_exist_ok=True)
    yield nsqd
    nsqd.close()
    nsqd.assert_no_traceback()


def allow_anything(path: Path) -> None:
    """Constraints do not keep a bit from being flipped. What is in the log of changes goes into the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE type = 'table'")
        connection.execute(f"PRAGMA schema_version = {version + 1}")
        connection.execute("PRAGMA writable_schema = OFF")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def damage_values(data_path: Path) -> None:
    with closing(sqlite3.connect(data_path / "messages.db", isolation_level=None)) as connection:
        topics = dict(connection.execute("SELECT name, id FROM topic"))
        rows = {
            name: connection.execute(
                "SELECT id FROM segment WHERE topic = ? ORDER BY last LIMIT 1 OFFSET 2", (topic,)
            ).fetchone()[0]
            for name, topic in topics.items()
        }
        for name, case in CASES.items():
            connection.execute(case.sql.format(row=rows[name], topic=topics[name]))


def damage_page(path: Path, *, root_of: str | None = None) -> None:
    """A page goes bad: the root of a table or an index, or the one with the third message of `nothing`."""
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        number = connection.execute(query, (root_of,)).fetchone()[0] if root_of is not None else 0
    data = bytearray(path.read_bytes())
    place = (number - 1) * size if number else data.rindex(BODIES[2]) // size * size
    data[place : place + 8] = b"\xff" * 8
    path.write_bytes(data)


def start_and_drain(nsqd: NsqdProcess, expected: dict[str, list[bytes]]) -> None:
    """Each topic delivers what it should, and accepts and delivers more."""
    nsqd.start()
    for name, bodies in expected.items():
        nsqd.publish(name, [b"afterwards"])
        got = [message.body for message in nsqd.drain(name, "c", len(bodies) + 1)]
        assert got == [*bodies, b"afterwards"], name
    nsqd.stop()


def errors(nsqd: NsqdProcess) -> list[str]:
    return [line for line in nsqd.said().splitlines() if " ERROR: " in line]


def test_odd_values(nsqd: NsqdProcess) -> None:
    damage_values(nsqd.data_path)
    found = findings(nsqd.data_path)
    for name, case in CASES.items():
        if case.logged != NO_TOPIC:
            assert [one.what for one in found if one.topic == name] == case.found, name
    assert whats([one for one in found if one.topic is None]) == ["damaged record"] * 3
    start_and_drain(nsqd, {name: case.delivered for name, case in CASES.items()})
    lines = errors(nsqd)
    for name, case in CASES.items():
        said = [line for line in lines if f"TOPIC({name}): messages" in line]
        if case.logged in (None, NO_TOPIC):
            assert said == []
        else:
            assert len(said) == 1 and re.search(rf" in messages.db segment \d+ are lost: {case.logged}$", said[0])
    assert len([line for line in lines if "messages of a topic that cannot be told are lost" in line]) == 3


def test_odd_values_after_a_repair(nsqd: NsqdProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """What frames tell is there again, nothing is complained of, and what was taken away is kept."""
    damage_values(nsqd.data_path)
    assert run_nsqtw(["fsck", "--repair", str(nsqd.data_path)]) == 1
    said = capsys.readouterr().out
    assert "damaged record: topic checksum, " in said
    assert (nsqd.data_path / "damaged.d/1/messages.db").exists()
    assert set(whats(findings(nsqd.data_path))) == {"missing messages"}
    start_and_drain(nsqd, {name: case.repaired for name, case in CASES.items()})
    assert [line for line in errors(nsqd) if "messages.db" in line] == []
    assert findings(nsqd.data_path) == []


@pytest.mark.parametrize("name", ["place", "sqlite_autoindex_topic_1"])
def test_a_broken_page_of_an_index_costs_nothing(nsqd: NsqdProcess, name: str) -> None:
    """A start and a repair both write a new database."""
    damage_page(nsqd.data_path / "messages.db", root_of=name)
    assert whats(findings(nsqd.data_path)) == ["damaged database"]
    start_and_drain(nsqd, dict.fromkeys(CASES, BODIES))
    (line,) = errors(nsqd)
    assert line.endswith(f"the old one is {nsqd.data_path}/messages.db.damaged.1")
    assert findings(nsqd.data_path) == []


def test_a_broken_page_of_messages_costs_what_is_on_it(nsqd: NsqdProcess) -> None:
    damage_page(nsqd.data_path / "messages.db")
    found = findings(nsqd.data_path)
    assert whats(found)[0] == "damaged database"
    costs = [one for one in found if one.what == "damaged record"]
    lost = {(one.topic, one.messages) for one in costs}
    assert 1 <= len(lost) <= 4
    left = repair_path(nsqd.data_path)
    assert set(whats(left)) == {"missing messages"}
    nsqd.start()
    for name in CASES:
        gone = len([one for one in costs if one.topic == name])
        nsqd.publish(name, [b"afterwards"])
        assert len(nsqd.drain(name, "c", len(BODIES) + 1 - gone)) == len(BODIES) + 1 - gone
    nsqd.stop()
    assert [line for line in errors(nsqd) if "messages.db" in line] == []


def test_rows_that_overlap_are_delivered_once(tmp_path: Path) -> None:
    """Two good rows with the same messages, as a restored backup may leave them."""
    said: list[tuple[object, ...]] = []
    backend = SqliteBackend(str(tmp_path), lambda *damage: said.append(damage))
    queue = backend.queue("t")
    for segment in (make_segment(0, 5), make_segment(10, 5)):
        backend.commit([(queue, [segment])], False)
        backend.commit([], True)
    queue.end = 0  # type: ignore[misc]
    backend.commit([(queue, [make_segment(3, 6)])], False)
    queue.end = 15  # type: ignore[misc]
    for _ in range(2):
        assert list(messages(read_all(queue))) == [*range(9), *range(10, 15)]
    assert [(first, last, why) for _, _, first, last, why in said] == [(3, 4, "another row has them too")]
    backend.close()
    assert [one.messages for one in findings(tmp_path) if one.what == "damaged record"] == [(5, 8)]
    repair_path(tmp_path)
    backend = SqliteBackend(str(tmp_path), lambda *damage: said.append(damage))
    assert list(messages(read_all(backend.queue("t")))) == [*range(9), *range(10, 15)]
    backend.close()
    assert len(said) == 1


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    """A start says what to do; a repair puts it away."""
    (tmp_path / "messages.db").write_bytes(b"something else " * 1000)
    with pytest.raises(BackendError, match=r"messages.db: file is not a database; nsqtw fsck --repair sets it aside"):
        SqliteBackend(str(tmp_path), lambda *damage: None)
    assert whats(findings(tmp_path)) == ["unreadable messages"]
    assert repair_path(tmp_path) == []
    assert (tmp_path / "damaged.d/1/messages.db").read_bytes().startswith(b"something else")
    SqliteBackend(str(tmp_path), lambda *damage: None).close()


def test_a_newer_version_is_left_alone(nsqd: NsqdProcess) -> None:
    """What is in it cannot be told, so none of its messages is missing."""
    with closing(sqlite3.connect(nsqd.data_path / "messages.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert whats(repair_path(nsqd.data_path)) == ["newer format"]


def test_rows_of_the_version_before_are_read(tmp_path: Path) -> None:
    """Their numbers have no checksum: the ids in the frames stand for it."""
    backend = SqliteBackend(str(tmp_path), lambda *damage: None)
    backend.commit([(backend.queue("t"), [make_segment(0, 3), make_segment(3, 2)])], False)
    backend.close()
    with closing(sqlite3.connect(tmp_path / "messages.db", isolation_level=None)) as connection:
        connection.execute("DROP INDEX directed")
        connection.execute("ALTER TABLE segment DROP COLUMN head")
        connection.execute("PRAGMA user_version = 1")
    assert whats(findings(tmp_path)) == ["no positions"]
    backend = SqliteBackend(str(tmp_path), lambda *damage: None)
    assert list(messages(read_all(backend.queue("t")))) == list(range(5))
    backend.close()
    assert whats(findings(tmp_path)) == ["no positions"]


def test_a_topic_without_a_name_costs_that_topic(tmp_path: Path) -> None:
    said: list[tuple[object, ...]] = []
    backend = SqliteBackend(str(tmp_path), lambda *damage: None)
    for name in ("good", "damaged"):
        backend.commit([(backend.queue(name), [make_segment(0, 3)])], False)
    backend.close()
    with closing(sqlite3.connect(tmp_path / "messages.db", isolation_level=None)) as connection:
        connection.execute("UPDATE topic SET name = x'00ff' WHERE name = 'damaged'")
    backend = SqliteBackend(str(tmp_path), lambda *damage: said.append(damage))
    assert backend.topics() == ["good"]
    assert list(messages(read_all(backend.queue("good")))) == [0, 1, 2]
    backend.commit([(backend.queue("damaged"), [make_segment(3, 1)])], False)
    assert list(messages(read_all(backend.queue("damaged")))) == [3]
    backend.close()
    assert [why for *_, why in said] == ["the name of the topic is damaged"]
    assert whats(findings(tmp_path)) == ["damaged topic", "damaged record", "no positions"]
    assert whats(repair_path(tmp_path)) == ["no positions"]
    backend = SqliteBackend(str(tmp_path), lambda *damage: said.append(damage))
    assert backend.topics() == ["damaged", "good"]
    backend.close()
    assert len(said) == 1


def test_setting_aside_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    """The damaged database has its new name, the fresh one not yet."""
    backend = SqliteBackend(str(tmp_path), lambda *damage: None)
    backend.commit([(backend.queue("t"), [make_segment(0, 3)])], False)
    backend.close()
    (tmp_path / "messages.db").rename(tmp_path / "messages.db.new")
    (tmp_path / "messages.db-wal").write_bytes(b"of the damaged one")
    assert whats(findings(tmp_path)) == ["no positions"]
    backend = SqliteBackend(str(tmp_path), lambda *damage: None)
    assert list(messages(read_all(backend.queue("t")))) == [0, 1, 2]
    backend.close()
