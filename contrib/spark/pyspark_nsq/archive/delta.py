"""An archive as a table of Delta Lake, written by the package deltalake or by Delta's jars in the session.

Each commit of the table has the archive's id and the number of its micro-batch as an application transaction. A batch
that Spark runs again is not written when the table has its number.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.layout import PARTITION_COLUMNS, archive_rows
from pyspark_nsq.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


def delta_table(spark: SparkSession, files: Files, codec: str, archive_id: str) -> DeltaJarsTable | DeltaWheelTable:
    """Return the table for the writer that this session has. Raises ArchiveError when it has none."""
    if has_delta_jars(spark):
        return DeltaJarsTable(files, archive_id)
    _deltalake()
    return DeltaWheelTable(files, codec, archive_id)


def has_delta_jars(spark: SparkSession) -> bool:
    """Return True when the session was started with the jars of delta-spark and their extension."""
    return _EXTENSION in (spark.conf.get("spark.sql.extensions", "") or "")


class DeltaJarsTable:
    """The table in a folder, written by Delta's jars on the executors."""

    def __init__(self, files: Files, archive_id: str) -> None:
        self._files = files
        self._archive_id = archive_id

    def add(self, batch_id: int, log: DataFrame) -> None:
        """Add the rows of a micro-batch, unless an earlier run has added them."""
        writer = archive_rows(log).write.format("delta").mode("append").partitionBy(*PARTITION_COLUMNS)
        writer.options(txnAppId=self._archive_id, txnVersion=str(batch_id)).save(self._files.root)


class DeltaWheelTable:
    """The table in a folder, written by the package deltalake in the driver: all rows pass through it."""

    def __init__(self, files: Files, codec: str, archive_id: str) -> None:
        self._location = _location(files)
        self._codec = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
        self._archive_id = archive_id

    def add(self, batch_id: int, log: DataFrame) -> None:
        """Add the rows of a micro-batch, unless an earlier run has added them. Raises ArchiveError."""
        deltalake = _deltalake()
        try:
            if deltalake.DeltaTable.is_deltatable(self._location):
                added = deltalake.DeltaTable(self._location).transaction_version(self._archive_id)
                if added is not None and added >= batch_id:
                    return
            deltalake.write_deltalake(
                self._location,
                archive_rows(log).toArrow(),
                mode="append",
                partition_by=list(PARTITION_COLUMNS),
                writer_properties=deltalake.WriterProperties(compression=self._codec),
                commit_properties=deltalake.CommitProperties(
                    app_transactions=[deltalake.Transaction(self._archive_id, batch_id)]
                ),
            )
        except deltalake.exceptions.DeltaError as error:
            raise ArchiveError(f"cannot write the Delta table {self._location}: {error}") from None


def delta_files(files: Files) -> list[str]:
    """Return the URIs of the data files of a table. Raises ArchiveError."""
    deltalake = _deltalake()
    location = _location(files)
    if not deltalake.DeltaTable.is_deltatable(location):
        return []
    return [str(uri) for uri in deltalake.DeltaTable(location).file_uris()]


def compact_delta(spark: SparkSession, files: Files, file_bytes: int) -> tuple[int, int]:
    """Merge the small files of a table. Return how many were replaced, and by how many. Raises ArchiveError.

    Files that are replaced stay for the readers of earlier versions: Delta's vacuum deletes them.
    """
    if has_delta_jars(spark):
        metrics = spark.sql(f"OPTIMIZE delta.`{files.root}`").select("metrics.*").first()
        assert metrics is not None
        return int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])
    deltalake = _deltalake()
    try:
        table = deltalake.DeltaTable(_location(files))
        figures = table.optimize.compact(target_size=file_bytes)
    except deltalake.exceptions.DeltaError as error:
        raise ArchiveError(f"cannot compact the Delta table {files.root}: {error}") from None
    return int(figures["numFilesRemoved"]), int(figures["numFilesAdded"])


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ModuleNotFoundError:
        raise ArchiveError(
            "Delta Lake is not installed: run pip install deltalake, or start Spark with the jars of delta-spark"
        ) from None
    return deltalake


def _location(files: Files) -> str:
    """Return the location of a table for deltalake: a path on this machine, or a URI."""
    parts = urlsplit(files.root)
    return str(Path(unquote(parts.path))) if parts.scheme == "file" else files.root
