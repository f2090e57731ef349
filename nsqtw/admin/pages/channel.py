"""The page of a channel."""

from __future__ import annotations

from functools import partial
from typing import Any

from nsqtw.admin.audit import Target
from nsqtw.admin.pages.action_forms import CHANNEL_PAGE, buttons, pauses, policy_url, redrive_buttons
from nsqtw.admin.pages.charts import Line
from nsqtw.admin.pages.letters import letters_of, letters_panel, may_redrive, sources_of
from nsqtw.admin.pages.listing import listing
from nsqtw.admin.pages.messages import message_content
from nsqtw.admin.pages.page import TOPICS, Content, page
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.pages.topic import is_nsqtw
from nsqtw.admin.viewer import Role
from nsqtw.cluster.merge import topology_order
from nsqtw.cluster.model import ChannelStats, ConsumerStats

_FIGURES = ("depth", "in_flight", "deferred", "out", "requeue", "timeout")
_RATES = (
    Line("in", "received", "in"),
    Line("out", "finished", "out"),
    Line("requeue", "requeued", "depth"),
    Line("timeout", "timed out", "bad"),
)
_LEVELS = (
    Line("depth", "waiting", "depth"),
    Line("in_flight", "in flight", "out"),
    Line("deferred", "deferred", "in"),
)
_DELIVERIES = (
    ("Same zone", "zone_local_msg_count"),
    ("Same region", "region_local_msg_count"),
    ("Another region", "global_msg_count"),
)


@page("topics/<topic>/<channel>", "channel.html", TOPICS)
async def channel(page_request: PageRequest) -> Content:
    """Return the content of the page, or of the view of its messages. PageNotFound."""
    topic_name, name = page_request.path["topic"], page_request.path["channel"]
    found = await page_request.channel(topic_name, name)
    topic = await page_request.topic(topic_name)
    subject = ("channel", topic_name, name)
    url = partial(page_request.links.channel, topic_name, name)
    nodes = found.nodes or (found,)
    node_names = [node.node for node in nodes]
    has_policies = is_nsqtw(page_request, topic)
    shared: dict[str, Any] = {
        "title": f"{name} of {topic_name}",
        "channel": found,
        "topic_name": topic_name,
        "channel_name": name,
        "is_nsqtw": has_policies and not name.endswith("#ephemeral"),
        "may_look": page_request.viewer.may(Role.READ, topic_name, name),
    }
    letters = letters_of(page_request, found) if shared["is_nsqtw"] else None
    sources = sources_of(page_request, topic_name, name) if shared["is_nsqtw"] else []
    shared["sources"] = sources
    shared["actions"] = redrive_buttons(page_request, sources, found) + buttons(
        page_request,
        CHANNEL_PAGE,
        topic=topic_name,
        channel=name,
        pauses=pauses(found),
        is_nsqtw=shared["is_nsqtw"],
        has_letters=letters is not None and letters.depth > 0 and may_redrive(page_request, letters),
    )
    if page_request.query.get("view") == "messages":
        content = await message_content(page_request, topic_name, name, node_names, url, sources)
        return {**shared, **content, "template": "messages.html"}
    consumers = sorted(found.clients, key=lambda client: (node_names.index(client.node), topology_order(client)))
    places = {client: place for place, client in enumerate(consumers)}.__getitem__
    return {
        **shared,
        "now": page_request.now,
        "span": page_request.span,
        "span_url": page_request.span_url(url),
        **page_request.figures(subject, *_FIGURES),
        "charts": [
            page_request.chart(subject, "rates", "Messages a second", _RATES),
            page_request.chart(subject, "levels", "Messages in the channel", _LEVELS),
        ],
        "consumer_list": listing(
            found.clients, {"place": places}, page_request.query, url, name=_client_name, default="place"
        ),
        "channel_nodes": nodes,
        "policy_url": policy_url(page_request, Target(topic=topic_name, channel=name)) if has_policies else "",
        "letters": await letters_panel(page_request, found, letters) if letters else None,
        "deliveries": _deliveries(found) if _has_topology(page_request) else [],
    }


def _client_name(client: ConsumerStats) -> str:
    return f"{client.client_id} {client.hostname} {client.remote_address}"


def _has_topology(page_request: PageRequest) -> bool:
    """Return whether a node has a zone or a region."""
    nodes = [state.stats.node for state in page_request.sampler.nodes.values()]
    return any(node.topology_zone or node.topology_region for node in nodes)


def _deliveries(channel: ChannelStats) -> list[tuple[str, int, float]]:
    """Return how many messages were delivered where."""
    total = channel.delivery_msg_count
    if not total:
        return []
    return [(label, getattr(channel, name), getattr(channel, name) / total) for label, name in _DELIVERIES]
