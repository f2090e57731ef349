"""The list of topics, and that of all channels."""

from __future__ import annotations

from functools import partial

from nsqtw.admin.pages.listing import listing
from nsqtw.admin.pages.page import TOPICS, Content, page
from nsqtw.admin.pages.rows import CHANNEL_SORTS, TOPIC_SORTS, channel_name, channel_rows, topic_name, topic_rows
from nsqtw.admin.pages.visit import Visit


@page("topics", "topics.html", TOPICS)
async def topics(visit: Visit) -> Content:
    """Return the content of the list."""
    found, history = visit.stats().topics.values(), visit.sampler.history
    url = partial(visit.links.page, "topics")
    is_of_channels = visit.query.get("list") == "channels"
    shown = (
        listing(channel_rows(found, history), CHANNEL_SORTS, visit.query, url, name=channel_name)
        if is_of_channels
        else listing(topic_rows(found, history), TOPIC_SORTS, visit.query, url, name=topic_name)
    )
    return {
        "title": "Topics",
        "list": "channels" if is_of_channels else "topics",
        "listing": shown,
        "topic_count": len(found),
        "channel_count": sum(len(topic.channels) for topic in found),
    }
