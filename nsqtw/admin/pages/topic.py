"""The list of topics or channels, and the page of a topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from nsqtw.admin.audit import Target
from nsqtw.admin.pages import formats
from nsqtw.admin.pages.action_forms import TOPIC_PAGE, buttons, pauses, policy_url
from nsqtw.admin.pages.listing import listing
from nsqtw.admin.pages.messages import message_content
from nsqtw.admin.pages.nodes import LEVELS, RATES
from nsqtw.admin.pages.page import TOPICS, Content, page
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.pages.rows import CHANNEL_SORTS, TOPIC_SORTS, channel_name, channel_rows, topic_name, topic_rows
from nsqtw.admin.sampler import waiting
from nsqtw.admin.viewer import Role
from nsqtw.cluster.model import Retention, TopicStats
from nsqtw.options.topics import DURABILITY_TEXTS


@page("topics", "topics.html", TOPICS)
async def topics(page_request: PageRequest) -> Content:
    found, history = page_request.stats().topics.values(), page_request.sampler.history
    url = partial(page_request.links.page, "topics")
    is_of_channels = page_request.query.get("list") == "channels"
    shown = (
        listing(channel_rows(found, history), CHANNEL_SORTS, page_request.query, url, name=channel_name)
        if is_of_channels
        else listing(topic_rows(found, history), TOPIC_SORTS, page_request.query, url, name=topic_name)
    )
    return {
        "title": "Topics",
        "list": "channels" if is_of_channels else "topics",
        "listing": shown,
        "has_own_retention": partial(has_own_retention, usual=usual_retention(found)),
        "topic_count": len(found),
        "channel_count": sum(len(topic.channels) for topic in found),
    }


@page("topics/<topic>", "topic.html", TOPICS)
async def topic(page_request: PageRequest) -> Content:
    """Return the content of the page, or of the view of its messages. PageNotFound."""
    name = page_request.path["topic"]
    found = await page_request.topic(name)
    subject = ("topic", name)
    url = partial(page_request.links.topic, name)
    may_look = page_request.viewer.may(Role.READ, name)
    shared: dict[str, Any] = {
        "title": name,
        "topic": found,
        "topic_name": name,
        "is_nsqtw": is_nsqtw(page_request, found),
        "may_look": may_look,
        "has_own_retention": partial(has_own_retention, usual=usual_retention(page_request.stats().topics.values())),
        "actions": buttons(
            page_request, TOPIC_PAGE, topic=name, pauses=pauses(found), is_nsqtw=is_nsqtw(page_request, found)
        ),
    }
    if page_request.query.get("view") == "messages":
        content = await message_content(page_request, name, "", [node.node for node in found.nodes], url)
        return {**shared, **content, "template": "messages.html"}
    rows = channel_rows([found], page_request.sampler.history)
    return {
        **shared,
        "span": page_request.span,
        "span_url": page_request.span_url(url),
        **page_request.figures(subject, "in", "out", "depth"),
        "depth": waiting(found),
        "charts": [
            page_request.chart(subject, "rates", "Messages a second", RATES),
            page_request.chart(subject, "levels", "Messages in the topic and its channels", LEVELS[:1]),
        ],
        "listing": listing(rows, CHANNEL_SORTS, page_request.query, url, name=channel_name),
        "durability_text": DURABILITY_TEXTS.get(found.durability or "", "differently on its nodes"),
        "retention_text": retention_text(found.retention),
        "policy_url": policy_url(page_request, Target(topic=name)) if shared["is_nsqtw"] else "",
        "all_paused": all(node.is_paused for node in found.nodes),
        "may_set": page_request.viewer.may(Role.ADMIN, name),
        "may_tombstone": page_request.viewer.may(Role.ADMIN, name) and bool(page_request.cluster.lookupds),
    }


def is_nsqtw(page_request: PageRequest, topic: TopicStats) -> bool:
    """Return whether a node of the topic is our nsqd, which can do more."""
    names = {node.node for node in topic.nodes or (topic,)}
    return any(state.stats.nsqtw_version for name, state in page_request.sampler.nodes.items() if name in names)


def usual_retention(topics: Iterable[TopicStats]) -> tuple[float, int]:
    """Return the limits that most topics have: those of the options of the nodes, where these are not overridden."""
    counts = Counter(_limits(topic) for topic in topics)
    return max(counts, key=lambda limits: (counts[limits], -limits[0], -limits[1]), default=(0, 0))


def has_own_retention(topic: TopicStats, usual: tuple[float, int]) -> bool:
    """Return whether a topic keeps something, and not just what most topics keep."""
    return topic.retention is not None and _limits(topic) != usual


def _limits(topic: TopicStats) -> tuple[float, int]:
    return (topic.retention.time, topic.retention.bytes) if topic.retention else (0, 0)


def retention_text(retention: Retention | None) -> str:
    """Return what a topic keeps, in words."""
    if retention is None or not (retention.time or retention.bytes):
        return "not at all"
    limits = []
    if retention.time:
        limits.append(f"for {formats.duration(retention.time)}")
    if retention.bytes:
        limits.append(f"up to {formats.size(retention.bytes)} on each node")
    return ", ".join(limits)
