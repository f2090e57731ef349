"""The spool: numbered messages on disk, each once, and who may write."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark_nsq.channel import spool as spool_module
from pyspark_nsq.channel.spool import Spool, read_spans
from pyspark_nsq.channel.spool_lock import SpoolLock
from pyspark_nsq.errors import SpoolError

from tests.spark.spans import Row, bodies_of, frame, rows_of, span_of

NOW = 1_000_000


def append(spool: Spool, *numbers: int, nsqd: str = "a:1", at: int = NOW) -> int:
    frames = [frame(b"%016x" % number, b"body %d" % number, number * 10**9) for number in numbers]
    return spool.append([span_of(nsqd, [one]) for one in frames[:1]] + [span_of(nsqd, frames[1:])], at)


def bodies(spool: Spool, after: int = 0) -> list[bytes]:
    return bodies_of(spool.spans(max(after, spool.first() - 1), spool.end))


def segments(path: str) -> list[str]:
    return sorted(one.name for one in Path(path).glob("*.segment"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "new folder" / "spool")


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is full with three rows."""
    monkeypatch.setattr(spool_module, "_SEGMENT_ROWS", 2)


def test_messages_get_numbers_and_are_read_by_them(path: str) -> None:
    spool = Spool.open(path)
    assert (spool.end, spool.first()) == (0, 1)
    assert append(spool, 7, 8, 9) == 3
    assert (spool.end, spool.first()) == (3, 1)
    expected = [
        Row(2, "a:1", b"%016x" % 8, 8 * 10**9, 1, b"body 8"),
        Row(3, "a:1", b"%016x" % 9, 9 * 10**9, 1, b"body 9"),
    ]
    assert expected == rows_of(spool.spans(1, 3)) == rows_of(read_spans(path, spool.uuid, 1, 3))


def test_the_same_spool_again(path: str) -> None:
    first = Spool.open(path)
    append(first, 1, 2)
    first.close()
    again = Spool.open(path)
    assert (first.uuid, 2, [b"body 1", b"body 2"]) == (again.uuid, again.end, bodies(again))
    assert append(again, 2, 3) == 1
    assert bodies(again, after=2) == [b"body 3"]


def test_another_delivery_of_a_known_message_is_dropped(path: str) -> None:
    spool = Spool.open(path)
    assert append(spool, 1, 2, 1) == 2
    assert append(spool, 2) == 0
    assert append(spool, 2, nsqd="b:1") == 1, "another nsqd's message may have the same id"
    assert bodies(spool) == [b"body 1", b"body 2", b"body 2"]


@pytest.mark.usefixtures("small_segments")
def test_a_message_is_known_when_its_segment_is_full_and_gone(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2, 3)
    append(spool, 4, 5, 6)
    spool.forget(6, before=NOW)
    assert segments(path) == ["00000000000000000007.segment"]
    assert append(spool, 1, 6, 7, 2) == 1
    spool.close()
    assert append(Spool.open(path), 3, 5, 7) == 0


def test_what_spark_is_done_with_goes_and_its_ids_stay_for_the_window(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2, 3)
    spool.forget(2, before=NOW)
    assert (spool.first(), bodies(spool)) == (3, [b"body 3"])
    assert append(spool, 1) == 0
    spool.forget(3, before=NOW + 1)
    assert (spool.first(), spool.end) == (4, 3)
    assert append(spool, 1, at=NOW + 1) == 1
    assert spool.end == 4
    assert sorted(one.name for one in Path(path).iterdir()) == ["00000000000000000004.segment"]


@pytest.mark.parametrize("again", [False, True])
def test_numbers_go_on_when_all_is_gone(path: str, again: bool) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2)
    spool.forget(2, before=NOW + 1 if again else 0)
    spool.close()
    reopened = Spool.open(path)
    assert (reopened.end, reopened.first(), reopened.frame_bytes) == (2, 3, 0)


@pytest.mark.usefixtures("small_segments")
def test_how_far_the_bytes_reach(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2)  # six bytes each
    append(spool, 3, 4)
    append(spool, 5)
    assert [spool.fit(0, 5, most) for most in (1, 11, 12, 17, 18, 23, 29, 99)] == [1, 1, 2, 2, 3, 3, 4, 5]
    assert spool.fit(1, 2, 99) == 2
    assert [spool.fit(1, 3, most) for most in (1, 6, 12)] == [2, 2, 3]


