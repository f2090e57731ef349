"""
The view of messages that wait, are deferred or in flight. Looking consumes nothing.

A body is shown as JSON where it is some, as text where it is UTF-8, else in hexadecimal, or in the form that is asked
for. SHOWN_BYTES of a body are shown, of one message MAX_SHOWN_BYTES on demand. A viewer without the permission for
bodies sees neither bodies nor headers, but the other facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from nsqtw.admin.pages import formats
from nsqtw.admin.pages.fields import MESSAGE
from nsqtw.admin.pages.letters import Letter, letter_in, own_headers
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.viewer import Role
from nsqtw.cluster.cluster import DEFERRED, IN_FLIGHT, READY
from nsqtw.cluster.model import ChannelStats, Message
from nsqtw.errors import ClusterError

SHOWN_BYTES = 8 * 1024
MAX_SHOWN_BYTES = 256 * 1024
LIMITS = (10, 25, 100)
"""The numbers of messages of a node that can be asked for."""
AUTO, TEXT, JSON, HEX = "auto", "text", "json", "hex"
FORMS = ((AUTO, "Automatic"), (TEXT, "Text"), (JSON, "JSON"), (HEX, "Hexadecimal"))
STATES = ((READY, "Waiting"), (DEFERRED, "Deferred"), (IN_FLIGHT, "In flight"))
_EMPTY = {READY: "No message waits.", DEFERRED: "No message is deferred.", IN_FLIGHT: "No message is in flight."}
_NS = 1_000_000_000
_SHORT_TEXT, _SHORT_LINES = 240, 3
_PREVIEW_BYTES = 240


@attrs.frozen(kw_only=True)
class MessageRow:
    """A message as the page shows it. `body` is None for a viewer without the permission. Times are in seconds."""

    id: str
    node: str
    published: str
    published_iso: str
    age: float
    attempts: int
    size: int
    due_in: float | None
    times_out_in: float | None
    consumer: str
    form: str = ""
    headers: Mapping[str, str] = {}
    letter: Letter | None = None
    body: str | None = None
    shown: int = 0
    whole_url: str = ""
    preview: str = ""
    """One line of a long body; empty when the body is short."""
    replay_url: str = ""
    cancel_url: str = ""
    redrive_url: str = ""
    edit_url: str = ""
    finish_url: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether only the beginning of the body is shown."""
        return self.body is not None and self.shown < self.size


async def message_content(
    page_request: PageRequest,
    topic: str,
    channel: str,
    nodes: Sequence[str],
    url: Callable[..., str],
    sources: Sequence[ChannelStats] = (),
) -> dict[str, Any]:
    """Return what the view needs. `sources` are the channels whose dead letters are there."""
    query = page_request.query
    state = _chosen(query.get("state", ""), [name for name, _ in STATES], READY)
    form = _chosen(query.get("show", ""), [name for name, _ in FORMS], AUTO)
    limit = int(_chosen(query.get("limit", ""), [str(number) for number in LIMITS], str(LIMITS[0])))
    node = query.get("node", "") if query.get("node") in nodes else ""
    may_see_bodies = page_request.viewer.may_see_bodies_of(topic, channel)
    text, after = query.get("contains", "").strip() if may_see_bodies else "", query.get("after", "")
    found: list[Message] = []
    has_more, places = False, ""
    empty_text = _EMPTY[state] if channel else "No message waits in the topic itself. A channel shows its own."
    if text:
        empty_text = f"None of the messages that were searched contains “{text}”."
    if not page_request.is_event:
        try:
            answer = await page_request.cluster.messages(
                topic, channel, state=state, limit=limit, node=node, contains=text, after=_places_in(after)
            )
        except ClusterError as error:
            empty_text = f"The messages cannot be shown: {error}"
        else:
            for warning in answer.warnings:
                page_request.warn(warning)
            found = [message for part in answer.value for message in part.messages]
            has_more = any(part.has_more for part in answer.value)
            places = " ".join(f"{part.node}/{part.next}" for part in answer.value if part.next)
    if state != IN_FLIGHT:
        found.sort(key=lambda message: message.timestamp)
    kept = {"view": "messages", "state": state, "show": form, "limit": limit, "node": node, "contains": text}
    may_change = bool(channel) and page_request.viewer.may(Role.ADMIN, topic, channel)
    redriven = {
        (source.topic_name, source.channel_name)
        for source in sources
        if may_change and page_request.viewer.may(Role.ADMIN, source.topic_name, source.channel_name)
    }

    def row(message: Message) -> MessageRow:
        about = {"topic": topic, "channel": channel, "message": message.id, "node": message.node}
        as_now = {**about, "limit": str(limit), "contains": text, "show": form}
        shown = _row(
            message,
            page_request.now,
            form=form,
            limit=MAX_SHOWN_BYTES if query.get("whole") == message.id else SHOWN_BYTES,
            may_see_body=may_see_bodies,
            whole_url=f"{url(**kept, after=after, whole=message.id)}#message-{message.id}",
        )
        letter = letter_in(page_request, message.headers) if may_see_bodies else None
        shown = attrs.evolve(shown, letter=letter)
        if not may_change:
            return shown
        if letter is not None and state == READY and (letter.topic, letter.channel) in redriven:
            back = {**as_now, "topic": letter.topic, "channel": letter.channel}
            shown = attrs.evolve(
                shown,
                redrive_url=page_request.links.action("redrive_message", **back),
                edit_url=page_request.links.action("replace_message", **back),
            )
        if sources and state == READY:
            shown = attrs.evolve(shown, finish_url=page_request.links.action("finish_message", **as_now))
        return attrs.evolve(
            shown,
            replay_url=page_request.links.action("seek_channel", kind=MESSAGE, **about),
            cancel_url=page_request.links.action("cancel_message", **about) if state == DEFERRED else "",
        )

    return {
        "channel_name": channel,
        "messages_title": "Messages of the channel" if channel else "Messages that wait for the channels",
        "list_url": url,
        "state": state,
        "states": STATES,
        "form": form,
        "forms": FORMS,
        "limit": limit,
        "limits": LIMITS,
        "node": node,
        "node_names": nodes,
        "may_see_bodies": may_see_bodies,
        "messages": [row(message) for message in found],
        "has_more": has_more,
        "contains": text,
        "first_url": url(**kept) if after else "",
        "next_url": url(**kept, after=places) if places else "",
        "empty_text": empty_text,
        "whole_limit": MAX_SHOWN_BYTES,
    }


