"""The forms of the actions over HTTP: GET shows one, POST performs its action."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
from twisted.web.iweb import IRequest

from nsqtw.admin.actions import Performer, why_not_done
from nsqtw.admin.audit import Target
from nsqtw.admin.pages.action_forms import FORMS, ActionForm, shown_as, target_url
from nsqtw.admin.pages.fields import Fields
from nsqtw.admin.pages.page import NODES, TOPICS
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.errors import AccessDenied, ClusterError, FormError, InvalidName, InvalidPolicy, PageNotFound

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
    """Return a form. PageNotFound."""
    form = FORMS.get(name)
    if form is None:
        raise PageNotFound("action", name)
    return form


def target_in(form: ActionForm, fields: Fields) -> Target:
    return Target(**{name: fields.get(name, "").strip() for name in form.target})


async def show(
    page_request: PageRequest, form: ActionForm, fields: Fields, error: str = "", status: int = 200
) -> Answer:
    """Return the page of a form. AccessDenied for a viewer without the right to its action."""
    target = target_in(form, fields)
    if not form.may(page_request, target):
        raise AccessDenied("FORBIDDEN", "you may not do this")
    content = await form.content(page_request, target, fields)
    place = target if form.has_target else Target()
    return Answer(
        form.template,
        {
            "title": _filled(form.title, target),
            "section": NODES if _is_of_node(place) else TOPICS,
            "form": form,
            "form_url": page_request.links.action(form.name, **attrs.asdict(place), **shown_as(fields)),
            "back_url": target_url(page_request, place),
            "path": _path(page_request, place),
            "target": target,
            "fields": defaultdict(str, fields),
            "expected": getattr(target, form.typed) if form.typed else "",
            "points": [],
            "body_hint": "The text is the body of one message, in UTF-8. Every channel of the topic gets it.",
            "letter_topic": "",
            "an_hour_ago": _an_hour_ago(page_request.now),
            **content,
            "error": error or content.get("error", ""),
        },
        status,
    )


async def perform(
    page_request: PageRequest, form: ActionForm, fields: Fields, request: IRequest, performer: Performer
) -> Answer:
    """Perform the action of a form, or show the form again with what is wrong. AccessDenied."""
    target = target_in(form, fields)
    if form.typed and fields.get("typed", "") != getattr(target, form.typed):
        return await show(page_request, form, fields, f"The name that was typed is not that of the {form.typed}.", 400)
    try:
        action, arguments = form.read(fields)
        result = await performer.perform(request, action, target, arguments)
    except (FormError, InvalidPolicy) as error:
        return await show(page_request, form, fields, str(error), 400)
    except InvalidName:
        return await show(page_request, form, fields, _INVALID_NAME, 400)
    except ClusterError as error:
        text = _not_done(str(error), error.is_outcome_unknown)
        return await show(page_request, form, fields, text, 502)
    if not result.value:
        text = _not_done(why_not_done(result), result.is_outcome_unknown)
        return await show(page_request, form, fields, text, 502)
    return Answer(
        location=form.next_page(page_request, target), text=_filled(form.done, target), details=tuple(result.warnings)
    )


def _not_done(reason: str, is_unknown: bool) -> str:
    """Return the text for an action that no server has reported as done."""
    if is_unknown:
        return f"It is not known whether it was done; look before you repeat it: {reason}"
    return f"It was not done: {reason}"


def _filled(text: str, target: Target) -> str:
    name = f"{target.channel} of {target.topic}" if target.channel else target.topic
    return text.format(topic=target.topic, channel=target.channel, node=target.node, name=name)


def _is_of_node(target: Target) -> bool:
    """Return whether the target is a whole node."""
    return bool(target.node) and not target.topic


def _path(page_request: PageRequest, target: Target) -> list[tuple[str, str]]:
    """Return the links above the title."""
    if _is_of_node(target):
        return [("Nodes", page_request.links.page("nodes")), (target.node, page_request.links.node(target.node))]
    path = [("Topics", page_request.links.page("topics"))]
    if target.topic:
        path.append((target.topic, page_request.links.topic(target.topic)))
    if target.channel:
        path.append((target.channel, page_request.links.channel(target.topic, target.channel)))
    return path


def _an_hour_ago(now: float) -> str:
    return (datetime.fromtimestamp(now, UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
