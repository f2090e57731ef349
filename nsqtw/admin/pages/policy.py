"""
The form of a policy: a row for each setting that the nodes have, and what the nodes say to a change before it is made.

The settings come from the nodes, and what is known about one from the table in `nsqtw.options.settings`.
"""

from __future__ import annotations

import attrs

from nsqtw.admin.audit import Target
from nsqtw.admin.pages.fields import SET, UNSET, Fields, changed_settings
from nsqtw.admin.pages.page import Content
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.viewer import Role
from nsqtw.cluster.merge import setting_values
from nsqtw.cluster.model import NodePolicy, PolicyAnswer, SettingValue
from nsqtw.errors import ClusterError, FormError, Unsupported
from nsqtw.options.settings import ChannelPolicy, Setting, TopicPolicy, settings_of, topics_named
from nsqtw.options.types import BOOLEAN, TEXT

_TRUTHS = ("true", "false")


@attrs.frozen
class SettingRow:
    """A setting: its values, of which nodes may have different ones, and its fields in the form."""

    name: str
    hint: str
    values: tuple[SettingValue, ...]
    is_set: bool
    words: tuple[str, ...]
    """The values there are, for a setting with only a few."""
    entered: str
    is_unset: bool


def form_name(target: Target) -> str:
    """Return the name of the form, and of its action, for the policy of a topic or channel."""
    return "set_policy_channel" if target.channel else "set_policy_topic"


async def content(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    """Return the settings of a policy, and the answers of the nodes to a change that `fields` has. PageNotFound."""
    if target.channel:
        await page_request.channel(target.topic, target.channel)
    else:
        await page_request.topic(target.topic)
    check_url = page_request.links.action(form_name(target))
    shown: dict[str, object] = {"check_url": check_url, "rows": [], "change": {}, "answers": [], "node_count": 0}
    try:
        found = await page_request.cluster.policy(target.topic, target.channel)
    except Unsupported:
        return {**shown, "error": "No node of this topic has policies: only nsqd of nsqtw has them."}
    except ClusterError as error:
        return {**shown, "error": str(error)}
    warnings = [*found.warnings, *(f"{node.node}: {line}" for node in found.value for line in node.unused)]
    for warning in warnings:
        page_request.warn(warning)
    rows = _rows(target, found.value, fields)
    shown |= {"rows": rows, "node_count": len(found.value)}
    try:
        wanted = changed_settings(fields)
        change = {row.name: wanted.pop(row.name) for row in rows if row.name in wanted} | wanted
        answers = await _answers(page_request, target, change) if change else []
    except (FormError, ClusterError) as error:
        return {**shown, "error": str(error)}
    return {**shown, "change": change, "answers": answers}


async def _answers(page_request: PageRequest, target: Target, change: dict[str, str | None]) -> list[PolicyAnswer]:
    """Return what the nodes say to a change. FormError for one that the viewer may not make."""
    for name in topics_named(change):
        if not page_request.viewer.may(Role.ADMIN, name):
            raise FormError(f"You may not have messages moved to the topic {name}: this needs the role admin for it.")
    answers = await page_request.cluster.policy_answers(target.topic, target.channel, change, is_dry_run=True)
    return list(answers.value)


def _rows(target: Target, nodes: tuple[NodePolicy, ...], fields: Fields) -> list[SettingRow]:
    known = settings_of(ChannelPolicy if target.channel else TopicPolicy)
    values: dict[str, list[SettingValue]] = {}
    for value in setting_values(nodes):
        values.setdefault(value.name, []).append(value)
    return [
        _row(name, known.get(name), tuple(found), any(name in node.given for node in nodes), fields)
        for name, found in values.items()
    ]


def _row(
    name: str, setting: Setting | None, values: tuple[SettingValue, ...], is_set: bool, fields: Fields
) -> SettingRow:
    return SettingRow(
        name=name,
        hint=_hint(setting) if setting else "",
        values=values,
        is_set=is_set,
        words=_words(setting) if setting else (),
        entered=fields.get(f"{SET}{name}", ""),
        is_unset=f"{UNSET}{name}" in fields,
    )


def _hint(setting: Setting) -> str:
    """Return what a setting does, and what its value may be where that is not a text or one of a few words."""
    if setting.kind is TEXT or _words(setting):
        return setting.help
    return f"{setting.help} ({', '.join(filter(None, (setting.kind.form, setting.bounds)))})"


def _words(setting: Setting) -> tuple[str, ...]:
    return _TRUTHS if setting.kind is BOOLEAN else setting.kind.words