def body_text(body: bytes, form: str) -> tuple[str, str]:
    """Return a body as text, and the form it has: JSON, TEXT or HEX. `form` is what is wanted."""
    if form == HEX:
        return formats.hex_dump(body), HEX
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return (body.decode("utf-8", "replace"), TEXT) if form == TEXT else (formats.hex_dump(body), HEX)
    if form == TEXT:
        return text, TEXT
    pretty = formats.pretty_json(text)
    if pretty is not None:
        return pretty, JSON
    is_readable = form == JSON or all(character.isprintable() or character in "\r\n\t" for character in text)
    return (text, TEXT) if is_readable else (formats.hex_dump(body), HEX)


def _row(message: Message, now: float, *, form: str, limit: int, may_see_body: bool, whole_url: str) -> MessageRow:
    published = message.timestamp / _NS
    moment = datetime.fromtimestamp(published, UTC)
    consumer = message.consumer
    row = MessageRow(
        id=message.id,
        node=message.node,
        published=f"{moment:%Y-%m-%d %H:%M:%S} UTC",
        published_iso=moment.isoformat(),
        age=max(0.0, now - published),
        attempts=message.attempts,
        size=len(message.body),
        due_in=None if message.due is None else message.due / _NS - now,
        times_out_in=None if message.deadline is None else message.deadline / _NS - now,
        consumer="" if consumer is None else consumer.client_id or consumer.hostname or consumer.remote_address,
    )
    if not may_see_body:
        return row
    shown = message.body[:limit]
    if len(shown) < len(message.body):  # not in the middle of a character
        shown = shown.decode("utf-8", "ignore").encode() if _is_text(message.body) else shown
    text, shape = body_text(shown, form)
    return attrs.evolve(
        row,
        body=formats.coloured(text) if shape == JSON else text,
        form=shape,
        headers=own_headers(message.headers),
        preview=_preview(message.body, text),
        shown=len(shown),
        whole_url=whole_url if limit < MAX_SHOWN_BYTES else "",
    )


def _preview(body: bytes, text: str) -> str:
    """Return one line of a body that is shown as a long text; empty for a short one."""
    if len(text) <= _SHORT_TEXT and text.count("\n") < _SHORT_LINES:
        return ""
    line = body[:_PREVIEW_BYTES].decode("utf-8", "replace")
    return " ".join("".join(each if each.isprintable() else " " for each in line).split()) or "Body"


def _places_in(text: str) -> dict[str, str]:
    """Return the places of nodes at which a look goes on, as a URL has them."""
    pairs = (each.rpartition("/") for each in text.split())
    return {node: place for node, _, place in pairs if node and place}


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _chosen(wanted: str, known: Sequence[str], default: str) -> str:
    return wanted if wanted in known else default
