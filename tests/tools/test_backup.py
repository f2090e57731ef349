"""Backups of running and of stopped brokers, what a restore makes of them, and damage, which it refuses."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from nsqtw.backends.positions.store import Positions
from nsqtw.errors import BackendError, OptionError
from nsqtw.replication.state_file import StateFile, new_state
from nsqtw.tools.backup.backup import make_backup
from nsqtw.tools.backup.contents import CONTENTS_FILE, read_contents
from nsqtw.tools.backup.copy import ProgressLine
from nsqtw.tools.backup.hold import Hold
from nsqtw.tools.backup.restore import check_backup, put_in_place
from nsqtw.tools.fsck.data_path import check_data_path
from tests.cli.serving import serving
from tests.forked import run_forked
from tests.process import EXECUTABLE, Counts, ForkedNsqd, NsqdProcess, wait_until
from tests.wire import HOST, Client, Closed

BACKENDS = ("disk", "sqlite")
Start = Callable[..., NsqdProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers, each in the directory of its name."""
    started: list[NsqdProcess] = []

    def start_one(name: str, *flags: str) -> NsqdProcess:
        process = ForkedNsqd(tmp_path / name, *flags)
        started.append(process)
        process.start()
        return process

    yield start_one
    for process in started:
        process.close()
        process.assert_no_traceback()


def nsqtw(*words: object) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as streams:
        done = run_forked(Path(streams), "nsqtw", *map(str, words))
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def back_up(broker: NsqdProcess, target: Path, *words: str) -> subprocess.CompletedProcess[str]:
    address = f"--nsqd-http-address={HOST}:{broker.http_port}"
    return nsqtw("backup", broker.data_path, target, *([address] if broker.runs else []), *words)


def bodies(count: int, of: str = "") -> list[bytes]:
    return [f"{of}{number}".encode() for number in range(count)]


def rest(broker: NsqdProcess, topic: str, channel: str) -> list[bytes]:
    """Everything that a channel still has, finished."""
    found: list[bytes] = []
    with broker.client() as consumer:
        consumer.sub(topic, channel, ready=500)
        while any(broker.counts(topic, channel)):
            count = sum(broker.counts(topic, channel))
            found += [message.body for message in consumer.drain(count)]
            consumer_done = len(found)
            wait_until(lambda: sum(broker.counts(topic, channel)) <= 0, f"{consumer_done} are finished")
    return found


