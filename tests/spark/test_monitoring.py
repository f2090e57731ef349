"""The figures of streaming queries: in Spark's progress, and as metrics of Prometheus."""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark_nsq.channel.stream import ChannelStreamReader
from pyspark_nsq.errors import MonitoringError, ReadError
from pyspark_nsq.monitoring import NsqListener, listen
from pyspark_nsq.monitoring.answers import Answers
from pyspark_nsq.monitoring.channel_lag import ChannelLag
from pyspark_nsq.monitoring.figures import KEY, figures_of
from pyspark_nsq.monitoring.listener import error_class
from pyspark_nsq.monitoring.log_lag import Behind, LogLag
from pyspark_nsq.monitoring.receiver import SETTING, Origin, report
from pyspark_nsq.options.channel import ChannelOptions

from contrib.monitoring import spark_page
from tests.process import NsqdProcess, wait_until
from tests.spark.fake_nsqd import FakeNsqd
from tests.spark.http_thread import HttpThread
from tests.wire import HOST

LONG = 60


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    real_nsqd.create("t")
    real_nsqd.order("/v2/topic/retention?topic=t&time=1h")
    return real_nsqd


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[NsqListener]:
    listening = listen(spark, port=0, address=HOST)
    yield listening
    listening.close()


def publish(broker: NsqdProcess, start: int, stop: int) -> None:
    answer = broker.http("POST", "/mpub?topic=t", "\n".join(str(number) for number in range(start, stop)).encode())
    assert answer.status == 200, answer


def scraped(listener: NsqListener) -> dict[str, float]:
    """The samples that the listener serves."""
    with urllib.request.urlopen(f"http://{HOST}:{listener.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def copy(
    spark: SparkSession, broker: NsqdProcess, sink: FakeNsqd, folder: Path, **options: str
) -> Callable[[], StreamingQuery]:
    """How to start a query that copies the log of t into a topic of another nsqd."""
    stream = spark.readStream.format("nsq").options(
        replay="log", nsqdHttpAddresses=f"{HOST}:{broker.http_port}", topic="t", **options
    )
    writer = stream.load().select("value").writeStream.format("nsq").queryName("copy")
    settings = {"nsqdHttpAddresses": sink.address, "topic": "u", "checkpointLocation": str(folder / "checkpoint")}
    return lambda: writer.options(backoffMs="1", retries="1", **settings).trigger(availableNow=True).start()


def test_a_query_on_a_log_shows_its_lag_and_what_its_sink_did(
    spark: SparkSession, broker: NsqdProcess, nsqd: FakeNsqd, listener: NsqListener, tmp_path: Path
) -> None:
    publish(broker, 0, 40)
    broker.kill()
    broker.start()  # behind a gap between positions
    publish(broker, 40, 100)
    nsqd.script.append((503, b"EXITING"))
    start = copy(spark, broker, nsqd, tmp_path, startingOffsets="earliest", maxRowsPerTrigger="30", numPartitions="1")
    query = start()
    assert query.awaitTermination(LONG)
    found = [figures_of(progress.sources[0].latestOffset) for progress in query.recentProgress]
    lags = [lag for figures in found if figures is not None for lag in figures["lag"]]
    # Four micro-batches, as one ends at the gap, and one without rows.
    assert [lag["messages"] for lag in lags][:2] == [70, 60]
    assert lags[-1] == {"topic": "t", "channel": "", "messages": 0, "seconds": 0.0}
    assert lags[0]["seconds"] > 0
    assert [figures["unanswered"] for figures in found if figures is not None] == [0] * len(lags)

    wait_until(lambda: scraped(listener)['nsq_spark_query_active{query="copy"}'] == 0, "the end is known", LONG)
    samples = scraped(listener)
    assert samples['nsq_spark_input_rows_total{query="copy"}'] == 100
    assert samples['nsq_spark_sink_rows_total{query="copy"}'] == 100 == len(nsqd.messages["u"])
    assert samples['nsq_spark_sink_retries_total{query="copy"}'] == 1
    assert samples['nsq_spark_sink_requests_total{query="copy"}'] >= 4
    assert samples['nsq_spark_batch_duration_seconds_count{query="copy"}'] == len(query.recentProgress)
    assert not [name for name in samples if "lag" in name or "failed" in name], "a query that has ended has no lag"

    publish(broker, 100, 110)
    nsqd.script.append((400, b"BAD_TOPIC"))
    query = start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(LONG)
    failed = 'nsq_spark_query_failed{error="PublishError",query="copy"}'
    wait_until(lambda: scraped(listener).get(failed) == 1, "the failure is known", LONG)
    assert start().awaitTermination(LONG)
    wait_until(lambda: scraped(listener)['nsq_spark_sink_rows_total{query="copy"}'] == 110, "the retry", LONG)
    assert failed not in scraped(listener), "until it is started again"


