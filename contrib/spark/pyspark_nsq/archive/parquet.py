"""An archive as a folder of Parquet files, to which each micro-batch is added exactly once.

A micro-batch is written in these steps:

1. Spark writes its files into a folder of `STAGING`, which readers ignore.
2. A commit file with the files and their paths in the archive is created. Now the batch is committed: when the process
   dies, the next run continues with step 3, and does not write the batch again.
3. Each file is moved to its path in the archive.
4. An empty file beside the commit file says that all files were moved.

A batch that Spark runs again has the same rows, as it has the same positions of the log. So it does not matter whether
the rows are those of the first attempt or of the last one.

Of two runs at the same time the older one ends with an error before it commits: `OWNER` has the id of the younger one.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.layout import COMMITS, HOURS, OWNER, PARTITION_COLUMNS, STAGING, archive_rows, batch_file
from pyspark_nsq.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A writer keeps a row group of this many bytes in memory, for each file that is open.
ROW_GROUP_BYTES = 32 * 1024 * 1024
#: Files that a task may have open before it sorts its rows by partition.
_OPEN_FILES = 16


def configure(spark: SparkSession) -> None:
    """Set the settings of a session for writing an archive, before the query starts."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(_OPEN_FILES))


def write_files(frame: DataFrame, folder: str, codec: str) -> None:
    """Write rows with the columns of an archive into a new folder, in folders of topic, date and hour."""
    from pyspark.sql import functions as f

    padded = frame.withColumn("hour", f.lpad(f.col("hour").cast("string"), 2, "0"))
    writer = padded.write.partitionBy(*PARTITION_COLUMNS).option("compression", codec)
    writer.option("parquet.block.size", str(ROW_GROUP_BYTES)).parquet(folder)


class ParquetTable:
    """The archive in a folder. Every method raises ArchiveError."""

    def __init__(self, files: Files, codec: str) -> None:
        self._files = files
        self._codec = codec
        self._run = uuid.uuid4().hex
        #: Its own: an older run must not remove what this one is writing.
        self._staging = f"{STAGING}/{self._run}"

    def recover(self) -> None:
        """Finish the batch that an earlier run had committed, and delete the files of one that it had not."""
        self._files.delete(OWNER)
        self._files.create(OWNER, self._run)
        finish_commits(self._files)
        self._files.delete(STAGING)

    def add(self, batch_id: int, log: DataFrame) -> None:
        """Add the rows of a micro-batch, unless an earlier run has added them."""
        commit = _commit(batch_id)
        if not self._files.exists(commit):
            moves = self._write(batch_id, log)
            if self._files.read(OWNER) != self._run:
                raise ArchiveError(f"another run archives into {self._files.root}; this one ends")
            self._files.create(commit, json.dumps({"moves": moves}))
        _finish(self._files, commit)
        for older in self._files.find(f"{COMMITS}/*.json"):
            if older != commit:
                # In this order: without the mark, the batch would look unfinished.
                self._files.delete(older)
                self._files.delete(_mark(older))
        self._files.delete(self._staging)

    def _write(self, batch_id: int, log: DataFrame) -> dict[str, str]:
        """Write the files of a batch, and return the path of each in the archive."""
        folder = f"{self._staging}/{uuid.uuid4().hex}"
        write_files(archive_rows(log), self._files.path(folder), self._codec)
        staged = self._files.find(f"{folder}/{HOURS}/*.parquet")
        return {
            name: f"{name.removeprefix(folder + '/').rpartition('/')[0]}/{batch_file(batch_id, number)}"
            for number, name in enumerate(staged)
        }


def finish_commits(files: Files) -> None:
    """Move the files of committed batches into the archive, if a run died before it had moved them."""
    for commit in files.find(f"{COMMITS}/*.json"):
        _finish(files, commit)


def _finish(files: Files, commit: str) -> None:
    """Move the files of a batch into the archive, and mark it. Another process may do the same at the same time.

    Raises ArchiveError when a file is missing, after deleting the commit: the next run writes the batch again.
    """
    text = files.read(commit)
    if text is None or files.exists(_mark(commit)):
        return
    moves: dict[str, str] = json.loads(text)["moves"]
    for source, target in moves.items():
        files.move(source, target)
    gone = [target for target in moves.values() if not files.exists(target)]
    if not gone:
        files.create(_mark(commit), "")
    # Another process may have finished this batch meanwhile, and compacted its files since.
    elif not files.exists(_mark(commit)) and files.exists(commit):
        for target in moves.values():
            files.delete(target)
        files.delete(commit)
        raise ArchiveError(f"{gone[0]} was deleted before it was in its place; run the job again to write it again")


def _commit(batch_id: int) -> str:
    return f"{COMMITS}/{batch_id}.json"


def _mark(commit: str) -> str:
    return f"{commit.removesuffix('.json')}.done"
