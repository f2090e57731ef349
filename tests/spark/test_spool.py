"""The spool: numbered messages on disk, each once, and who may write."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.channel.spool import Row, Spool, read_rows
from pyspark_nsq.channel.spool_lock import SpoolLock
from pyspark_nsq.channel.v2_message import Message
from pyspark_nsq.errors import SpoolError

NOW = 1_000_000


def message(number: int, attempts: int = 1) -> Message:
    return Message(number * 10**9, attempts, b"%016x" % number, b"body %d" % number)


def append(spool: Spool, *numbers: int, nsqd: str = "a:1", at: int = NOW) -> int:
    return spool.append([(nsqd, [message(number) for number in numbers])], at)


def bodies(spool: Spool, after: int = 0) -> list[bytes]:
    return [row.body for row in spool.rows(after, spool.end)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "new folder" / "spool")


def test_messages_get_numbers_and_are_read_by_them(path: str) -> None:
    spool = Spool.open(path)
    assert (0, 1) == (spool.end, spool.first())
    assert 3 == append(spool, 7, 8, 9)
    assert (3, 1) == (spool.end, spool.first())
    expected = [
        Row(2, "a:1", b"%016x" % 8, 8 * 10**9, 1, b"body 8"),
        Row(3, "a:1", b"%016x" % 9, 9 * 10**9, 1, b"body 9"),
    ]
    assert expected == list(spool.rows(1, 3)) == list(read_rows(path, spool.uuid, 1, 3))


def test_the_same_spool_again(path: str) -> None:
    first = Spool.open(path)
    append(first, 1, 2)
    first.close()
    again = Spool.open(path)
    assert (first.uuid, 2, [b"body 1", b"body 2"]) == (again.uuid, again.end, bodies(again))
    assert 1 == append(again, 2, 3)
    assert [b"body 3"] == bodies(again, after=2)


def test_another_delivery_of_a_known_message_is_dropped(path: str) -> None:
    spool = Spool.open(path)
    assert 2 == append(spool, 1, 2, 1)
    assert 0 == append(spool, 2)
    assert 1 == append(spool, 2, nsqd="b:1"), "another nsqd's message may have the same id"
    assert [b"body 1", b"body 2", b"body 2"] == bodies(spool)


def test_what_spark_is_done_with_goes_and_its_ids_stay_for_the_window(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2, 3)
    spool.forget(2, before=NOW)
    assert (3, [b"body 3"]) == (spool.first(), bodies(spool))
    assert 0 == append(spool, 1)
    spool.forget(3, before=NOW + 1)
    assert (4, 3) == (spool.first(), spool.end)
    assert 1 == append(spool, 1, at=NOW + 1)
    assert 4 == spool.end


def test_numbers_go_on_when_all_is_gone(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2)
    spool.forget(2, before=0)
    spool.close()
    assert 2 == Spool.open(path).end


def test_how_far_the_bytes_reach(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2, 3)  # six bytes each
    assert [1, 1, 2, 2, 3, 3] == [spool.fit(0, 3, most) for most in (1, 11, 12, 17, 18, 99)]
    assert 2 == spool.fit(1, 2, 99)


@given(st.lists(st.lists(st.integers(0, 20), max_size=8), max_size=8))
def test_each_message_once_whatever_comes_again(deliveries: list[list[int]]) -> None:
    spool = Spool(":memory:", _in_memory())
    for numbers in deliveries:
        append(spool, *numbers)
    first_seen = dict.fromkeys(number for numbers in deliveries for number in numbers)
    assert [b"body %d" % number for number in first_seen] == bodies(spool)
    assert list(range(1, len(first_seen) + 1)) == [row.seq for row in spool.rows(0, spool.end)]


def _in_memory() -> sqlite3.Connection:
    from pyspark_nsq.channel import spool

    connection = sqlite3.connect(":memory:")
    connection.executescript(spool._SCHEMA.format(uuid="u"))
    return connection


def test_a_failed_append_leaves_nothing(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1)
    unkeepable = message(3)._replace(timestamp_ns=1 << 70)
    with pytest.raises((SpoolError, OverflowError)):
        spool.append([("b:1", [message(2), unkeepable])], NOW)
    assert (1, [b"body 1"]) == (spool.end, bodies(spool))
    assert 1 == append(spool, 2, nsqd="b:1")


def test_a_file_that_is_no_spool(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"no database, but long enough to be one" * 10)
    with pytest.raises(SpoolError, match="other: file is not a database"):
        Spool.open(str(other))
    with sqlite3.connect(tmp_path / "theirs") as theirs:
        theirs.execute("CREATE TABLE t(x)")
    with pytest.raises(SpoolError, match="no spool of this version"):
        Spool.open(str(tmp_path / "theirs"))
    with pytest.raises(SpoolError, match="nowhere"):
        list(read_rows(str(tmp_path / "nowhere"), "uuid", 0, 1))


def test_a_reader_gets_all_rows_of_the_spool_it_means_or_says_so(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2, 3)
    with pytest.raises(SpoolError, match="is another one than the driver's"):
        next(read_rows(path, "another", 0, 3))
    with pytest.raises(SpoolError, match="has 3 of the 4 rows 1 to 4"):
        list(read_rows(path, spool.uuid, 0, 4))
    spool.forget(2, NOW)
    with pytest.raises(SpoolError, match="has 1 of the 2 rows 2 to 3"):
        list(read_rows(path, spool.uuid, 1, 3))


def test_one_writer_at_a_time(path: str) -> None:
    lock = SpoolLock(path)
    with pytest.raises(SpoolError, match="is in use by another query"):
        SpoolLock(path, patience=0.0)
    lock.release()
    SpoolLock(path, patience=0.0).release()
