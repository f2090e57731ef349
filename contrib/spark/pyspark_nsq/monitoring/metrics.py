"""The metrics of streaming queries, and their values. A metric is one entry of `METRICS`.

Values are kept without prometheus_client, which reads them with `Values.collect`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

GAUGE, COUNTER, SUMMARY = "gauge", "counter", "summary"

QUERY = "the state of the query"
PROGRESS = "Spark's StreamingQueryProgress"
SOURCE = "the source, in latestOffset of the progress"
LAG = "the lag of the source, in latestOffset of the progress"
SINK = "the commit messages of the sink"


@dataclass(frozen=True)
class Metric:
    """A metric. `origin` is the source of its value, and `key` the name of the value there."""

    name: str
    kind: str
    help: str
    origin: str
    key: str
    labels: tuple[str, ...] = ("query",)


METRICS = (
    Metric("nsq_spark_query_active", GAUGE, "1 while the query runs, 0 when it has ended.", QUERY, "active"),
    Metric(
        "nsq_spark_query_failed",
        GAUGE,
        "1 from the end of a query with an error until its next start; the label is the class of the error.",
        QUERY,
        "failed",
        ("query", "error"),
    ),
    Metric(
        "nsq_spark_last_progress_timestamp_seconds",
        GAUGE,
        "Unix time at which the query last finished a micro-batch, or reported that it is idle.",
        QUERY,
        "last_progress",
    ),
    Metric(
        "nsq_spark_batch_duration_seconds",
        SUMMARY,
        "Duration of micro-batches, from planning to the commit; the count is the number of micro-batches.",
        PROGRESS,
        "batchDuration",
    ),
    Metric("nsq_spark_input_rows_total", COUNTER, "Rows read by all sources of the query.", PROGRESS, "numInputRows"),
    Metric(
        "nsq_spark_input_rows_per_second",
        GAUGE,
        "Rows per second that arrived before the last micro-batch.",
        PROGRESS,
        "inputRowsPerSecond",
    ),
    Metric(
        "nsq_spark_processed_rows_per_second",
        GAUGE,
        "Rows per second that the last micro-batch processed.",
        PROGRESS,
        "processedRowsPerSecond",
    ),
    Metric(
        "nsq_spark_lag_messages",
        GAUGE,
        "Messages that are not read after the last micro-batch; channel is empty for a log.",
        LAG,
        "messages",
        ("query", "topic", "channel"),
    ),
    Metric(
        "nsq_spark_lag_seconds",
        GAUGE,
        "Age of the oldest of these messages, 0 without one. Absent when no nsqd reports it.",
        LAG,
        "seconds",
        ("query", "topic", "channel"),
    ),
    Metric(
        "nsq_spark_lag_unanswered",
        GAUGE,
        "Nsqds that did not report their messages, which the lag does not include.",
        SOURCE,
        "unanswered",
    ),
    Metric(
        "nsq_spark_repeats_dropped_total",
        COUNTER,
        "Messages that nsqd delivered again, and that a stream from a channel dropped.",
        SOURCE,
        "repeated",
    ),
    Metric(
        "nsq_spark_read_retries_total",
        COUNTER,
        "Requests for a log that the driver repeated. Those of the tasks are not counted.",
        SOURCE,
        "retried",
    ),
    Metric("nsq_spark_sink_rows_total", COUNTER, "Rows that were published. query is empty for batches.", SINK, "rows"),
    Metric("nsq_spark_sink_requests_total", COUNTER, "Requests that published them.", SINK, "requests"),
    Metric("nsq_spark_sink_retries_total", COUNTER, "Requests of the sink that were repeated.", SINK, "retried"),
    Metric("nsq_spark_sink_bytes_total", COUNTER, "Bytes of the bodies of these requests.", SINK, "bytes"),
    Metric(
        "nsq_spark_sink_waited_milliseconds_total",
        COUNTER,
        "Time that tasks waited for answers, with maxInFlight requests under way or no more rows to send.",
        SINK,
        "waitedMs",
    ),
    Metric(
        "nsq_spark_sink_failures_total",
        COUNTER,
        "Jobs and micro-batches that failed after they had published rows.",
        SINK,
        "failed",
    ),
)
BY_KEY: Mapping[tuple[str, str], Metric] = {(metric.origin, metric.key): metric for metric in METRICS}


class Values:
    """The values of the metrics, for Prometheus. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[Metric, tuple[str, ...]], float] = {}
        self._counts: dict[tuple[Metric, tuple[str, ...]], int] = {}

    def set(self, origin: str, key: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[BY_KEY[origin, key], labels] = value

    def add(self, origin: str, key: str, value: float, *labels: str) -> None:
        """Add to a counter, or one observation to a summary. A key that no metric has is ignored."""
        metric = BY_KEY.get((origin, key))
        if metric is not None:
            with self._lock:
                self._values[metric, labels] = self._values.get((metric, labels), 0) + value
                self._counts[metric, labels] = self._counts.get((metric, labels), 0) + 1

    def remove(self, origin: str, query: str) -> None:
        """Remove the gauges of a query that are from `origin`."""
        with self._lock:
            for metric, labels in list(self._values):
                if metric.origin == origin and metric.kind == GAUGE and labels[0] == query:
                    del self._values[metric, labels]

    def get(self, name: str, *labels: str) -> float | None:
        """Return the value of a metric; of a summary, the sum."""
        with self._lock:
            return next((v for (metric, at), v in self._values.items() if metric.name == name and at == labels), None)

    def collect(self) -> Iterator[Family]:
        """Return the families of metrics of a collector of prometheus_client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        with self._lock:
            values, counts = dict(self._values), dict(self._counts)
        for metric in METRICS:
            samples = [(labels, value) for (of, labels), value in values.items() if of is metric]
            if metric.kind == SUMMARY:
                summary = SummaryMetricFamily(metric.name, metric.help, labels=metric.labels)
                for labels, value in samples:
                    summary.add_metric(labels, counts[metric, labels], value)
                yield summary
                continue
            family = (GaugeMetricFamily if metric.kind == GAUGE else CounterMetricFamily)(
                metric.name, metric.help, labels=metric.labels
            )
            for labels, value in samples:
                family.add_metric(labels, value)
            yield family
