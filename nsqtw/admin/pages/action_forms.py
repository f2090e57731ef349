"""
Forms of the actions: one declaration each.

GET `actions/<name>` shows a form with the consequences of the action, POST performs it. For an action that loses
messages or names the user types a name, and the server compares it. `read` turns the fields of a form into the name of
an action of `nsqtw.admin.actions` and its arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from nsqtw.admin.actions import ACTIONS
from nsqtw.admin.audit import Target
from nsqtw.admin.pages import consequences, fields, policy
from nsqtw.admin.pages.fields import ActionCall, Fields
from nsqtw.admin.pages.letters import letter_topic
from nsqtw.admin.pages.page import Content
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.viewer import Role
from nsqtw.cluster.cluster import DEFERRED
from nsqtw.cluster.model import ChannelStats, NodeStats, TopicStats

TOPIC_PAGE, CHANNEL_PAGE = "topic", "channel"
"""The pages that have buttons of actions."""
_MESSAGE = ("topic", "channel", "node", "message")
"""The parts of a target that is a message."""
NextPage = Callable[[PageRequest, Target], str]
"""Return the URL of the page that follows an action."""


async def _nothing(page_request: PageRequest, target: Target, fields: Fields) -> Content:
    return {}


def target_url(page_request: PageRequest, target: Target) -> str:
    """Return the URL of the page of a channel, topic or node; of the list of topics for no target."""
    links = page_request.links
    if not target.topic:
        return links.node(target.node) if target.node else links.page("topics")
    return links.channel(target.topic, target.channel) if target.channel else links.topic(target.topic)


def _deferred_url(page_request: PageRequest, target: Target) -> str:
    """Return the URL of the deferred messages of a channel."""
    return page_request.links.channel(target.topic, target.channel, view="messages", state=DEFERRED)


def shown_as(query: Mapping[str, str]) -> dict[str, str]:
    """Return how messages are shown, which the actions on one of them keep."""
    return {name: query[name] for name in ("limit", "contains", "show") if query.get(name)}


def _messages_url(page_request: PageRequest, target: Target) -> str:
    """Return the URL of the messages that wait in a channel, as they were shown."""
    return page_request.links.channel(target.topic, target.channel, view="messages", **shown_as(page_request.query))


def _letters_url(page_request: PageRequest, target: Target) -> str:
    """Return the URL of the dead letters of a channel."""
    topic = letter_topic(page_request, target.topic, target.channel)
    return page_request.links.channel(topic, target.channel, view="messages", **shown_as(page_request.query))


def parent_url(page_request: PageRequest, target: Target) -> str:
    """Return the URL of the topic of a channel, or of the list of topics."""
    return page_request.links.topic(target.topic) if target.channel else page_request.links.page("topics")


def _node_url(page_request: PageRequest, target: Target) -> str:
    return page_request.links.node(target.node)


def _created_url(page_request: PageRequest, target: Target) -> str:
    """Return the URL of a new topic; without a node the topic is known at the nsqlookupds only."""
    is_there = target.topic in page_request.stats().topics or not page_request.cluster.lookupds
    return page_request.links.topic(target.topic) if is_there else page_request.links.page("lookup")


@attrs.frozen(kw_only=True)
class ActionForm:
    """
    A form. `title` and `done` are texts with {topic}, {channel} and {node}; `typed` is the part of the target that
    must be typed. `action` is the action that decides about the permission and the danger. `shown_on` is the page with
    a button for the form, `next_page` the page that follows the action.
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
    shown_on: str = ""
    next_page: NextPage = target_url
    has_target: bool = True
    """False for a form that asks for the names of its target."""
    target: tuple[str, ...] = ("topic", "channel", "node")
    """The parts of the target that the form takes from its URL or asks for."""
    read: Callable[[Fields], ActionCall]
    content: Callable[[PageRequest, Target, Fields], Awaitable[Content]] = _nothing
    needs_nsqtw: bool = False
    has_preview: bool = False
    """The form shows what would happen, and its own button is red when messages are lost."""
    wanted_pause: bool | None = None
    """The button is there only for a target that is paused, or is not."""
    needs_letters: bool = False
    """The button is there only for a channel that has dead letters."""

    @property
    def is_dangerous(self) -> bool:
        """Whether the action is destructive: the button is red, unless the form first shows what would happen."""
        return ACTIONS[self.action].is_destructive and not self.has_preview

    def may(self, page_request: PageRequest, target: Target) -> bool:
        """Return whether the viewer may perform the action."""
        return page_request.viewer.may(ACTIONS[self.action].role, target.topic, target.channel)


