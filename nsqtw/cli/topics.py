"""Verbs about topics and channels: `nsqtw topic list`, `show` and `set`, `nsqtw channel list` and `show`."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from nsqtw.cli.actions import Change, run_change
from nsqtw.cli.failures import topic_not_found
from nsqtw.cli.output import Column, Document, Table, age_or_dash, number, size_or_dash
from nsqtw.cli.session import Session
from nsqtw.cli.verb import DEFAULT, duration_of
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.model import ChannelStats, ConsumerStats, Partial, Retention, TopicStats
from nsqtw.errors import OptionError
from nsqtw.options.texts import parse_size

CHANNEL_COLUMNS = (
    Column("topic", "TOPIC"),
    Column("channel", "CHANNEL"),
    number("depth", "DEPTH"),
    number("in_flight", "IN FLIGHT"),
    number("deferred", "DEFERRED", rank=4),
    number("requeued", "REQUEUED", rank=6),
    number("timed_out", "TIMED OUT", rank=7),
    number("dropped", "DROPPED", rank=8, if_used=True),
    number("dead_lettered", "DEAD-LETTERED", rank=8, if_used=True),
    number("expired", "EXPIRED", rank=8, if_used=True),
    number("high_depth", "HIGH", rank=8, if_used=True),
    number("normal_depth", "NORMAL", rank=8, if_used=True),
    number("low_depth", "LOW", rank=8, if_used=True),
    number("messages", "MESSAGES", rank=5),
    number("consumers", "CONSUMERS", rank=1),
    number("oldest_message_age", "OLDEST", age_or_dash, rank=2),
    Column("paused", "PAUSED", rank=3),
)
_CONSUMER_COLUMNS = (
    Column("hostname", "HOST"),
    Column("client_id", "CLIENT", rank=1),
    Column("remote_address", "ADDRESS"),
    Column("user_agent", "USER AGENT", rank=2),
    Column("node", "NODE"),
    number("ready", "READY"),
    number("in_flight", "IN FLIGHT"),
    number("finished", "FINISHED"),
    number("requeued", "REQUEUED", rank=3),
)
_NODE_COLUMNS = (
    Column("node", "NODE"),
    number("waiting", "WAITING"),
    number("deferred", "DEFERRED"),
    number("messages", "MESSAGES"),
    Column("paused", "PAUSED"),
    Column("durability", "DURABILITY"),
)


def channel_row(channel: ChannelStats) -> dict[str, Any]:
    """Return a channel as the object of JSON."""
    return {
        "topic": channel.topic_name,
        "channel": channel.channel_name,
        "depth": channel.depth,
        "backend_depth": channel.backend_depth,
        "in_flight": channel.in_flight_count,
        "deferred": channel.deferred_count,
        "requeued": channel.requeue_count,
        "timed_out": channel.timeout_count,
        "messages": channel.message_count,
        "consumers": channel.client_count,
        "dropped": channel.dropped_count,
        "dead_lettered": channel.dead_letter_count,
        "expired": channel.expired_count,
        "high_depth": channel.high_depth,
        "normal_depth": channel.normal_depth,
        "low_depth": channel.low_depth,
        "oldest_message_age": channel.oldest_message_age,
        "paused": channel.is_paused,
    }


def _consumer_row(client: ConsumerStats) -> dict[str, Any]:
    return {
        "hostname": client.hostname,
        "client_id": client.client_id,
        "remote_address": client.remote_address,
        "user_agent": client.user_agent,
        "node": client.node,
        "connected_at": client.connect_ts,
        "ready": client.ready_count,
        "in_flight": client.in_flight_count,
        "finished": client.finish_count,
        "requeued": client.requeue_count,
        "tls": client.tls,
    }


async def list_channels(session: Session, topic: str | None) -> Table:
    """`nsqtw channel list`."""
    async with session.cluster() as cluster:
        stats = session.value_of(await cluster.stats())
    if topic is not None and topic not in stats.topics:
        raise topic_not_found(topic)
    topics = stats.topics.values() if topic is None else [stats.topics[topic]]
    rows = [channel_row(channel) for found in topics for channel in found.channels]
    return Table(CHANNEL_COLUMNS, rows, "no channels")


async def show_channel(session: Session, topic: str, channel: str) -> Document:
    """`nsqtw channel show`."""
    async with session.cluster() as cluster:
        found = session.value_of(await cluster.channel(topic, channel))
    row = channel_row(found)
    consumers = [_consumer_row(client) for client in found.clients]
    nodes = [{**channel_row(entry), "node": entry.node} for entry in found.nodes or (found,)]
    node_columns = (Column("node", "NODE"), *CHANNEL_COLUMNS[2:])
    return Document(
        {**row, "consumers": consumers, "nodes": nodes},
        [
            f"channel {channel} of topic {topic}{' (paused)' if found.is_paused else ''}",
            "",
            Table(node_columns, nodes),
            "",
            Table(_CONSUMER_COLUMNS, consumers, "no consumers"),
        ],
    )


def _retention_text(retention: Mapping[str, Any] | None) -> str:
    if retention is None:
        return "-"
    limits = [age_or_dash(retention["time"])] if retention["time"] else []
    return " or ".join([*limits, *([size_or_dash(retention["bytes"])] if retention["bytes"] else [])]) or "-"


_TOPIC_COLUMNS = (
    Column("topic", "TOPIC"),
    number("channels", "CHANNELS", rank=6),
    number("waiting", "WAITING"),
    number("in_flight", "IN FLIGHT"),
    number("deferred", "DEFERRED", rank=5),
    number("messages", "MESSAGES", rank=4),
    number("rejected", "REJECTED", rank=7, if_used=True),
    number("deduplicated", "DEDUPLICATED", rank=7, if_used=True),
    number("oldest_message_age", "OLDEST", age_or_dash),
    Column("paused", "PAUSED", rank=1),
    Column("durability", "DURABILITY", rank=2),
    Column("retention", "RETENTION", _retention_text, rank=3),
    number("node_count", "NODES"),
)


def _topic_row(topic: TopicStats) -> dict[str, Any]:
    """Return a topic as the object of JSON."""
    return {
        "topic": topic.topic_name,
        "channels": len(topic.channels),
        "waiting": topic.total_depth,
        "depth": topic.depth,
        "backend_depth": topic.backend_depth,
        "in_flight": topic.in_flight_count,
        "deferred": topic.deferred_count,
        "messages": topic.message_count,
        "message_bytes": topic.message_bytes,
        "rejected": topic.rejected_count,
        "deduplicated": topic.deduplicated_count,
        "oldest_message_age": topic.oldest_message_age,
        "paused": topic.is_paused,
        "durability": topic.durability,
        "retention": _retention(topic.retention),
        "node_count": len(topic.nodes) or 1,
    }


def _retention(retention: Retention | None) -> dict[str, Any] | None:
    return None if retention is None else {"time": retention.time, "bytes": retention.bytes}


async def list_topics(session: Session, pattern: str | None) -> Table:
    """`nsqtw topic list`."""
    async with session.cluster() as cluster:
        stats = session.value_of(await cluster.stats())
        inactive = session.value_of(await cluster.inactive_topics())
    rows = {name: _topic_row(topic) for name, topic in stats.topics.items()}
    for name, channels in inactive.items():
        rows.setdefault(name, {"topic": name, "channels": len(channels), "node_count": 0})
    chosen = [rows[name] for name in sorted(rows) if fnmatchcase(name, pattern or "*")]
    keys = _topic_row(TopicStats(node="", topic_name="")).keys()
    return Table(_TOPIC_COLUMNS, [{key: row.get(key) for key in keys} for row in chosen], "no topics")


async def show_topic(session: Session, topic: str) -> Document:
    """`nsqtw topic show`."""
    async with session.cluster() as cluster:
        found = session.value_of(await _topic(cluster, topic))
    row = _topic_row(found)
    channels = [channel_row(channel) for channel in found.channels]
    nodes = [{**_topic_row(entry), "node": entry.node} for entry in found.nodes or (found,)]
    retention = _retention_text(row["retention"])
    oldest = age_or_dash(row["oldest_message_age"])
    lines = [
        f"topic       {topic}{' (paused)' if found.is_paused else ''}",
        f"waiting     {_waiting_text(found)}",
        f"messages    {found.message_count}, {size_or_dash(found.message_bytes)}; oldest waiting {oldest}",
        f"durability  {found.durability or '-'}; retention {retention}",
    ]
    refused = [f"{row[name]} {name}" for name in ("rejected", "deduplicated") if row[name]]
    if refused:
        lines.append(f"not stored  {', '.join(refused)}")
    return Document(
        {**row, "channels": channels, "nodes": nodes},
        [
            *lines,
            "",
            Table(CHANNEL_COLUMNS[1:], channels, "no channels"),
            "",
            Table(_NODE_COLUMNS, nodes),
        ],
    )


def _waiting_text(topic: TopicStats) -> str:
    """Return the words for the messages that wait. Those of the topic itself wait for its first channel."""
    count = len(topic.channels)
    ready, deferred = topic.own_ready_count, topic.own_deferred_count
    also = f", and {deferred} deferred" if deferred else ""
    if not count:
        return f"{ready} for a first channel{also}; {topic.backend_depth} on disk"
    channels = "1 channel" if count == 1 else f"{count} channels"
    return f"{topic.total_depth - ready} in {channels}; {ready} not yet given to channels{also}"


async def _topic(cluster: Cluster, topic: str) -> Partial[TopicStats]:
    found = await cluster.topic_nodes(topic)
    if not found.value:
        raise topic_not_found(topic)
    return await cluster.topic(topic)


async def set_topic(
    session: Session, topic: str, durability: str | None, retention_time: str | None, retention_bytes: str | None
) -> Document:
    """`nsqtw topic set`."""
    if durability is None and retention_time is None and retention_bytes is None:
        raise OptionError("nothing to set: give --durability, --retention-time or --retention-bytes")
    size = _size(retention_bytes)
    if retention_time not in (None, DEFAULT):
        duration_of("--retention-time", str(retention_time), f"a duration such as 24h or 7d, 0, or {DEFAULT}")
    changes: dict[str, Change] = {}
    if durability is not None:
        changes["durability"] = lambda cluster: cluster.set_durability(topic, durability)
    if retention_time is not None or size is not None:
        changes["retention"] = lambda cluster: cluster.set_retention(topic, time=retention_time, size=size)
    results = [
        await run_change(session, "set", change, topic, text=f"changed the {what} of")
        for what, change in changes.items()
    ]
    servers = dict.fromkeys(server for result in results for server in result.data["servers"])
    parts = [part for result in results for part in result.parts]
    return Document({**results[0].data, "servers": list(servers)}, parts)


def _size(text: str | None) -> str | None:
    if text is None or text == DEFAULT:
        return text
    try:
        return str(parse_size(text))
    except ValueError as error:
        raise OptionError(f"--retention-bytes {text!r} must be a size such as 10GB, 0, or {DEFAULT}") from error
