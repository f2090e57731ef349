"""A Spark session on this machine that finds its Java and logs little at its start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_nsq.java import ensure_java
from pyspark_nsq.python_start import python_of_a_session

_LOOPBACK = "127.0.0.1"


def local_session(name: str, threads: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session with `threads` task slots, without web pages and progress bars, bound to the loopback.

    Filters of a query are pushed down to data sources in Python.

    `settings` are more settings of Spark by their names. Raises JavaNotFoundError when no Java is found.
    """
    ensure_java()
    # Otherwise Spark warns that the machine's name resolves to a loopback address.
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    log4j = Path(__file__).with_name("log4j2.properties").as_uri()
    # Applies from the first line on: Spark's settings apply only after it has logged two lines.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-Dlog4j2.configurationFile={log4j}")
    quiet = {
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j}",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(threads),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.appName(name).master(f"local[{threads}]")
    for key, value in (quiet | dict(settings or {})).items():
        builder = builder.config(key, value)
    with python_of_a_session():
        return builder.getOrCreate()
