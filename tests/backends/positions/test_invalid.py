"""Values in positions.db that nsqtw never wrote: a start works, says what it found, and loses no message for it."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import (
    Checkpoint,
    CursorState,
    NamedChannel,
    NamedTopic,
    PendingRow,
    SavedState,
    TopicState,
    Waiting,
)
from nsqtw.core.due_order import BEFORE_ALL, BEHIND_ALL
from nsqtw.core.pending import all_rows
from nsqtw.errors import BackendError

ROWS = [PendingRow(3, 1, 0), PendingRow(5, 2, 1_700_000_000_000), PendingRow(7, 0, 1_700_000_000_001)]


def topics() -> list[TopicState]:
    return [
        TopicState(
            name,
            released=20,
            released_total=20,
            end=40,
            put_total=30,
            waiting=[Waiting(21, 2, 500)],
            cursors=[
                CursorState(channel, next=10, taken_total=10, first_deliveries=[9], pending=list(ROWS), pending_count=3)
                for channel in ("a", "b")
            ],
        )
        for name in ("odd", "good")
    ]


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "positions.db")
    positions = Positions(path)
    positions.load()
    positions.reserve(7)
    positions.save(Checkpoint(topics=topics()))
    positions.close(True)
    return path


def change(path: str, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.create_function("raw", 1, bytes.fromhex)
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def load(path: str) -> SavedState:
    positions = Positions(path)
    saved = positions.load()
    for topic in saved.topics:
        for cursor in topic.cursors:
            cursor.pending = sorted(all_rows(positions, topic.name, cursor.name), key=lambda row: row.sequence)
    positions.close(False)
    return saved


WITHOUT_CONSTRAINTS = (
    "CREATE TABLE loose (cursor, sequence, attempts, due_ms)",
    "INSERT INTO loose SELECT * FROM held",
    "DROP TABLE held",
    "ALTER TABLE loose RENAME TO held",
    "CREATE INDEX held_due ON held (cursor, due_ms, sequence, attempts)",
)


@pytest.mark.parametrize("value", ["'x'", "-1", "9223372036854775807", "1.5", "x'00'", "'12 '"])
@pytest.mark.parametrize(
    "column",
    [
        "topic.released",
        "topic.released_total",
        "topic.end_sequence",
        "topic.put_total",
        "topic.paused",
        "topic.dropped",
        "topic.waiting",
        "topic.durability",
        "cursor.paused",
        "cursor.next",
        "cursor.taken_total",
        "cursor.first_deliveries",
        "cursor.held_count",
    ],
)
def test_a_topic_with_an_odd_value_is_left_out_and_its_names_are_kept(path: str, column: str, value: str) -> None:
    """The other topic has everything; the next start finds nothing odd any more."""
    table, name = column.split(".")
    change(path, f"UPDATE {table} SET {name} = {value} WHERE id = 1")
    saved = load(path)
    if saved.invalid:  # SQLite makes '12 ' a number where it can
        assert (saved.topics, saved.lost) == ([topics()[1]], False)
        assert saved.lost_topics == [NamedTopic("odd", channels=(NamedChannel("a"), NamedChannel("b")))]
        assert len(saved.invalid) == 1 and saved.invalid[0].startswith("TOPIC(odd): ")
    else:
        assert value == "'12 '"
    again = load(path)
    assert (again.invalid, again.lost_topics, again.lost) == ([], [], False)
    assert again.topics == saved.topics


@pytest.mark.parametrize(
    ("table", "name", "numbers"),
    [
        ("topic", "dropped", [0, 1 << 63]),
        ("topic", "waiting", [21, 1 << 63, 0]),
        ("topic", "marks", [0, 0, 1 << 63]),
        ("topic", "runs", [1 << 63, 1]),
        ("cursor", "first_deliveries", [1 << 63]),
        ("cursor", "first_deliveries", [9, 9]),
    ],
)
def test_a_list_has_no_number_that_was_never_saved(path: str, table: str, name: str, numbers: list[int]) -> None:
    """SQLite has no integer above 2**63, so the next save would fail; a message is in one place."""
    change(path, f"UPDATE {table} SET {name} = raw('{struct.pack(f'<{len(numbers)}Q', *numbers).hex()}') WHERE id = 1")
    saved = load(path)
    assert saved.topics == [topics()[1]]
    assert len(saved.invalid) == 1


@pytest.mark.parametrize(
    "runs",
    [[(0, 1 << 30, 1)], [(21, 1 << 30, 1)], [(39, 2, 1)], [(21, 6, 1), (27, 5, 1)], [(25, 1, 1), (21, 1, 1)]],
    ids=["released long ago", "too long", "beyond the end", "more than there are", "not ascending"],
)
def test_messages_that_cannot_be_waiting_are_not_waited_for(path: str, runs: list[tuple[int, int, int]]) -> None:
    """They would be held one by one, which for a run of millions is work for ever."""
    blob = struct.pack(f"<{3 * len(runs)}Q", *(number for run in runs for number in run))
    change(path, f"UPDATE topic SET waiting = raw('{blob.hex()}') WHERE id = 1")
    saved = load(path)
    assert saved.topics == [topics()[1]]
    assert len(saved.invalid) == 1 and "messages wait for release that cannot be" in saved.invalid[0]


@pytest.mark.parametrize("value", ["NULL", "'x'", "-1", "9223372036854775807", "253402300800000", "x'00'"])
def test_a_message_that_is_due_at_no_possible_time_is_due_at_once(path: str, value: str) -> None:
    change(path, *WITHOUT_CONSTRAINTS, f"UPDATE held SET due_ms = {value} WHERE cursor = 1 AND sequence = 5")
    saved = load(path)
    assert saved.invalid == ["1 held messages are due at no possible time: they are due at once"]
    assert saved.topics[0].cursors[0].pending == [ROWS[0], PendingRow(5, 2, 0), ROWS[2]]
    assert saved.topics[0].cursors[1].pending == ROWS
    assert load(path).invalid == []


def test_a_message_due_at_the_end_of_the_year_9999_waits_for_it(path: str) -> None:
    change(path, "UPDATE held SET due_ms = 253402300799999 WHERE cursor = 1 AND sequence = 5")
    saved = load(path)
    assert saved.invalid == []
    assert saved.topics[0].cursors[0].pending[1] == PendingRow(5, 2, 253_402_300_799_999)


@pytest.mark.parametrize("value", ["NULL", "'x'", "-1", "65536", "9223372036854775807", "0.5", "x'00'"])
def test_odd_attempts_are_none(path: str, value: str) -> None:
    """Nothing is said of it: it is met while messages are delivered."""
    change(path, *WITHOUT_CONSTRAINTS, f"UPDATE held SET attempts = {value} WHERE sequence = 5")
    assert load(path).topics[0].cursors[0].pending == [ROWS[0], PendingRow(5, 0, ROWS[1].due_ms), ROWS[2]]


@pytest.mark.parametrize("value", ["NULL", "'x'", "-1", "9223372036854775807", "x'00'"])
def test_a_held_row_of_no_message_is_left_out(path: str, value: str) -> None:
    change(path, *WITHOUT_CONSTRAINTS, f"UPDATE held SET sequence = {value} WHERE cursor = 1 AND sequence = 5")
    saved = load(path)
    assert saved.invalid == ["1 held messages have no place in a log: they are left out"]
    assert saved.topics[0].cursors[0].pending == [ROWS[0], ROWS[2]]
    assert saved.topics[0].cursors[0].pending_count == 2


@pytest.mark.parametrize("value", ["NULL", "'x'", "-1", "99", "9223372036854775807", "x'00'"])
def test_held_rows_of_no_channel_are_left_out(path: str, value: str) -> None:
    """And no channel that is created later inherits them."""
    change(path, *WITHOUT_CONSTRAINTS, f"INSERT INTO held VALUES ({value}, 1, 1, 1), ({value}, 2, 1, 1)")
    saved = load(path)
    assert saved.invalid == ["2 held messages belong to no channel: they are left out"]
    assert (saved.topics, saved.lost) == (topics(), False)
    assert load(path).invalid == []


@pytest.mark.parametrize("values", ["1.5, sequence + 0.5", "due_ms, 4.5"])
def test_pages_end_behind_rows_with_fractions(path: str, values: str) -> None:
    """What is read of such a row is in another order than the row."""
    change(
        path,
        *WITHOUT_CONSTRAINTS,
        f"INSERT INTO held (cursor, due_ms, sequence, attempts) SELECT cursor, {values}, attempts FROM held",
    )
    positions = Positions(path)
    positions.load()
    end, count = BEFORE_ALL, 0
    while end < BEHIND_ALL:
        rows, end = positions.pending("odd", "a", end, 1)
        count += len(rows)
    positions.close(False)
    assert count == 6


def test_a_page_that_ends_at_no_possible_time_is_damage(path: str) -> None:
    """A start makes such a row due at once: here the database is damaged afterwards."""
    positions = Positions(path)
    positions.load()
    change(path, "UPDATE held SET due_ms = 'x' WHERE sequence = 3")
    with pytest.raises(BackendError, match="a message is due at 'x'"):
        positions.pending("odd", "a", BEFORE_ALL, 3)
    positions.close(False)
    assert sorted(row.sequence for row in load(path).topics[0].cursors[0].pending) == [3, 5, 7]


def test_a_table_whose_name_is_no_utf8_is_damage(path: str) -> None:
    """The damaged file is set aside, and the start goes on."""
    change(path, "PRAGMA writable_schema = 1", "UPDATE sqlite_master SET name = CAST(X'd0' AS TEXT), sql = 'CREATE'")
    assert load(path).lost


def test_rows_that_are_there_twice_are_one_message(path: str) -> None:
    """A cursor takes the first of them."""
    change(path, *WITHOUT_CONSTRAINTS, "INSERT INTO held SELECT * FROM held WHERE cursor = 1")
    positions = Positions(path)
    positions.load()
    rows, _ = positions.pending("odd", "a", BEFORE_ALL, 10)
    positions.close(False)
    assert sorted({row.sequence for row in rows}) == [3, 5, 7]


@pytest.mark.parametrize("count", [0, 1000])
def test_a_count_that_is_wrong(path: str, count: int) -> None:
    """None where there are some is seen at start; too many are counted until they are missed."""
    change(path, f"UPDATE cursor SET held_count = {count} WHERE id = 1")
    assert load(path).topics[0].cursors[0].pending_count == (3 if count == 0 else 1000)
    change(path, "DELETE FROM held WHERE cursor = 1")
    saved = load(path)
    assert saved.topics[0].cursors[0].pending_count == 0
    assert saved.invalid == [f"{count or 3} held messages of a channel are missing"]


@pytest.mark.parametrize("value", ["'x'", "-1", "9223372036854775807", "1.5"])
def test_what_the_broker_itself_needs(path: str, value: str) -> None:
    change(path, f"UPDATE broker SET next_block = {value}, wall_shift_ms = {value}, clean_stop = {value}")
    saved = load(path)
    assert (saved.next_block, saved.clean_stop, saved.lost) == (None, False, False)
    assert saved.wall_shift_ms == (-1 if value == "-1" else 0)
    assert saved.topics == topics()
    assert len(saved.invalid) == (1 if value == "-1" else 2)
