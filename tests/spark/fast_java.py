"""
Java as it starts fastest, for tests that need one for some seconds: ``python -m tests.spark.fast_java FILE``.

Its better compiler costs more in this time than it saves. And a start spends most of its time on reading and checking
Spark's classes: FILE gets an archive of them as they are in memory (JEP 350), which `use` gives to each Java that is
started. A Java that cannot use the archive, such as another version, ignores it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark_nsq
from pyspark import SparkContext
from pyspark.sql import SparkSession

OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
ARCHIVE = Path(os.environ.get("SPARK_CLASSES") or Path(sys.prefix) / "spark-classes.jsa")
"""Where `make test` has the archive; the variable names that of another version."""
_EXIT_SECONDS = 600
#: It would tell on stdout that it ignores an archive.
_SILENT = "-Xlog:disable"


def use() -> None:
    """Have this process, and those that it starts, run Spark so."""
    archive = f" {_SILENT} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() and ARCHIVE.stat().st_size else ""
    _set(f"{OPTIONS}{archive}")


def _set(options: str) -> None:
    log4j = Path(pyspark_nsq.__file__).with_name("log4j2.properties").as_uri()
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", OPTIONS)
    # A local session sets the second one, unless there is something.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{options} -Dlog4j2.configurationFile={log4j}")


def _load_classes(spark: SparkSession, folder: str) -> None:
    """Do some of what tests do: a query, files, tasks in Python, a stream."""
    rows = spark.range(1000).selectExpr("id", "id % 7 AS remainder", "cast(id AS string) AS text")
    rows.groupBy("remainder").count().orderBy("count").collect()
    assert rows.rdd.map(lambda row: row.id).count() == rows.count()
    rows.write.parquet(f"{folder}/rows")
    stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows").writeStream.format("parquet")
    paths = {"path": f"{folder}/out", "checkpointLocation": f"{folder}/checkpoint"}
    stream.options(**paths).trigger(availableNow=True).start().awaitTermination()


def main(file: str) -> int:
    """Write the archive; an empty file where there is a Java that cannot. Returns the exit status."""
    from pyspark_nsq.session import local_session

    made = Path(f"{file}.new")
    made.unlink(missing_ok=True)
    _set(f"{OPTIONS} {_SILENT} -XX:ArchiveClassesAtExit={made}")
    with TemporaryDirectory() as folder:
        spark = local_session("classes")
        _load_classes(spark, folder)
        spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_EXIT_SECONDS)
    made.touch()
    made.replace(file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
