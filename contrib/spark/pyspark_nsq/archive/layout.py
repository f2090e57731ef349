"""The layout of an archive: its columns, its folders and the names of its files.

    OUTPUT/topic=clicks/date=2026-11-25/hour=07/batch-000000000012-00000.parquet
    OUTPUT/_archive/archive.json            the archive's id, format and topics
    OUTPUT/_archive/owner                   the id of the run that archives
    OUTPUT/_archive/checkpoint/             the checkpoint of the stream, unless it is elsewhere
    OUTPUT/_archive/commits/12.json         the files of the last micro-batch, and where they go
    OUTPUT/_archive/commits/12.done         empty: they are there
    OUTPUT/_archive/swaps/current.json      the files that a compaction is replacing
    OUTPUT/_archive/swaps/done-ID.json      the last such replacement
    OUTPUT/_archive/staging/, compacted/    files that are not part of the archive yet

Readers of hive-partitioned datasets pass over names that begin with an underscore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

META = "_archive"
IDENTITY = f"{META}/archive.json"
OWNER = f"{META}/owner"
CHECKPOINT = f"{META}/checkpoint"
COMMITS = f"{META}/commits"
SWAPS = f"{META}/swaps"
SWAP = f"{SWAPS}/current.json"
STAGING = f"{META}/staging"
COMPACTED = f"{META}/compacted"

#: The folders of an hour, and the data files in them.
HOURS = "topic=*/date=*/hour=*"
DATA_FILES = f"{HOURS}/*.parquet"

PARTITION_COLUMNS = ("topic", "date", "hour")
SCHEMA = StructType(
    [
        StructField("position", LongType()),
        StructField("id", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("due", TimestampType()),
        StructField("nsqd", StringType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("date", DateType()),
        StructField("hour", IntegerType()),
    ]
)
ATTEMPTS = StructField("attempts", IntegerType())
_HEADERS = StructField("headers", MapType(StringType(), StringType()))


def schema_of(*, has_headers: bool, has_attempts: bool) -> StructType:
    """Return the columns of an archive that was begun with or without headers and attempts."""
    behind = {"timestamp": [ATTEMPTS] if has_attempts else [], "value": [_HEADERS] if has_headers else []}
    return StructType([one for field in SCHEMA.fields for one in (field, *behind.get(field.name, ()))])


def archive_rows(log: DataFrame) -> DataFrame:
    """Return the rows of a log with the columns of an archive. Date and hour are those of the session's time zone."""
    has_headers, has_attempts = (field.name in log.columns for field in (_HEADERS, ATTEMPTS))
    names = schema_of(has_headers=has_headers, has_attempts=has_attempts).names
    return log.selectExpr("*", "to_date(timestamp) AS date", "hour(timestamp) AS hour").select(*names)


def batch_file(batch_id: int, number: int) -> str:
    """Return the name of a file of a micro-batch."""
    return f"batch-{batch_id:012d}-{number:05d}.parquet"