def test_a_batch_shows_what_it_published(spark: SparkSession, nsqd: FakeNsqd, listener: NsqListener) -> None:
    frame = spark.range(50).selectExpr("cast(id AS string) AS value")
    writer = frame.write.format("nsq").mode("append").options(nsqdHttpAddresses=nsqd.address, topic="t", retries="0")
    writer.save()
    assert scraped(listener)['nsq_spark_sink_rows_total{query=""}'] == 50


def test_a_micro_batch_that_failed_counts_what_it_published(listener: NsqListener) -> None:
    origin = Origin("no-query-known", listener._receiver.address)
    report("failed", origin, {"rows": 20})
    report("published", origin, {"rows": 10})
    report("published", Origin("other", origin.receiver + "x"), {"rows": 10})
    report("published", Origin(), {"rows": 10})
    samples = scraped(listener)
    assert samples['nsq_spark_sink_rows_total{query="no-query-known"}'] == 30
    assert samples['nsq_spark_sink_failures_total{query="no-query-known"}'] == 1
    assert not [name for name in samples if "other" in name or "origin" in name]


def test_nothing_is_left_when_the_listener_is_closed(spark: SparkSession, nsqd: FakeNsqd) -> None:
    registry = CollectorRegistry()
    listening = listen(spark, registry=registry)
    assert listening.port is None
    assert registry.get_sample_value("nsq_spark_sink_rows_total", {"query": ""}) is None
    listening.close()
    assert spark.conf.get(SETTING, "") == ""
    assert list(registry.collect()) == []


def test_a_port_in_use_and_a_missing_package_are_one_line(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server((HOST, 0)) as taken,
        pytest.raises(MonitoringError, match=r"cannot be served at .* already in use; choose another port"),
    ):
        listen(spark, port=taken.getsockname()[1], address=HOST)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MonitoringError, match=r"pip install 'pyspark-nsq\[monitoring\]'"):
        listen(spark, port=0)
    assert spark.conf.get(SETTING, "") == ""


def test_a_channel_has_the_lag_of_the_nsqds_and_of_the_spool(broker: NsqdProcess, tmp_path: Path) -> None:
    broker.create("t", "c")
    publish(broker, 0, 100)
    given = {"nsqdTcpAddresses": f"{HOST}:{broker.tcp_port}", "topic": "t", "channel": "c"}
    given |= {"nsqdHttpAddresses": f"{HOST}:{broker.http_port}", "maxSpoolRows": "40", "maxInFlightMessages": "40"}
    reader = ChannelStreamReader(ChannelOptions.parse(given | {"spoolPath": str(tmp_path / "spool")}))
    try:
        start = reader.initialOffset()
        wait_until(lambda: reader.reportLatestOffset()["seq"] == 40, "the spool is full", LONG)
        planned = reader.latestOffset(reader.latestOffset(start, ReadMaxRows(10)), reader.getDefaultReadLimit())
        assert planned["seq"] >= 40

        def figures() -> dict:
            return reader.reportLatestOffset()[KEY]

        left = 100 - planned["seq"]
        wait_until(lambda: figures()["lag"][0]["messages"] == left, "what is behind the micro-batch", LONG)
        lag = figures()["lag"][0]
        assert (lag["topic"], lag["channel"]) == ("t", "c")
        assert lag["seconds"] > 0
        assert (figures()["unanswered"], figures()["repeated"]) == (0, 0)
        broker.kill()
        wait_until(lambda: figures()["unanswered"] == 1, "the nsqd does not answer", LONG)
        assert figures()["lag"][0]["messages"] == reader.reportLatestOffset()["seq"] - planned["seq"]
    finally:
        reader.stop()


def test_without_http_addresses_only_the_spool_is_counted(broker: NsqdProcess, tmp_path: Path) -> None:
    broker.create("t", "c")
    publish(broker, 0, 5)
    given = {"nsqdTcpAddresses": f"{HOST}:{broker.tcp_port}", "topic": "t", "channel": "c", "maxRowsPerTrigger": "2"}
    reader = ChannelStreamReader(ChannelOptions.parse(given | {"spoolPath": str(tmp_path / "spool")}))
    try:
        reader.prepareForTriggerAvailableNow()
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        figures = reader.reportLatestOffset()[KEY]
    finally:
        reader.stop()
    assert figures["unanswered"] == 1
    assert figures["lag"][0]["messages"] == 3
    assert 0 < figures["lag"][0]["seconds"] < LONG


class Reported(HttpThread):
    """An nsqd that only has /stats, and an nsqlookupd that names it. Keeps the secrets that it was sent."""

    def __init__(self) -> None:
        self.secrets: list[str | None] = []
        self.stats: object = {"topics": [{"channels": [{"depth": 7}]}]}
        super().__init__(server := ReportedServer((HOST, 0), ReportedHandler))
        server.reported = self


class ReportedServer(ThreadingHTTPServer):
    reported: Reported
    daemon_threads = True


