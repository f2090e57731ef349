"""
One scrape of a broker, in steps between which other clients are served.

    walk over topics and channels, one a step ─▶ values by family ─▶ text, SAMPLES_AT_ONCE samples a step

Theory of operation. The text needs all samples of a family together, and a walk finds all families of one channel
together, so the values are kept until the walk has ended. `--metrics-max-series` bounds them: topics in the order of
their names, each followed by its channels, get their series until the next one would exceed the bound. What is left out
is counted. A bound keeps out the same names in each scrape, so no series comes and goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from operator import attrgetter
from typing import Any

from nsqtw.core.histogram import Histogram
from nsqtw.core.topic import Topic
from nsqtw.stats.broker_families import BROKER_FAMILIES, BrokerTotals, BrokerView
from nsqtw.stats.exposition import DaemonMetrics, Exposition
from nsqtw.stats.families import Families, Family, Number, Samples
from nsqtw.stats.metrics import CHANNEL_METRICS, TOPIC_METRICS, ChannelView


class BrokerMetrics(DaemonMetrics):
    """The metrics of the broker of `view`."""

    def __init__(self, view: BrokerView) -> None:
        super().__init__(view)
        self._broker_view = view

    def own_pieces(self, exposition: Exposition) -> Iterator[bytes]:
        """DaemonMetrics API. The steps of the walk are empty pieces."""
        walk = _Walk(self._broker_view)
        for _ in walk.steps():
            yield b""
        yield from exposition.pieces((family, family.samples(walk.totals)) for family in BROKER_FAMILIES)
        yield from exposition.pieces(walk.collected.items())


class _Walk:
    """The values of all topics and channels that fit into the bound."""

    def __init__(self, view: BrokerView) -> None:
        options = view.broker.options
        self.totals = BrokerTotals(view)
        families: Families = [*TOPIC_METRICS.families, *CHANNEL_METRICS.families]
        self.collected = {family: Samples() for family in families}
        self._view = view
        self._ages = view.oldest.ages(inf)  # a read of the backend is a step of its own here
        self._has_topics: bool = options.metrics_topics
        self._has_channels: bool = options.metrics_topics and options.metrics_channels
        self._series_left: float = options.metrics_max_series or inf

    def steps(self) -> Iterator[None]:
        """Walk; at most a topic or a channel in a step."""
        for topic in sorted(self._view.broker.topics.values(), key=attrgetter("name")):
            if topic.exiting:
                continue
            if not topic.log.is_in_memory:
                self.totals.stored_bytes += topic.log.queue.size
            if self._has_topics:
                yield from self._topic(topic)
            yield

    def _topic(self, topic: Topic) -> Iterator[None]:
        if not self._add(TOPIC_METRICS.families, topic, (topic.name,)):
            self.totals.omitted_topics += 1
        if not self._has_channels:
            return
        now = self._view.now()
        for channel in sorted(topic.channels.values(), key=attrgetter("name")):
            if channel.exiting:
                continue
            if self._series_left < len(CHANNEL_METRICS.families):
                self._series_left = 0
                self.totals.omitted_channels += 1
                continue
            view = ChannelView(channel, self._ages.age(channel, now) or 0.0)
            self._add(CHANNEL_METRICS.families, view, (topic.name, channel.name))
            yield

    def _add(self, families: Families, source: object, labels: tuple[str, ...]) -> bool:
        """Add the samples of a topic or channel, all or none. Returns whether they fitted."""
        values: list[tuple[Family[Any], tuple[str, ...], Number]] = []
        for family in families:
            value = family.value(source)
            if isinstance(value, Mapping):  # of the last label
                values += [(family, (*labels, key), number) for key, number in value.items()]
            elif value is not None:
                values.append((family, labels, value))
        size = sum(len(value.counts) + 2 if isinstance(value, Histogram) else 1 for _, _, value in values)
        if size > self._series_left:
            self._series_left = 0
            return False
        self._series_left -= size
        for family, labels, number in values:
            self.collected[family].add(labels, number)
        return True
