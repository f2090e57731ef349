"""
Statistics of topics, channels and the process: one declaration for each.

/stats as JSON and as text, and the lines for statsd are made from these tables. The order of a table is that of the
keys in JSON. Statsd gets the counts of messages first, the text has them last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

from attrs import frozen

from nsqtw.core.channel import Channel
from nsqtw.core.damage import DamageCounts
from nsqtw.core.policy.priority import CLASSES
from nsqtw.core.topic import Topic

COUNTER, GAUGE = "c", "g"

Source = TypeVar("Source")


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

    @property
    def statsd_name(self) -> str:
        return self.statsd or self.name

    def text(self, numbers: Mapping[str, Any]) -> str:
        """Return the column of the text, empty when the number is left out."""
        return f" {self.label}: {numbers[self.name]:<{self.width}}" if self.name in numbers else ""


def numbers_of(metrics: Iterable[Metric[Source]], source: Source) -> dict[str, int]:
    """Return the numbers of a topic or channel by their names."""
    return {metric.name: value for metric in metrics if (value := metric.value(source)) is not None}


def in_statsd_order(metrics: Iterable[Metric[Any]]) -> tuple[Metric[Any], ...]:
    """Return the metrics that statsd gets, the counts of messages first."""
    pushed = (metric for metric in metrics if metric.is_pushed)
    return tuple(sorted(pushed, key=lambda metric: not metric.name.startswith("message_")))


def columns(metrics: Iterable[Metric[Any]], numbers: Mapping[str, Any], *, are_extra: bool) -> str:
    """Return the columns of the text before the latencies, or those behind it, with the counts of messages last."""
    chosen = [metric for metric in metrics if metric.label and metric.is_extra == are_extra]
    return "".join(
        metric.text(numbers) for metric in sorted(chosen, key=lambda metric: metric.name.startswith("message_"))
    )


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


def rate_limited_seconds(channel: Channel) -> float | None:
    """Return for how long messages of a channel waited for its `max_rate`, None without one."""
    return None if channel.rate_limit is None else channel.rate_limit.waited_seconds


def _rate_limited_ms(channel: Channel) -> int | None:
    seconds = rate_limited_seconds(channel)
    return None if seconds is None else round(seconds * 1000)


def _class_depth(number: int) -> Callable[[Channel], int | None]:
    """Return the value of the depth of a class, None where it is not known."""

    def value(channel: Channel) -> int | None:
        depths = channel.class_depths
        return None if depths is None else depths[number]

    return value


TOPIC_METRICS: tuple[Metric[Topic], ...] = (
    Metric("depth", GAUGE, attrgetter("shown_depth"), label="depth", width=5),
    Metric("backend_depth", GAUGE, attrgetter("shown_backend_depth"), label="be-depth", width=5),
    Metric("message_count", COUNTER, attrgetter("message_count"), label="msgs", width=8),
    Metric("message_bytes", COUNTER, attrgetter("message_bytes")),
    Metric(
        "rejected_count",
        COUNTER,
        lambda topic: None if topic.bounds is None else topic.rejected_count,
        label="rejected",
        is_extra=True,
    ),
    Metric("lost_count", COUNTER, _damage(attrgetter("lost")), label="lost", is_extra=True),
    Metric("damaged_count", COUNTER, _damage(attrgetter("damaged")), label="damaged", is_extra=True),
    Metric("set_aside_count", COUNTER, _damage(attrgetter("set_aside")), label="set-aside", is_extra=True),
    Metric("cancelled_count", COUNTER, _positive("cancelled_count"), label="cancelled", is_extra=True),
    Metric("deduplicated_count", COUNTER, attrgetter("deduplicated_count"), label="dedup", is_extra=True),
)
CHANNEL_METRICS: tuple[Metric[Channel], ...] = (
    Metric("depth", GAUGE, attrgetter("shown_depth"), label="depth", width=5),
    Metric("backend_depth", GAUGE, attrgetter("shown_backend_depth"), label="be-depth", width=5),
    Metric("in_flight_count", GAUGE, attrgetter("in_flight_count"), label="inflt", width=4),
    Metric("deferred_count", GAUGE, attrgetter("shown_deferred_count"), label="def", width=4),
    Metric("message_count", COUNTER, attrgetter("message_count"), label="msgs", width=8),
    Metric("zone_local_msg_count", COUNTER, _positive("zone_local_msg_count"), is_pushed=False),
    Metric("region_local_msg_count", COUNTER, _positive("region_local_msg_count"), is_pushed=False),
    Metric("global_msg_count", COUNTER, _positive("global_msg_count"), is_pushed=False),
    Metric("dropped_count", COUNTER, _dropped, label="dropped", is_extra=True),
    Metric("held_count", GAUGE, _positive("held_count"), label="held", is_extra=True, is_pushed=False),
    Metric("dead_letter_count", COUNTER, _positive("dead_letter_count"), label="dead", is_extra=True),
    Metric("expired_count", COUNTER, _positive("expired_count"), label="expired", is_extra=True),
    Metric("rate_limited_ms", COUNTER, _rate_limited_ms, label="rate-limited-ms", is_extra=True),
    Metric("redrive_left", GAUGE, redrive_left, label="redrive-left", is_extra=True),
    *(
        Metric(f"{name}_depth", GAUGE, _class_depth(number), label=f"{name}-depth", is_extra=True)
        for name, number in CLASSES.items()
    ),
    Metric("requeue_count", COUNTER, attrgetter("requeue_count"), label="re-q", width=5),
    Metric("timeout_count", COUNTER, attrgetter("timeout_count"), label="timeout", width=5),
    Metric("client_count", GAUGE, lambda channel: len(channel.consumers), statsd="clients"),
)
_MEMORY_GAUGES = (
    *("heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes"),
    *("gc_pause_usec_100", "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes"),
)
MEMORY_METRICS: tuple[Metric[Any], ...] = (
    *(Metric(name, GAUGE, itemgetter(name)) for name in _MEMORY_GAUGES),
    Metric("gc_total_runs", COUNTER, itemgetter("gc_total_runs"), statsd="gc_runs"),
)
