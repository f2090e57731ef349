"""A table of files to which each micro-batch of a stream is added exactly once.

Spark's own sink leaves the files of a micro-batch that was interrupted, and only Spark's reader passes over them. Here
a micro-batch is written in three steps, so that any reader sees each row once:

1. Spark writes its files into a folder whose name begins with an underscore, which readers ignore.
2. A commit file with the files and their final paths is created. After a crash the next start continues with step 3.
3. Each file is moved to its final path.
"""

from __future__ import annotations

import json
import uuid

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from pyspark_nsq.archive.files import Files
from pyspark_nsq.errors import PipelineError

_META = "_etl"
_STAGING = f"{_META}/staging"
_COMMITS = f"{_META}/commits"


class FileTable:
    """The table in a folder, for the stream with the checkpoint. Other streams may add to it, too.

    Raises ArchiveError for an error of the file system.
    """

    def __init__(self, folder: str, checkpoint: str, format: str, options: dict[str, str]) -> None:
        self._folder, self._checkpoint = folder, checkpoint
        self._format, self._options = format, options

    def add(self, batch: DataFrame, batch_id: int, partition_by: tuple[str, ...]) -> None:
        """Add the rows of a micro-batch, unless an earlier run has committed them."""
        spark = batch.sparkSession
        files = Files(spark, self._folder)
        stream = self._stream_id(spark)
        name = f"{stream}-{batch_id:012d}"
        commit = f"{_COMMITS}/{name}.json"
        text = files.read(commit)
        if text is None:
            staging = f"{_STAGING}/{stream}"
            files.delete(staging)
            text = self._written(files, batch, staging, name, partition_by)
            files.create(commit, text)
        for source, target in json.loads(text).items():
            files.move(source, target)
        for older in files.find(f"{_COMMITS}/{stream}-*.json"):
            if older != commit:
                files.delete(older)

    def _stream_id(self, spark: SparkSession) -> str:
        """Return Spark's name of the stream. A stream with a new checkpoint has a new one, and counts from 0 again."""
        metadata = Files(spark, self._checkpoint).read("metadata")
        if metadata is None:
            raise PipelineError(f"the checkpoint {self._checkpoint} has no file metadata")
        return uuid.UUID(json.loads(metadata)["id"]).hex

    def _written(self, files: Files, batch: DataFrame, folder: str, name: str, partition_by: tuple[str, ...]) -> str:
        """Write the files of a batch. Return the text of its commit: each file with its final path."""
        seen = Observation()
        writer = batch.observe(seen, f.count(f.lit(1)).alias("rows")).write.format(self._format)
        writer.options(**self._options).partitionBy(*partition_by).save(files.path(folder))
        if not seen.get["rows"]:
            # Spark writes a file without rows, too, with the schema alone.
            return json.dumps({})
        levels = "*/" * len(partition_by)
        staged = files.find(f"{folder}/{levels}part-*")
        moves = {}
        for number, source in enumerate(staged):
            place, _, file = source.removeprefix(f"{folder}/").rpartition("/")
            extension = file.partition(".")[2]
            target = f"{name}-{number:05d}.{extension}"
            moves[source] = f"{place}/{target}" if place else target
        return json.dumps(moves)
