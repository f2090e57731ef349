"""
Merges of topics, channels and latencies over nodes.

Two results of nsqadmin are corrected: the minimum of a latency is the lowest one, where nsqadmin shows that of the last
node, and the channels of the first node stay its own, where nsqadmin shows the merged ones in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from nsqtw.cluster.model import (
    CHANNEL_COUNTS,
    MERGED,
    TOPIC_COUNTS,
    ChannelStats,
    ConsumerStats,
    CountNames,
    Counts,
    Latency,
    NodePolicy,
    Percentile,
    Retention,
    SettingValue,
    TopicStats,
)

V = TypeVar("V")
Stats = TypeVar("Stats", TopicStats, ChannelStats)


def merged_topic(name: str, topics: Iterable[TopicStats]) -> TopicStats:
    """Return a topic over its nodes. Of no node, a topic without any."""
    nodes = _by_hostname(topics)
    if not nodes:
        return TopicStats(node="", topic_name=name)
    return TopicStats(
        node=MERGED,
        topic_name=name,
        **_sums(nodes, TOPIC_COUNTS),
        nodes=tuple(nodes),
        channels=_merged_channels(nodes),
        is_paused=any(topic.is_paused for topic in nodes),
        latency=merged_latency([topic.latency for topic in nodes], name),
        durability=_common(topic.durability for topic in nodes),
        retention=_retention([topic.retention for topic in nodes]),
        policy=_policy([topic.policy for topic in nodes]),
        oldest_message_age=_highest(topic.oldest_message_age for topic in nodes),
        own_deferred_count=sum(topic.own_deferred_count for topic in nodes),
    )


def merged_channel(channels: Iterable[ChannelStats]) -> ChannelStats:
    """Return a channel over its nodes, of which there is at least one."""
    nodes = _by_hostname(channels)
    first = nodes[0]
    clients = sorted((client for channel in nodes for client in channel.clients), key=lambda client: client.hostname)
    return ChannelStats(
        node=MERGED,
        topic_name=first.topic_name,
        channel_name=first.channel_name,
        **_sums(nodes, CHANNEL_COUNTS),
        nodes=tuple(nodes),
        clients=tuple(clients),
        is_paused=any(channel.is_paused for channel in nodes),
        latency=merged_latency([channel.latency for channel in nodes], first.topic_name, first.channel_name),
        policy=_policy([channel.policy for channel in nodes]),
        oldest_message_age=_highest(channel.oldest_message_age for channel in nodes),
    )


def merged_latency(latencies: Iterable[Latency | None], topic: str, channel: str = "") -> Latency:
    """Return the latencies over all nodes: averages weighted by counts."""
    found = [latency for latency in latencies if latency is not None]
    by_quantile: dict[float, Percentile] = {}
    for percentile in (percentile for latency in found for percentile in latency.percentiles):
        before = by_quantile.get(percentile.quantile)
        by_quantile[percentile.quantile] = (
            attrs.evolve(percentile, value=None, average=percentile.average if percentile.count else 0.0)
            if before is None
            else _merged_percentile(before, percentile)
        )
    return Latency(
        count=sum(latency.count for latency in found),
        percentiles=tuple(by_quantile.values()),
        topic=topic,
        channel=channel,
        node=MERGED,
    )


def node_order(hostname: str, address: str) -> tuple[Any, ...]:
    """Return the key for a list of nodes, the same everywhere: by host name, then by address, its port as a number."""
    host, _, port = address.rpartition(":")
    return (hostname, host, int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0, port)


def topology_order(client: ConsumerStats) -> tuple[Any, ...]:
    """Return the key for a list of clients by node, with those of the node's zone first, then those of its region."""
    zone, region = client.topology_zone, client.topology_region
    is_near = region == client.node_topology_region
    if is_near and zone == client.node_topology_zone:
        return (client.node, 0)
    return (client.node, 1) if is_near else (client.node, 2, region, zone)


def setting_values(nodes: Sequence[NodePolicy]) -> list[SettingValue]:
    """Return the values of the settings of a policy, in their order; several of one setting where nodes differ."""
    having: dict[str, dict[tuple[str, str], list[str]]] = {}
    for node in nodes:
        for name, setting in node.settings.items():
            value = setting.get("value")
            text = str(value).lower() if isinstance(value, bool) else str(value)
            having.setdefault(name, {}).setdefault((text, setting.get("source", "")), []).append(node.node)
    return [
        SettingValue(name=name, value=value, source=source, nodes=tuple(names))
        for name, values in having.items()
        for (value, source), names in values.items()
    ]


def _merged_channels(topics: Sequence[TopicStats]) -> tuple[ChannelStats, ...]:
    """Return the channels of all nodes; one that a single node has is that node's own, as in nsqadmin."""
    by_name: dict[str, list[ChannelStats]] = {}
    for channel in (channel for topic in topics for channel in topic.channels):
        by_name.setdefault(channel.channel_name, []).append(channel)
    return tuple(found[0] if len(found) == 1 else _unnamed(merged_channel(found)) for found in by_name.values())


def _unnamed(channel: ChannelStats) -> ChannelStats:
    """Return a merged channel whose latencies name no topic and no channel, as in nsqadmin inside of a topic."""
    assert channel.latency is not None, "merged"
    return attrs.evolve(channel, latency=attrs.evolve(channel.latency, topic="", channel=""))


def _merged_percentile(one: Percentile, other: Percentile) -> Percentile:
    count = one.count + other.count
    average = (one.average * one.count + other.average * other.count) / count if count else 0.0
    return Percentile(
        quantile=one.quantile,
        average=average,
        minimum=min(one.minimum, other.minimum),
        maximum=max(one.maximum, other.maximum),
        count=count,
    )


def _by_hostname(found: Iterable[Stats]) -> list[Stats]:
    return sorted(found, key=lambda stats: node_order(stats.hostname, stats.node))


def _sums(nodes: Sequence[Counts], names: CountNames) -> dict[str, Any]:
    sums: dict[str, int | None] = {name: sum(getattr(node, name) for node in nodes) for name in names.always}
    return sums | {name: _total(getattr(node, name) for node in nodes) for name in names.optional}


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _common(values: Iterable[V]) -> V | None:
    """Return the value that all have, None when they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _retention(found: Sequence[Retention | None]) -> Retention | None:
    """Return the retention that all nodes have. Positions of different nodes cannot be compared."""
    limits = {(kept.time, kept.bytes) if kept else None for kept in found}
    kept = found[0]
    if len(limits) != 1 or kept is None:
        return None
    return kept if len(found) == 1 else attrs.evolve(kept, earliest=0)


def _policy(found: Sequence[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    """Return the settings that all nodes have, None when they differ."""
    return found[0] if all(settings == found[0] for settings in found) else None
