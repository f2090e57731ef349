"""The forms of the actions over HTTP: GET shows one, POST performs its action."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
from twisted.web.iweb import IRequest

from nsqtw.admin.actions import Performer
from nsqtw.admin.audit import Target
from nsqtw.admin.pages.action_forms import FORMS, ActionForm
from nsqtw.admin.pages.fields import Fields, FormError
from nsqtw.admin.pages.page import TOPICS
from nsqtw.admin.pages.visit import NotThere, Visit
from nsqtw.errors import AccessDenied, ClusterError, InvalidName

_INVALID_NAME = "A name has up to 64 letters, digits, dots, dashes and underscores, and perhaps #ephemeral at the end."


@attrs.frozen
class Answer:
    """A page to show, or where to go. `details` are warnings of servers that did not do it."""

    template: str = ""
    content: Mapping[str, Any] = attrs.field(factory=dict)
    status: int = 200
    location: str = ""
    text: str = ""
    details: tuple[str, ...] = ()


def form_named(name: str) -> ActionForm:
    """Return a form. NotThere."""
    form = FORMS.get(name)
    if form is None:
        raise NotThere("action", name)
    return form


def target_in(form: ActionForm, fields: Fields) -> Target:
    """Return what the action is about. The name of what is created comes from the form itself."""
    return Target(**{name: fields.get(name, "").strip() for name in ("topic", "channel", "node")})


async def show(visit: Visit, form: ActionForm, fields: Fields, error: str = "", status: int = 200) -> Answer:
    """Return the page of a form. AccessDenied for a viewer who may not perform its action."""
    target = target_in(form, fields)
    if not form.may(visit, target):
        raise AccessDenied("FORBIDDEN", "You may not do this.")
    content = await form.content(visit, target, fields)
    here = {name: value for name, value in attrs.asdict(target).items() if value and form.name != "create"}
    return Answer(
        form.template,
        {
            "title": _filled(form.title, target),
            "section": TOPICS,
            "form": form,
            "form_url": visit.links.action(form.name, **here),
            "back_url": _parent(visit, form, target),
            "path": _path(visit, target) if form.name != "create" else [("Topics", visit.links.page("topics"))],
            "target": target,
            "fields": {
                name: fields.get(name, "") for name in ("kind", "time", "message", "body", "node", "topic", "channel")
            },
            "expected": getattr(target, form.typed) if form.typed else "",
            "points": [],
            "an_hour_ago": _an_hour_ago(visit.now),
            **content,
            "error": error or content.get("error", ""),
        },
        status,
    )


async def perform(visit: Visit, form: ActionForm, fields: Fields, request: IRequest, performer: Performer) -> Answer:
    """Perform the action of a form, or show the form again with what is wrong. AccessDenied."""
    target = target_in(form, fields)
    if form.typed and fields.get("typed", "") != getattr(target, form.typed):
        return await show(visit, form, fields, f"The name that was typed is not that of the {form.typed}.", 400)
    try:
        action, arguments = form.read(fields)
        result = await performer.perform(request, action, target, arguments)
    except FormError as error:
        return await show(visit, form, fields, str(error), 400)
    except InvalidName:
        return await show(visit, form, fields, _INVALID_NAME, 400)
    except ClusterError as error:
        return await show(visit, form, fields, f"It was not done: {error}", 502)
    return Answer(location=_after(visit, form, target), text=_filled(form.done, target), details=tuple(result.warnings))


def _filled(text: str, target: Target) -> str:
    name = f"{target.channel} of {target.topic}" if target.channel else target.topic
    return text.format(topic=target.topic, channel=target.channel, node=target.node, name=name)


def _path(visit: Visit, target: Target) -> list[tuple[str, str]]:
    """Return the links above the title."""
    path = [("Topics", visit.links.page("topics"))]
    if target.topic:
        path.append((target.topic, visit.links.topic(target.topic)))
    if target.channel:
        path.append((target.channel, visit.links.channel(target.topic, target.channel)))
    return path


def _parent(visit: Visit, form: ActionForm, target: Target) -> str:
    """Return the page of what an action is about."""
    if form.name == "create":
        return visit.links.page("topics")
    if target.channel:
        return visit.links.channel(target.topic, target.channel)
    return visit.links.topic(target.topic)


def _after(visit: Visit, form: ActionForm, target: Target) -> str:
    """Return the page that follows an action: after a deletion that of the parent."""
    if form.name == "delete_topic":
        return visit.links.page("topics")
    if form.name == "delete_channel":
        return visit.links.topic(target.topic)
    if form.name == "create":
        # Without a node the topic is known at the nsqlookupds only.
        is_there = target.topic in visit.stats().topics or not visit.cluster.lookupds
        return visit.links.topic(target.topic) if is_there else visit.links.page("lookup")
    if form.name == "tombstone":
        return visit.links.node(target.node)
    return visit.links.channel(target.topic, target.channel) if target.channel else visit.links.topic(target.topic)


def _an_hour_ago(now: float) -> str:
    return (datetime.fromtimestamp(now, UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
