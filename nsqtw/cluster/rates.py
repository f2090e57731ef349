"""
Rates of the topics and channels of nodes, from the counts of two samples.

Counts are compared for each node: a node that has restarted counts from 0 again, and one that does not answer has no
rate until it was seen twice. Outgoing are the messages that came in, without those that wait in addition, and without
those that left unfinished: dropped, expired and dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from nsqtw.cluster.model import ChannelStats, NodeStats
from nsqtw.options.settings import DEAD_LETTER

Subject = tuple[str, ...]
"""("topic", topic) or ("channel", topic, channel)."""


@attrs.frozen
class Rates:
    """Messages a second. The outgoing ones of a topic are those that it passes to its channels."""

    incoming: float = 0.0
    outgoing: float = 0.0
    requeued: float = 0.0
    timed_out: float = 0.0

    def __add__(self, other: Rates) -> Rates:
        return Rates(
            self.incoming + other.incoming,
            self.outgoing + other.outgoing,
            self.requeued + other.requeued,
            self.timed_out + other.timed_out,
        )


@attrs.frozen
class _Counts:
    """Counters, and the level `waiting`."""

    messages: int = 0
    requeued: int = 0
    timed_out: int = 0
    unfinished: int = 0
    """Messages that left without being finished by a consumer."""
    waiting: int = 0

    @classmethod
    def of_channel(cls, channel: ChannelStats) -> _Counts:
        return cls(
            channel.message_count,
            channel.requeue_count,
            channel.timeout_count,
            _unfinished(channel),
            channel.depth + channel.in_flight_count + channel.deferred_count,
        )


class RateMeter:
    """Rates since the sample before, for each node."""

    def __init__(self) -> None:
        self._samples: dict[str, tuple[float, dict[Subject, _Counts]]] = {}

    def rates(self, node: NodeStats, now: float) -> Iterator[tuple[Subject, Rates | None]]:
        """
        Yield the rates of all topics and channels of a node, None for the first sample of the node. Counts of a subject
        that is new since then started from 0. `now` is in seconds. The sample is kept when all were yielded.
        """
        name = node.node.http_address
        since, before = self._samples.get(name, (now, {}))
        seconds = now - since
        counted: dict[Subject, _Counts] = {}
        for subject, counts in _counts_of(node):
            counted[subject] = counts
            yield subject, _rates(before.get(subject, _NONE), counts, seconds) if seconds > 0 else None
        self._samples[name] = now, counted

    def forget(self, node: str) -> None:
        """Remove the sample of a node, named by its `Node.http_address`."""
        self._samples.pop(node, None)


_NONE = _Counts()


def _counts_of(node: NodeStats) -> Iterator[tuple[Subject, _Counts]]:
    for topic in node.topics:
        yield ("topic", topic.topic_name), _Counts(topic.message_count, waiting=topic.depth)
        for channel in topic.channels:
            yield ("channel", topic.topic_name, channel.channel_name), _Counts.of_channel(channel)


def _unfinished(channel: ChannelStats) -> int:
    """Return how many messages left without being finished. An expired one that is a dead letter counts once."""
    dropped, dead, expired = channel.dropped_count or 0, channel.dead_letter_count or 0, channel.expired_count or 0
    are_letters = (channel.policy or {}).get("expired") == DEAD_LETTER
    return dropped + dead + (0 if are_letters else expired)


def _rates(before: _Counts, now: _Counts, seconds: float) -> Rates:
    incoming = _change(before.messages, now.messages)
    unfinished = _change(before.unfinished, now.unfinished)
    return Rates(
        incoming / seconds,
        max(0, incoming - unfinished - (now.waiting - before.waiting)) / seconds,
        _change(before.requeued, now.requeued) / seconds,
        _change(before.timed_out, now.timed_out) / seconds,
    )


def _change(before: int, now: int) -> int:
    """Return the change of a counter; one that is lower than before has started from 0."""
    return now - before if now >= before else now
