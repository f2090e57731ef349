"""Pages of the whole cluster: the overview, the topics without a node, and the counter."""

from __future__ import annotations

import math
from heapq import nlargest

from nsqtw.admin.history import CLUSTER
from nsqtw.admin.pages.letters import dead_letters
from nsqtw.admin.pages.nodes import LEVELS, RATES, disk_state, node_content
from nsqtw.admin.pages.page import COUNTER, LOOKUP, OVERVIEW, Content, page
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.pages.rows import ChannelRow
from nsqtw.admin.sampler import waiting
from nsqtw.admin.viewer import Role
from nsqtw.cluster.model import ClusterStats
from nsqtw.errors import ClusterError

_SHOWN = 8
"""Channels in the list of those with the most waiting messages."""


@page("", "overview.html", OVERVIEW)
async def overview(page_request: PageRequest) -> Content:
    stats = page_request.stats()
    topics = stats.topics.values()
    channels = [channel for topic in topics for channel in topic.channels]
    deepest = nlargest(_SHOWN, (channel for channel in channels if channel.depth), key=lambda channel: channel.depth)
    oldest, oldest_place = _oldest(stats)
    fullest = min(
        (node for node in stats.nodes if node.disk_free is not None), key=lambda node: node.disk_free or 0, default=None
    )
    return {
        "title": "Overview",
        "node_count": len(page_request.sampler.nodes),
        "topic_count": len(topics),
        "channel_count": len(channels),
        "span": page_request.span,
        "span_url": page_request.span_url(page_request.overview_url),
        **page_request.figures(CLUSTER, "in", "out", "depth", "in_flight"),
        "depth": sum(map(waiting, topics)),
        "in_flight": sum(channel.in_flight_count for channel in channels),
        "deferred": sum(topic.deferred_count for topic in topics),
        "consumers": sum(channel.client_count for channel in channels),
        "letters": dead_letters(page_request, channels),
        "lookupd_states": page_request.cluster.lookupd_states,
        "oldest": oldest,
        "oldest_place": oldest_place,
        "disk_free": fullest.disk_free if fullest else None,
        "disk_place": f"on {fullest.node.http_address}" if fullest else "",
        "disk_state": disk_state(fullest) if fullest else "",
        "charts": [
            page_request.chart(CLUSTER, "rates", "Messages a second", RATES),
            page_request.chart(CLUSTER, "levels", "Messages in the cluster", LEVELS),
        ],
        "deepest": [ChannelRow(channel, page_request.sampler.history) for channel in deepest],
        **node_content(page_request),
    }


@page("lookup", "lookup.html", LOOKUP)
async def lookup(page_request: PageRequest) -> Content:
    """Return the topics that an nsqlookupd knows and no node has."""
    inactive: dict[str, tuple[str, ...]] = {}
    try:
        found = await page_request.cluster.inactive_topics()
    except ClusterError as error:
        page_request.warn(str(error))
    else:
        inactive = found.value
        for warning in found.warnings:
            page_request.warn(warning)
    return {
        "title": "Lookup",
        "lookupd_states": page_request.cluster.lookupd_states,
        "has_lookupds": bool(page_request.cluster.lookupds),
        "inactive": sorted(inactive.items()),
        "may_delete": page_request.viewer.may(Role.ADMIN),
    }


@page("counter", "counter.html", COUNTER)
async def counter(page_request: PageRequest) -> Content:
    """Return the number of messages of all channels together."""
    channels = [channel for topic in page_request.stats().topics.values() for channel in topic.channels]
    history = page_request.sampler.history
    rates = [history.last(("channel", channel.topic_name, channel.channel_name), "in") for channel in channels]
    return {
        "title": "Counter",
        "total": sum(channel.message_count for channel in channels),
        "rate_in": sum(rate for rate in rates if not math.isnan(rate)),
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
