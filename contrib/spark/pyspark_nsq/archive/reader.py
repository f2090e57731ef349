"""The files of an archive that have each row once, also while a compaction replaces files.

A compaction adds merged files and then deletes their sources (`pyspark_nsq.archive.compaction`). Between the two, a
reader that lists the folders finds rows twice. `live_files` leaves out either the merged files or their sources.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark_nsq.archive.delta import delta_files, has_delta_jars
from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.identity import must_exist
from pyspark_nsq.archive.layout import DATA_FILES, SWAP, SWAPS
from pyspark_nsq.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_ATTEMPTS = 100


def live_files(files: Files) -> list[str]:
    """Return the data files that have each row once, relative to the folder of the archive. Raises ArchiveError."""
    for _ in range(_MOST_ATTEMPTS):
        before = _swaps(files)
        listed = files.find(DATA_FILES)
        if before == _swaps(files):
            found = _without_replaced(listed, before[1])
            if found is not None:
                return found
    raise ArchiveError(f"the files of {files.root} change all the time; try again when no compaction runs")


def read_archive(spark: SparkSession, files: Files) -> DataFrame:
    """Return the rows of an archive, each once. Raises ArchiveError."""
    identity = must_exist(files)
    schema = identity.schema
    if identity.format == "delta" and has_delta_jars(spark):
        return spark.read.format("delta").load(files.root).select(*schema.names)
    found = archived_files(files)
    if not found:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", files.root).parquet(*found)


def archived_files(files: Files) -> list[str]:
    """Return the URIs of the data files that have each row once. Raises ArchiveError when there is no archive."""
    if must_exist(files).format == "delta":
        return delta_files(files)
    return [files.path(name) for name in live_files(files)]


def _swaps(files: Files) -> tuple[list[str], str | None]:
    """Return a value that changes with each begin and end of a swap, and the record of the current swap."""
    return files.find(f"{SWAPS}/*.json"), files.read(SWAP)


def _without_replaced(listed: list[str], swap: str | None) -> list[str] | None:
    """Return the files without those that a swap replaces, or None when the listing has neither kind completely."""
    if swap is None:
        return listed
    found = json.loads(swap)
    sources, targets = set(found["sources"]), set(found["targets"].values())
    if targets <= set(listed):
        return [name for name in listed if name not in sources]
    if sources <= set(listed):
        return [name for name in listed if name not in targets]
    return None
