"""
Metrics of topics and channels, and statistics of the process: one declaration for each.

/stats as JSON and as text, the lines for statsd and the series for Prometheus are made from these tables. The order of
a table is that of the keys in JSON. Statsd gets the counts of messages first, the text has them last, and a scrape
follows the `rank` of the series. A `Family` beside the metrics is a series that is no number of /stats.

docs/reference/metrics.md is made from the series (`nsqtw.tools.documentation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attrs import frozen

from nsqtw.message_headers import PRIORITIES
from nsqtw.stats.families import COUNTER, GAUGE, HISTOGRAM, Family, Number

if TYPE_CHECKING:
    from nsqtw.core.channel import Channel
    from nsqtw.core.damage import DamageCounts
    from nsqtw.core.topic import Topic

Source = TypeVar("Source")


@frozen
class Series(Generic[Source]):
    """
    The series of Prometheus for a metric. Without a `value` it has the metric's, and 0 for a COUNTER that is left out.
    """

    name: str
    help: str
    rank: float
    value: Callable[[Source], Number | None] | None = None


@frozen
class Metric(Generic[Source]):
    """
    A number under the key `name` of /stats. A COUNTER only grows; a GAUGE goes up and down. One that `value` returns
    None for is left out.
    """

    name: str
    kind: str
    value: Callable[[Source], int | None]
    statsd: str = ""
    """Its statsd name, where it differs."""
    label: str = ""
    """Its name in the text of /stats; empty if it is not shown there."""
    width: int = 0
    """Columns of the number in the text."""
    is_pushed: bool = True
    """Whether it is sent to statsd."""
    is_extra: bool = False
    """It is no number of nsqd, and stands behind the latencies in the text."""
    series: Series[Source] | None = None

    @property
    def statsd_name(self) -> str:
        return self.statsd or self.name

    def text(self, numbers: Mapping[str, Any]) -> str:
        """Return the column of the text, empty when the number is left out."""
        return f" {self.label}: {numbers[self.name]:<{self.width}}" if self.name in numbers else ""

    def family(self, series: Series[Source], labels: tuple[str, ...], path: str) -> Family[Any]:
        """Return its series, for sources that have a topic or channel at the attribute `path`, or are one."""
        value = series.value or (self._counted if self.kind == COUNTER else self.value)
        source = attrgetter(path) if path else None
        of_view = value if source is None else lambda view: value(source(view))
        return Family(series.name, self.kind, series.help, of_view, labels, series.rank)

    def _counted(self, source: Source) -> int:
        return self.value(source) or 0


class Metrics(Generic[Source]):
    """A table of metrics, and their series in the order of a scrape, together with `others`."""

    def __init__(
        self,
        *metrics: Metric[Source],
        labels: tuple[str, ...] = (),
        path: str = "",
        others: Iterable[Family[Any]] = (),
    ) -> None:
        of_messages = [metric for metric in metrics if metric.name.startswith("message_")]
        rest = [metric for metric in metrics if metric not in of_messages]
        shown = [metric for metric in (*rest, *of_messages) if metric.label]
        series = [metric.family(metric.series, labels, path) for metric in metrics if metric.series is not None]
        self.all = metrics
        self.pushed = [metric for metric in (*of_messages, *rest) if metric.is_pushed]
        """Those that statsd gets, the counts of messages first."""
        self.columns = [metric for metric in shown if not metric.is_extra]
        """Those in the text of /stats before the latencies, the counts of messages last."""
        self.extra_columns = [metric for metric in shown if metric.is_extra]
        """Those in the text behind the latencies."""
        self.families = sorted((*series, *others), key=attrgetter("rank"))

    def numbers_of(self, source: Source) -> dict[str, int]:
        """Return the numbers of a topic or channel by their names."""
        return {metric.name: value for metric in self.all if (value := metric.value(source)) is not None}


@frozen
class ChannelView:
    """A channel, and the age of its oldest waiting message in seconds: 0 when none waits."""

    channel: Channel
    age: float


def _damage(count: Callable[[DamageCounts], int]) -> Callable[[Topic], int | None]:
    """Return the value of a count of damage, None for a topic that never had any."""

    def value(topic: Topic) -> int | None:
        damage = topic.context.damage.of_topic(topic.name)
        return None if damage is None else count(damage)

    return value


def _positive(name: str) -> Callable[[Topic | Channel], int | None]:
    """Return the value of an attribute, None for 0."""
    get = attrgetter(name)
    return lambda source: get(source) or None


def redrive_left(channel: Channel) -> int | None:
    """Return how many dead letters a redrive to a channel still has to look at, None where there never was one."""
    return None if channel.redrive_left is None else channel.redrive_left()


def _dropped(channel: Channel) -> int | None:
    """Return how many messages a channel dropped, None for 0 unless it has bounds."""
    count = channel.dropped_count
    return count if count or channel.bounds is not None else None


def _rate_limited_seconds(channel: Channel) -> float | None:
    """Return for how long messages of a channel waited for its `max_rate`, None without one."""
    return None if channel.rate_limit is None else channel.rate_limit.waited_seconds


def _rate_limited_ms(channel: Channel) -> int | None:
    seconds = _rate_limited_seconds(channel)
    return None if seconds is None else round(seconds * 1000)


def _class_depth(number: int) -> Callable[[Channel], int | None]:
    """Return the value of the depth of a class, None where it is not known."""

    def value(channel: Channel) -> int | None:
        depths = channel.class_depths
        return None if depths is None else depths[number]

    return value


def _class_depths(view: ChannelView) -> Mapping[str, int] | None:
    """Return the depth of each class; None where it is not known."""
    depths = view.channel.class_depths
    return None if depths is None else dict(zip(PRIORITIES, depths, strict=True))


_TOPIC = ("topic",)
_CHANNEL = ("topic", "channel")

TOPIC_METRICS: Metrics[Topic] = Metrics(
    Metric(
        "depth",
        GAUGE,
        attrgetter("shown_depth"),
        label="depth",
        width=5,
        series=Series("nsq_topic_depth", "Messages that no channel was given yet.", 6),
    ),
    Metric("backend_depth", GAUGE, attrgetter("shown_backend_depth"), label="be-depth", width=5),
    Metric(
        "message_count",
        COUNTER,
        attrgetter("message_count"),
        label="msgs",
        width=8,
        series=Series("nsq_topic_messages_total", "Messages published to a topic.", 1),
    ),
    Metric(
        "message_bytes",
        COUNTER,
        attrgetter("message_bytes"),
        series=Series("nsq_topic_bytes_total", "Bytes of the bodies of messages published to a topic.", 2),
    ),
    Metric(
        "rejected_count",
        COUNTER,
        lambda topic: None if topic.bounds is None else topic.rejected_count,
        label="rejected",
        is_extra=True,
        series=Series(
            "nsq_topic_rejected_total",
            "Publishes that were refused because a channel had reached a bound of its policy.",
            3,
            attrgetter("rejected_count"),
        ),
    ),
    Metric(
        "lost_count",
        COUNTER,
        _damage(attrgetter("lost")),
        label="lost",
        is_extra=True,
    ),
    Metric("damaged_count", COUNTER, _damage(attrgetter("damaged")), label="damaged", is_extra=True),
    Metric("set_aside_count", COUNTER, _damage(attrgetter("set_aside")), label="set-aside", is_extra=True),
    Metric(
        "cancelled_count",
        COUNTER,
        _positive("cancelled_count"),
        label="cancelled",
        is_extra=True,
        series=Series(
            "nsq_topic_cancelled_total",
            "Deferred messages that were cancelled before their time, in one channel or in all.",
            5,
        ),
    ),
    Metric(
        "deduplicated_count",
        COUNTER,
        attrgetter("deduplicated_count"),
        label="dedup",
        is_extra=True,
        series=Series(
            "nsq_topic_deduplicated_total",
            "Messages that repeated the publisher's id of another one and were not stored.",
            4,
        ),
    ),
    labels=_TOPIC,
    others=[
        Family(
            "nsq_e2e_latency_seconds",
            HISTOGRAM,
            "Time from publish to FIN, of all channels of a topic; with --e2e-processing-latency-percentile only.",
            attrgetter("latency_histogram"),
            _TOPIC,
            rank=7,
        ),
    ],
)
CHANNEL_METRICS: Metrics[Channel] = Metrics(
    Metric(
        "depth",
        GAUGE,
        attrgetter("shown_depth"),
        label="depth",
        width=5,
        series=Series("nsq_channel_depth", "Messages that wait for a consumer.", 1),
    ),
    Metric("backend_depth", GAUGE, attrgetter("shown_backend_depth"), label="be-depth", width=5),
    Metric(
        "in_flight_count",
        GAUGE,
        attrgetter("in_flight_count"),
        label="inflt",
        width=4,
        series=Series("nsq_channel_in_flight", "Messages that consumers have and have not answered.", 2),
    ),
    Metric(
        "deferred_count",
        GAUGE,
        attrgetter("shown_deferred_count"),
        label="def",
        width=4,
        series=Series("nsq_channel_deferred", "Messages that wait for their time.", 3),
    ),
    Metric("message_count", COUNTER, attrgetter("message_count"), label="msgs", width=8),
    Metric("zone_local_msg_count", COUNTER, _positive("zone_local_msg_count"), is_pushed=False),
    Metric("region_local_msg_count", COUNTER, _positive("region_local_msg_count"), is_pushed=False),
    Metric("global_msg_count", COUNTER, _positive("global_msg_count"), is_pushed=False),
    Metric(
        "dropped_count",
        COUNTER,
        _dropped,
        label="dropped",
        is_extra=True,
        series=Series(
            "nsq_channel_dropped_total",
            "Messages that an ephemeral channel had no room for, or that a bound dropped.",
            16,
        ),
    ),
    Metric("held_count", GAUGE, _positive("held_count"), label="held", is_extra=True, is_pushed=False),
    Metric(
        "dead_letter_count",
        COUNTER,
        _positive("dead_letter_count"),
        label="dead",
        is_extra=True,
        series=Series("nsq_channel_dead_lettered_total", "Messages that were moved to the dead-letter topic.", 10),
    ),
    Metric(
        "expired_count",
        COUNTER,
        _positive("expired_count"),
        label="expired",
        is_extra=True,
        series=Series(
            "nsq_channel_expired_total", "Messages that were not delivered because their time to live had ended.", 11
        ),
    ),
    Metric(
        "rate_limited_ms",
        COUNTER,
        _rate_limited_ms,
        label="rate-limited-ms",
        is_extra=True,
        series=Series(
            "nsq_channel_rate_limited_seconds_total",
            "Seconds for which messages waited for max_rate while consumers were ready; in a channel with a max_rate "
            "only.",
            14,
            _rate_limited_seconds,
        ),
    ),
    Metric(
        "redrive_left",
        GAUGE,
        redrive_left,
        label="redrive-left",
        is_extra=True,
        series=Series(
            "nsq_channel_redrive_left",
            "Dead letters that a redrive to the channel still has to look at; only after a redrive began.",
            15,
        ),
    ),
    *(
        Metric(f"{name}_depth", GAUGE, _class_depth(number), label=f"{name}-depth", is_extra=True)
        for number, name in enumerate(PRIORITIES)
    ),
    Metric(
        "requeue_count",
        COUNTER,
        attrgetter("requeue_count"),
        label="re-q",
        width=5,
        series=Series("nsq_channel_requeued_total", "Messages that consumers have requeued.", 8),
    ),
    Metric(
        "timeout_count",
        COUNTER,
        attrgetter("timeout_count"),
        label="timeout",
        width=5,
        series=Series("nsq_channel_timed_out_total", "Deliveries that were not answered in time.", 9),
    ),
    Metric(
        "client_count",
        GAUGE,
        lambda channel: len(channel.consumers),
        statsd="clients",
        series=Series("nsq_channel_clients", "Number of consumers of a channel.", 4),
    ),
    labels=_CHANNEL,
    path="channel",
    others=[
        Family(
            "nsq_channel_oldest_message_age_seconds",
            GAUGE,
            "Age of the oldest message that waits for a consumer, since its publish; 0 when none waits.",
            attrgetter("age"),
            _CHANNEL,
            rank=5,
        ),
        Family(
            "nsq_channel_paused",
            GAUGE,
            "1 while the channel is paused, else 0.",
            lambda view: int(view.channel.paused),
            _CHANNEL,
            rank=6,
        ),
        Family(
            "nsq_channel_finished_total",
            COUNTER,
            "Messages that consumers have finished.",
            attrgetter("channel.finish_count"),
            _CHANNEL,
            rank=7,
        ),
        Family(
            "nsq_channel_set_aside",
            GAUGE,
            "Messages that wait for an earlier one of their key, in a channel that orders by key only.",
            lambda view: None if view.channel.ordered is None else view.channel.ordered.set_aside_count,
            _CHANNEL,
            rank=12,
        ),
        Family(
            "nsq_channel_class_depth",
            GAUGE,
            "Messages of nsq_channel_depth that were never delivered, by priority; in a channel with priorities only.",
            _class_depths,
            (*_CHANNEL, "class"),
            rank=13,
        ),
    ],
)
_MEMORY_GAUGES = (
    *("heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes"),
    *("gc_pause_usec_100", "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes"),
)
MEMORY_METRICS: Metrics[Any] = Metrics(
    *(Metric(name, GAUGE, itemgetter(name)) for name in _MEMORY_GAUGES),
    Metric("gc_total_runs", COUNTER, itemgetter("gc_total_runs"), statsd="gc_runs"),
)
