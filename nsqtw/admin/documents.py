"""
JSON documents of nsqadmin's API, with the fields of the original in its order.

As in the original, lists that would be empty are null, except where nsqd itself sends an empty list, and a number
without a fraction has no point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nsqtw.cluster.merge import topology_order
from nsqtw.cluster.model import (
    MERGED,
    ChannelCount,
    ChannelStats,
    ConsumerStats,
    Counts,
    Latency,
    Node,
    NodeStats,
    Percentile,
    TopicStats,
)
from nsqtw.gocompat.text import json_text

_NANOSECONDS = 1_000_000_000
_LOCALITIES = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
_TOPOLOGY = ("node_topology_region", "node_topology_zone", "topology_region", "topology_zone")
_TLS = (
    *("tls", "tls_cipher_suite", "tls_version", "tls_negotiated_protocol"),
    "tls_negotiated_protocol_is_mutual",
)
_CLIENT_COUNTS = (
    *("in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count", "sample_rate"),
    *("deflate", "snappy", "authed", "auth_identity", "auth_identity_url"),
)
_CHANNEL_COUNTS = ("in_flight_count", "deferred_count", "requeue_count", "timeout_count", "message_count")


def message_of(warnings: Sequence[str]) -> str:
    """Return the `message` of an answer: the warnings of all steps."""
    return f"WARNING: {'; '.join(warnings)}" if warnings else ""


def topic_document(topic: TopicStats, now: int, *, has_clients: bool = False) -> dict[str, Any]:
    """Return a topic. `now` is a Unix time in seconds; `has_clients`: clients were asked for."""
    channels = [channel_document(channel, now, has_clients=has_clients) for channel in topic.channels]
    return {
        "node": topic.node,
        "hostname": topic.hostname,
        "topic_name": topic.topic_name,
        **_depths(topic),
        "message_count": topic.message_count,
        "delivery_msg_count": topic.delivery_msg_count,
        **_set(topic, _LOCALITIES),
        "nodes": [topic_document(node, now, has_clients=has_clients) for node in topic.nodes] or None,
        "channels": channels if _is_of_node(topic.node) else channels or None,
        "paused": topic.is_paused,
        "e2e_processing_latency": _latency(topic.latency),
    }


def channel_document(channel: ChannelStats, now: int, *, has_clients: bool) -> dict[str, Any]:
    """Return a channel, the clients of a merged one by node and topology."""
    merged = sorted(channel.clients, key=topology_order) if channel.node == MERGED else channel.clients
    clients = [_client(client, now) for client in merged]
    delivered = {"delivery_msg_count": channel.delivery_msg_count} if channel.delivery_msg_count else {}
    return {
        "node": channel.node,
        "hostname": channel.hostname,
        "topic_name": channel.topic_name,
        "channel_name": channel.channel_name,
        **_depths(channel),
        **{name: getattr(channel, name) for name in _CHANNEL_COUNTS},
        **delivered,
        **_set(channel, _LOCALITIES),
        "client_count": channel.client_count,
        "nodes": [channel_document(node, now, has_clients=has_clients) for node in channel.nodes] or None,
        "clients": clients if has_clients and _is_of_node(channel.node) else clients or None,
        "paused": channel.is_paused,
        "e2e_processing_latency": _latency(channel.latency),
    }


def node_document(node: Node) -> dict[str, Any]:
    topology = {name: getattr(node, name) for name in ("topology_zone", "topology_region")}
    return {
        "remote_addresses": list(node.remote_addresses) or None,
        "remote_address": node.remote_address,
        "hostname": node.hostname,
        "broadcast_address": node.broadcast_address,
        "tcp_port": node.tcp_port,
        "http_port": node.http_port,
        "version": node.version,
        **{name: value for name, value in topology.items() if value},
        "topics": [{"topic": topic.topic, "tombstoned": topic.is_tombstoned} for topic in node.topics] or None,
        "out_of_date": node.is_outdated,
    }


def node_stats_json(stats: NodeStats, now: int, message: str) -> bytes:
    """Return a single node with its topics as JSON, joined of those of its topics: other threads get their turn."""
    node = json_text({"node": stats.node.http_address})[1:-1]
    topics = b",".join([json_text(topic_document(topic, now, has_clients=True)) for topic in stats.topics])
    totals = {"total_messages": stats.message_count, "total_clients": stats.client_count, "message": message}
    return b'{%b,"topics":%b,%b' % (node, b"[%b]" % topics if topics else b"null", json_text(totals)[1:])


def counter_document(counts: Iterable[ChannelCount]) -> dict[str, Any]:
    """Return the counts of all channels by topic, channel and node."""
    by_key = {f"{count.topic_name}:{count.channel_name}:{count.node}": count for count in counts}
    return {
        key: {
            "node": count.node,
            "topic_name": count.topic_name,
            "channel_name": count.channel_name,
            "message_count": count.message_count,
        }
        for key, count in sorted(by_key.items())
    }


def _is_of_node(node: str) -> bool:
    return node not in ("", MERGED)


def _depths(counts: Counts) -> dict[str, int]:
    return {"depth": counts.depth, "memory_depth": counts.memory_depth, "backend_depth": counts.backend_depth}


def _set(source: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields that are neither zero nor empty."""
    return {name: value for name in names if (value := getattr(source, name))}


def _client(client: ConsumerStats, now: int) -> dict[str, Any]:
    return {
        "node": client.node,
        "remote_address": client.remote_address,
        "version": client.version,
        "client_id": client.client_id,
        "hostname": client.hostname,
        "user_agent": client.user_agent,
        "connect_ts": client.connect_ts,
        "connected": (now - client.connect_ts) * _NANOSECONDS,
        **{name: getattr(client, name) for name in _CLIENT_COUNTS},
        **_set(client, _TOPOLOGY),
        **{name: getattr(client, name) for name in _TLS},
    }


def _latency(latency: Latency | None) -> dict[str, Any] | None:
    if latency is None:
        return None
    return {
        "count": latency.count,
        "percentiles": [_percentile(percentile) for percentile in latency.percentiles] or None,
        "topic": latency.topic,
        "channel": latency.channel,
        "host": latency.node,
    }


def _percentile(percentile: Percentile) -> dict[str, Any]:
    fields = {
        "average": _number(percentile.average),
        "count": percentile.count,
        "max": _number(percentile.maximum),
        "min": _number(percentile.minimum),
        "quantile": _number(percentile.quantile),
    }
    return fields if percentile.value is None else {**fields, "value": _number(percentile.value)}


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value
