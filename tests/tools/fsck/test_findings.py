"""What fsck says of things that need no process to be seen, and what a repair makes of them."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from struct import pack
from zlib import crc32

import pytest

from nsqtw.backends.disk.file_check import ReadOnly
from nsqtw.backends.disk.format import HEADER_BYTES, RECORD_BYTES, Entry, encode_entries, encode_head, encode_header
from nsqtw.backends.manifest import Manifest, has_interrupted_restore, write_manifest, write_restore_mark
from nsqtw.backends.positions.store import Positions
from nsqtw.backends.sqlite.backend import SqliteBackend
from nsqtw.core.checkpoint import Checkpoint, CursorState, PendingRow, PublisherId, TopicState
from nsqtw.core.pending import all_rows
from nsqtw.core.segment import Segment
from nsqtw.testing.contracts import headers, make_segment, make_segment_with_headers, messages, read_all
from nsqtw.tools.fsck.command import run
from nsqtw.tools.fsck.data_path import check_data_path
from nsqtw.tools.fsck.repair import repair
from tests.backends.data_path import DataPath, record, record_bytes, spoil
from tests.tools.fsck.data_path import content, findings, repair_path, whats


@pytest.fixture
def data_path(tmp_path: Path) -> Path:
    """Three log files of the topic `t`, two messages in each; positions.db with a channel that has read none."""
    logs = DataPath(tmp_path, 450)
    logs.commit_each(*[make_segment(number, 1, size=100) for number in range(6)])
    logs.close()
    save(tmp_path, topic())
    assert findings(tmp_path) == []
    return tmp_path


def topic(name: str = "t", **changes: object) -> TopicState:
    """What is saved of `t`."""
    cursors = [CursorState("c", **changes)]
    return TopicState(name, released=6, released_total=6, end=6, put_total=6, cursors=cursors)


def save(directory: Path, *topics: TopicState, next_block: int = 7, wall_shift_ms: int | None = None) -> None:
    positions = Positions(str(directory / "positions.db"))
    positions.load()
    positions.reserve(next_block)
    positions.save(Checkpoint(topics=list(topics), wall_shift_ms=wall_shift_ms))
    positions.close(True)


def saved(directory: Path):
    positions = Positions(str(directory / "positions.db"))
    found = positions.load()
    for topic in found.topics:
        for cursor in topic.cursors:
            cursor.pending = list(all_rows(positions, topic.name, cursor.name))
    positions.close(found.clean_stop)
    return found


def publisher_ids(directory: Path, count: int) -> list[PublisherId]:
    """Those of `t` with the hashes 0 to `count` - 1 that a start finds."""
    positions = Positions(str(directory / "positions.db"))
    positions.load()
    found = positions.publisher_ids("t", [b"%016d" % number for number in range(count)])
    positions.close(True)
    return sorted(found, key=lambda one: one.sequence)


def logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("t/*.log"))


def sequences(directory: Path) -> list[int]:
    """What is read from the log."""
    opened = DataPath(directory, 450)
    found = opened.sequences()
    assert opened.reports == []
    opened.close()
    return found


def test_the_line_says_where_and_what_it_costs(data_path: Path) -> None:
    log = logs(data_path)[1]
    at = HEADER_BYTES + record_bytes(make_segment(2, 1, size=100))
    spoil(log, log.stat().st_size - 1)
    assert [str(finding) for finding in findings(data_path)] == [
        f"damaged record: topic t, {log} at {at}, messages 3 to 3: these messages; the broker takes it out of the file"
        " when it comes by; --repair takes it out of the file, which is set aside as it was",
        f"missing messages: topic t, channel c, {data_path}/positions.db: not in the log: 1 of those it has not come"
        " to; its depth is right when it has passed them; --repair leaves it",
    ]


def test_what_is_replaced_is_kept_as_it_was(data_path: Path) -> None:
    """Each repair keeps its own; a topic called `damaged` is not in its way, nor taken for one."""
    first, second = logs(data_path)[:2]
    for number, log in enumerate((first, second), start=1):
        spoil(log, HEADER_BYTES + 50)
        before = log.read_bytes()
        repair_path(data_path)
        assert (data_path / "damaged.d" / str(number) / "t" / log.name).read_bytes() == before
    assert sequences(data_path) == [1, 3, 4, 5]
    assert check_data_path(str(data_path)).topics.keys() == {"t"}


def test_a_file_system_without_links(data_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    spoil(logs(data_path)[0], HEADER_BYTES + 50)
    before = logs(data_path)[0].read_bytes()
    repair_path(data_path)
    assert (data_path / "damaged.d/1/t" / logs(data_path)[0].name).read_bytes() == before


def test_a_tail_is_kept_before_it_is_cut_off(data_path: Path) -> None:
    log = logs(data_path)[-1]
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(record(make_segment(9))[:50])
    found = findings(data_path)
    assert [(finding.what, finding.offset, finding.messages) for finding in found] == [("torn tail", size, (9, 9))]
    repair_path(data_path)
    kept = data_path / "damaged.d/1/t" / f"{log.name}.from-{size}"
    assert (log.stat().st_size, kept.read_bytes()) == (size, record(make_segment(9))[:50])


def test_leftover_bytes_of_an_older_file_cost_nothing(data_path: Path) -> None:
    with logs(data_path)[0].open("ab") as file:
        file.write(record(make_segment(0)))
    assert whats(findings(data_path)) == ["leftover bytes"]
    assert repair_path(data_path) == []
    assert sequences(data_path) == list(range(6))


def test_several_last_files_without_records(data_path: Path) -> None:
    """The one before them is the last, and its end a tail."""
    for first, data in ((8, b""), (9, encode_header(9, 0) + b"junk")):
        (data_path / "t" / f"{first:014x}.log").write_bytes(data)
    with logs(data_path)[2].open("ab") as file:
        file.write(b"torn")
    assert whats(findings(data_path)) == ["torn tail", "no record", "no record"]
    assert repair_path(data_path) == []
    assert sequences(data_path) == list(range(6))


def test_bodies_that_look_like_records_stay_bodies(tmp_path: Path) -> None:
    path = DataPath(tmp_path)
    evil = Segment(5, 1, 0, record(make_segment(1000)) + record(make_segment(6)))
    path.commit_each(make_segment(0, 2), evil, make_segment(10))
    path.close()
    spoil(path.logs()[0], HEADER_BYTES + record_bytes(make_segment(0, 2)) + record_bytes(evil) - 1)
    (damage, unknown) = findings(tmp_path)[:1] + findings(tmp_path)[-1:]
    assert (damage.what, damage.messages) == ("damaged record", (5, 5))
    assert unknown.what == "no positions"
    repair_path(tmp_path)
    assert sequences(tmp_path) == [0, 1, 10]


def test_what_an_index_leads_to_is_not_searched_over(tmp_path: Path) -> None:
    """A body holds the head of a record that seems to reach to the end of the file; the head before it is damaged."""
    behind = record(make_segment(2)) + record(make_segment(3))
    evil = record(Segment(1, 1, 0, encode_head(Segment(0, 1, 0, behind))))
    (tmp_path / "t").mkdir()
    log = tmp_path / "t" / f"{0:014x}.log"
    start = HEADER_BYTES + record_bytes(make_segment(0))
    log.write_bytes(encode_header(0, 0) + record(make_segment(0)) + evil + behind)
    log.with_suffix(".index").write_bytes(encode_entries([Entry(2, start + len(evil), 2)]))
    spoil(log, start)
    save(tmp_path, TopicState("t", released=4, released_total=4, end=4, put_total=4))
    opened = DataPath(tmp_path)
    assert list(messages(read_all(opened.queue, 2))) == [2, 3]
    opened.close()
    (damage,) = findings(tmp_path)
    assert (damage.what, damage.offset, damage.messages) == ("damaged record", start, (1, 1))
    assert repair_path(tmp_path) == []
    assert sequences(tmp_path) == [0, 2, 3]


@pytest.mark.parametrize(
    "index",
    [
        encode_entries([Entry(3, 77, 3)]),
        encode_entries([Entry(1, HEADER_BYTES + 174, 1), Entry(2, 10_000, 1)]),
        encode_entries([Entry(9, HEADER_BYTES + 174, 1)]),
        b"junk",
    ],
    ids=["no record there", "beyond the end", "another record", "junk"],
)
def test_an_index_that_is_wrong(data_path: Path, index: bytes) -> None:
    path = logs(data_path)[0].with_suffix(".index")
    path.write_bytes(index)
    assert whats(findings(data_path)) == ["wrong index"]
    assert repair_path(data_path) == []
    assert not path.exists()


def test_an_index_that_is_right(data_path: Path) -> None:
    second = HEADER_BYTES + record_bytes(make_segment(0, 1, size=100))
    logs(data_path)[0].with_suffix(".index").write_bytes(encode_entries([Entry(1, second, 1)]))
    assert findings(data_path) == []


def test_a_topic_of_a_newer_format_is_left_as_it_is(data_path: Path) -> None:
    log = logs(data_path)[-1]
    data = log.read_bytes()
    header = data[:8] + pack(">H", 4) + data[10:60]
    log.write_bytes(header + pack(">I", crc32(header)) + data[HEADER_BYTES:])
    spoil(logs(data_path)[0], HEADER_BYTES + 50)
    before = content(data_path)
    found = findings(data_path)
    assert whats(found) == ["newer format", "damaged record"]
    assert repair_path(data_path) == found
    assert content(data_path) == before


def test_a_topic_that_cannot_be_read_is_left_as_it_is(data_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: ReadOnly, fd: int, size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    (data_path / "t" / "spare.tmp").touch()
    monkeypatch.setattr(ReadOnly, "read", fail)
    check = check_data_path(str(data_path))
    assert whats(check.findings()) == ["unreadable"] * 3 + ["stray file"]
    before = content(data_path)
    assert repair(check) == (None, [])
    assert content(data_path) == before


def test_what_positions_and_log_do_not_agree_on(data_path: Path) -> None:
    state = topic(
        next=9,
        taken_total=5,
        first_deliveries=[3, 6],
        pending=[PendingRow(0, 1, 0), PendingRow(7, 1, 0), PendingRow(8, 2, 5)],
    )
    state.end = state.released = 9
    state.put_total, state.released_total = 9, 8
    save(data_path, state)
    found = findings(data_path)
    assert [(finding.what, finding.channel, finding.messages) for finding in found] == [
        ("missing messages", None, None),
        ("positions outside the log", None, (6, 8)),
        ("missing messages", "c", None),
        ("held without a record", "c", (6, 8)),
    ]
    assert "channels beyond it: c;" in str(found[1])
    assert ["not in the log: 1 " in found[0].costs, "not in the log: 3 " in found[2].costs] == [True, True]
    assert repair_path(data_path) == found


def test_a_log_whose_finished_end_was_freed_lacks_nothing(data_path: Path) -> None:
    """Trim rewrites the last file with the messages that are still wanted."""
    end = check_data_path(str(data_path)).topics["t"].end
    state = topic(next=end + 20, taken_total=29, pending=[PendingRow(end - 1, 1, 5)])
    state.end = state.released = end + 20
    state.put_total = state.released_total = 29
    save(data_path, state)
    assert findings(data_path) == []
    state.cursors[0].taken_total = 28
    save(data_path, state)
    assert whats(findings(data_path)) == ["positions outside the log", "missing messages"]


def test_a_topic_that_only_one_of_them_knows(data_path: Path) -> None:
    """No messages and no log are normal."""
    save(data_path, topic("u"), TopicState("empty", cursors=[CursorState("c")]))
    (data_path / "v").mkdir()
    (data_path / "v" / logs(data_path)[0].name).write_bytes(logs(data_path)[0].read_bytes())
    found = [(finding.what, finding.topic) for finding in findings(data_path)]
    assert found == [("unknown topic", "v"), ("missing messages", "u")]


def test_messages_of_the_other_backend_are_compared_too(data_path: Path) -> None:
    """The backend `sqlite` keeps all in one file."""
    save(data_path, topic("u"))
    (data_path / "messages.db").touch()
    assert whats(findings(data_path)) == ["missing messages"]
    backend = SqliteBackend(str(data_path), lambda *damage: None)
    backend.commit([(backend.queue("u"), [make_segment(0, 6)])], False)
    backend.close()
    assert whats(findings(data_path)) == ["two backends"]


def test_an_interrupted_migration_is_left_to_its_command(data_path: Path) -> None:
    write_manifest(str(data_path), Manifest("sqlite", migrated_from="disk"))
    (finding, _) = found = findings(data_path)
    assert finding.what == "interrupted migration"
    assert "'nsqtw migrate-backend disk sqlite' finishes it" in finding.costs
    assert repair_path(data_path) == found


def test_an_interrupted_restore_is_left_to_the_next_one(data_path: Path) -> None:
    """Without its mark a broker would start with a part of the messages."""
    write_restore_mark(str(data_path))
    assert whats(findings(data_path)) == ["interrupted restore"]
    assert whats(repair_path(data_path)) == ["interrupted restore"]
    assert has_interrupted_restore(str(data_path))


def test_a_manifest_that_cannot_be_read_is_set_aside(data_path: Path) -> None:
    (data_path / "manifest.json").write_text("junk")
    assert whats(findings(data_path)) == ["unreadable manifest"]
    assert repair_path(data_path) == []
    assert (data_path / "damaged.d/1/manifest.json").read_text() == "junk"


def test_a_database_of_a_backend_that_is_not_the_brokers_is_set_aside(data_path: Path) -> None:
    write_manifest(str(data_path), Manifest("disk"))
    backend = SqliteBackend(str(data_path), lambda *damage: None)
    backend.commit([(backend.queue("u"), [make_segment(0, 6)])], False)
    backend.close()
    (finding,) = findings(data_path)
    assert (finding.what, finding.where) == ("foreign messages", str(data_path / "messages.db"))
    assert repair_path(data_path) == []
    assert not list(data_path.glob("messages.db*"))
    assert (data_path / "damaged.d/1/messages.db").stat().st_size > 0


def test_what_an_ephemeral_topic_left_is_removed(data_path: Path) -> None:
    left = data_path / "t%23ephemeral"
    left.mkdir()
    (left / logs(data_path)[0].name).write_bytes(logs(data_path)[0].read_bytes())
    assert whats(findings(data_path)) == ["leftover"]
    assert repair_path(data_path) == []
    assert not left.exists()


def test_a_newer_positions_db_is_left_as_it_is(data_path: Path) -> None:
    with closing(sqlite3.connect(data_path / "positions.db")) as connection, connection:
        connection.execute("UPDATE broker SET version = 99")
    (finding,) = findings(data_path)
    assert (finding.what, finding.remedy) == ("newer format", None)
    assert "schema version 99" in finding.costs
    assert repair_path(data_path) == [finding]


def test_positions_that_are_damaged_and_can_be_read_are_written_anew(data_path: Path) -> None:
    """
    Nothing that a start would know of is forgotten: not the channels, the reserved blocks, the positions of priorities,
    the clock of due times, nor publishers' ids.
    """
    state = topic(next=2, taken_total=2, pending=[PendingRow(1, 3, 0)], positions=[6, 4, 2], policy={"priority": True})
    state.publisher_ids, state.dedupe_window_ms = [PublisherId(b"%016d" % n, 1000 + n, n) for n in range(3)], 10_000
    save(data_path, state, wall_shift_ms=7_200_000)
    path = data_path / "positions.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_cursor_1'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    before = saved(data_path)
    assert before.topics[0].cursors[0].positions == [6, 4, 2]
    data = bytearray(path.read_bytes())
    # An index of a table without its only row.
    data[(page - 1) * size + 3 : (page - 1) * size + 5] = b"\0\0"
    path.write_bytes(data)
    assert whats(findings(data_path)) == ["damaged positions"]
    assert repair_path(data_path) == []
    after = saved(data_path)
    assert after.topics == before.topics and after.topics[0].cursors[0].pending == [PendingRow(1, 3, 0)]
    assert after.next_block == before.next_block >= 7
    assert after.wall_shift_ms == before.wall_shift_ms == 7_200_000
    assert publisher_ids(data_path, 3) == state.publisher_ids
    assert (data_path / "damaged.d/1/positions.db").read_bytes() == bytes(data)


def test_an_interrupted_setting_aside_is_the_next_starts(data_path: Path) -> None:
    """A positions.db.new counts while there is no positions.db, and is left lying else."""
    (data_path / "positions.db.new").write_bytes((data_path / "positions.db").read_bytes())
    assert whats(findings(data_path)) == ["leftover"]
    (data_path / "positions.db").unlink()
    assert whats(repair_path(data_path)) == ["no positions"]
    assert saved(data_path).topics == [topic()]


def test_names_are_kept_when_nothing_else_knows_them(data_path: Path) -> None:
    (data_path / "nsqd.dat").write_text("{")
    (data_path / "positions.db").write_bytes(b"x" * 5000)
    assert whats(findings(data_path)) == ["damaged positions", "unreadable names"]
    assert whats(repair_path(data_path)) == ["no positions", "unreadable names"]


def test_a_name_that_is_not_valid(data_path: Path) -> None:
    (data_path / "nsqd.dat").write_text('{"topics":[{"name":"a b"}]}')
    (finding,) = findings(data_path)
    assert (finding.what, finding.remedy) == ("invalid name", None)
    assert "invalid topic a b" in finding.costs


def test_a_step_that_fails_is_said_and_the_others_are_done(data_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    spoil(logs(data_path)[0], HEADER_BYTES + 50)
    (data_path / "nsqd.dat.7.tmp").touch()
    monkeypatch.setattr(os, "pwritev", refuse)
    before = logs(data_path)[0].read_bytes()
    assert repair(check_data_path(str(data_path))) == (None, ["repair of topic t: no space left on device"])
    assert logs(data_path)[0].read_bytes() == before
    assert list(data_path.rglob("*.tmp")) == []


def test_what_is_not_the_brokers_is_left_alone(data_path: Path) -> None:
    for name in ("notes.txt", "lost+found", "photos/1.tmp", "a.deleted.x"):
        (data_path / name).parent.mkdir(exist_ok=True)
        (data_path / name).write_text("mine")
    before = content(data_path)
    assert repair_path(data_path) == []
    assert content(data_path) == before


def test_settings_of_a_policy_that_make_no_sense(data_path: Path) -> None:
    """The start leaves them out, and says so; a repair of something else keeps the others."""
    save(data_path, topic(policy={"max_attempts": 5}))
    assert findings(data_path) == []
    with closing(sqlite3.connect(data_path / "positions.db")) as connection, connection:
        connection.execute("""UPDATE policy SET settings = '{"max_attempts": 5, "priority": 3}'""")
    (finding,) = findings(data_path)
    assert str(finding).startswith(
        f"odd positions: {data_path}/positions.db: TOPIC(t): CHANNEL(c): policy: priority must"
    )
    assert saved(data_path).topics[0].cursors[0].policy == {"max_attempts": 5}
    assert findings(data_path) == []


def test_positions_of_priorities_that_make_no_sense(data_path: Path) -> None:
    """The start leaves them out: all classes begin at the lowest place."""
    save(data_path, topic(next=2, taken_total=2, positions=[6, 4, 2], policy={"priority": True}))
    assert findings(data_path) == []
    with closing(sqlite3.connect(data_path / "positions.db")) as connection, connection:
        connection.execute("UPDATE priority SET positions = x'01'")
    (finding,) = findings(data_path)
    assert str(finding).startswith(
        f"odd positions: {data_path}/positions.db: TOPIC(t): CHANNEL(c): positions of its priorities are left out"
    )
    assert saved(data_path).topics[0].cursors[0].positions == []
    assert findings(data_path) == []


def test_publishers_ids_that_make_no_sense(data_path: Path) -> None:
    """They are not looked at, and cost nothing: a repeat of such a publish is stored."""
    state = topic()
    state.publisher_ids, state.dedupe_window_ms = [PublisherId(b"%016d" % n, 1000, n) for n in range(2)], 10_000
    save(data_path, state)
    with closing(sqlite3.connect(data_path / "positions.db")) as connection, connection:
        connection.execute("UPDATE dedupe SET sequence = -5 WHERE sequence = 1")
    assert findings(data_path) == []
    assert [one.sequence for one in publisher_ids(data_path, 2)] == [0]


def test_damaged_headers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which messages, and that the broker delivers them without; after a repair the file is whole."""
    opened = DataPath(tmp_path)
    opened.commit_each(make_segment(0), segment := make_segment_with_headers(1, 3), make_segment_with_headers(4))
    opened.close()
    log = logs(tmp_path)[1]
    spoil(log, HEADER_BYTES + RECORD_BYTES + len(segment.frames) + 5)
    assert run(str(tmp_path), False) == 1
    said = capsys.readouterr().out
    assert "the headers of 3 messages, which are delivered without them; the broker takes it out of the file" in said
    assert "\nlog files of format version 3, which has headers or messages for one channel: t\n" in said
    [finding] = [finding for finding in findings(tmp_path) if finding.what == "damaged record"]
    assert (finding.offset, finding.messages) == (HEADER_BYTES, (1, 3))
    repair_path(tmp_path)
    assert [finding.what for finding in findings(tmp_path) if "record" in finding.what] == []
    opened = DataPath(tmp_path)
    found = headers(read_all(opened.queue))
    opened.close()
    assert found == {**dict.fromkeys(range(4), ("", b"")), **headers([make_segment_with_headers(4)])}