class ReportedHandler(BaseHTTPRequestHandler):
    server: ReportedServer

    def do_GET(self) -> None:
        if self.path.startswith("/lookup?"):
            named = {"broadcast_address": HOST, "tcp_port": 1, "http_port": self.server.server_port}
            answer: object = {"producers": [named]}
        else:
            self.server.reported.secrets.append(self.headers["Authorization"])
            answer = self.server.reported.stats
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def stats() -> Iterator[Reported]:
    with Reported() as reported:
        yield reported


def channel_lag(**given: str) -> ChannelLag:
    return ChannelLag(ChannelOptions.parse({"topic": "t", "channel": "c", "authSecret": "s3cret"} | given))


def test_nsqlookupds_name_the_nsqds_and_other_nsqds_tell_no_age(stats: Reported) -> None:
    lag = channel_lag(lookupdHttpAddresses=stats.address)
    found = lag.report({}, spooled=3, oldest_ns=None, repeated=2)[KEY]
    assert found == {
        "lag": [{"topic": "t", "channel": "c", "messages": 10, "seconds": None}],
        "unanswered": 0,
        "repeated": 2,
    }
    assert stats.secrets == ["Bearer s3cret"]


def test_a_secret_for_connections_with_tls_is_not_sent_in_the_clear(stats: Reported) -> None:
    assert channel_lag(lookupdHttpAddresses=stats.address, tls="true").report({}, 0, None, 0)[KEY]["unanswered"] == 0
    assert stats.secrets == [None]


@pytest.mark.parametrize("stats_document", [{"topics": [{"channels": [{}]}]}, [], {"topics": 7}])
def test_an_answer_that_makes_no_sense_is_none(stats: Reported, stats_document: object) -> None:
    stats.stats = stats_document
    lag = channel_lag(nsqdTcpAddresses=f"{HOST}:1", nsqdHttpAddresses=stats.address)
    found = lag.report({}, 0, None, 0)[KEY]
    assert (found["unanswered"], found["lag"][0]["messages"], found["lag"][0]["seconds"]) == (1, 0, 0.0)


def answered(value: Behind | ReadError) -> Future[Behind]:
    future: Future[Behind] = Future()
    if isinstance(value, ReadError):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


def test_offsets_of_several_topics_and_an_nsqd_that_fails() -> None:
    known = {("t", "http://a"): Behind(3, 2000, 15), ("u", "http://a"): Behind(1, 500, 8)}
    lag = LogLag("", lambda *asked: answered(known.get(asked[:2], ReadError("down"))))
    planned = {"t": {"http://a": 10, "http://b": 20}, "u": {"http://a": 7}}
    found = lag.report(planned, retried=4)
    assert found.pop(KEY) == {
        "lag": [
            {"topic": "t", "channel": "", "messages": 3, "seconds": 2.0},
            {"topic": "u", "channel": "", "messages": 1, "seconds": 0.5},
        ],
        "unanswered": 1,
        "retried": 4,
    }
    assert found == {"t": {"http://a": 15, "http://b": 20}, "u": {"http://a": 8}}


def test_an_nsqd_that_hangs_is_asked_once_and_answers_too_late() -> None:
    now, asked = 0.0, []
    hanging: Future[int] = Future()

    def ask(name: str) -> Future[int]:
        asked.append(name)
        if name == "slow" and len(asked) < 3:
            return hanging
        future: Future[int] = Future()
        future.set_result(len(asked))
        return future

    answers: Answers[str, int] = Answers(lambda: now, patience=0.001)
    questions = {"fast": 0, "slow": 0}
    assert answers.get(questions, ask) == {"fast": 1}
    assert answers.get(questions, ask) == {"fast": 1}
    assert asked == ["fast", "slow"], "the same question within a second"
    now = 1.0
    assert answers.get(questions, ask) == {"fast": 3}
    hanging.set_result(99)
    now = 2.0
    assert answers.get(questions, ask) == {"fast": 4}, "what was asked before is no answer"
    now = 3.0
    assert answers.get(questions, ask) == {"fast": 5, "slow": 6}


@pytest.mark.parametrize(
    ("text", "spark_class", "found"),
    [
        ("x\npyspark_nsq.errors.ReadError: http://a: refused\n at org.apache", "STREAM_FAILED", "ReadError"),
        ("ValueError: x", "PYTHON_EXCEPTION", "PYTHON_EXCEPTION"),
        ("java.lang.Error", None, "unknown"),
    ],
)
def test_the_class_of_a_failure(text: str, spark_class: str | None, found: str) -> None:
    assert error_class(text, spark_class) == found


@pytest.mark.parametrize("text", ["None", "7", '{"a": 1}', json.dumps({KEY: 1}), "{"])
def test_other_sources_have_no_figures(text: str) -> None:
    assert figures_of(text) is None


def test_the_page_in_the_docs_is_up_to_date() -> None:
    """Brought up to date by: python -m contrib.monitoring.spark_page"""
    assert spark_page.page() == spark_page.PAGE.read_text("utf-8")
