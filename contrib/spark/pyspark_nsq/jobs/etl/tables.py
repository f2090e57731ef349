"""A table of files to which each micro-batch of a stream is added exactly once.

Spark's own sink leaves the files of a micro-batch that was interrupted, and only Spark's reader passes over them. Here
a micro-batch is written in three steps, so that any reader sees each row once:

1. Spark writes its files into a folder whose name begins with an underscore, which readers ignore.
2. A commit file with the files and their final paths is created. After a crash the next start continues with step 3.
3. Each file is moved to its final path.

Of two runs of a pipeline at the same time, the one that creates the commit file of a micro-batch first writes it. The
other one uses the content of the file. A run removes staged files only of micro-batches that are committed.
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
        self._run = uuid.uuid4().hex

    def add(self, batch: DataFrame, batch_id: int, partition_by: tuple[str, ...]) -> None:
        """Add the rows of a micro-batch, unless an earlier run has committed them."""
        spark = batch.sparkSession
        files = Files(spark, self._folder)
        stream = self._stream_id(spark)
        name = f"{stream}-{batch_id:012d}"
        commit = f"{_COMMITS}/{name}.json"
        text = files.read(commit)
        if text is None:
            staging = f"{_STAGING}/{stream}/{batch_id:012d}-{self._run}"
            files.delete(staging)
            text = self._written(files, batch, staging, name, partition_by)
            text = self._committed(files, stream, commit, text)
        for source, target in json.loads(text).items():
            files.move(source, target)
        for older in _commits(files, stream):
            if older < commit:
                files.delete(older)
        for staged in files.find(f"{_STAGING}/{stream}/*"):
            if staged.rpartition("/")[2].partition("-")[0] <= f"{batch_id:012d}":
                files.delete(staged)

    def _committed(self, files: Files, stream: str, commit: str, text: str) -> str:
        """Create the commit file of a micro-batch. Return its text, which is that of another run if this was second.

        Raises PipelineError when a later micro-batch is in the table: then the rows of this one are, too.
        """
        if any(other > commit for other in _commits(files, stream)):
            raise PipelineError(
                f"the table {self._folder} has later rows of this pipeline than the checkpoint {self._checkpoint}: "
                "another run of it is under way, or the checkpoint was restored; run one at a time, or start with a "
                "new checkpoint and a new folder"
            )
        if files.create(commit, text):
            return text
        created = files.read(commit)
        if created is None:
            raise PipelineError(f"another run of this pipeline writes to the table {self._folder}; run one at a time")
        return created

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


def _commits(files: Files, stream: str) -> list[str]:
    """Return the commit files of a stream, in the order of their micro-batches."""
    return files.find(f"{_COMMITS}/{stream}-*.json")
