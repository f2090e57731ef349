"""Rows of the lists of topics and channels: figures of the newest sample, and those of the last minutes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs

from nsqtw.admin.history import History, Points, Subject
from nsqtw.admin.pages.listing import Sorts
from nsqtw.admin.sampler import waiting
from nsqtw.cluster.model import ChannelStats, TopicStats


@attrs.frozen
class TopicRow:
    topic: TopicStats
    _history: History

    @property
    def _subject(self) -> Subject:
        return ("topic", self.topic.topic_name)

    @property
    def rate_in(self) -> float:
        """Messages published in a second."""
        return self._history.last(self._subject, "in")

    @property
    def recent(self) -> Points:
        """The rate of publishing in the last minutes."""
        return self._history.recent(self._subject, "in")

    @property
    def waiting(self) -> int:
        """Messages that wait in the topic and its channels."""
        return waiting(self.topic)

    @property
    def in_flight(self) -> int:
        """Messages in flight in all channels."""
        return sum(channel.in_flight_count for channel in self.topic.channels)

    @property
    def consumers(self) -> int:
        """Consumers of all channels."""
        return sum(channel.client_count for channel in self.topic.channels)


@attrs.frozen
class ChannelRow:
    channel: ChannelStats
    _history: History

    @property
    def _subject(self) -> Subject:
        return ("channel", self.channel.topic_name, self.channel.channel_name)

    @property
    def recent(self) -> Points:
        """Waiting messages in the last minutes."""
        return self._history.recent(self._subject, "depth")

    @property
    def out(self) -> float:
        """Messages finished in a second."""
        return self._history.last(self._subject, "out")

    @property
    def timeout(self) -> float:
        """Messages that timed out in a second."""
        return self._history.last(self._subject, "timeout")


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value


TOPIC_SORTS: Sorts[TopicRow] = {
    "name": lambda row: row.topic.topic_name,
    "in": lambda row: _known(row.rate_in),
    "depth": lambda row: row.waiting,
    "in_flight": lambda row: row.in_flight,
    "channels": lambda row: len(row.topic.channels),
    "consumers": lambda row: row.consumers,
    "messages": lambda row: row.topic.message_count,
}
CHANNEL_SORTS: Sorts[ChannelRow] = {
    "name": lambda row: channel_name(row),
    "depth": lambda row: row.channel.depth,
    "in_flight": lambda row: row.channel.in_flight_count,
    "deferred": lambda row: row.channel.deferred_count,
    "out": lambda row: _known(row.out),
    "timeout": lambda row: _known(row.timeout),
    "consumers": lambda row: row.channel.client_count,
}


def topic_rows(topics: Iterable[TopicStats], history: History) -> list[TopicRow]:
    return [TopicRow(topic, history) for topic in topics]


def channel_rows(topics: Iterable[TopicStats], history: History) -> list[ChannelRow]:
    return [ChannelRow(channel, history) for topic in topics for channel in topic.channels]


def topic_name(row: TopicRow) -> str:
    """Return the name that a filter looks into."""
    return row.topic.topic_name


def channel_name(row: ChannelRow) -> str:
    """Return the name that a filter looks into."""
    return f"{row.channel.topic_name}/{row.channel.channel_name}"
