"""The table of an archive, by its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_nsq.archive.delta import delta_table
from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.identity import Identity
from pyspark_nsq.archive.parquet import ParquetTable
from pyspark_nsq.archive.run import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_table(spark: SparkSession, files: Files, identity: Identity, codec: str) -> Table:
    """Return the table, after finishing the incomplete steps of an earlier run. Raises ArchiveError."""
    if identity.format == "delta":
        return delta_table(spark, files, codec, identity.id)
    table = ParquetTable(files, codec)
    table.recover()
    return table