@attrs.frozen
class Button:
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
        read = fields.without_fields(action)
        yield ActionForm(name=action, action=action, typed=typed, shown_on=kind, read=read, **{**more, **texts})


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
            has_target=False,
            next_page=_created_url,
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
            shown_on=TOPIC_PAGE,
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
            shown_on=TOPIC_PAGE,
            read=fields.settings,
            content=consequences.settings,
            needs_nsqtw=True,
        ),
        *(
            ActionForm(
                name=f"set_policy_{kind}",
                action=f"set_policy_{kind}",
                label="Policy",
                title=title,
                done="The policy of {name} is changed.",
                button="Set on all nodes",
                template="policy.html",
                read=fields.policy(f"set_policy_{kind}"),
                content=policy.content,
            )
            for kind, title in ((TOPIC_PAGE, "Policy of {topic}"), (CHANNEL_PAGE, "Policy of {channel} of {topic}"))
        ),
        ActionForm(
            name="seek_channel",
            action="seek_channel",
            label="Replay",
            title="Replay messages of {topic} to {channel}",
            done="The channel {channel} of {topic} is moved.",
            button="Move the channel",
            template="seek.html",
            shown_on=CHANNEL_PAGE,
            typed="channel",
            read=fields.seek,
            content=consequences.seeking,
            needs_nsqtw=True,
            has_preview=True,
        ),
        ActionForm(
            name="redrive_channel",
            action="redrive_channel",
            label="Redrive",
            title="Redrive dead letters to {channel} of {topic}",
            done="The redrive to the channel {channel} of {topic} has begun.",
            button="Put the messages back",
            template="redrive.html",
            shown_on=CHANNEL_PAGE,
            read=fields.redrive,
            content=consequences.redriving,
            needs_nsqtw=True,
            needs_letters=True,
        ),
        ActionForm(
            name="stop_redrive_channel",
            action="stop_redrive_channel",
            label="Stop",
            title="Stop the redrive to {channel} of {topic}",
            done="The redrive to the channel {channel} of {topic} is stopped.",
            button="Stop",
            read=fields.without_fields("stop_redrive_channel"),
        ),
        ActionForm(
            name="redrive_message",
            action="redrive_message",
            label="Put back",
            title="Put a dead letter back to {channel} of {topic}",
            done="The dead letter is put back to the channel {channel} of {topic}.",
            button="Put it back",
            asks=False,
            target=_MESSAGE,
            read=fields.without_fields("redrive_message"),
            content=consequences.redriving_one,
            next_page=_letters_url,
        ),
        ActionForm(
            name="replace_message",
            action="replace_message",
            label="Edit",
            title="Edit a dead letter and publish it to {channel} of {topic}",
            done="The message is published to the channel {channel} of {topic}.",
            button="Publish, and finish the dead letter",
            template="publish.html",
            target=_MESSAGE,
            read=fields.replace,
            content=consequences.replacing,
            next_page=_letters_url,
        ),
        ActionForm(
            name="finish_message",
            action="finish_message",
            label="Delete",
            title="Delete a message of {channel} of {topic}",
            done="The message is finished.",
            button="Delete the message",
            typed="channel",
            target=_MESSAGE,
            read=fields.without_fields("finish_message"),
            content=consequences.finishing,
            next_page=_messages_url,
        ),
        ActionForm(
            name="cancel_message",
            action="cancel_message",
            label="Cancel",
            title="Cancel a deferred message of {channel} of {topic}",
            done="The message is cancelled.",
            button="Cancel the message",
            typed="channel",
            target=_MESSAGE,
            read=fields.without_fields("cancel_message"),
            content=consequences.cancelling,
            next_page=_deferred_url,
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
            label="Unpause",
            title="Unpause the {kind} {name}",
            done="The {kind} {name} delivers again.",
            button="Unpause",
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
        ),
        *_over_kinds(
            "delete",
            label="Delete",
            title="Delete the {kind} {name}",
            done="The {kind} {name} is deleted.",
            button="Delete",
            content=consequences.deleting,
            next_page=parent_url,
        ),
        ActionForm(
            name="tombstone",
            action="tombstone_topic_producer",
            label="Remove",
            title="Remove the topic {topic} from {node}",
            done="The topic {topic} is removed from {node}.",
            button="Remove",
            typed="topic",
            read=fields.without_fields("tombstone_topic_producer"),
            content=consequences.tombstone,
            next_page=_node_url,
        ),
        ActionForm(
            name="release_node",
            action="release_node",
            label="Hand over to a standby",
            title="Hand over from {node} to a standby",
            done="{node} stops, and a standby takes over.",
            button="Stop the broker",
            typed="node",
            target=("node",),
            read=fields.without_fields("release_node"),
            content=consequences.releasing,
            needs_nsqtw=True,
        ),
    )
}
"""All forms by name."""


