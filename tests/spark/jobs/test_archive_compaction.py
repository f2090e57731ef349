"""The compaction of an archive: each row once for the readers that `archive-files` is for, whenever it crashes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark_nsq.archive import compaction
from pyspark_nsq.archive.compaction import Compacted, compact
from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.identity import Identity
from pyspark_nsq.archive.layout import IDENTITY, STAGING
from pyspark_nsq.archive.parquet import ParquetTable
from pyspark_nsq.archive.reader import archived_files, live_files, read_archive
from pyspark_nsq.errors import ArchiveError

from tests.process import NsqdProcess
from tests.spark.jobs.conftest import Job, at, publish

ROWS, BATCHES = 30, 3
SINCE_THE_EPOCH = timedelta(0)


@pytest.fixture
def files(session: SparkSession, tmp_path: Path) -> Files:
    """An archive with three batches of ten rows, two files each, in an hour that is over."""
    found = Files(session, str(tmp_path / "lake"))
    found.create(IDENTITY, Identity("1", "parquet", "t").to_text())
    for batch in range(BATCHES):
        add(session, found, batch)
    return found


def add(session: SparkSession, files: Files, batch: int) -> None:
    """Add ten rows."""
    rows = session.range(batch * 10, batch * 10 + 10, numPartitions=2).select(
        f.col("id").alias("position"),
        f.hex("id").alias("id"),
        f.timestamp_seconds(f.lit(7200)).alias("timestamp"),
        f.lit(None).cast("timestamp").alias("due"),
        f.lit("n").alias("nsqd"),
        f.col("id").cast("string").cast("binary").alias("value"),
        f.lit("t").alias("topic"),
    )
    table = ParquetTable(files, "zstd")
    table.recover()
    table.add(batch, rows)


def compacted(session: SparkSession, files: Files) -> list[Compacted]:
    return list(compact(session, files, "zstd", SINCE_THE_EPOCH, 1 << 28))


def plain(files: Files) -> list[int]:
    """The positions that a reader of folders finds."""
    table = pyarrow.dataset.dataset(files.root.removeprefix("file:"), partitioning="hive").to_table(["position"])
    return sorted(table["position"].to_pylist())


def listed(files: Files) -> list[int]:
    """The positions that a reader of the list of files finds."""
    paths = [uri.removeprefix("file:") for uri in archived_files(files)]
    return sorted(pyarrow.parquet.read_table(paths, columns=["position"])["position"].to_pylist())


def test_the_files_of_an_hour_become_one(session: SparkSession, files: Files) -> None:
    (done,) = compacted(session, files)
    assert done == Compacted("topic=t/date=1970-01-01/hour=02", 2 * BATCHES, 1)
    (file,) = live_files(files)
    rows = pyarrow.parquet.read_table(files.path(file).removeprefix("file:"), partitioning=None)
    assert list(range(ROWS)) == rows["position"].to_pylist(), "in their order"
    assert [str(number).encode() for number in range(ROWS)] == rows["value"].to_pylist()
    assert rows.schema.field("timestamp").type == pyarrow.timestamp("us", "UTC")
    assert compacted(session, files) == [], "one file is left alone"
    add(session, files, BATCHES)
    (done,) = compacted(session, files)
    assert done.before == 3
    assert list(range(ROWS + 10)) == plain(files) == listed(files)


def test_an_hour_that_is_not_over_is_left_alone(session: SparkSession, files: Files) -> None:
    assert list(compact(session, files, "zstd", timedelta(days=100_000), 1 << 28)) == []


def test_large_files_are_left_alone_and_made(session: SparkSession, files: Files) -> None:
    sizes = [files.size(name) or 0 for name in live_files(files)]
    assert list(compact(session, files, "zstd", SINCE_THE_EPOCH, 2 * min(sizes))) == []
    (done,) = compact(session, files, "zstd", SINCE_THE_EPOCH, 3 * max(sizes))
    assert done.after == 2
    assert list(range(ROWS)) == plain(files)


def test_every_reader(session: SparkSession, files: Files) -> None:
    compacted(session, files)
    add(session, files, BATCHES)
    folder = files.root.removeprefix("file:")
    found = duckdb.connect().execute(
        f"SELECT sum(position)::INT, count(*) FROM read_parquet('{folder}/topic=*/**/*.parquet')"
    )
    total = sum(range(ROWS + 10)), ROWS + 10
    assert [total] == found.fetchall()
    for frame in (session.read.parquet(folder), read_archive(session, files)):
        row = frame.where("topic = 't' AND hour = 2").selectExpr("sum(position)", "count(*)").first()
        assert row is not None
        assert total == tuple(row)


def test_a_crash_at_every_step(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything, crashed, step = list(range(10)), set[str](), 0
    while True:
        files = Files(session, str(tmp_path / f"lake{step}"))
        files.create(IDENTITY, Identity("1", "parquet", "t").to_text())
        add(session, files, 0)
        with monkeypatch.context() as patch:
            left = [step]
            for name in ("move", "create", "delete"):
                patch.setattr(Files, name, crashing(getattr(Files, name), left, crashed))
            if not failed(lambda: compacted(session, files)):  # noqa: B023
                break
        assert everything == listed(files), step
        compaction.recover(files)
        assert everything == plain(files) == listed(files), step
        step += 1
    assert step > 6
    assert {"move", "create", "delete"} == crashed


def failed(work: Callable[[], object]) -> bool:
    """Return True when it crashed."""
    try:
        work()
    except SystemError:
        return True
    return False


def test_the_next_run_finishes_a_crashed_compaction(
    session: SparkSession, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Files, "delete", crashing(Files.delete, [3], set()))
        with pytest.raises(SystemError):
            compacted(session, files)
    assert len(plain(files)) > ROWS, "a reader of folders sees rows twice"
    assert list(range(ROWS)) == listed(files)
    compaction.recover(files)
    assert list(range(ROWS)) == plain(files) == listed(files)


def test_a_swap_whose_files_are_gone_is_undone(
    session: SparkSession, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Files, "move", crashing(Files.move, [0], set()))
        with pytest.raises(SystemError):
            compacted(session, files)
    files.delete("_archive/compacted")
    assert list(range(ROWS)) == listed(files)
    compaction.recover(files)
    assert list(range(ROWS)) == plain(files) == listed(files)


def test_two_compactions_at_a_time(session: SparkSession, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one begins when the first one has written its files, and ends before it."""
    found = compact(session, files, "zstd", SINCE_THE_EPOCH, 1 << 28)
    create = Files.create

    def second_first(self: Files, name: str, text: str) -> bool:
        monkeypatch.setattr(Files, "create", create)
        assert len(compacted(session, files)) == 1
        return create(self, name, text)

    monkeypatch.setattr(Files, "create", second_first)
    list(found)
    assert list(range(ROWS)) == plain(files) == listed(files)


