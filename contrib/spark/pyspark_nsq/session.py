"""A Spark session on this machine that finds its Java and logs little at its start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pyspark_nsq.java import ensure_java
from pyspark_nsq.python_start import python_of_a_session

_LOOPBACK = "127.0.0.1"


def local_session(name: str, threads: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session with the settings of `local_settings`. Raises JavaNotFoundError when no Java is found."""
    conf = SparkConf().setAll(list(local_settings(name, threads, settings).items()))
    with local_environment():
        return SparkSession.builder.config(conf=conf).getOrCreate()


def start_session(settings: Mapping[str, str]) -> SparkSession:
    """Start a context in another thread, and a session in this one.

    In the main thread a context would install its own handler of SIGINT. Spark has an active session for each thread,
    and writes to a data source in Python only in a thread that has one.
    """
    conf = SparkConf().setAll(list(settings.items()))
    with ThreadPoolExecutor(1) as starting:
        starting.submit(SparkContext.getOrCreate, conf).result()
    return SparkSession.builder.config(conf=conf).getOrCreate()


def local_settings(name: str, threads: int = 2, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a session with `threads` task slots, without web pages, bound to the loopback.

    Filters of a query are pushed down to data sources in Python. `settings` are more settings of Spark by their names.
    """
    return {
        "spark.app.name": name,
        "spark.master": f"local[{threads}]",
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log4j()}",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(threads),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    } | dict(settings or {})


@contextmanager
def local_environment() -> Iterator[None]:
    """Set the environment in which a local Spark starts. Raises JavaNotFoundError when no Java is found."""
    ensure_java()
    # Otherwise Spark warns that the machine's name resolves to a loopback address.
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    # Applies from the first line on: Spark's settings apply only after it has logged two lines.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-Dlog4j2.configurationFile={_log4j()}")
    with python_of_a_session():
        yield


def _log4j() -> str:
    return Path(__file__).with_name("log4j2.properties").as_uri()