@pytest.mark.usefixtures("small_segments")
def test_what_spark_still_needs_is_measured(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2, 3, 4)
    append(spool, 5)
    assert spool.measure(2, 5) == (3, 3 * 40)
    spool.forget(3, before=0)
    assert spool.frame_bytes == 2 * 40
    assert Spool.open(path).frame_bytes == 2 * 40


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 20), max_size=8), max_size=8))
def test_each_message_once_whatever_comes_again(
    tmp_path_factory: pytest.TempPathFactory, deliveries: list[list[int]]
) -> None:
    spool = Spool.open(str(tmp_path_factory.mktemp("each") / "spool"))
    for numbers in deliveries:
        append(spool, *numbers)
    first_seen = dict.fromkeys(number for numbers in deliveries for number in numbers)
    assert [b"body %d" % number for number in first_seen] == bodies(spool)
    assert list(range(1, len(first_seen) + 1)) == [row.seq for row in rows_of(spool.spans(0, spool.end))]
    spool.close()


def test_a_failed_append_leaves_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool.open(path)
    append(spool, 1)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patches:
        patches.setattr(os, "fdatasync", full)
        with pytest.raises(SpoolError, match="No space left on device"):
            append(spool, 2)
    assert (spool.end, bodies(spool)) == (1, [b"body 1"])
    with pytest.raises(SpoolError, match="could not be written before"):
        append(spool, 2)
    spool.close()
    again = Spool.open(path)
    assert (again.end, bodies(again)) == (1, [b"body 1"])
    assert append(again, 2, nsqd="b:1") == 1


def test_nothing_is_appended_before_it_is_synced(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool.open(path)
    sync, sizes = os.fdatasync, []

    def recorded(descriptor: int) -> None:
        sizes.append((spool.end, os.fstat(descriptor).st_size))
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", recorded)
    append(spool, 1, 2)
    append(spool, 3)
    size = os.stat(Path(path) / segments(path)[0]).st_size
    assert [end for end, _ in sizes] == [0, 2], "the end moves when all of it is on the disk"
    assert size == sizes[-1][1]


def test_a_path_that_is_no_spool(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"no database, but long enough to be one" * 10)
    with pytest.raises(SpoolError, match="other is a file, and no spool; name a folder of its own"):
        Spool.open(str(other))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "theirs").touch()
    with pytest.raises(SpoolError, match="folder has other files, and no spool; name a folder of its own"):
        Spool.open(str(folder))
    with pytest.raises(SpoolError, match="nowhere"):
        list(read_spans(str(tmp_path / "nowhere"), "uuid", 0, 1))


def test_a_spool_of_a_later_version(path: str) -> None:
    Spool.open(path).close()
    [name] = segments(path)
    segment = Path(path) / name
    segment.write_bytes(b"NSQSPOOL\0\x09" + segment.read_bytes()[10:])
    with pytest.raises(SpoolError, match="is damaged, or of a later version of the connector"):
        Spool.open(path)


@pytest.mark.usefixtures("small_segments")
def test_a_reader_gets_all_rows_of_the_spool_it_means_or_says_so(path: str) -> None:
    spool = Spool.open(path)
    append(spool, 1, 2, 3)
    append(spool, 4)
    with pytest.raises(SpoolError, match="is another one than the driver's"):
        next(read_spans(path, "another", 0, 3))
    with pytest.raises(SpoolError, match="has 4 of the 5 rows 1 to 5"):
        list(read_spans(path, spool.uuid, 0, 5))
    spool.forget(3, NOW)
    with pytest.raises(SpoolError, match="has 1 of the 3 rows 2 to 4"):
        list(read_spans(path, spool.uuid, 1, 4))
    assert bodies_of(read_spans(path, spool.uuid, 1, 4, skips_damage=True)) == [b"body 4"]


def test_one_writer_at_a_time(path: str) -> None:
    lock = SpoolLock(path)
    with pytest.raises(SpoolError, match="is in use by another query"):
        SpoolLock(path, patience=0.0)
    lock.release()
    SpoolLock(path, patience=0.0).release()
