"""`nsqtw nodes`: the nsqds of the cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from nsqtw.cli.output import Column, Table, age_or_dash, number, size_or_dash
from nsqtw.cli.session import Session
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.model import Node, NodeStats
from nsqtw.errors import NoServerAnswered

_COLUMNS = (
    Column("node", "NODE"),
    Column("tcp_address", "TCP", rank=4),
    Column("version", "VERSION"),
    Column("health", "HEALTH"),
    number("uptime", "UP", age_or_dash, rank=1),
    number("topics", "TOPICS", rank=3),
    number("channels", "CHANNELS", rank=5),
    number("depth", "DEPTH"),
    number("messages", "MESSAGES", rank=2),
    number("disk_free", "DISK FREE", size_or_dash),
)


async def list_nodes(session: Session) -> Table:
    """`nsqtw nodes`."""
    async with session.cluster() as cluster:
        stats = session.value_of(await cluster.stats())
        draining = await _draining(cluster, stats.nodes)
    now = time.time()
    return Table(_COLUMNS, [_row(node, now, node.node in draining) for node in stats.nodes], "no nodes")


async def _draining(cluster: Cluster, nodes: Sequence[NodeStats]) -> set[Node]:
    """Return the nodes that drain. Only nsqd of nsqtw can be asked."""

    async def is_draining(node: Node) -> bool:
        try:
            return (await cluster.drain_state(node)).is_draining
        except NoServerAnswered:
            return False

    asked = [stats.node for stats in nodes if stats.nsqtw_version]
    answers = await gatherResults([Deferred.fromCoroutine(is_draining(node)) for node in asked])
    return {node for node, answer in zip(asked, answers, strict=True) if answer}


def _row(stats: NodeStats, now: float, is_draining: bool) -> dict[str, Any]:
    node = stats.node
    return {
        "node": node.http_address,
        "tcp_address": node.tcp_address,
        "hostname": node.hostname,
        "version": f"{node.version} (nsqtw {stats.nsqtw_version})" if stats.nsqtw_version else node.version,
        "health": "draining" if is_draining else stats.health,
        "uptime": max(0.0, now - stats.start_time) if stats.start_time else None,
        "topics": len(stats.topics),
        "channels": sum(len(topic.channels) for topic in stats.topics),
        "depth": sum(topic.total_depth for topic in stats.topics),
        "messages": stats.message_count,
        "disk_free": stats.disk_free,
        "out_of_date": node.is_outdated,
    }