def test_a_swap_under_way_is_not_overwritten(session: SparkSession, files: Files) -> None:
    with pytest.raises(ArchiveError, match=r"another compaction of .* is under way; run one at a time"):
        compaction._merge(_begun(session, files), files, *_hour(files), 1, "zstd")


def _begun(session: SparkSession, files: Files) -> SparkSession:
    files.create("_archive/swaps/current.json", '{"id": "x", "sources": [], "targets": {}}')
    return session


def _hour(files: Files) -> tuple[str, list[str]]:
    names = live_files(files)
    return names[0].rpartition("/")[0], names


def test_files_of_a_batch_that_is_committed_are_moved_first(
    session: SparkSession, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Files, "move", crashing(Files.move, [1], set()))
        with pytest.raises(SystemError):
            add(session, files, BATCHES)
    compacted(session, files)
    add(session, files, BATCHES)
    assert list(range(ROWS + 10)) == plain(files)
    assert files.find(f"{STAGING}/*/*") == []


def test_the_commands(job: Job, broker: NsqdProcess, tmp_path: Path) -> None:
    publish(broker, 0, 20)
    lake = f"--output={tmp_path / 'lake'}"
    job("archive", at(broker), "--topic=t", lake, "--once", "--max-rows=10")
    done = job("archive-compact", lake, "--min-age=-60")
    assert done.code == 0
    assert done.out.endswith(": 4 files became 1\n")
    listing = job("archive-files", lake)
    (file,) = (tmp_path / "lake").glob("topic=*/*/*/*.parquet")
    assert listing.out == f"file:{file}\n"
    assert job("archive-verify", at(broker), lake).code == 0
    publish(broker, 20, 40)
    said = job("archive", at(broker), "--topic=t", lake, "--once", "--compact", "--min-age=-60").err
    assert ": 3 files became 1\n" in said


def crashing(method: Callable[..., Any], left: list[int], crashed: set[str]) -> Callable[..., Any]:
    """The method, which fails when so many calls have been made of all that share `left`."""

    def crash(*words: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            crashed.add(method.__name__)
            raise SystemError("crash")
        return method(*words)

    return crash
