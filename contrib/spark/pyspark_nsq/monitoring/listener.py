"""A listener of Spark's streaming queries that shows their figures to Prometheus.

Progress and ends of the queries of its session come from Spark, the figures of their sinks from `receiver`. Queries
that run when the listener starts are known from their next progress on; their sinks are not. Spark calls the listener
in a thread of its own, and logs an error of the listener in the driver's log, without failing a query.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_nsq.errors import MonitoringError
from pyspark_nsq.monitoring.figures import figures_of
from pyspark_nsq.monitoring.metrics import BY_KEY, COUNTER, LAG, METRICS, PROGRESS, QUERY, SINK, SOURCE, SUMMARY, Values
from pyspark_nsq.monitoring.receiver import SETTING, Receiver
from pyspark_nsq.options.addresses import join_host_port

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

PORT = 9464
"""Where OpenTelemetry's exporter for Prometheus listens, too."""

_MS = 1000
_OUR_ERROR = re.compile(r"\bpyspark_nsq\.errors\.(\w+)")


class NsqListener(StreamingQueryListener):
    """Keeps the values of the metrics. A collector of prometheus_client: ``registry.register(listener)``."""

    def __init__(self) -> None:
        self.values = Values()
        self.port: int | None = None
        """Where the metrics are served, if they are."""
        self._receiver = Receiver()
        self._names: dict[str, str] = {}
        self._seen: dict[tuple[str, str], float] = {}
        """The last value of each figure of a source, by the run of the query: a run starts at 0."""
        self._stop: list[Any] = []

    # -- Spark's events

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        query = self._name(event.id, event.name)
        self.values.remove(QUERY, query)
        self.values.set(QUERY, "active", 1, query)
        self.values.set(QUERY, "last_progress", time.time(), query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = self._name(progress.id, progress.name)
        self.values.set(QUERY, "active", 1, query)
        self.values.set(QUERY, "last_progress", time.time(), query)
        for metric in METRICS:
            if metric.origin == PROGRESS:
                value = getattr(progress, metric.key)
                if value is None:  # Spark Connect omits values that are not numbers
                    continue
                if metric.kind == SUMMARY:
                    self.values.add(PROGRESS, metric.key, value / _MS, query)
                elif metric.kind == COUNTER:
                    self.values.add(PROGRESS, metric.key, value, query)
                else:
                    self.values.set(PROGRESS, metric.key, value, query)
        self.values.remove(LAG, query)
        self.values.remove(SOURCE, query)
        found = [figures_of(source.latestOffset) for source in progress.sources]
        sources = [figures for figures in found if figures is not None]
        for lag in (lag for figures in sources for lag in figures["lag"]):
            for key in ("messages", "seconds"):
                if lag[key] is not None:
                    self.values.set(LAG, key, lag[key], query, lag["topic"], lag["channel"])
        for key in {key for figures in sources for key in figures if (SOURCE, key) in BY_KEY}:
            self._take(key, sum(figures.get(key, 0) for figures in sources), query, str(progress.runId))
        self._drain()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self.values.set(QUERY, "last_progress", time.time(), self._name(event.id, None))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        query = self._name(event.id, None)
        self._drain()
        for origin in (PROGRESS, LAG, SOURCE):
            self.values.remove(origin, query)
        self.values.set(QUERY, "active", 0, query)
        if event.exception is not None:
            self.values.set(QUERY, "failed", 1, query, error_class(event.exception, event.errorClassOnException))
        for key in [key for key in self._seen if key[1] == str(event.runId)]:
            del self._seen[key]

    # -- Prometheus

    def collect(self) -> Iterator[Family]:
        """Return the metrics, for the registry of prometheus_client."""
        self._drain()
        return self.values.collect()

    def close(self) -> None:
        """Stop listening to queries, and end the HTTP server of `listen`."""
        while self._stop:
            self._stop.pop()()
        self._receiver.close()

    # -- inside

    def _name(self, number: object, name: str | None) -> str:
        """Return the label of a query: its name, or otherwise its id."""
        known = self._names.get(str(number))
        if known is None:
            known = self._names[str(number)] = name or str(number)
        return known

    def _take(self, key: str, value: float, query: str, run: str) -> None:
        """Store a figure of a source: a gauge, or a count since the run began."""
        if BY_KEY[SOURCE, key].kind != COUNTER:
            self.values.set(SOURCE, key, value, query)
            return
        before = self._seen.get((key, run), 0)
        self._seen[key, run] = value
        self.values.add(SOURCE, key, max(0, value - before), query)

    def _drain(self) -> None:
        for report in self._receiver.reports():
            query = self._name(report.query, None) if report.query else ""
            for key, value in report.figures.items():
                self.values.add(SINK, key, value, query)
            if report.event == "failed":
                self.values.add(SINK, "failed", 1, query)

    def _attach(self, spark: SparkSession) -> None:
        spark.conf.set(SETTING, self._receiver.address)
        spark.streams.addListener(self)
        self._stop += [lambda: spark.conf.unset(SETTING), lambda: spark.streams.removeListener(self)]

    def _serve(self, port: int, address: str) -> None:
        client = _prometheus_client()
        registry = client.CollectorRegistry()
        registry.register(self)
        try:
            server, thread = client.start_http_server(port, address, registry)
        except OSError as error:
            raise MonitoringError(
                f"the metrics cannot be served at {join_host_port(address, port)}: {error.strerror or error}; "
                "choose another port"
            ) from None
        self.port = server.server_port

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop.append(stop)


def listen(
    spark: SparkSession, port: int | None = PORT, address: str = "0.0.0.0", registry: CollectorRegistry | None = None
) -> NsqListener:
    """Serve the figures of the streaming queries of `spark` that start from now on.

    They are served at ``http://address:port/metrics``, or put into `registry` when one is given. `port` 0 takes a free
    port, which is `port` of the listener.

    Raises MonitoringError when prometheus_client is missing, or the port is in use.
    """
    _prometheus_client()
    listener = NsqListener()
    try:
        if registry is not None:
            registry.register(listener)
            listener._stop.append(lambda: registry.unregister(listener))
        else:
            listener._serve(PORT if port is None else port, address)
        listener._attach(spark)
    except BaseException:
        listener.close()
        raise
    return listener


def error_class(text: str, spark_class: str | None) -> str:
    """Return the class of an error of the connector in the text of a failed query, or else Spark's condition."""
    ours = _OUR_ERROR.findall(text)
    return ours[-1] if ours else spark_class or "unknown"


def _prometheus_client() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise MonitoringError(
            "metrics need the package prometheus_client: pip install 'pyspark-nsq[monitoring]', or prometheus_client"
        ) from None
    return prometheus_client
