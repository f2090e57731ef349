"""
Forms of the actions: one declaration each.

GET `actions/<name>` shows a form that says what the action does, POST performs it. An action that loses messages or
names asks for a name to be typed, and the server compares it. `read` turns the fields of a form into the name of an
action of `nsqtw.admin.actions` and its arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import attrs

from nsqtw.admin.actions import ACTIONS
from nsqtw.admin.audit import Target
from nsqtw.admin.pages import consequences, fields
from nsqtw.admin.pages.fields import Fields, Wish
from nsqtw.admin.pages.visit import Visit


async def _nothing(visit: Visit, target: Target, fields: Fields) -> Mapping[str, Any]:
    return {}


@attrs.frozen(kw_only=True)
class ActionForm:
    """
    A form. `title` and `done` are texts with {topic}, {channel} and {node}; `typed` is the part of the target that
    must be typed. `action` is the action that decides about the permission and the danger.
    """

    name: str
    action: str
    label: str
    title: str
    done: str
    button: str = ""
    template: str = "confirm.html"
    typed: str = ""
    asks: bool = True
    """The button on a page leads to the form; without it, it performs the action."""
    read: Callable[[Fields], Wish]
    content: Callable[[Visit, Target, Fields], Awaitable[Mapping[str, Any]]] = _nothing
    needs_nsqtw: bool = False
    wanted_pause: bool | None = None
    """The button is there only for a target that is paused, or is not."""
    is_dangerous: bool = False
    """Messages or names are lost: the button is red."""

    def may(self, visit: Visit, target: Target) -> bool:
        """Return whether the viewer may perform the action."""
        return visit.viewer.may(ACTIONS[self.action].role, target.topic, target.channel)


@attrs.frozen
class Button:
    """A button on a page."""

    label: str
    url: str
    asks: bool
    is_dangerous: bool


def _over_kinds(name: str, **more: Any) -> Iterable[ActionForm]:
    """Return the forms of an action of a topic and of a channel; texts have {kind} and {name}."""
    for kind, place in (("topic", "{topic}"), ("channel", "{channel} of {topic}")):
        texts = {key: more[key].replace("{kind}", kind).replace("{name}", place) for key in ("title", "done")}
        action = f"{name}_{kind}"
        typed = kind if ACTIONS[action].is_destructive else ""
        yield ActionForm(name=action, action=action, typed=typed, read=fields.plain(action), **{**more, **texts})


FORMS: dict[str, ActionForm] = {
    form.name: form
    for form in (
        ActionForm(
            name="create",
            action="create_topic",
            label="Create a topic",
            title="Create a topic or channel",
            done="{name} is created.",
            button="Create",
            template="create.html",
            read=fields.create,
        ),
        ActionForm(
            name="publish",
            action="publish",
            label="Publish",
            title="Publish a message to {topic}",
            done="The message is published to {topic}.",
            button="Publish",
            template="publish.html",
            read=fields.publish,
            content=consequences.nodes,
        ),
        ActionForm(
            name="settings",
            action="set_durability",
            label="Settings",
            title="Durability and retention of {topic}",
            done="The settings of {topic} are changed.",
            template="settings.html",
            read=fields.settings,
            content=consequences.settings,
            needs_nsqtw=True,
        ),
        *_over_kinds(
            "pause",
            label="Pause",
            title="Pause the {kind} {name}",
            done="The {kind} {name} is paused.",
            button="Pause",
            asks=False,
            wanted_pause=False,
        ),
        *_over_kinds(
            "unpause",
            label="Resume",
            title="Resume the {kind} {name}",
            done="The {kind} {name} delivers again.",
            button="Resume",
            asks=False,
            wanted_pause=True,
        ),
        *_over_kinds(
            "empty",
            label="Empty",
            title="Empty the {kind} {name}",
            done="The {kind} {name} is empty.",
            button="Drop the messages",
            content=consequences.emptying,
            is_dangerous=True,
        ),
        *_over_kinds(
            "delete",
            label="Delete",
            title="Delete the {kind} {name}",
            done="The {kind} {name} is deleted.",
            button="Delete",
            content=consequences.deleting,
            is_dangerous=True,
        ),
        ActionForm(
            name="seek_channel",
            action="seek_channel",
            label="Replay",
            title="Replay messages of {topic} to {channel}",
            done="The channel {channel} of {topic} is moved.",
            button="Move the channel",
            template="seek.html",
            typed="channel",
            read=fields.seek,
            content=consequences.seeking,
            needs_nsqtw=True,
        ),
        ActionForm(
            name="tombstone",
            action="tombstone_topic_producer",
            label="Remove",
            title="Remove the topic {topic} from {node}",
            done="The topic {topic} is removed from {node}.",
            button="Remove",
            typed="topic",
            read=fields.plain("tombstone_topic_producer"),
            content=consequences.tombstone,
            is_dangerous=True,
        ),
    )
}
"""All forms by name."""


def buttons(
    visit: Visit, names: Iterable[str], *, topic: str, channel: str = "", is_paused: bool, is_nsqtw: bool
) -> list[Button]:
    """Return the buttons of a page: those of the actions that the viewer may perform and the nodes can do."""
    target = Target(topic=topic, channel=channel)
    forms = [FORMS[name] for name in names]
    return [
        Button(form.label, visit.links.action(form.name, topic=topic, channel=channel), form.asks, form.is_dangerous)
        for form in forms
        if form.may(visit, target) and (is_nsqtw or not form.needs_nsqtw) and form.wanted_pause in (None, is_paused)
    ]
