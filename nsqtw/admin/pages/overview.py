"""The overview of the cluster."""

from __future__ import annotations

from heapq import nlargest

from nsqtw.admin.history import CLUSTER
from nsqtw.admin.pages.figures import figures
from nsqtw.admin.pages.nodes import LEVELS, RATES, disk_state, node_content
from nsqtw.admin.pages.page import OVERVIEW, Content, page
from nsqtw.admin.pages.rows import ChannelRow
from nsqtw.admin.pages.visit import Visit
from nsqtw.admin.sampler import waiting
from nsqtw.cluster.model import ClusterStats

_SHOWN = 8
"""Channels in the list of those with the most waiting messages."""


@page("", "overview.html", OVERVIEW)
async def overview(visit: Visit) -> Content:
    """Return the content of the overview."""
    stats = visit.stats()
    topics = stats.topics.values()
    channels = [channel for topic in topics for channel in topic.channels]
    deepest = nlargest(_SHOWN, (channel for channel in channels if channel.depth), key=lambda channel: channel.depth)
    oldest, oldest_place = _oldest(stats)
    fullest = min(
        (node for node in stats.nodes if node.disk_free is not None), key=lambda node: node.disk_free or 0, default=None
    )
    return {
        "title": "Overview",
        "node_count": len(visit.sampler.nodes),
        "topic_count": len(topics),
        "channel_count": len(channels),
        "span": visit.span,
        "span_url": visit.span_url(visit.overview_url),
        **figures(visit, CLUSTER, ("in", "out", "depth", "in_flight")),
        "depth": sum(map(waiting, topics)),
        "in_flight": sum(channel.in_flight_count for channel in channels),
        "oldest": oldest,
        "oldest_place": oldest_place,
        "disk_free": fullest.disk_free if fullest else None,
        "disk_place": f"on {fullest.node.http_address}" if fullest else "",
        "disk_state": disk_state(fullest) if fullest else "",
        "charts": [
            visit.chart(CLUSTER, "rates", "Messages a second", RATES),
            visit.chart(CLUSTER, "levels", "Messages in the cluster", LEVELS),
        ],
        "deepest": [ChannelRow(channel, visit.sampler.history) for channel in deepest],
        **node_content(visit),
    }


def _oldest(stats: ClusterStats) -> tuple[float | None, str]:
    """Return the greatest age of a waiting message, and where it waits; None where no node tells ages."""
    ages = [(topic.oldest_message_age, topic.topic_name) for topic in stats.topics.values()]
    ages += [
        (channel.oldest_message_age, f"{channel.topic_name} / {channel.channel_name}")
        for topic in stats.topics.values()
        for channel in topic.channels
    ]
    known = [(age, place) for age, place in ages if age is not None]
    return max(known, default=(None, ""))
