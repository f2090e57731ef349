"""Two runs at the same time that write to one archive or table. What Spark would do is written down, file by file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark_nsq.archive import compaction, parquet
from pyspark_nsq.archive.parquet import ParquetTable
from pyspark_nsq.errors import ArchiveError, PipelineError
from pyspark_nsq.jobs.etl import tables
from pyspark_nsq.jobs.etl.tables import FileTable

from tests.spark.jobs.local_files import LocalFiles

HOUR = "topic=t/date=2026-11-25/hour=07"
FILES = 3


def nothing() -> None:
    """No other run does anything meanwhile."""


def write(folder: str) -> None:
    """Write the files of a micro-batch, as Spark does."""
    place = Path(folder) / HOUR
    place.mkdir(parents=True)
    for number in range(FILES):
        (place / f"part-{number:05d}.parquet").write_text(str(number))


def contents(lake: Path) -> list[str]:
    """The rows of the files that a reader sees."""
    return sorted(path.read_text() for path in lake.glob("topic=*/date=*/hour=*/*.parquet"))


def test_an_older_run_removes_no_files_that_a_younger_one_is_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles(None, str(tmp_path / "lake"))
    older, younger = ParquetTable(files, "zstd"), ParquetTable(files, "zstd")
    meanwhile: list[Callable[[], None]] = [nothing, nothing]

    def write_files(_rows: object, folder: str, _codec: str) -> None:
        write(folder)
        meanwhile.pop()()

    monkeypatch.setattr(parquet, "write_files", write_files)
    monkeypatch.setattr(parquet, "archive_rows", lambda log: log)
    older.recover()
    older.add(0, None)  # type: ignore[arg-type]
    younger.recover()
    # The last step of the older run comes late.
    meanwhile[0] = lambda: older.add(0, None)  # type: ignore[arg-type]
    younger.add(1, None)  # type: ignore[arg-type]
    assert sorted(2 * ["0", "1", "2"]) == contents(tmp_path / "lake")


class Table(FileTable):
    """A table whose micro-batches have three files. `meanwhile` runs when they are written, before they are listed."""

    def __init__(self, lake: Path, meanwhile: Callable[[], None] = nothing) -> None:
        super().__init__(str(lake), "checkpoint", "parquet", {})
        self._meanwhile = meanwhile

    def _stream_id(self, spark: Any) -> str:
        return "s"

    def _written(self, files: Any, batch: Any, folder: str, name: str, partition_by: tuple[str, ...]) -> str:
        write(files.path(folder))
        self._meanwhile()
        staged = files.find(f"{folder}/{HOUR}/part-*")
        return json.dumps({source: f"{HOUR}/{name}-{at:05d}.parquet" for at, source in enumerate(staged)})

    def write(self, number: int) -> None:
        """Add a micro-batch."""
        self.add(SimpleNamespace(sparkSession=None), number, ())  # type: ignore[arg-type]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tables, "Files", LocalFiles)
    return tmp_path / "lake"


def test_two_pipelines_that_write_the_same_micro_batch(lake: Path) -> None:
    other = Table(lake)
    Table(lake, lambda: other.write(0)).write(0)
    assert contents(lake) == ["0", "1", "2"]
    other.write(1)
    assert sorted(2 * ["0", "1", "2"]) == contents(lake)
    assert list(lake.glob("_etl/staging/s/*")) == []


def test_a_pipeline_that_is_behind_removes_nothing_and_adds_nothing(lake: Path) -> None:
    behind, ahead = Table(lake), Table(lake)
    behind.write(0)
    ahead._meanwhile = lambda: behind.write(0)
    ahead.write(1)
    assert sorted(2 * ["0", "1", "2"]) == contents(lake)
    with pytest.raises(PipelineError, match="another run of it is under way, or the checkpoint was restored"):
        behind.write(0)
    assert sorted(2 * ["0", "1", "2"]) == contents(lake)


class Merging:
    """A session that reads files as the list of what is in them."""

    def __init__(self) -> None:
        self.read = self

    def schema(self, _schema: object) -> Merging:
        return self

    def option(self, _name: str, _value: str) -> Merging:
        return self

    def parquet(self, *paths: str) -> Rows:
        return Rows([row for path in paths for row in Path(path).read_text().split()])


class Rows(list[str]):
    """The rows of some files."""

    def count(self) -> int:  # type: ignore[override]
        return len(self)

    def repartitionByRange(self, *_columns: object) -> Rows:
        return self

    sortWithinPartitions = repartitionByRange


@pytest.mark.parametrize("deleted", ["*", "part-00001.parquet", ""])
def test_a_compaction_whose_files_another_one_deletes_keeps_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: str
) -> None:
    lake = tmp_path / "lake"
    write(str(lake))
    files = LocalFiles(None, str(lake))
    sources = files.find(f"{HOUR}/*.parquet")

    def write_files(rows: Rows, folder: str, _codec: str) -> None:
        place = Path(folder) / HOUR
        place.mkdir(parents=True)
        for at, part in enumerate((rows[:2], rows[2:])):
            (place / f"part-{at:05d}.parquet").write_text(" ".join(part))
        for path in place.glob(deleted) if deleted else ():
            path.unlink()

    monkeypatch.setattr(compaction, "write_files", write_files)
    monkeypatch.setattr(compaction, "must_exist", lambda files: SimpleNamespace(schema=None))

    def merge() -> int:
        return compaction._merge(Merging(), files, HOUR, sources, 2, "zstd")  # type: ignore[arg-type]

    if deleted:
        with pytest.raises(ArchiveError, match=r"another compaction of .* has deleted files of this one"):
            merge()
    else:
        assert merge() == 2
    assert " ".join(contents(lake)).split() == ["0", "1", "2"]