def buttons(
    page_request: PageRequest,
    page: str,
    *,
    topic: str,
    channel: str = "",
    pauses: Collection[bool],
    is_nsqtw: bool,
    has_letters: bool = False,
) -> list[Button]:
    """Return the buttons of a page: those of the actions that the viewer may perform and the nodes can do."""
    target = Target(topic=topic, channel=channel)
    forms = [form for form in FORMS.values() if form.shown_on == page]
    return [
        Button(
            form.label, page_request.links.action(form.name, topic=topic, channel=channel), form.asks, form.is_dangerous
        )
        for form in forms
        if form.may(page_request, target)
        and (is_nsqtw or not form.needs_nsqtw)
        and (has_letters or not form.needs_letters)
        and (form.wanted_pause is None or form.wanted_pause in pauses)
    ]


def redrive_buttons(page_request: PageRequest, sources: Sequence[ChannelStats], letters: ChannelStats) -> list[Button]:
    """Return the buttons that put dead letters back, for the page of the channel that has those of `sources`."""
    form = FORMS["redrive_channel"]
    if not letters.depth or not page_request.viewer.may(Role.ADMIN, letters.topic_name, letters.channel_name):
        return []
    return [
        Button(
            form.label if len(sources) == 1 else f"{form.label} to {source.topic_name}",
            page_request.links.action(form.name, topic=source.topic_name, channel=source.channel_name),
            form.asks,
            form.is_dangerous,
        )
        for source in sources
        if page_request.viewer.may(Role.ADMIN, source.topic_name, source.channel_name)
    ]


def pauses(found: TopicStats | ChannelStats) -> set[bool]:
    """Return whether a topic or channel is paused; both where its nodes differ."""
    return {node.is_paused for node in found.nodes} or {found.is_paused}


def release_url(page_request: PageRequest, stats: NodeStats) -> str:
    """Return the URL of the form that hands over to a standby; empty without one that runs, or without the right."""
    form, target = FORMS["release_node"], Target(node=stats.node.http_address)
    if not stats.is_releasable or not form.may(page_request, target):
        return ""
    return page_request.links.action(form.name, node=target.node)


def policy_url(page_request: PageRequest, target: Target) -> str:
    """Return the URL of the form of a policy; empty when the viewer may not change it."""
    form = FORMS[policy.form_name(target)]
    if not form.may(page_request, target):
        return ""
    return page_request.links.action(form.name, topic=target.topic, channel=target.channel)