class Load:
    """Publishes to, and consumes from, a broker until it is stopped or killed; what was acknowledged is counted."""

    def __init__(self, broker: NsqdProcess) -> None:
        self.acknowledged: list[bytes] = []
        self.finished: set[bytes] = set()
        self._broker = broker
        self._is_over = False
        self._threads = [threading.Thread(target=self._publish), threading.Thread(target=self._consume)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def _publish(self) -> None:
        """To both topics, one with a consumer and one without."""
        try:
            with Client(self._broker.tcp_port) as producer:
                while not self._is_over:
                    body = f"{len(self.acknowledged):08}".encode() * 20
                    producer.pub("t", body)
                    producer.pub("idle", body)
                    self.acknowledged.append(body)
        except (Closed, OSError, AssertionError):
            return

    def _consume(self) -> None:
        """Finishes what comes, so files are finished and deleted."""
        try:
            with Client(self._broker.tcp_port) as consumer:
                consumer.sub("t", "c", ready=100)
                while not self._is_over:
                    message = consumer.message()
                    consumer.fin([message])
                    self.finished.add(message.body)
        except (Closed, OSError, AssertionError):
            return


@pytest.mark.parametrize("durability", ["os", "memory"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_under_load_nothing_that_was_acknowledged_before_is_missing(
    backend: str, durability: str, start: Start, tmp_path: Path
) -> None:
    flags = (f"--backend={backend}", f"--durability={durability}", "--max-bytes-per-file=65536")
    broker = start("first", *flags)
    broker.create("t", "c")
    broker.create("idle", "c")
    load = Load(broker)
    try:
        for number in range(3):
            wait_until(lambda count=500 * (number + 1): len(load.acknowledged) > count, "messages are published")
            before = set(load.acknowledged)
            target = tmp_path / f"backup{number}"
            done = back_up(broker, target)
            assert (done.returncode, done.stderr) == (0, ""), done
            check_backup(str(target))
            assert check_data_path(str(target)).findings() == []
        broker.kill()
    finally:
        load.stop()
    second = ForkedNsqd(tmp_path / "second", *flags)
    try:
        done = nsqtw("restore", target, second.data_path)
        assert (done.returncode, done.stderr) == (0, ""), done
        second.start()
        assert "are lost" not in second.said() and "is not stored any more" not in second.said()
        assert before - set(rest(second, "idle", "c")) == set(), "acknowledged before the backup, and not in it"
        assert before - load.finished - set(rest(second, "t", "c")) == set(), "neither finished nor delivered"
        second.stop()
    finally:
        second.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_finished_during_a_hold_is_in_the_backup(backend: str, start: Start, tmp_path: Path) -> None:
    """The broker deletes nothing between the copy of positions.db and that of the messages."""
    broker = start("first", f"--backend={backend}", "--max-bytes-per-file=1000")
    broker.create("t", "c")
    broker.publish("t", bodies(200))
    number = json.loads(broker.http("POST", "/v2/backup/hold?time=5m").body)["hold"]
    held = logs(broker)
    assert len(broker.drain("t", "c", 200)) == 200
    broker.store()
    assert logs(broker) >= held
    assert broker.http("POST", f"/v2/backup/hold?time=5m&hold={number}").status == 200
    assert broker.http("POST", f"/v2/backup/release?hold={number}").status == 200
    assert broker.http("POST", f"/v2/backup/release?hold={number}").status == 404
    if backend == "disk":
        broker.store()
        wait_until(lambda: len(logs(broker)) < len(held), "what is finished is deleted after the hold")
    broker.stop()


def logs(broker: NsqdProcess) -> set[Path]:
    return set(broker.data_path.glob("t/*.log"))


def test_a_stopped_broker(start: Start, tmp_path: Path) -> None:
    broker = start("first")
    broker.create("t", "c", "d")
    broker.publish("t", bodies(10))
    with broker.client() as producer:
        producer.dpub("t", 3_000_000, b"late")
    broker.order("/channel/pause?topic=t&channel=d")
    broker.stop()
    done = back_up(broker, tmp_path / "backup")
    assert (done.returncode, done.stderr) == (0, "")
    assert ", backend disk\n" in done.stdout
    second = ForkedNsqd(tmp_path / "second")
    try:
        done = nsqtw("restore", tmp_path / "backup", second.data_path)
        assert (done.returncode, done.stderr) == (0, "")
        second.start()
        assert second.counts("t", "c") == (10, 0, 1)
        assert second.counts("t", "d") == (10, 0, 1)
        assert [channel["paused"] for channel in second.stats("t")[0]["channels"]] == [False, True]
        second.stop()
    finally:
        second.close()


def states(broker: NsqdProcess) -> dict[tuple[str, str], dict[str, int]]:
    """What each channel has, by state."""
    names = ("depth", "in_flight_count", "deferred_count", "held_count")
    return {
        (topic["topic_name"], channel["channel_name"]): {name: channel.get(name, 0) for name in names}
        for topic in broker.stats()
        for channel in topic["channels"]
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restore_keeps_what_is_unfinished_in_whatever_state(backend: str, start: Start, tmp_path: Path) -> None:
    """Held, in flight, requeued, deferred by a publisher and by a consumer, and waiting; what is finished is not."""
    broker = start("first", f"--backend={backend}")
    broker.create("t", "c")
    broker.create("t.dead", "c")
    for channel, policy in (("t&channel=c", {"max_attempts": 2}), ("t.dead&channel=c", {"max_depth": 1})):
        body = json.dumps(policy).encode()
        assert broker.http("PUT", f"/v2/channel/policy?topic={channel}", body).status == 200
    broker.publish("t.dead", [b"fill"])
    broker.publish("t", [b"held", b"finished", b"requeued", b"late", b"flying"])
    with broker.client() as consumer:
        consumer.dpub("t", 3_000_000, b"later")
        consumer.sub("t", "c", ready=5)
        got = {message.body: message for message in consumer.take(5)}
        consumer.rdy(0)
        consumer.fin([got[b"finished"]])
        consumer.req(got[b"late"], 900_000)
        consumer.req(got[b"held"], 0)
        broker.await_counts("t", "c", Counts(1, 2, 2))
        consumer.rdy(3)
        (again,) = consumer.take(1)
        assert again.body == b"held"
        consumer.rdy(0)
        consumer.req(again, 0)
        consumer.req(got[b"requeued"], 0)
        broker.await_counts("t", "c", Counts(2, 1, 2))
        broker.publish("t", [b"waiting"])
        before = {
            ("t", "c"): {"depth": 3, "in_flight_count": 1, "deferred_count": 2, "held_count": 1},
            ("t.dead", "c"): {"depth": 1, "in_flight_count": 0, "deferred_count": 0, "held_count": 0},
        }
        wait_until(lambda: states(broker) == before, f"{before}, there is {states(broker)}")
        done = back_up(broker, tmp_path / "backup")
        assert (done.returncode, done.stderr) == (0, "")
        assert states(broker) == before, "a backup changes nothing"
        broker.kill()
    second = ForkedNsqd(tmp_path / "second", f"--backend={backend}")
    try:
        done = nsqtw("restore", tmp_path / "backup", second.data_path)
        assert (done.returncode, done.stderr) == (0, "")
        second.start()
        before["t", "c"] |= {"depth": 4, "in_flight_count": 0}
        assert states(second) == before
        with second.client() as consumer:
            consumer.sub("t", "c", ready=10)
            assert {(m.body, m.attempts) for m in consumer.drain(3)} == {
                (b"requeued", 2),
                (b"flying", 2),
                (b"waiting", 1),
            }
        before["t", "c"]["depth"] = 1
        wait_until(lambda: states(second) == before, f"{before}, there is {states(second)}")
        assert [message.body for message in second.drain("t.dead", "c", 1)] == [b"fill"]
        with second.client() as consumer:
            consumer.sub("t.dead", "c", ready=1)
            assert [message.body for message in consumer.drain(1)] == [b"held"]
        found = second.http("GET", "/v2/channel/messages?topic=t&channel=c&state=deferred").body
        assert {message["body"] for message in json.loads(found)["messages"]} == {"late", "later"}
        second.stop()
    finally:
        second.close()


def test_a_running_broker_must_be_named(start: Start, tmp_path: Path) -> None:
    broker, other = start("first"), start("other")
    done = nsqtw("backup", broker.data_path, tmp_path / "backup")
    assert done.returncode == 1
    assert done.stderr.endswith("; name its broker with --nsqd-http-address\n")
    done = nsqtw("backup", broker.data_path, tmp_path / "backup", f"--nsqd-http-address={HOST}:{other.http_port}")
    assert (done.returncode, done.stderr) == (
        1,
        f"nsqtw backup: the broker has the data path {other.data_path}, not {broker.data_path}\n",
    )
    assert not (tmp_path / "backup").exists()
    assert not (tmp_path / "backup.partial").exists()


def test_a_broker_of_another_machine_with_the_same_path(start: Start, tmp_path: Path) -> None:
    """Its hold does not keep the broker of this machine from deleting files."""
    broker = start("first")

    class Elsewhere(Hold):
        def _ask(self, what: str, query: str) -> dict[str, Any]:
            document = super()._ask(what, query)
            if what == "hold":
                _, _, numbers = document["identity"].partition(":")
                document["identity"] = f"8d7f9f0e-0000-4000-8000-000000000000:{numbers}"
            return document

    address = f"{HOST}:{broker.http_port}"
    line = f"the broker has the data path {broker.data_path} of another machine or container"
    with pytest.raises(OptionError, match=f"^{line}$"):
        make_backup(str(broker.data_path), str(tmp_path / "backup"), Elsewhere(address))
    assert list(tmp_path.glob("backup*")) == []
    (tmp_path / "link").symlink_to(broker.data_path)
    make_backup(str(tmp_path / "link"), str(tmp_path / "backup"), Hold(address))


def test_two_backups_to_one_target(start: Start, tmp_path: Path) -> None:
    """The second one leaves the first one alone. What a killed one left keeps nobody away."""
    broker = start("first")
    broker.publish("t", bodies(10))
    target = tmp_path / "new/backup"
    (tmp_path / "new/backup.partial").mkdir(parents=True)
    (tmp_path / "new/backup.partial/positions.db").touch()
    (tmp_path / "new/backup.partial.lock").touch()
    others: list[subprocess.CompletedProcess[str]] = []

    class WithAnother(Hold):
        def __enter__(self) -> Self:
            others.append(back_up(broker, target))
            return super().__enter__()

    make_backup(str(broker.data_path), str(target), WithAnother(f"{HOST}:{broker.http_port}"))
    (other,) = others
    line = f"nsqtw backup: another nsqtw makes {target} at this moment\n"
    assert (other.returncode, other.stderr) == (1, line)
    check_backup(str(target))
    assert list((tmp_path / "new").iterdir()) == [target]


def test_links_cost_no_space(start: Start, tmp_path: Path) -> None:
    broker = start("first", "--max-bytes-per-file=1000")
    broker.create("t", "c")
    broker.publish("t", bodies(200))
    assert back_up(broker, tmp_path / "backup", "--link").returncode == 0
    copies = sorted((tmp_path / "backup/t").glob("*.log"))
    assert [os.stat(path).st_nlink for path in copies] == [2] * (len(copies) - 2) + [1, 1]
    assert len(broker.drain("t", "c", 200)) == 200
    broker.stop()
    check_backup(str(tmp_path / "backup"))


# -- damage and mistakes


@pytest.fixture
def backup(start: Start, tmp_path: Path) -> Path:
    """A backup of ten messages."""
    broker = start("first")
    broker.create("t", "c")
    broker.publish("t", bodies(10))
    broker.stop()
    make_backup(str(broker.data_path), str(tmp_path / "backup"), None)
    return tmp_path / "backup"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def restored(backup: Path, target: Path) -> subprocess.CompletedProcess[str]:
    done = nsqtw("restore", backup, target)
    assert not target.exists() or list(target.iterdir()) == [], "nothing is put there"
    assert done.stderr.count("\n") == 1, done.stderr
    return done


@pytest.mark.parametrize("pattern", ["positions.db", "t/*.log", "manifest.json", "nsqd.dat"])
def test_a_flipped_bit(pattern: str, backup: Path, tmp_path: Path) -> None:
    (path,) = backup.glob(pattern)
    flip(path)
    done = restored(backup, tmp_path / "new")
    line = f"nsqtw restore: the backup is damaged: the checksum of {path} is wrong\n"
    assert (done.returncode, done.stderr) == (1, line)


def test_a_file_that_is_short_or_missing(backup: Path, tmp_path: Path) -> None:
    (log,) = backup.glob("t/*.log")
    os.truncate(log, log.stat().st_size - 1)
    assert f"the backup is damaged: {log} has " in restored(backup, tmp_path / "new").stderr
    log.unlink()
    assert f"the backup is damaged: {log} is missing\n" in restored(backup, tmp_path / "new").stderr


def test_an_incomplete_backup_is_none(backup: Path, tmp_path: Path) -> None:
    (backup / CONTENTS_FILE).unlink()
    line = f"nsqtw restore: {backup} is no backup, or not a complete one: it has no contents.json\n"
    assert restored(backup, tmp_path / "new").stderr == line


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format": 1, "created": "", "version": "", "backend": "", "files": {"../../etc/passwd": {}}}',
        '{"format": 1, "created": "", "version": "", "backend": "", "files": {"a": {"size": 1, "sha256": "x"}}}',
    ],
)
def test_contents_that_cannot_be_read(text: str, backup: Path) -> None:
    (backup / CONTENTS_FILE).write_text(text)
    with pytest.raises(BackendError, match=r"contents.json is damaged$"):
        read_contents(str(backup))


def test_a_file_cannot_lead_out_of_the_backup(backup: Path) -> None:
    document = json.loads((backup / CONTENTS_FILE).read_text())
    document["files"]["../outside"] = document["files"]["positions.db"]
    (backup / CONTENTS_FILE).write_text(json.dumps(document))
    with pytest.raises(BackendError, match=r"contents.json is damaged$"):
        read_contents(str(backup))


def test_a_newer_format_is_named(backup: Path) -> None:
    (backup / CONTENTS_FILE).write_text('{"format": 2}')
    with pytest.raises(BackendError, match=r"has format 2, and this nsqtw reads format 1$"):
        read_contents(str(backup))


def test_a_data_path_is_not_overwritten(backup: Path, tmp_path: Path) -> None:
    data_path = tmp_path / "first/data"
    with pytest.raises(OptionError, match=r"is not empty: --replace renames it to \S+\.replaced\.1$"):
        put_in_place(str(backup), check_backup(str(backup)), str(data_path), must_replace=False)
    before = {path.name for path in data_path.iterdir()}
    findings, old = put_in_place(str(backup), check_backup(str(backup)), str(data_path), must_replace=True)
    assert (findings, old) == ([], f"{data_path}.replaced.1")
    assert {path.name for path in Path(old).iterdir()} == before
    assert check_data_path(str(data_path)).topics["t"].end


def test_a_symlink_to_a_data_path_stays(backup: Path, tmp_path: Path) -> None:
    """With DynamicUser= the state directory of systemd is one."""
    data_path, link = tmp_path / "first/data", tmp_path / "link"
    link.symlink_to("first/data")
    done = nsqtw("restore", backup, link, "--replace")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"what was there is in {data_path}.replaced.1\n" in done.stdout
    assert link.is_symlink() and check_data_path(str(data_path)).topics["t"].end


INTERRUPTED = """
import os, sys
from nsqtw.tools.backup import restore

def copy_file(source, target, *words, copy=restore.copy_file):
    copied = copy(source, target, *words)
    if target.endswith("positions.db"):
        os.kill(os.getpid(), 9)
    return copied

restore.copy_file = copy_file
os.path.ismount = lambda path: sys.argv[3] == "mounted"
restore.run(sys.argv[1], sys.argv[2], must_replace=True, must_only_check=False)
"""
"""A restore that is killed in the middle."""


def interrupt(backup: Path, target: Path, *words: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(backup), str(target), *words], capture_output=True)
    assert (done.returncode, done.stderr) == (-9, b"")


def start_fails(data_path: Path) -> str:
    """What a broker says that does not start."""
    words = [str(EXECUTABLE), f"--data-path={data_path}", f"--tcp-address={HOST}:0", f"--http-address={HOST}:0"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


def test_a_restore_that_is_killed_leaves_the_data_path_as_it_was(backup: Path, tmp_path: Path) -> None:
    data_path = tmp_path / "first/data"
    before = {path.name: path.stat().st_ino for path in data_path.iterdir()}
    interrupt(backup, data_path, "")
    assert {path.name: path.stat().st_ino for path in data_path.iterdir()} == before
    assert nsqtw("restore", backup, data_path, "--replace").returncode == 0
    assert {path.name for path in data_path.parent.glob("data*")} == {"data", "data.replaced.1"}


def test_a_restore_that_is_killed_leaves_nothing_that_starts(backup: Path, tmp_path: Path) -> None:
    interrupt(backup, tmp_path / "new", "")
    assert "no such file or directory" in start_fails(tmp_path / "new")
    assert nsqtw("restore", backup, tmp_path / "new").returncode == 0
    assert list(tmp_path.glob("new*")) == [tmp_path / "new"]


def test_a_restore_to_a_mount_point(backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other directory can take its place."""
    new = tmp_path / "new"
    new.mkdir()
    interrupt(backup, new, "mounted")
    assert f"a restore to {new} was interrupted: run 'nsqtw restore' again" in start_fails(new)
    monkeypatch.setattr("os.path.ismount", lambda path: True)
    contents = check_backup(str(backup))
    inode = new.stat().st_ino
    assert put_in_place(str(backup), contents, str(new), must_replace=False) == ([], "")
    assert (new.stat().st_ino, check_data_path(str(new)).findings()) == (inode, [])
    assert {str(path.relative_to(new)) for path in new.rglob("*") if path.is_file()} == set(contents.files)
    line = "new cannot be moved aside, for it is a mount point: move what is in it elsewhere$"
    with pytest.raises(OptionError, match=line):
        put_in_place(str(backup), contents, str(new), must_replace=True)


def test_a_restore_that_fails_names_the_old_data_path(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is where it was, or the line says where it is."""
    data_path = tmp_path / "first/data"
    contents = check_backup(str(backup))
    before = {path.name for path in data_path.iterdir()}
    rename = os.rename

    def fail(old: str, new: str) -> None:
        if old.endswith(".partial"):
            raise OSError(errno.EIO, "Input/output error")
        rename(old, new)

    def fail_later(old: str, new: str) -> None:
        if new == str(data_path):
            raise OSError(errno.EIO, "Input/output error")
        rename(old, new)

    monkeypatch.setattr("os.rename", fail)
    with pytest.raises(BackendError, match=r"data.partial: input/output error$"):
        put_in_place(str(backup), contents, str(data_path), must_replace=True)
    assert {path.name for path in data_path.iterdir()} == before
    assert list(data_path.parent.glob("data?*")) == []
    monkeypatch.setattr("os.rename", fail_later)
    old = f"{data_path}.replaced.1"
    with pytest.raises(BackendError, match=f"data.partial: input/output error; what was there is in {old}$"):
        put_in_place(str(backup), contents, str(data_path), must_replace=True)
    assert {path.name for path in Path(old).iterdir()} == before


def test_a_restore_to_what_is_no_directory(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"file is no directory$"):
        put_in_place(str(backup), check_backup(str(backup)), str(tmp_path / "file"), must_replace=True)


def test_a_backup_is_not_overwritten(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"is not empty: a backup has a directory of its own$"):
        make_backup(str(tmp_path / "first/data"), str(backup), None)
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"is there already, and no directory$"):
        make_backup(str(tmp_path / "first/data"), str(tmp_path / "file"), None)


def test_what_is_no_data_path(tmp_path: Path) -> None:
    done = nsqtw("backup", tmp_path, tmp_path / "backup")
    line = f"nsqtw backup: {tmp_path} is no nsqtw data path: no broker has stored anything there\n"
    assert (done.returncode, done.stderr) == (1, line)


def test_a_check_puts_nothing_anywhere(backup: Path, tmp_path: Path) -> None:
    for words in ([tmp_path / "new"], []):
        done = nsqtw("restore", backup, *words, "--check")
        assert (done.returncode, (tmp_path / "new").exists()) == (0, False)
        assert " files are as they were at " in done.stdout


def test_a_restore_needs_a_place(backup: Path) -> None:
    done = nsqtw("restore", backup)
    assert (done.returncode, done.stderr.startswith("nsqtw restore: missing argument 'DATA_PATH' (try")) == (2, True)


def test_a_torn_end_is_cut_off(start: Start, tmp_path: Path) -> None:
    """What a kill leaves, or a write during the copy."""
    broker = start("first")
    broker.create("t", "c")
    broker.publish("t", bodies(10))
    broker.kill()
    (log,) = broker.data_path.glob("t/*.log")
    with log.open("ab") as file:
        file.truncate(check_data_path(str(broker.data_path)).topics["t"].log_files[-1].good_end)
    with log.open("ab") as file:
        file.write(b"\x01\x02\x03" * 40)
    _, findings = make_backup(str(broker.data_path), str(tmp_path / "backup"), None)
    assert findings == []
    (copy,) = (tmp_path / "backup").glob("t/*.log")
    assert copy.stat().st_size < log.stat().st_size


def test_damage_of_the_data_path_is_named(start: Start, tmp_path: Path) -> None:
    broker = start("first")
    broker.create("t", "c")
    broker.publish("t", bodies(100))
    broker.stop()
    (log,) = broker.data_path.glob("t/*.log")
    flip(log)
    done = back_up(broker, tmp_path / "backup")
    assert done.returncode == 3
    assert "damaged record" in done.stdout
    assert nsqtw("restore", tmp_path / "backup", tmp_path / "new").returncode == 3


def test_a_progress_line_is_for_a_terminal() -> None:
    class Terminal:
        def __init__(self) -> None:
            self.text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    terminal = Terminal()
    line = ProgressLine("copy", 100 << 20, terminal)  # type: ignore[arg-type]
    line(1 << 20)
    assert terminal.text == "", "nothing in the first second"
    line._next = 0.0
    line(49 << 20)
    assert terminal.text == "\rcopy: 50 MB, 50 %"
    line.close()
    assert terminal.text.endswith("\r\x1b[K")


def test_a_broker_that_is_killed_during_the_backup(start: Start, tmp_path: Path) -> None:
    broker = start("first")
    broker.create("t", "c")
    broker.publish("t", bodies(10))

    class Killed(Hold):
        def extend(self) -> None:
            if broker.runs:
                broker.kill()

    with pytest.raises(BackendError, match=r"does not answer: connection refused$"):
        make_backup(str(broker.data_path), str(tmp_path / "backup"), Killed(f"{HOST}:{broker.http_port}"))
    assert not (tmp_path / "backup").exists()
    make_backup(str(broker.data_path), str(tmp_path / "backup"), None)
    check_backup(str(tmp_path / "backup"))


def test_a_hold_that_is_over_fails_the_backup(start: Start, tmp_path: Path) -> None:
    broker = start("first")
    broker.create("t", "c")

    class TooLate(Hold):
        def extend(self) -> None:
            broker.http("POST", f"/v2/backup/release?hold={self._number}")
            self._extend_at = 0.0
            super().extend()

    with pytest.raises(BackendError, match="refuses: 404 The broker has no such hold"):
        make_backup(str(broker.data_path), str(tmp_path / "backup"), TooLate(f"{HOST}:{broker.http_port}"))
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"[" * 100_000, b'{"hold": "x"}', b'{"hold": null, "data_path": 1}']
)
def test_a_hold_that_another_program_answers_is_one_clear_line(body: bytes) -> None:
    with serving("/v2/backup/hold", body) as address, pytest.raises(BackendError, match=f"the broker at .*{address}"):
        Hold(address, "", "").__enter__()


def test_the_copy_of_a_standby_is_refused(tmp_path: Path) -> None:
    """It has no positions: its backup would deliver everything again."""
    data_path = tmp_path / "data"
    data_path.mkdir()
    Positions(str(data_path / "positions.db")).load()
    StateFile(str(data_path), new_state("set")).close(is_synced=True)
    with pytest.raises(OptionError, match="copy of a standby"):
        make_backup(str(data_path), str(tmp_path / "backup"), None)
