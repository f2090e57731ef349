"""The option --metrics-port of the jobs of ``nsqtw-spark``."""

from __future__ import annotations

import socket
import urllib.request

import click
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark_nsq import session as sessions
from pyspark_nsq.errors import MonitoringError
from pyspark_nsq.jobs.spark import SparkChoice, spark_options
from pyspark_nsq.monitoring.receiver import SETTING

from tests.process import ReservedPort
from tests.wire import HOST


@click.command()
@spark_options
def probe(spark: SparkChoice) -> None:
    """Scrape the own metrics."""
    with spark.session() as session:
        port = spark.metrics_port
        click.echo(f"{port} {session.conf.get(SETTING, '')}")
        if port is not None:
            with urllib.request.urlopen(f"http://{HOST}:{port}/metrics") as answer:
                click.echo(answer.read())


class Kept:
    """The session of the tests, which a job must not stop."""

    def __init__(self, spark: SparkSession) -> None:
        self.conf, self.streams, self.sparkContext = spark.conf, spark.streams, spark.sparkContext
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Kept:
    kept = Kept(spark)
    monkeypatch.setattr(sessions, "start_session", lambda *_: kept)
    return kept


def test_a_job_serves_metrics_while_it_runs(kept: Kept) -> None:
    port = ReservedPort()
    try:
        done = CliRunner().invoke(probe, ["--metrics-port", str(port.number)], catch_exceptions=False)
        assert "# TYPE nsq_spark_query_active gauge" in done.output
        assert done.output.split()[1], "sinks know where to send their figures"
        assert kept.stopped and kept.conf.get(SETTING, "") == ""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port.number))
    finally:
        port.release()


def test_without_the_option_nothing_listens(kept: Kept) -> None:
    assert CliRunner().invoke(probe, [], catch_exceptions=False).output.split() == ["None"]


def test_a_port_in_use_ends_the_job_with_one_line(kept: Kept) -> None:
    with (
        socket.create_server(("0.0.0.0", 0)) as taken,
        pytest.raises(MonitoringError, match=f":{taken.getsockname()[1]}: .* choose another port"),
    ):
        CliRunner().invoke(probe, ["--metrics-port", str(taken.getsockname()[1])], catch_exceptions=False)
    assert kept.stopped
