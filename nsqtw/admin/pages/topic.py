"""The page of a topic."""

from __future__ import annotations

from functools import partial
from typing import Any

from nsqtw.admin.pages import formats
from nsqtw.admin.pages.action_forms import buttons
from nsqtw.admin.pages.figures import figures
from nsqtw.admin.pages.listing import listing
from nsqtw.admin.pages.messages import message_content
from nsqtw.admin.pages.nodes import LEVELS, RATES
from nsqtw.admin.pages.page import TOPICS, Content, page
from nsqtw.admin.pages.rows import CHANNEL_SORTS, channel_name, channel_rows
from nsqtw.admin.pages.visit import Visit
from nsqtw.admin.sampler import waiting
from nsqtw.admin.viewer import Role
from nsqtw.cluster.model import Retention, TopicStats

DURABILITIES = {
    "os": "when the operating system has it: it survives a crash of nsqd",
    "fsync": "when it is on the disk: it survives a power failure",
    "memory": "at once: a crash of nsqd loses what was not consumed",
}
"""What the durability classes promise, after “A publish is acknowledged”."""
_BUTTONS = ("publish", "settings", "pause_topic", "unpause_topic", "empty_topic", "delete_topic")


@page("topics/<topic>", "topic.html", TOPICS)
async def topic(visit: Visit) -> Content:
    """Return the content of the page, or of the view of its messages. NotThere."""
    name = visit.path["topic"]
    found = await visit.topic(name)
    subject = ("topic", name)
    url = partial(visit.links.topic, name)
    may_look = visit.viewer.may(Role.READ, name)
    shared: dict[str, Any] = {
        "title": name,
        "topic": found,
        "topic_name": name,
        "is_nsqtw": is_nsqtw(visit, found),
        "may_look": may_look,
        "actions": buttons(visit, _BUTTONS, topic=name, is_paused=found.is_paused, is_nsqtw=is_nsqtw(visit, found)),
    }
    if visit.query.get("view") == "messages":
        content = await message_content(visit, name, "", [node.node for node in found.nodes], url)
        return {**shared, **content, "template": "messages.html"}
    rows = channel_rows([found], visit.sampler.history)
    return {
        **shared,
        "span": visit.span,
        "span_url": visit.span_url(url),
        **figures(visit, subject, ("in", "out", "depth")),
        "depth": waiting(found),
        "charts": [
            visit.chart(subject, "rates", "Messages a second", RATES),
            visit.chart(subject, "levels", "Messages in the topic and its channels", LEVELS[:1]),
        ],
        "listing": listing(rows, CHANNEL_SORTS, visit.query, url, name=channel_name),
        "durability_text": DURABILITIES.get(found.durability or "", "differently on its nodes"),
        "retention_text": retention_text(found.retention),
        "all_paused": all(node.is_paused for node in found.nodes),
        "may_set": visit.viewer.may(Role.ADMIN, name),
        "may_tombstone": visit.viewer.may(Role.ADMIN, name) and bool(visit.cluster.lookupds),
    }


def is_nsqtw(visit: Visit, topic: TopicStats) -> bool:
    """Return whether a node of the topic is our nsqd, which can do more."""
    names = {node.node for node in topic.nodes or (topic,)}
    return any(state.stats.nsqtw_version for name, state in visit.sampler.nodes.items() if name in names)


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
