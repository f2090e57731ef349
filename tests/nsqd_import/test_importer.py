"""Taking over a data path of an nsqd: what becomes of its messages, names and files."""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.errors import BackendError, BackendFull, MetadataError
from nsqtw.nsqd_import import is_due
from nsqtw.nsqd_import import topic as takeover_topic
from tests.nsqd_import.data_path import DataPath, names
from tests.nsqd_import.nsqd_files import Left, left, write_names, write_queue

TEN = [left(number) for number in range(10)]


@pytest.fixture
def opened() -> Iterator[list[DataPath]]:
    """Data paths to be closed in the end."""
    opened: list[DataPath] = []
    yield opened
    for data_path in opened:
        data_path.close()


@pytest.fixture
def start(tmp_path: Path, opened: list[DataPath]):
    def start_one(**options: object) -> DataPath:
        opened.append(DataPath(tmp_path, **options))
        return opened[-1]

    return start_one


def bodies(messages: list[Left]) -> Counter[bytes]:
    return Counter(message.body for message in messages)


def test_a_fresh_data_path_is_left_as_it_is(tmp_path: Path, start) -> None:
    start()
    assert [name for name in names(tmp_path) if not name.startswith("positions.db")] == []


def test_what_makes_an_import_due(tmp_path: Path) -> None:
    for name in ("nsqd.dat", "t.diskqueue.000001.dat.bad", "t.diskqueue.meta.dat.12.tmp", "positions.db", "t"):
        (tmp_path / name).touch()
    assert not is_due(str(tmp_path))
    for name in ("t.diskqueue.000000.dat", "t:c.diskqueue.meta.dat", "import.db"):
        (tmp_path / name).touch()
        assert is_due(str(tmp_path))
        (tmp_path / name).unlink()
    with pytest.raises(BackendError, match="no such file"):
        is_due(str(tmp_path / "nowhere"))


def test_the_messages_of_a_channel(tmp_path: Path, start) -> None:
    write_names(tmp_path, {"t": ["c"]})
    write_queue(tmp_path, "t")
    write_queue(tmp_path, "t:c", *TEN)
    data_path = start()
    messages = data_path.drain()
    assert [(m.body, m.timestamp_ns, m.attempts) for m in messages] == [(m.body, m.timestamp_ns, 1) for m in TEN]
    assert len({message.id for message in messages}) == 10


