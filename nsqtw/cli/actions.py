"""
Changes of a topic or channel on all nodes: create, pause, unpause, empty, delete, what other verbs change, and
policies: `nsqtw policy show`, `nsqtw policy set` and `nsqtw policy unset`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from nsqtw.cli.failures import failure_of, topic_not_found
from nsqtw.cli.output import Column, Document, Table
from nsqtw.cli.session import Session
from nsqtw.cli.verb import check_name
from nsqtw.cluster.changes import Done
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.merge import setting_values
from nsqtw.cluster.model import NodePolicy
from nsqtw.errors import ClusterError, InvalidPolicy, OptionError
from nsqtw.options.settings import ChannelPolicy, PolicyClass, Setting, TopicPolicy, setting_named, settings_of

Change = Callable[[Cluster], Awaitable[Done]]
_COLUMNS = (
    Column("setting", "SETTING"),
    Column("value", "VALUE"),
    Column("source", "SOURCE"),
    Column("nodes", "NODES"),
)
_ALL = "all"
_BOUNDS = {"max_depth", "max_bytes", "max_age", "overflow"}
"""Settings by which a channel may drop messages at once."""


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


async def show_policy(session: Session, topic: str, channel: str | None) -> Document:
    """`nsqtw policy show`."""
    async with session.cluster() as cluster:
        if not (await cluster.topic_nodes(topic)).value:
            raise topic_not_found(topic)
        found = session.value_of(await cluster.policy(topic, channel or ""))
    nodes = [{"node": node.node, "settings": node.settings, "set": node.given, "unused": node.unused} for node in found]
    names = {"topic": topic, **({"channel": channel} if channel else {})}
    notes = [f"{node.node}: {line}" for node in found for line in node.unused]
    return Document({**names, "nodes": nodes}, [Table(_COLUMNS, _policy_rows(found)), *notes])


def _policy_rows(nodes: Sequence[NodePolicy]) -> list[dict[str, Any]]:
    """Return a row for each setting, several where nodes differ."""
    return [
        {
            "setting": found.name,
            "value": found.value,
            "source": found.source,
            "nodes": _ALL if len(found.nodes) == len(nodes) else ", ".join(found.nodes),
        }
        for found in setting_values(nodes)
    ]


async def set_policy(session: Session, topic: str, words: Sequence[str]) -> Document:
    """`nsqtw policy set`."""
    channel = words[0] if "=" not in words[0] else ""
    policy = ChannelPolicy if channel else TopicPolicy
    settings: dict[str, Any] = {}
    shown: dict[str, str] = {}
    for word in words[1:] if channel else words:
        name, separator, text = word.partition("=")
        if not separator:
            raise OptionError(f"{word!r} must be a setting and its value, such as {_example(policy)}")
        setting = _setting(policy, name)
        try:
            value = setting.read(text)
        except InvalidPolicy as error:
            raise OptionError(str(error)) from error
        settings[name], shown[name] = setting.json(value), setting.text(value)
    if not settings:
        raise OptionError(f"nothing to set: give settings with their values, such as {_example(policy)}")
    words_done = ", ".join(f"{name}={text}" for name, text in shown.items())
    return await _change_policy(session, topic, channel, settings, f"set {words_done}")


async def unset_policy(session: Session, topic: str, words: Sequence[str]) -> Document:
    """`nsqtw policy unset`."""
    is_about_topic = all(word in settings_of(TopicPolicy) for word in words)
    channel, names = ("", words) if is_about_topic else (words[0], words[1:])
    policy = TopicPolicy if is_about_topic else ChannelPolicy
    if not names:
        raise OptionError(f"nothing to unset: give settings after the channel {channel!r}, such as max_attempts")
    settings = {_setting(policy, name).name: None for name in names}
    return await _change_policy(session, topic, channel, settings, f"unset {', '.join(settings)}")


async def _change_policy(
    session: Session, topic: str, channel: str, settings: Mapping[str, Any], words_done: str
) -> Document:
    """Change the policy on all nodes, after a question if messages are dropped; `words_done` says what was done."""
    if channel and not session.options.is_yes and not _BOUNDS.isdisjoint(settings):
        async with session.cluster() as cluster:
            answers = (await cluster.policy_answers(topic, channel, settings, is_dry_run=True)).value
        known = sum(answer.drops or 0 for answer in answers)
        if known or any(answer.drops is None for answer in answers):
            count = f"{known} messages" if known else "messages"
            session.confirm(
                f"The bounds of channel {channel} of topic {topic} drop {count} of its backlog at once. Continue?"
            )
    return await run_change(
        session,
        "set",
        lambda cluster: cluster.set_policy(topic, channel, settings),
        topic,
        channel,
        text=f"{words_done} in the policy of",
    )


def _setting(policy: PolicyClass, name: str) -> Setting:
    try:
        return setting_named(policy, name)
    except InvalidPolicy as error:
        raise OptionError(str(error)) from error


def _example(policy: PolicyClass) -> str:
    return "max_attempts=5" if policy is ChannelPolicy else "message_ttl=1h"
