"""
Metrics of a broker as Prometheus gets them: one row each. `nsqtw.stats.metrics` has those of its topics and channels.

docs/reference/metrics.md is made from the tables (`nsqtw.tools.documentation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from nsqtw.backends.files import Files
from nsqtw.core.broker import Broker
from nsqtw.core.oldest import OldestMessages
from nsqtw.stats.daemon_families import DaemonView
from nsqtw.stats.families import COUNTER, GAUGE, HISTOGRAM, Family
from nsqtw.stats.http_consumers import HttpConsumers


@attrs.frozen(kw_only=True)
class BrokerView(DaemonView):
    """A broker, as its metrics see it."""

    broker: Broker
    now: Callable[[], float]
    """The clock of the broker."""
    data_path: str
    lookupds: Callable[[], Mapping[str, bool]] = dict
    """Whether each nsqlookupd knows this broker, by its address."""
    oldest: OldestMessages = attrs.field(factory=OldestMessages)
    http_consumers: HttpConsumers = attrs.field(factory=HttpConsumers)


@attrs.define
class BrokerTotals:
    """A broker with what a walk over its topics and channels has counted."""

    view: BrokerView
    stored_bytes: int = 0
    omitted_topics: int = 0
    omitted_channels: int = 0

    @property
    def broker(self) -> Broker:
        return self.view.broker


def _free_bytes(totals: BrokerTotals) -> Mapping[str, int] | None:
    """Return the free bytes of the data path's file system; None if unknown."""
    space = _space(totals)
    return None if space is None else {totals.view.data_path: space[0]}


def _capacity_bytes(totals: BrokerTotals) -> Mapping[str, int] | None:
    """Return all bytes of the data path's file system; None if unknown."""
    space = _space(totals)
    return None if space is None else {totals.view.data_path: space[1]}


def _space(totals: BrokerTotals) -> tuple[int, int] | None:
    """Return the free bytes and all bytes of the data path's file system; None if unknown."""
    try:
        return Files().free_space(totals.view.data_path)
    except OSError:
        return None


BROKER_FAMILIES: tuple[Family[BrokerTotals], ...] = (
    Family("nsq_topics", GAUGE, "Number of topics.", lambda totals: len(totals.broker.topics)),
    Family(
        "nsq_channels", GAUGE, "Number of channels of all topics.", lambda totals: totals.broker.quotas.channel_count
    ),
    Family(
        "nsq_publish_ack_seconds",
        HISTOGRAM,
        "Time from the end of the event-loop turn that read a publish to its OK. "
        "Of the publishes of one topic in one group commit, that of the oldest.",
        lambda totals: totals.broker.publish_ack,
    ),
    Family(
        "nsq_fsync_seconds",
        HISTOGRAM,
        "Time of a commit to stable storage: the writes and fsyncs of one batch.",
        lambda totals: totals.broker.fsync,
    ),
    Family(
        "nsq_protocol_errors_total",
        COUNTER,
        "TCP commands that were refused, by the code of the error.",
        lambda totals: dict(totals.broker.protocol_errors),
        ("reason",),
    ),
    Family(
        "nsq_http_subscribers",
        GAUGE,
        "Consumers over HTTP, as --max-http-subscribers counts them, by kind: poll, events or websocket.",
        lambda totals: dict(totals.view.http_consumers.subscribers),
        ("kind",),
    ),
    Family(
        "nsq_http_delivered_total",
        COUNTER,
        "Messages that were sent to consumers over HTTP, by kind.",
        lambda totals: dict(totals.view.http_consumers.delivered),
        ("kind",),
    ),
    Family(
        "nsq_store_bytes",
        GAUGE,
        "Bytes of the messages kept, of all topics.",
        lambda totals: {totals.view.data_path: totals.stored_bytes},
        ("path",),
    ),
    Family(
        "nsq_store_free_bytes",
        GAUGE,
        "Bytes that may still be written to the file system of the data path.",
        _free_bytes,
        ("path",),
    ),
    Family(
        "nsq_store_capacity_bytes",
        GAUGE,
        "Bytes of the file system of the data path.",
        _capacity_bytes,
        ("path",),
    ),
    Family(
        "nsq_store_errors_total",
        COUNTER,
        "Failed attempts to store messages or positions.",
        lambda totals: {totals.view.data_path: totals.broker.health.error_count},
        ("path",),
    ),
    Family(
        "nsq_store_lost_messages_total",
        COUNTER,
        "Messages that damaged files have lost, of all topics.",
        lambda totals: {totals.view.data_path: totals.broker.damage.total().lost},
        ("path",),
    ),
    Family(
        "nsq_lookupd_up",
        GAUGE,
        "1 if this nsqd is registered with an nsqlookupd of its options, else 0.",
        lambda totals: {peer: int(is_up) for peer, is_up in totals.view.lookupds().items()},
        ("peer",),
    ),
    Family(
        "nsq_metrics_omitted",
        GAUGE,
        "Topics and channels without series in this scrape because of --metrics-max-series.",
        lambda totals: {"topic": totals.omitted_topics, "channel": totals.omitted_channels},
        ("kind",),
    ),
)
