"""The counter: the messages of all channels together, counting up."""

from __future__ import annotations

import math

from nsqtw.admin.pages.page import COUNTER, Content, page
from nsqtw.admin.pages.visit import Visit


@page("counter", "counter.html", COUNTER)
async def counter(visit: Visit) -> Content:
    """Return the content of the counter."""
    channels = [channel for topic in visit.stats().topics.values() for channel in topic.channels]
    history = visit.sampler.history
    rates = [history.last(("channel", channel.topic_name, channel.channel_name), "in") for channel in channels]
    return {
        "title": "Counter",
        "total": sum(channel.message_count for channel in channels),
        "rate_in": sum(rate for rate in rates if not math.isnan(rate)),
    }
