"""Consequences of actions, shown in their forms: losses, repeated messages, present settings."""

from __future__ import annotations

from typing import Any

from nsqtw.admin.audit import Target
from nsqtw.admin.pages import formats
from nsqtw.admin.pages.fields import BYTES_IN_MEGABYTE, NODE_DEFAULT, UNITS, Fields, position
from nsqtw.admin.pages.letters import kept_headers, letter_topic, letters_of
from nsqtw.admin.pages.page import Content
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.cluster.model import ChannelStats, TopicStats
from nsqtw.errors import ClusterError, FormError
from nsqtw.options.topics import DURABILITY_TEXTS

MAX_EDITED_BYTES = 64 * 1024
"""The largest body that can be edited in a form."""


async def nodes(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Return the nodes of a topic, to choose one of."""
    topic = await _topic(page_request, target)
    return {"node_names": [node.node for node in topic.nodes] if topic else []}


async def emptying(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Say how many messages are dropped."""
    if target.channel:
        channel = await _channel(page_request, target)
        number = channel.unfinished_count if channel else 0
        points = [f"{formats.plural(number, 'message')} of this channel will be dropped, and never be delivered."]
        if channel and channel.in_flight_count:
            points.append(f"{formats.plural(channel.in_flight_count, 'message')} of them in flight: a FIN will fail.")
        return {"points": [*points, "Other channels keep theirs."]}
    topic = await _topic(page_request, target)
    return {
        "points": [
            f"{formats.plural(topic.depth if topic else 0, 'message')} that no channel has yet will be dropped.",
            "Messages that wait in the channels stay.",
        ]
    }


async def deleting(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Say what is deleted with a topic or channel."""
    if target.channel:
        channel = await _channel(page_request, target)
        if channel is None:
            return {"points": ["No node has the channel: the nsqlookupds will forget it."]}
        number = channel.unfinished_count
        return {
            "points": [
                f"{formats.plural(number, 'message')} of this channel will be lost.",
                f"{formats.plural(channel.client_count, 'consumer')} will be disconnected.",
            ]
        }
    topic = await _topic(page_request, target)
    if topic is None:
        return {"points": ["No node has the topic: the nsqlookupds will forget it."]}
    consumers = sum(channel.client_count for channel in topic.channels)
    return {
        "points": [
            f"{formats.plural(topic.unfinished_count, 'message')} on "
            f"{formats.plural(len(topic.nodes), 'node')} will be lost.",
            f"{formats.plural(len(topic.channels), 'channel')} will be deleted, "
            f"and {formats.plural(consumers, 'consumer')} disconnected.",
        ]
    }


async def tombstone(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Say what becomes of the topic on a node."""
    state = page_request.sampler.nodes.get(target.node)
    found = [topic for topic in state.stats.topics if topic.topic_name == target.topic] if state else []
    number = sum(topic.unfinished_count for topic in found)
    return {
        "points": [
            "The nsqlookupds hide the node from consumers of the topic for a while.",
            f"The topic is deleted on the node, with {formats.plural(number, 'message')}.",
            "It comes back with the next message that is published there.",
        ]
    }


async def releasing(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Say what becomes of the owner, of its standby and of its clients."""
    state = page_request.sampler.nodes.get(target.node)
    replica = state.stats.replica if state else None
    if replica is None or not replica.running_standbys:
        return {"points": ["No standby of this node is known to run: the node will refuse."]}
    names = ", ".join(standby.address for standby in replica.running_standbys)
    return {
        "points": [
            "The broker stops as with SIGTERM: it saves everything, and ends.",
            f"A standby takes over the data set {replica.data_set} at once. Those that run: {names}.",
            "Consumers and publishers lose their connections, and reconnect to the new owner.",
            "Messages in flight are delivered again.",
            "When the service manager of this node starts the broker again, it is a standby.",
        ]
    }


async def settings(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Return what is set now."""
    topic = await _topic(page_request, target)
    retention = topic.retention if topic else None
    seconds = int(retention.time) if retention else 0
    unit = next((name for name in reversed(UNITS) if seconds and seconds % UNITS[name] == 0), "minutes")
    return {
        "durability": topic.durability if topic else None,
        "kept_time": seconds // UNITS[unit],
        "kept_unit": unit,
        "units": list(UNITS),
        "durabilities": [*DURABILITY_TEXTS.items(), (NODE_DEFAULT, "as the options of each node say")],
        "kept_megabytes": (retention.bytes if retention else 0) // BYTES_IN_MEGABYTE,
    }


async def seeking(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Return what a seek would do on each node, once it is said where to."""
    channel = await _channel(page_request, target)
    names = [node.node for node in (channel.nodes or (channel,))] if channel else []
    content: dict[str, Any] = {"node_names": names, "preview": None, "replayed": 0, "skipped": 0, "max_drops": 0}
    if not fields.get("kind"):
        return content
    try:
        to = position(fields)
        moved = await page_request.cluster.seek(target.topic, target.channel, to, is_dry_run=True, node=target.node)
    except (FormError, ClusterError) as error:
        return {**content, "error": str(error)}
    for warning in moved.warnings:
        page_request.warn(warning)
    return {
        **content,
        "preview": moved.value,
        "replayed": sum(seek.replayed for seek in moved.value),
        "skipped": sum(seek.skipped for seek in moved.value),
        "max_drops": sum(seek.max_drops for seek in moved.value),
    }


async def redriving(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Say how many messages come back, and where from."""
    channel = await _channel(page_request, target)
    letters = letters_of(page_request, channel) if channel else None
    if letters is None:
        return {"points": ["No node has dead letters of this channel."]}
    total, others = letters.depth, 0
    try:
        found = (await page_request.cluster.redrive(target.topic, target.channel, {"dry_run": "true"})).value
        total, others = sum(one.total for one in found), sum(one.others for one in found)
    except ClusterError:
        pass  # the figures are those of the statistics
    points = [
        f"Up to {formats.plural(total - others, 'dead letter')} of the topic {letters.topic_name} will be put back.",
        "Only this channel gets them again.",
    ]
    if others:
        points.append(f"{formats.plural(others, 'message')} of other channels, or no dead letters, will stay there.")
    return {"points": points}


async def redriving_one(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Say what becomes of a dead letter that is put back."""
    return {"points": [f"The dead letter {target.message} goes back to this channel. No other channel gets it."]}


async def replacing(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Return the body and the headers of a dead letter, to be edited."""
    topic = letter_topic(page_request, target.topic, target.channel)
    hint = "Only the channel gets the message. When it is published, the dead letter is finished."
    content: dict[str, Any] = {"letter_topic": topic, "body_hint": hint, "node_names": []}
    if "body" in fields:
        return content
    if not page_request.viewer.may_see_bodies_of(topic, target.channel):
        return {**content, "error": "You may not see bodies of messages, and so not edit them."}
    try:
        message = await page_request.cluster.message(topic, target.channel, target.message, node=target.node)
        body = message.body.decode()
    except UnicodeDecodeError:
        return {**content, "error": "The body is not UTF-8: it cannot be edited here."}
    except ClusterError as error:
        return {**content, "error": str(error)}
    if len(message.body) > MAX_EDITED_BYTES:
        return {**content, "error": f"The body has more than {formats.size(MAX_EDITED_BYTES)}: edit it elsewhere."}
    lines = [f"{name}: {value}" for name, value in kept_headers(message.headers).items()]
    return {**content, "fields": {**fields, "body": body, "headers": "\n".join(lines)}}


async def finishing(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Say what becomes of the message."""
    return {
        "points": [
            f"The message {target.message} will be finished: no consumer of this channel will get it.",
            "Other channels keep theirs.",
        ]
    }


async def cancelling(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Say what becomes of the message."""
    return {
        "points": [
            f"The message {target.message} will never be delivered to this channel.",
            "Other channels keep theirs.",
        ]
    }


async def _topic(page_request: PageRequest, target: Target) -> TopicStats | None:
    try:
        return await page_request.topic(target.topic)
    except ClusterError:
        return None


async def _channel(page_request: PageRequest, target: Target) -> ChannelStats | None:
    try:
        return await page_request.channel(target.topic, target.channel)
    except ClusterError:
        return None