def test_an_import_happens_once(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t:c", *TEN)
    data_path = start()
    reader = data_path.reader(ready=3)
    reader.finish(*(message.id for message in reader.read()))
    reader.leave()
    data_path.restart()
    assert data_path.bodies() == bodies(TEN[3:])
    assert len([text for text in data_path.said("info") if "imported" in text]) == 1


def test_old_files_are_moved_and_kept(tmp_path: Path, start) -> None:
    write_names(tmp_path, {"t": ["c"]})
    queue = write_queue(tmp_path, "t:c", *TEN, max_bytes_per_file=100)
    (tmp_path / "t:c.diskqueue.meta.dat.17.tmp").write_text("half")
    old = {path.name: path.read_bytes() for path in tmp_path.glob("t:c*")}
    assert len(old) == queue.write_file + 3
    start()
    assert {path.name: path.read_bytes() for path in (tmp_path / "nsqd.files").iterdir()} == old
    assert [name for name in names(tmp_path) if not name.startswith("positions.db")] == ["nsqd.dat", "nsqd.files", "t"]


def test_old_files_do_not_replace_older_ones(tmp_path: Path, start, opened: list[DataPath]) -> None:
    for number in range(3):
        write_queue(tmp_path, "t:c", TEN[number])
        start().close()
        opened.clear()
    assert names(tmp_path / "nsqd.files") == [
        "t:c.diskqueue.000000.dat",
        "t:c.diskqueue.000000.dat.1",
        "t:c.diskqueue.000000.dat.2",
        "t:c.diskqueue.meta.dat",
        "t:c.diskqueue.meta.dat.1",
        "t:c.diskqueue.meta.dat.2",
    ]
    assert start().bodies() == bodies(TEN[:3])


def test_a_message_of_several_channels_is_stored_once(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t:a", *TEN)
    write_queue(tmp_path, "t:b", *TEN[5:])
    data_path = start()
    assert data_path.topic().put_total == 10
    assert data_path.bodies("a") == bodies(TEN)
    assert data_path.bodies("b") == bodies(TEN[5:])


def test_the_topics_own_queue_goes_to_all_channels(tmp_path: Path, start) -> None:
    write_names(tmp_path, {"t": ["a", "b"]})
    write_queue(tmp_path, "t", *TEN[5:])
    write_queue(tmp_path, "t:a", *TEN[:5])
    data_path = start()
    assert data_path.bodies("a") == bodies(TEN)
    assert data_path.bodies("b") == bodies(TEN[5:])


def test_a_topic_without_channels_keeps_its_messages_for_the_first(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t", *TEN)
    data_path = start()
    assert data_path.topic().depth == 10
    assert data_path.bodies("first") == bodies(TEN)
    assert data_path.bodies("second") == Counter()


def test_pauses_are_kept(tmp_path: Path, start) -> None:
    write_names(tmp_path, {"t": ["a", "b"], "u": ["c"]}, "t", "t:b")
    write_queue(tmp_path, "t", *TEN[5:])
    write_queue(tmp_path, "t:a", *TEN[:5])
    write_queue(tmp_path, "u:c", *TEN)
    data_path = start()
    assert data_path.topic().paused
    assert data_path.topic().depth == 5
    assert data_path.bodies("a") == bodies(TEN[:5])
    assert data_path.channel("b").paused
    assert not data_path.topic("u").paused
    data_path.topic().unpause(data_path.now)
    assert data_path.bodies("a") == bodies(TEN[5:])
    assert data_path.channel("b").depth == 5


def test_a_channel_that_only_its_file_names_and_one_that_only_nsqd_dat_names(tmp_path: Path, start) -> None:
    write_names(tmp_path, {"t": ["named"]})
    write_queue(tmp_path, "t:filed", *TEN)
    data_path = start()
    assert sorted(data_path.topic().channels) == ["filed", "named"]
    assert data_path.bodies("named") == Counter()
    assert data_path.bodies("filed") == bodies(TEN)


def test_attempts_go_on(tmp_path: Path, start) -> None:
    again = left(3, attempts=7)
    write_queue(tmp_path, "t:a", *TEN[:3], again)
    write_queue(tmp_path, "t:b", *TEN[:4])
    data_path = start()
    assert {m.body: m.attempts for m in data_path.drain("a")} == {**dict.fromkeys(bodies(TEN[:3]), 1), again.body: 8}
    assert {m.body: m.attempts for m in data_path.drain("b")} == dict.fromkeys(bodies(TEN[:4]), 1)


def test_what_was_in_flight_comes_first(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t:c", *TEN, left(11, attempts=1))
    data_path = start()
    assert [message.attempts for message in data_path.drain()] == [2, *[1] * 10]


def test_a_channel_with_very_many_retried_messages_gets_them_as_new(
    tmp_path: Path, start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover_topic, "MAX_RETRIED", 3)
    write_queue(tmp_path, "t:many", *(left(number, attempts=2) for number in range(4)))
    write_queue(tmp_path, "t:few", *(left(number, attempts=2) for number in range(3)))
    data_path = start()
    assert [message.attempts for message in data_path.drain("many")] == [1] * 4
    assert [message.attempts for message in data_path.drain("few")] == [3] * 3
    assert [text for text in data_path.said("warn") if "many" in text]


def test_a_message_twice_in_a_queue_comes_once(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t:c", TEN[0], left(0, attempts=2), TEN[1])
    data_path = start()
    assert [(message.body, message.attempts) for message in data_path.drain()] == [
        (TEN[0].body, 3),
        (TEN[1].body, 1),
    ]


def test_one_id_with_two_bodies_are_two_messages(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t:c", left(0, b"one"), left(0, b"two"))
    assert start().bodies() == Counter([b"one", b"two"])


def test_after_a_crash_of_nsqd_a_message_of_topic_and_channel_goes_to_all(tmp_path: Path, start) -> None:
    write_names(tmp_path, {"t": ["a", "b"]})
    write_queue(tmp_path, "t", *TEN[:2])
    write_queue(tmp_path, "t:a", left(0, attempts=4))
    data_path = start()
    assert {message.body: message.attempts for message in data_path.drain("a")} == {TEN[0].body: 5, TEN[1].body: 1}
    assert data_path.bodies("b") == bodies(TEN[:2])


def test_damage_is_named_and_the_rest_is_taken_over(tmp_path: Path, start) -> None:
    queue = write_queue(tmp_path, "t:c", *TEN, max_bytes_per_file=4 * len(TEN[0].record))
    with queue.path(1).open("r+b") as file:
        file.seek(len(TEN[0].record))
        file.write(bytes(4))
    data_path = start()
    assert data_path.bodies() == bodies(TEN) - bodies(TEN[5:8])
    place = f"IMPORT: t:c.diskqueue.000001.dat at {len(TEN[0].record)}: "
    assert [text for text in data_path.said("warn") if text.startswith(place)]


def test_what_is_no_queue_of_a_valid_name_is_left_alone_and_named(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t:c", TEN[0])
    odd = ["bad name", "t:c:d", "t#ephemeral", "t:" + "x" * 65]
    for name in odd:
        write_queue(tmp_path, name, TEN[1])
    (tmp_path / "t.diskqueue.000003.dat.bad").write_bytes(b"given up")
    data_path = start()
    assert set(names(tmp_path)) >= {f"{name}.diskqueue.000000.dat" for name in odd} | {"t.diskqueue.000003.dat.bad"}
    for name in [*odd, "t.diskqueue.000003.dat.bad"]:
        assert [text for text in data_path.said("warn") if name in text]
    assert list(data_path.broker.topics) == ["t"]


def test_queue_names_of_windows(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t;c", *TEN)
    assert start().bodies() == bodies(TEN)


def test_topics_that_look_like_files_of_ours(tmp_path: Path, start) -> None:
    for name in ("nsqd.files", "import.db", "..", "t.diskqueue.000000.dat"):
        write_queue(tmp_path, f"{name}:c", *TEN)
    data_path = start()
    for name in ("nsqd.files", "import.db", "..", "t.diskqueue.000000.dat"):
        assert data_path.bodies(topic=name) == bodies(TEN)
    data_path.restart()
    assert len(data_path.broker.topics) == 4


def test_a_topic_that_was_known_gets_the_messages_too(tmp_path: Path, start) -> None:
    data_path = start()
    data_path.channel("a")
    data_path.channel("b")
    data_path.put(b"one", b"two")
    assert data_path.bodies("a") == Counter([b"one", b"two"])
    data_path.restart()
    data_path.put(b"three")
    data_path.broker.stop(data_path.now)
    data_path.save()
    data_path.close()
    write_queue(tmp_path, "t", TEN[9])
    write_queue(tmp_path, "t:a", *TEN[:5])
    write_queue(tmp_path, "t:new", *TEN[3:5])
    data_path.start()
    assert data_path.bodies("a") == Counter([b"three"]) + bodies(TEN[:5]) + bodies(TEN[9:])
    assert data_path.bodies("b") == Counter([b"one", b"two", b"three"]) + bodies(TEN[9:])
    assert data_path.bodies("new") == bodies(TEN[3:5]) + bodies(TEN[9:])


def test_a_known_topic_that_is_paused_goes_on_holding_back(tmp_path: Path, start) -> None:
    data_path = start()
    data_path.channel()
    data_path.topic().pause()
    data_path.put(b"held back")
    data_path.put(b"later", delay_ms=60_000)
    data_path.broker.stop(data_path.now)
    data_path.save()
    data_path.close()
    write_queue(tmp_path, "t:c", *TEN)
    data_path.start()
    assert data_path.bodies() == bodies(TEN)
    assert data_path.topic().depth == 2
    data_path.topic().unpause(data_path.now)
    assert data_path.bodies() == Counter([b"held back"])
    data_path.wait(61)
    assert data_path.bodies() == Counter([b"later"])


def test_a_known_channel_that_wants_all_that_comes_goes_on_from_where_it_stands(tmp_path: Path, start) -> None:
    data_path = start()
    data_path.channel()
    data_path.put(b"released")
    data_path.turn()
    data_path.topic().pause()
    data_path.put(b"held back")
    data_path.broker.stop(data_path.now)
    data_path.save()
    data_path.close()
    write_queue(tmp_path, "t:c", *TEN)
    data_path.start()
    cursor = data_path.channel().cursor
    assert cursor is not None
    assert not cursor.pending_in_memory()
    assert data_path.bodies() == Counter([b"released"]) + bodies(TEN)
    data_path.topic().unpause(data_path.now)
    assert data_path.bodies() == Counter([b"held back"])


def test_a_known_topic_whose_log_is_gone(tmp_path: Path, start) -> None:
    data_path = start()
    data_path.put(b"lost")
    reader = data_path.reader()
    reader.requeue(reader.read()[0].id, 100.0)
    data_path.save()
    data_path.close()
    shutil.rmtree(tmp_path / "t")
    again = left(10, attempts=1)
    write_queue(tmp_path, "t:c", *TEN, again)
    data_path.start()
    channel = data_path.channel()
    assert (channel.depth, channel.deferred_count) == (11, 0)
    data_path.restart()
    data_path.save()
    data_path.close()
    data_path.start()
    assert data_path.bodies() == bodies([*TEN, again])
    assert data_path.said("error") == []


def test_ids_are_never_used_twice(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t:c", *TEN)
    write_queue(tmp_path, "u:c", *TEN)
    data_path = start()
    data_path.put(b"new")
    data_path.channel(topic="v")
    data_path.put(b"new", topic="v")
    ids = [message.id for topic in "tuv" for message in data_path.drain(topic=topic)]
    assert len(ids) == len(set(ids)) == 22


def test_the_backend_dummy_leaves_the_files_alone(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "t:c", *TEN)
    data_path = start(backend="dummy")
    assert data_path.broker.topics == {}
    assert [text for text in data_path.said("warn") if "dummy" in text]
    assert (tmp_path / "t:c.diskqueue.000000.dat").exists()


def test_an_nsqd_dat_that_is_damaged_stops_the_start_before_anything_is_touched(tmp_path: Path, start) -> None:
    queue = write_queue(tmp_path, "t:c", *TEN)
    (tmp_path / "nsqd.dat").write_text("{")
    with pytest.raises(MetadataError):
        start()
    (tmp_path / "nsqd.dat").unlink()
    assert queue.path(0).exists()
    assert start().bodies() == bodies(TEN)


def test_a_file_that_cannot_be_opened_stops_the_start_and_nothing_is_lost(tmp_path: Path, start) -> None:
    write_queue(tmp_path, "a:c", *TEN)
    queue = write_queue(tmp_path, "b:c", *TEN)
    queue.path(0).rename(tmp_path / "aside")
    queue.path(0).mkdir()
    with pytest.raises(BackendError, match=r"b:c.diskqueue.000000.dat"):
        start()
    queue.path(0).rmdir()
    (tmp_path / "aside").rename(queue.path(0))
    data_path = start()
    assert data_path.bodies(topic="a") == bodies(TEN)
    assert data_path.bodies(topic="b") == bodies(TEN)


def test_a_full_disk_stops_the_start_and_the_next_one_begins_anew(
    tmp_path: Path, start, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_queue(tmp_path, "a:c", *TEN)
    write_queue(tmp_path, "b:c", *(left(number, bytes(100_000)) for number in range(100)))
    commit = DiskBackend.commit
    sizes = []

    def full_in_the_end(self, writes, durable):
        sizes.append(sum(queue.size for queue, _ in writes))
        return (
            dict.fromkeys([q for q, _ in writes], BackendFull("full")) if sizes[-1] else commit(self, writes, durable)
        )

    with monkeypatch.context() as patch:
        patch.setattr(DiskBackend, "commit", full_in_the_end)
        with pytest.raises(BackendFull):
            start()
    assert sizes[-1] > 0
    data_path = start()
    assert data_path.bodies(topic="a") == bodies(TEN)
    assert data_path.bodies(topic="b") == Counter({bytes(100_000): 100})
    assert data_path.topic("b").log.queue.size < 11_000_000


@pytest.mark.parametrize("moved", [0, 1])
def test_what_an_nsqd_took_between_an_import_and_the_next_start_is_not_put_away_unread(
    tmp_path: Path, start, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """The import was saved, and its files could not be moved."""
    queue = write_queue(tmp_path, "t:c", *TEN)
    write_queue(tmp_path, "t", left(11))
    rename, calls = os.rename, []

    def rename_some(old: str, new: str) -> None:
        calls.append(new)
        if len(calls) > moved:
            raise OSError(errno.ENOSPC, "No space left on device", new)
        rename(old, new)

    with monkeypatch.context() as full:
        full.setattr(os, "rename", rename_some)
        with pytest.raises(BackendFull, match="no space left on device"):
            start()
    since = [left(number) for number in range(20, 25)]
    queue.take(10).put(*since).sync()
    data_path = start()
    assert data_path.bodies() == bodies([*TEN, left(11), *since]) + (Counter() if moved else bodies([left(11)]))
    (warning,) = [text for text in data_path.said("warn") if "went on" in text]
    assert warning == "TOPIC(t): an nsqd went on with what was imported; it is imported again, as it is now"
    assert names(tmp_path / "nsqd.files") != []
    data_path.restart()
    assert data_path.bodies() == Counter()


def test_a_channel_with_files_of_an_nsqd_on_windows_and_of_one_elsewhere(tmp_path: Path, start) -> None:
    write_names(tmp_path, {"t": ["c", "d"]})
    write_queue(tmp_path, "t;c", *TEN[:4])
    write_queue(tmp_path, "t:c", *TEN[4:])
    write_queue(tmp_path, "t;d", *TEN[:2])
    data_path = start()
    assert data_path.bodies() == bodies(TEN)
    assert data_path.bodies("d") == bodies(TEN[:2])
    assert [name for name in names(tmp_path) if "diskqueue" in name] == []
