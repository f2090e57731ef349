"""The Spark session of a job: the one that ``spark-submit`` prepared, or a local one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from pyspark_nsq.errors import SessionError
from pyspark_nsq.jobs.parameters import passing
from pyspark_nsq.jobs.signals import held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])

#: Masters on this machine, which need the Java and the Python of this machine.
_LOCAL = re.compile(r"local(\[[^\]]+\])?")


@dataclass(frozen=True)
class SparkChoice:
    """The master and the settings of a job. An empty `master`: that of ``spark-submit``, or this machine."""

    name: str
    master: str
    settings: dict[str, str]
    metrics_port: int | None = None

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Start a session, and stop it at the end.

        Raises JavaNotFoundError and SessionError, and MonitoringError for the metrics.
        """
        from pyspark_nsq.monitoring import listen

        try:
            with held():
                session = self._start()
        except Py4JJavaError as error:
            raise SessionError(
                f"Spark does not start: {error.java_exception.getMessage()}; check --master and --conf, and that the "
                "master runs"
            ) from error
        if not _is_debugging():
            # Its errors are raised as exceptions, too.
            session.sparkContext.setLogLevel("OFF")
        try:
            if self.metrics_port is None:
                yield session
            else:
                with closing(listen(session, self.metrics_port)):
                    yield session
        finally:
            session.stop()

    def _start(self) -> SparkSession:
        from pyspark_nsq.session import local_environment, local_settings, start_session

        settings = {"spark.master": self.master} if self.master else {}
        is_here = not self.master or _LOCAL.fullmatch(self.master) is not None
        if not is_here or _is_submitted():
            return start_session({"spark.app.name": self.name} | settings | self.settings)
        with local_environment():
            return start_session(local_settings(self.name, os.cpu_count() or 1, settings | self.settings))


def spark_options(function: F) -> F:
    """Give a command --master, --conf and --metrics-port; its function gets a `SparkChoice` as `spark`."""

    def build(master: str, conf: tuple[str, ...], metrics_port: int | None) -> SparkChoice:
        name = function.__name__.replace("_", "-")
        settings = dict(_setting(text) for text in conf)
        if master and "spark.master" in settings:
            raise click.UsageError("--master and --conf spark.master exclude each other; leave one out")
        return SparkChoice(f"nsqtw-spark {name}", master, settings, metrics_port)

    wrapped = passing(function, "spark", build, ("master", "conf", "metrics_port"))
    wrapped = click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve the metrics of the queries for Prometheus, at /metrics of this port.",
    )(wrapped)
    wrapped = click.option(
        "--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be given several times."
    )(wrapped)
    return click.option(
        "--master", default="", metavar="URL", help="Spark's master; the default is all cores of this machine."
    )(wrapped)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f'--conf "{text}" is not NAME=VALUE')
    if not name.startswith("spark."):
        named = 'their names begin with "spark.", and those of Hadoop\'s with "spark.hadoop."'
        raise click.UsageError(f'--conf "{text}" is no setting of Spark; {named}')
    return name, value


def _is_submitted() -> bool:
    """Return whether ``spark-submit`` started this process: its gateway is in the environment."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _is_debugging() -> bool:
    return bool(click.get_current_context().find_root().params.get("debug"))
