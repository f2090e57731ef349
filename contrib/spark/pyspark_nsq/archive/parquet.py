"""An archive as a folder of Parquet files, to which each micro-batch is added exactly once.

A micro-batch is written in these steps:

1. Spark writes its files into a folder of `STAGING`, where no reader looks.
2. A commit file with the files and their places in the archive is created. From here on the batch is committed: when
   the process dies, the next run goes on with step 3, and does not write the batch again.
3. Each file is renamed to its place.

A batch that Spark runs again has the same rows, as it has the same positions of the log. So it does not matter whether
the rows are those of the first attempt or of the last one.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.layout import COMMITS, HOURS, PARTITION_COLUMNS, STAGING, archive_rows, batch_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A writer keeps a row group of this many bytes in memory, for each file that is open.
ROW_GROUP_BYTES = 32 * 1024 * 1024
#: Files that a task may have open before it sorts its rows by partition.
_OPEN_FILES = 16


def configure(spark: SparkSession) -> None:
    """Set what the writing of an archive needs of a session, before the query starts."""
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

    def recover(self) -> None:
        """Finish the batch that an earlier run had committed, and delete the files of one that it had not."""
        finish_commits(self._files)
        self._files.delete(STAGING)

    def add(self, batch_id: int, log: DataFrame) -> None:
        """Add the rows of a micro-batch, unless an earlier run has added them."""
        commit = f"{COMMITS}/{batch_id}.json"
        text = self._files.read(commit)
        if text is None:
            text = self._written(batch_id, log)
            if not self._files.create(commit, text):
                text = self._files.read(commit) or text
        _finish(self._files, text)
        for older in self._files.find(f"{COMMITS}/*.json"):
            if older != commit:
                self._files.delete(older)
        self._files.delete(STAGING)

    def _written(self, batch_id: int, log: DataFrame) -> str:
        """Write the files of a batch, and return the text of its commit."""
        folder = f"{STAGING}/{uuid.uuid4().hex}"
        write_files(archive_rows(log), self._files.path(folder), self._codec)
        staged = self._files.find(f"{folder}/{HOURS}/*.parquet")
        moves = {
            name: f"{name.removeprefix(folder + '/').rpartition('/')[0]}/{batch_file(batch_id, number)}"
            for number, name in enumerate(staged)
        }
        return json.dumps({"moves": moves})


def finish_commits(files: Files) -> None:
    """Move the files of committed batches to their places, where a run died before it had done so."""
    for commit in files.find(f"{COMMITS}/*.json"):
        text = files.read(commit)
        if text is not None:
            _finish(files, text)


def _finish(files: Files, commit: str) -> None:
    for source, target in json.loads(commit)["moves"].items():
        files.move(source, target)
