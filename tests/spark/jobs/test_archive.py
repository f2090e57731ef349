"""`nsqtw-spark archive` with Parquet files: each message once, and every mistake in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.parquet import ParquetTable
from pyspark_nsq.archive.run import Run
from pyspark_nsq.archive.source import Subscription
from pyspark_nsq.errors import ArchiveError
from pyspark_nsq.slow_start import AGAIN

from tests.process import NsqdProcess, wait_until
from tests.spark.jobs.conftest import Job, Outcome, at, publish
from tests.wire import HOST


class Archive:
    """An archive of the topic "t", and the jobs for it."""

    def __init__(self, job: Job, broker: NsqdProcess, folder: Path) -> None:
        self.folder = folder
        self._job = job
        self._broker = broker

    def run(self, *words: str, topic: str | None = "t") -> Outcome:
        topics = [] if topic is None else [f"--topic={topic}"]
        return self._job("archive", at(self._broker), *topics, f"--output={self.folder}", "--once", *words)

    def verify(self) -> Outcome:
        return self._job("archive-verify", at(self._broker), f"--output={self.folder}")

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("topic=*/date=*/hour=*/*.parquet"))

    def rows(self) -> list[dict[str, Any]]:
        """All rows by position, as a reader sees them that knows nothing of archives."""
        found = pyarrow.dataset.dataset(self.folder, partitioning="hive").to_table()
        return sorted(found.to_pylist(), key=lambda row: (row["topic"], row["position"]))

    def values(self) -> list[bytes]:
        return [row["value"] for row in self.rows()]


@pytest.fixture
def archive(job: Job, broker: NsqdProcess, tmp_path: Path) -> Archive:
    return Archive(job, broker, tmp_path / "lake")


def test_each_run_goes_on_where_the_last_one_was(archive: Archive, broker: NsqdProcess) -> None:
    bodies = publish(broker, 0, 250)
    first = archive.run("--max-rows=100")
    assert (first.code, first.out) == (0, "")
    lines = first.err.splitlines()
    assert [line.split(": ")[1].split(",")[0] for line in lines[:-1]] == ["100 rows", "100 rows", "50 rows"]
    assert [line.split(",")[-1] for line in lines[:-1]] == [" 150 behind", " 50 behind", " 0 behind"]
    assert lines[-1].startswith("archived 250 rows in ")
    assert bodies == archive.values()
    broker.kill()
    broker.start()
    bodies += publish(broker, 250, 300)
    assert archive.run("--quiet") == Outcome(0, "", "")
    assert bodies == archive.values()
    verified = archive.verify()
    assert verified.code == 0
    assert "in the logs          300\nin the archive       300\n" in verified.out
    assert "missing              0\ntwice                0\n" in verified.out


def test_headers_are_archived_on_demand(archive: Archive, broker: NsqdProcess, job: Job) -> None:
    for target in ("/pub?topic=t&id=o-1", "/pub?topic=t"):
        broker.http("POST", target, b"x")
        assert archive.run("--headers", "--quiet") == Outcome(0, "", "")
    assert [row["headers"] for row in archive.rows()] == [[("id", "o-1")], None]
    without = archive.run()
    assert (without.code, "was begun with headers; add --headers" in without.err) == (1, True)
    compacted = job("archive-compact", f"--output={archive.folder}", "--min-age=-60")
    assert compacted.code == 0, compacted.err
    assert len(archive.files()) == 1
    assert [row["headers"] for row in archive.rows()] == [[("id", "o-1")], None]


def test_attempts_are_the_deliveries_before_a_message_was_a_dead_letter(
    archive: Archive, broker: NsqdProcess, job: Job
) -> None:
    broker.create("u", "c")
    policy = b'{"max_attempts": 2, "dead_letter_topic": "t"}'
    assert broker.http("PUT", "/v2/channel/policy?topic=u&channel=c", policy).status == 200
    publish(broker, 7, 8)
    assert archive.run("--quiet") == Outcome(0, "", "")
    publish(broker, 8, 9, "u")
    with broker.client() as client:
        client.sub("u", "c", ready=1)
        for _ in range(2):
            client.req(client.message(), 0)
        wait_until(lambda: broker.http("GET", "/v2/topic/log?topic=t").body.count(b"NSQL") == 2, "it is a dead letter")
    assert archive.run("--quiet") == Outcome(0, "", "")
    assert [(row["value"], row["attempts"]) for row in archive.rows()] == [(b"7", 0), (b"8", 2)]
    assert "headers" not in archive.rows()[0]
    compacted = job("archive-compact", f"--output={archive.folder}", "--min-age=-60")
    assert (compacted.code, len(archive.files())) == (0, 1), compacted.err
    assert [row["attempts"] for row in archive.rows()] == [0, 2]


@pytest.mark.parametrize(("version", "words"), [(1, ()), (2, ("--headers",))])
def test_an_archive_of_an_earlier_version_keeps_its_columns(
    version: int, words: tuple[str, ...], archive: Archive, broker: NsqdProcess, job: Job
) -> None:
    meta = archive.folder / "_archive"
    (meta / "checkpoint").mkdir(parents=True)
    identity = {"version": version, "id": "x", "format": "parquet", "subscription": "t"}
    (meta / "archive.json").write_text(json.dumps(identity))
    (meta / "checkpoint/nsqtw-archive.json").write_text('{"id": "x"}')
    bodies = publish(broker, 0, 3)
    assert archive.run("--quiet", *words) == Outcome(0, "", "")
    compacted = job("archive-compact", f"--output={archive.folder}", "--min-age=-60")
    assert compacted.code == 0, compacted.err
    assert bodies == archive.values()
    columns = {"position", "id", "timestamp", "due", "nsqd", "value", "topic", "date", "hour"}
    assert set(archive.rows()[0]) == columns | {word.removeprefix("--") for word in words}
    assert archive.verify().code == 0


def test_columns_and_folders(archive: Archive, broker: NsqdProcess) -> None:
    before = datetime.now(UTC)
    publish(broker, 0, 1)
    broker.http("POST", "/pub?topic=t&defer=60000", b"deferred")
    archive.run()
    plain, deferred = archive.rows()
    assert set(plain) == {"position", "id", "timestamp", "attempts", "due", "nsqd", "value", "topic", "date", "hour"}
    assert plain["nsqd"] == f"{HOST}:{broker.http_port}"
    assert int(plain["id"], 16) & (1 << 53) - 1 == plain["position"] == deferred["position"] - 1
    assert before <= plain["timestamp"] <= datetime.now(UTC)
    assert plain["due"] is None
    assert round((deferred["due"] - deferred["timestamp"]).total_seconds()) == 60
    when = plain["timestamp"]
    assert (plain["topic"], plain["date"], plain["hour"]) == ("t", str(when.date()), when.hour)
    assert archive.files()[0].parent == archive.folder / f"topic=t/date={when.date()}/hour={when.hour:02d}"


def test_several_topics(archive: Archive, broker: NsqdProcess) -> None:
    bodies = publish(broker, 0, 30) + publish(broker, 30, 50, "u")
    assert archive.run("--topic=u").code == 0
    assert bodies == archive.values()
    assert archive.verify().code == 0


def test_a_batch_that_spark_repeats_is_not_added_again(archive: Archive, broker: NsqdProcess) -> None:
    bodies = publish(broker, 0, 20)
    archive.run("--max-rows=10")
    forget_last_commit(archive.folder / "_archive/checkpoint")
    assert archive.run().code == 0
    assert bodies == archive.values()


@pytest.mark.parametrize("moves", [0, 1])
def test_a_crash_while_the_files_of_a_batch_get_to_their_places(
    moves: int, archive: Archive, broker: NsqdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = publish(broker, 0, 20)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "move", crashing(Files.move, moves))
        assert archive.run().code == 1
    assert moves * 10 == len(archive.values()), "a task has written ten rows"
    bodies += publish(broker, 20, 30)
    # Another number of tasks would name the rows' files otherwise.
    assert archive.run("--tasks=5").code == 0
    assert bodies == archive.values()


def test_a_crash_before_a_batch_is_committed(
    archive: Archive, broker: NsqdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = publish(broker, 0, 20)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "create", crashing(Files.create, 3))  # two ids, the owner, the commit
        assert archive.run().code == 1
    assert archive.files() == []
    assert list(archive.folder.glob("_archive/staging/**/*.parquet")) != []
    assert archive.run().code == 0
    assert bodies == archive.values()
    assert list(archive.folder.glob("_archive/staging/**/*.parquet")) == []


def test_files_of_a_committed_batch_that_are_gone(
    archive: Archive, broker: NsqdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = publish(broker, 0, 20)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "move", crashing(Files.move, 1))
        assert archive.run().code == 1
    shutil.rmtree(archive.folder / "_archive/staging")
    assert "was deleted before it was in its place; run the job again" in one_line(archive.run())
    assert archive.run().code == 0
    assert bodies == archive.values()


def test_of_two_runs_the_older_one_ends(session: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    bodies = publish(broker, 0, 10)
    files = Files(session, str(tmp_path / "lake"))
    rows = Subscription(("t",), None, {"nsqdHttpAddresses": f"{HOST}:{broker.http_port}"}).batch(session)
    older, younger = ParquetTable(files, "zstd"), ParquetTable(files, "zstd")
    older.recover()
    younger.recover()
    with pytest.raises(ArchiveError, match=r"another run archives into .*; this one ends"):
        older.add(0, rows)
    assert list(tmp_path.glob("lake/topic=*")) == []
    younger.add(0, rows)
    older.add(0, rows)
    found = pyarrow.dataset.dataset(tmp_path / "lake", partitioning="hive").to_table(["value"])
    assert sorted(bodies) == sorted(found["value"].to_pylist())


def test_a_run_that_is_stopped_ends_after_the_running_batch(
    session: SparkSession, broker: NsqdProcess, tmp_path: Path
) -> None:
    publish(broker, 0, 40)
    log = Subscription(("t",), None, {"nsqdHttpAddresses": f"{HOST}:{broker.http_port}"}, max_rows=10)
    added: list[int] = []

    class Stopping(ParquetTable):
        def add(self, batch_id: int, log: Any) -> None:
            added.append(batch_id)
            if batch_id == 1:
                run.stop()

    table = Stopping(Files(session, str(tmp_path / "lake")), "zstd")
    run = Run(log.stream(session), table, str(tmp_path / "checkpoint"), lambda line: None)
    run.for_ever(60, str)
    assert added == [0, 1]
    assert {"0", "1"} == {file.name for file in (tmp_path / "checkpoint/commits").glob("[0-9]*")}


def test_a_failure_of_a_run_that_is_being_stopped_is_raised(
    session: SparkSession, broker: NsqdProcess, tmp_path: Path
) -> None:
    publish(broker, 0, 10)
    log = Subscription(("t",), None, {"nsqdHttpAddresses": f"{HOST}:{broker.http_port}"})

    class Failing(ParquetTable):
        def add(self, batch_id: int, log: Any) -> None:
            run.stop()
            raise RuntimeError("the disk has gone")

    table = Failing(Files(session, str(tmp_path / "lake")), "zstd")
    table.recover()
    run = Run(log.stream(session), table, str(tmp_path / "checkpoint"), lambda line: None)
    with pytest.raises(StreamingQueryException, match="the disk has gone"):
        run.for_ever(0.1, str)


def test_a_failure_that_may_heal_is_tried_again(session: SparkSession, broker: NsqdProcess, tmp_path: Path) -> None:
    publish(broker, 0, 10)
    log = Subscription(("t",), None, {"nsqdHttpAddresses": f"{HOST}:{broker.http_port}"})
    said: list[str] = []

    class Failing(ParquetTable):
        def add(self, batch_id: int, log: Any) -> None:
            if not said:
                raise RuntimeError("the disk has gone")
            super().add(batch_id, log)
            run.stop()

    table = Failing(Files(session, str(tmp_path / "lake")), "zstd")
    table.recover()
    run = Run(log.stream(session), table, str(tmp_path / "checkpoint"), said.append)
    run.for_ever(0.1, lambda error: "the disk has gone" * ("the disk has gone" in str(error)))
    assert said[0] == "the disk has gone; trying again"
    assert said[1].startswith("batch 0: 10 rows")


class SlowStart:
    """A query that ended because Spark did not wait longer for its process of Python."""

    recentProgress: tuple[()] = ()

    def awaitTermination(self, _seconds: int) -> bool:
        return True

    def exception(self) -> StreamingQueryException:
        return StreamingQueryException("Python worker failed to connect back.\n=== Streaming Query ===")


@pytest.mark.parametrize("slow_starts", [2, 3])
def test_a_process_of_python_that_starts_too_slowly_for_spark_is_started_again(
    session: SparkSession, broker: NsqdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_starts: int
) -> None:
    publish(broker, 0, 10)
    log = Subscription(("t",), None, {"nsqdHttpAddresses": f"{HOST}:{broker.http_port}"})
    table = ParquetTable(Files(session, str(tmp_path / "lake")), "zstd")
    table.recover()
    said: list[str] = []
    run = Run(log.stream(session), table, str(tmp_path / "checkpoint"), said.append)
    real, queries = Run._start, iter([SlowStart() for _ in range(slow_starts)])
    monkeypatch.setattr(Run, "_start", lambda run: next(queries, None) or real(run))
    if slow_starts == 3:
        with pytest.raises(StreamingQueryException, match="failed to connect back"):
            run.once()
        return
    run.once()
    assert said[:2] == [AGAIN] * 2
    assert said[2].startswith("batch 0: 10 rows")


# -- verify


def test_verify_finds_a_file_that_is_there_twice_or_missing(archive: Archive, broker: NsqdProcess) -> None:
    publish(broker, 0, 30)
    archive.run()
    first = archive.rows()[0]["position"]
    doubled = archive.files()[0]
    copy = doubled.with_name("copy.parquet")
    shutil.copy(doubled, copy)
    verified = archive.verify()
    assert verified.code == 1
    assert "missing              0\ntwice                15\n" in verified.out
    assert f"twice: t {HOST}:{broker.http_port} positions {first} to {first + 14}, 15 rows\n" in verified.out
    copy.unlink()
    doubled.unlink()
    verified = archive.verify()
    assert verified.code == 1
    assert "missing              15\ntwice                0\n" in verified.out
    assert f"missing: t {HOST}:{broker.http_port} positions {first} to {first + 14}, 15 rows\n" in verified.out
    assert one_line(verified).endswith(f"15 rows are missing and 0 are there twice in {archive.folder}")


def test_verify_counts_what_is_not_archived_yet_and_what_only_the_archive_has(
    archive: Archive, broker: NsqdProcess
) -> None:
    publish(broker, 0, 30)
    archive.run()
    broker.order("/topic/delete?topic=t")
    broker.create("t")
    broker.order("/v2/topic/retention?topic=t&time=1h")
    publish(broker, 30, 40)
    verified = archive.verify()
    assert verified.code == 0
    assert "no longer in a log   30\nnot yet archived     10\n" in verified.out


# -- mistakes


def test_a_topic_nobody_knows(archive: Archive, broker: NsqdProcess) -> None:
    said = one_line(archive.run(topic="nope"))
    assert f'topic "nope" is unknown at http://{HOST}:{broker.http_port}; create it, or correct --topic' in said
    assert not archive.folder.exists()


def test_a_pattern_of_topics(archive: Archive, broker: NsqdProcess) -> None:
    bodies = publish(broker, 0, 10)
    assert archive.run("--topic-pattern=[t-v]", topic=None).code == 0
    broker.create("v", "c")
    bodies += publish(broker, 10, 20, "v")
    assert archive.run("--topic-pattern=[t-v]", topic=None).code == 0
    assert bodies == archive.values()
    assert archive.verify().code == 0
    assert "no topic at" in one_line(archive.run("--topic-pattern=x.*", topic=None))
    assert "give either --topic or --topic-pattern" in one_line(archive.run("--topic-pattern=t"))


def test_a_topic_without_retention(archive: Archive, broker: NsqdProcess) -> None:
    broker.create("v", "c")
    publish(broker, 0, 10, "v")
    archived = archive.run(topic="v")
    assert archived.code == 0
    assert archived.err.startswith('warning: topic "v" on http://')


def test_nobody_answers(archive: Archive, broker: NsqdProcess) -> None:
    broker.stop()
    said = one_line(archive.run())
    assert "refused" in said
    assert said.endswith("; start the nsqd, or correct the address")


def test_a_folder_that_cannot_be_written_to(job: Job, broker: NsqdProcess, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    archive = Archive(job, broker, tmp_path / "file/lake")
    said = one_line(archive.run())
    assert f"cannot write to {archive.folder}: " in said
    assert "; choose another folder" in said
    archive = Archive(job, broker, Path("nowhere:lake"))
    assert "cannot open nowhere:lake: " in one_line(archive.run())


def test_positions_that_are_gone(archive: Archive, broker: NsqdProcess) -> None:
    publish(broker, 0, 10)
    archive.run()
    broker.order("/topic/delete?topic=t")
    broker.create("t")
    broker.order("/v2/topic/retention?topic=t&time=1h")
    publish(broker, 10, 20)
    broker.order("/v2/topic/retention?topic=t&time=1ms")
    said = one_line(archive.run())
    assert "is no longer kept" in said
    assert "--allow-data-loss" in said
    assert archive.run("--allow-data-loss").code == 0


def test_a_checkpoint_or_an_archive_of_something_else(archive: Archive, broker: NsqdProcess) -> None:
    publish(broker, 0, 10)
    archive.run()
    before = archive.files()
    assert "is of t, not of t,u; use a new --output for it" in one_line(archive.run("--topic=u"))
    assert "has the format parquet; use --format parquet" in one_line(archive.run("--format=delta"))
    other = f"--checkpoint={archive.folder}/other"
    assert "is not that of the archive in" in one_line(archive.run(other))
    checkpoint, identity = archive.folder / "_archive/checkpoint", archive.folder / "_archive/archive.json"
    identity.rename(identity.with_suffix(".away"))
    assert "has been used, but" in one_line(archive.run())
    identity.with_suffix(".away").rename(identity)
    shutil.rmtree(checkpoint)
    assert "use the --checkpoint of its first run" in one_line(archive.run())
    assert before == archive.files()


def test_a_folder_without_an_archive(job: Job, broker: NsqdProcess, tmp_path: Path) -> None:
    for command in ("archive-files", "archive-compact"):
        assert f"{tmp_path} has no archive; check --output" in one_line(job(command, f"--output={tmp_path}"))
    assert "has no archive" in one_line(job("archive-verify", f"--output={tmp_path}", at(broker)))


def one_line(outcome: Outcome) -> str:
    """The line that a failed job says."""
    assert outcome.code in (1, 2), outcome
    assert outcome.err.count("\n") == 1, outcome.err
    return outcome.err.rstrip()


def forget_last_commit(checkpoint: Path) -> None:
    """Leave the checkpoint of a run that was killed before Spark noted that the last batch is written."""
    numbers = [int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")]
    for name in (f"{max(numbers)}", f".{max(numbers)}.crc"):
        (checkpoint / "commits" / name).unlink()
    assert json.loads((checkpoint / "offsets" / f"{max(numbers)}").read_text().splitlines()[2])


def crashing(method: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """The method, which fails after so many calls."""
    left = calls

    def crash(*words: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise SystemError("crash")
        return method(*words)

    return crash
