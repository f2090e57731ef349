"""Verbs about channels: `nsqtw channel list` and `show`."""

from __future__ import annotations

from typing import Any

from nsqtw.cli.failures import topic_not_found
from nsqtw.cli.output import Column, Document, Table, age_or_dash, number
from nsqtw.cli.session import Session
from nsqtw.cluster.model import ChannelStats, ConsumerStats

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


async def show(session: Session, topic: str, channel: str) -> Document:
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
