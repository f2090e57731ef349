"""Verbs about policies: `nsqtw policy show`, `nsqtw policy set` and `nsqtw policy unset`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsqtw.cli.actions import run_change
from nsqtw.cli.failures import topic_not_found
from nsqtw.cli.output import Column, Document, Table
from nsqtw.cli.session import Session
from nsqtw.cluster.merge import setting_values
from nsqtw.cluster.model import NodePolicy
from nsqtw.errors import InvalidPolicy, OptionError
from nsqtw.options.policies import ChannelPolicy, PolicyClass, Setting, TopicPolicy, setting_named, settings_of

_COLUMNS = (
    Column("setting", "SETTING"),
    Column("value", "VALUE"),
    Column("source", "SOURCE"),
    Column("nodes", "NODES"),
)
_ALL = "all"
_BOUNDS = {"max_depth", "max_bytes", "max_age", "overflow"}
"""Settings by which a channel may drop messages at once."""


async def show(session: Session, topic: str, channel: str | None) -> Document:
    """`nsqtw policy show`."""
    async with session.cluster() as cluster:
        if not (await cluster.topic_nodes(topic)).value:
            raise topic_not_found(topic)
        found = session.value_of(await cluster.policy(topic, channel or ""))
    nodes = [{"node": node.node, "settings": node.settings, "set": node.given, "unused": node.unused} for node in found]
    names = {"topic": topic, **({"channel": channel} if channel else {})}
    notes = [f"{node.node}: {line}" for node in found for line in node.unused]
    return Document({**names, "nodes": nodes}, [Table(_COLUMNS, _rows(found)), *notes])


def _rows(nodes: Sequence[NodePolicy]) -> list[dict[str, Any]]:
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


async def change(session: Session, topic: str, words: Sequence[str]) -> Document:
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
    return await _change(session, topic, channel, settings, f"set {words_done}")


async def reset(session: Session, topic: str, words: Sequence[str]) -> Document:
    """`nsqtw policy unset`."""
    is_about_topic = all(word in settings_of(TopicPolicy) for word in words)
    channel, names = ("", words) if is_about_topic else (words[0], words[1:])
    policy = TopicPolicy if is_about_topic else ChannelPolicy
    if not names:
        raise OptionError(f"nothing to unset: give settings after the channel {channel!r}, such as max_attempts")
    settings = {_setting(policy, name).name: None for name in names}
    return await _change(session, topic, channel, settings, f"unset {', '.join(settings)}")


async def _change(session: Session, topic: str, channel: str, settings: Mapping[str, Any], words_done: str) -> Document:
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
