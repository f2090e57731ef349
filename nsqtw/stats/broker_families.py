"""
Metrics of a broker, of its topics and of its channels, as Prometheus gets them: one row each.

Adding a metric is adding a row; docs/reference/metrics.md is made from the tables (`nsqtw.tools.documentation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter

import attrs

from nsqtw.backends.files import Files
from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.oldest import OldestMessages
from nsqtw.core.policy.priority import CLASSES
from nsqtw.core.topic import Topic
from nsqtw.stats.daemon_families import DaemonView
from nsqtw.stats.families import COUNTER, GAUGE, HISTOGRAM, Family
from nsqtw.stats.http_consumers import HttpConsumers
from nsqtw.stats.metrics import rate_limited_seconds, redrive_left


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


@attrs.frozen
class ChannelView:
    """A channel, and the age of its oldest waiting message in seconds: 0 when none waits."""

    channel: Channel
    age: float


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


def _class_depths(view: ChannelView) -> Mapping[str, int] | None:
    """Return the depth of each class; None where it is not known."""
    depths = view.channel.class_depths
    return None if depths is None else dict(zip(CLASSES, depths, strict=True))


_TOPIC = ("topic",)
_CHANNEL = ("topic", "channel")

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

TOPIC_FAMILIES: tuple[Family[Topic], ...] = (
    Family("nsq_topic_messages_total", COUNTER, "Messages published to a topic.", attrgetter("message_count"), _TOPIC),
    Family(
        "nsq_topic_bytes_total",
        COUNTER,
        "Bytes of the bodies of messages published to a topic.",
        attrgetter("message_bytes"),
        _TOPIC,
    ),
    Family(
        "nsq_topic_rejected_total",
        COUNTER,
        "Publishes that were refused because a channel had reached a bound of its policy.",
        attrgetter("rejected_count"),
        _TOPIC,
    ),
    Family(
        "nsq_topic_deduplicated_total",
        COUNTER,
        "Messages that repeated the publisher's id of another one and were not stored.",
        lambda topic: topic.deduplicated_count or 0,
        _TOPIC,
    ),
    Family(
        "nsq_topic_cancelled_total",
        COUNTER,
        "Deferred messages that were cancelled before their time, in one channel or in all.",
        attrgetter("cancelled_count"),
        _TOPIC,
    ),
    Family("nsq_topic_depth", GAUGE, "Messages that no channel was given yet.", attrgetter("shown_depth"), _TOPIC),
    Family(
        "nsq_e2e_latency_seconds",
        HISTOGRAM,
        "Time from publish to FIN, of all channels of a topic; with --e2e-processing-latency-percentile only.",
        attrgetter("latency_histogram"),
        _TOPIC,
    ),
)

CHANNEL_FAMILIES: tuple[Family[ChannelView], ...] = (
    Family(
        "nsq_channel_depth", GAUGE, "Messages that wait for a consumer.", attrgetter("channel.shown_depth"), _CHANNEL
    ),
    Family(
        "nsq_channel_in_flight",
        GAUGE,
        "Messages that consumers have and have not answered.",
        attrgetter("channel.in_flight_count"),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_deferred",
        GAUGE,
        "Messages that wait for their time.",
        attrgetter("channel.shown_deferred_count"),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_clients",
        GAUGE,
        "Number of consumers of a channel.",
        lambda view: len(view.channel.consumers),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_oldest_message_age_seconds",
        GAUGE,
        "Age of the oldest message that waits for a consumer, since its publish; 0 when none waits.",
        attrgetter("age"),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_paused",
        GAUGE,
        "1 while the channel is paused, else 0.",
        lambda view: int(view.channel.paused),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_finished_total",
        COUNTER,
        "Messages that consumers have finished.",
        attrgetter("channel.finish_count"),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_requeued_total",
        COUNTER,
        "Messages that consumers have requeued.",
        attrgetter("channel.requeue_count"),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_timed_out_total",
        COUNTER,
        "Deliveries that were not answered in time.",
        attrgetter("channel.timeout_count"),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_dead_lettered_total",
        COUNTER,
        "Messages that were moved to the dead-letter topic.",
        attrgetter("channel.dead_letter_count"),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_expired_total",
        COUNTER,
        "Messages that were not delivered because their time to live had ended.",
        attrgetter("channel.expired_count"),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_set_aside",
        GAUGE,
        "Messages that wait for an earlier one of their key, in a channel that orders by key only.",
        lambda view: None if view.channel.ordered is None else view.channel.ordered.set_aside_count,
        _CHANNEL,
    ),
    Family(
        "nsq_channel_class_depth",
        GAUGE,
        "Messages of nsq_channel_depth that were never delivered, by priority; in a channel with priorities only.",
        _class_depths,
        (*_CHANNEL, "class"),
    ),
    Family(
        "nsq_channel_rate_limited_seconds_total",
        COUNTER,
        "Seconds for which messages waited for max_rate while consumers were ready; in a channel with a max_rate only.",
        lambda view: rate_limited_seconds(view.channel),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_redrive_left",
        GAUGE,
        "Dead letters that a redrive to the channel still has to look at; only after a redrive began.",
        lambda view: redrive_left(view.channel),
        _CHANNEL,
    ),
    Family(
        "nsq_channel_dropped_total",
        COUNTER,
        "Messages that an ephemeral channel had no room for, or that a bound dropped.",
        attrgetter("channel.dropped_count"),
        _CHANNEL,
    ),
)
