"""Changes of a topic or channel on all nodes: create, pause, unpause, empty, delete, and what other verbs change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import attrs

from nsqtw.cli.checks import check_name
from nsqtw.cli.failures import failure_of, topic_not_found
from nsqtw.cli.output import Document
from nsqtw.cli.session import Session
from nsqtw.cluster.changes import Done
from nsqtw.cluster.cluster import Cluster
from nsqtw.errors import ClusterError

Change = Callable[[Cluster], Awaitable[Done]]


@attrs.frozen
class Action:
    """
    A verb that changes a topic or channel: the past tense of its name, the change, and the questions before it is made
    to a topic and to a channel. {loss} in a question is replaced by the number of messages that are lost; with
    `is_all` the number for a topic includes the messages of its channels.
    """

    past: str
    change: Callable[[Cluster, str, str], Awaitable[Done]]
    topic_question: str = ""
    channel_question: str = ""
    makes_new: bool = False
    is_all: bool = True


async def _act(action: Action, session: Session, topic: str, channel: str = "") -> Document:
    question = action.channel_question if channel else action.topic_question
    if action.makes_new:
        for name in filter(None, (topic, channel)):
            check_name(name)
    if question and not session.options.is_yes:
        async with session.cluster() as cluster:
            loss = await _loss(cluster, topic, channel, is_all=action.is_all)
        session.confirm(question.format(topic=topic, channel=channel, loss=loss))
    return await run_change(
        session,
        action.past,
        lambda cluster: action.change(cluster, topic, channel),
        topic,
        channel,
        must_exist=not action.makes_new,
    )


async def _loss(cluster: Cluster, topic: str, channel: str, *, is_all: bool) -> str:
    """Return which messages there are, as text."""
    try:
        found = (await cluster.topic(topic)).value
    except ClusterError:
        return "no node says how many"
    if channel:
        channels = [one for one in found.channels if one.channel_name == channel]
    else:
        channels = [*found.channels] if is_all else []
    count = sum(one.unfinished_count for one in channels) + (0 if channel else found.depth)
    in_flight = sum(one.in_flight_count for one in channels)
    deferred = sum(one.deferred_count for one in channels) + (0 if channel else found.own_deferred_count)
    parts = [f"{count} message{'' if count == 1 else 's'}"]
    parts += [f"{number} {word}" for number, word in ((in_flight, "in flight"), (deferred, "deferred")) if number]
    return ", ".join(parts)


create = partial(_act, Action("created", Cluster.create, makes_new=True))
pause = partial(_act, Action("paused", Cluster.pause))
unpause = partial(_act, Action("unpaused", Cluster.unpause))
empty = partial(
    _act,
    Action(
        "emptied",
        Cluster.empty,
        "Drop the messages of topic {topic} that no channel has got yet ({loss})?",
        "Drop all messages of channel {channel} of topic {topic} ({loss})?",
        is_all=False,
    ),
)
delete = partial(
    _act,
    Action(
        "deleted",
        Cluster.delete,
        "Delete topic {topic} with all its channels and messages ({loss}), on all nodes?",
        "Delete channel {channel} of topic {topic} with its messages ({loss}), on all nodes?",
    ),
)


async def run_change(
    session: Session,
    action: str,
    change: Change,
    topic: str,
    channel: str = "",
    *,
    text: str = "",
    must_exist: bool = True,
) -> Document:
    """
    Have the cluster make a change, and return the servers that made it. `action` is the word for JSON, `text` the one
    for people where it is another. Servers that failed are warnings. NotFound when no node has the topic; the error of
    the servers when none made the change.
    """
    async with session.cluster() as cluster:
        if must_exist and not (await cluster.topic_nodes(topic)).value and not cluster.lookupds:
            raise topic_not_found(topic)
        done = await change(cluster)
    if not done.value:
        if not done.warnings:
            raise topic_not_found(topic)
        raise failure_of(done.warnings)
    done_by = session.value_of(done)
    servers = list(done_by)
    data = {"action": action, "topic": topic, **({"channel": channel} if channel else {}), "servers": servers}
    name = f"{topic}/{channel}" if channel else topic
    return Document(data, [f"{text or action} {name} on {', '.join(servers)}"])
