"""Reading of an archive that ``nsqtw-spark archive`` wrote: a folder of Parquet files, or a table of Delta Lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_nsq.errors import OptionError
from pyspark_nsq.jobs.failures import first_line, quiet_analysis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORED = ("value", "topic", "id", "timestamp", "nsqd", "position", "due")
"""The columns that an archive must have."""

_DELTA_LOG = "_delta_log"


def read_archive(spark: SparkSession, folder: str) -> DataFrame:
    """Return all rows of an archive. Raises OptionError when the folder has none."""
    from pyspark.errors import AnalysisException

    try:
        with quiet_analysis():
            rows = _delta(spark, folder) if (Path(folder) / _DELTA_LOG).is_dir() else spark.read.parquet(folder)
    except AnalysisException as error:
        raise OptionError(f'--archive "{folder}": {first_line(error)}') from None
    missing = [name for name in STORED if name not in rows.columns]
    if missing:
        raise OptionError(f'--archive "{folder}" is no archive of nsqtw-spark: it has no column {", ".join(missing)}')
    return rows


def _delta(spark: SparkSession, folder: str) -> DataFrame:
    """The rows of a Delta table, by the jars of Delta Lake or, without them, by the files that its log names."""
    from pyspark.errors import AnalysisException

    try:
        return spark.read.format("delta").load(folder)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_NOT_FOUND":
            raise
    try:
        from deltalake import DeltaTable  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        raise OptionError(
            f'--archive "{folder}" is a table of Delta Lake; run: pip install deltalake, or give Spark its jars'
        ) from None
    files = DeltaTable(folder).file_uris()
    return spark.read.option("basePath", folder).parquet(*files)
