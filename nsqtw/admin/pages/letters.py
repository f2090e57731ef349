"""Dead letters of a channel, and the redrive that puts them back, as its page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import attrs

from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.viewer import Role
from nsqtw.cluster.model import ChannelStats, RedriveProgress
from nsqtw.errors import ClusterError
from nsqtw.message_headers import (
    DEAD_ATTEMPTS,
    DEAD_CHANNEL,
    DEAD_DETAIL,
    DEAD_HEADER_PREFIX,
    DEAD_ID,
    DEAD_PREFIX,
    DEAD_REASON,
    DEAD_TIMESTAMP,
    DEAD_TOPIC,
    FIRST_TIMESTAMP,
    ID,
    RESERVED_PREFIX,
)
from nsqtw.names import dead_letter_name


@attrs.frozen
class LettersPanel:
    """What the page shows. `redrives` has the last redrive of each node that had one."""

    topic: str
    channel: str
    depth: int
    url: str
    redrives: tuple[RedriveProgress, ...]
    stop_url: str

    @property
    def is_running(self) -> bool:
        """Whether a redrive goes on."""
        return any(redrive.is_running for redrive in self.redrives)


@attrs.frozen(kw_only=True)
class Letter:
    """What the headers of a dead letter say. `source_url` is empty where its channel is not there any more."""

    topic: str
    channel: str
    source_url: str
    reason: str
    detail: str
    attempts: str
    first_published: str
    first_published_iso: str


def letter_in(page_request: PageRequest, headers: Mapping[str, str]) -> Letter | None:
    """Return what the headers of a message say about its death; None when it is no dead letter."""
    if DEAD_ID not in headers:
        return None
    topic, channel = headers.get(DEAD_TOPIC, ""), headers.get(DEAD_CHANNEL, "")
    found = page_request.stats().topics.get(topic)
    is_there = found is not None and any(each.channel_name == channel for each in found.channels)
    text, iso = moment(headers.get(DEAD_TIMESTAMP, ""))
    return Letter(
        topic=topic,
        channel=channel,
        source_url=page_request.links.channel(topic, channel) if is_there else "",
        reason=headers.get(DEAD_REASON, ""),
        detail=headers.get(DEAD_DETAIL, ""),
        attempts=headers.get(DEAD_ATTEMPTS, ""),
        first_published=text,
        first_published_iso=iso,
    )


def own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that a message had before it died, times as text; all of them when it is no dead letter."""
    is_letter = DEAD_ID in headers
    shown = {name: value for name, value in headers.items() if not (is_letter and name.startswith(DEAD_PREFIX))}
    shown |= {
        name.removeprefix(DEAD_HEADER_PREFIX): value
        for name, value in headers.items()
        if is_letter and name.startswith(DEAD_HEADER_PREFIX)
    }
    return {name: moment(value)[0] or value if name == FIRST_TIMESTAMP else value for name, value in shown.items()}


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that a message in place of a dead letter may have: its own, without its publisher's id."""
    own = own_headers(headers)
    return {name: value for name, value in own.items() if not name.startswith(RESERVED_PREFIX) and name != ID}


def moment(nanoseconds: str) -> tuple[str, str]:
    """Return a time in nanoseconds since 1970 as a text and in ISO 8601; both empty when it is none."""
    if not (nanoseconds.isascii() and nanoseconds.isdigit() and len(nanoseconds) < 20):
        return "", ""
    at = datetime.fromtimestamp(int(nanoseconds) / 10**9, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC", at.isoformat()


def sources_of(page_request: PageRequest, topic: str, channel: str) -> list[ChannelStats]:
    """Return the channels whose dead letters go to this one."""
    return [
        found
        for source in page_request.stats().topics.values()
        if source.topic_name != topic
        for found in source.channels
        if found.channel_name == channel and any(node.letter_topic == topic for node in found.nodes or (found,))
    ]


def letters_of(page_request: PageRequest, channel: ChannelStats) -> ChannelStats | None:
    """Return the channel that has the dead letters of a channel, merged over its nodes; None when there is none."""
    topics = page_request.stats().topics
    for node in channel.nodes or (channel,):
        name = node.letter_topic
        for found in topics[name].channels if name in topics else ():
            if found.channel_name == channel.channel_name:
                return found
    return None


def dead_letters(page_request: PageRequest, channels: Iterable[ChannelStats]) -> list[ChannelStats]:
    """Return the channels that have dead letters of some channels, those with the most messages first."""
    found = (letters_of(page_request, channel) for channel in channels)
    by_name = {(letters.topic_name, letters.channel_name): letters for letters in found if letters is not None}
    return sorted(by_name.values(), key=lambda letters: -letters.depth)


def letter_topic(page_request: PageRequest, topic: str, channel: str) -> str:
    """Return the topic that has the dead letters of a channel."""
    found = page_request.stats().topics.get(topic)
    for each in found.channels if found else ():
        if each.channel_name == channel:
            letters = letters_of(page_request, each)
            return letters.topic_name if letters else each.letter_topic
    return dead_letter_name(topic)


def may_redrive(page_request: PageRequest, letters: ChannelStats | None) -> bool:
    """Return whether there are letters that the user may put back, if the user may do so in their channel."""
    return letters is not None and page_request.viewer.may(Role.ADMIN, letters.topic_name, letters.channel_name)


async def letters_panel(page_request: PageRequest, channel: ChannelStats, letters: ChannelStats) -> LettersPanel:
    """Return what the page of a channel shows of its dead letters. Nodes that know no redrive have had none."""
    topic, name = channel.topic_name, channel.channel_name
    try:
        redrives = (await page_request.cluster.redrive_progress(topic, name)).value
    except ClusterError:
        redrives = ()
    may_stop = page_request.viewer.may(Role.ADMIN, topic, name) and may_redrive(page_request, letters)
    return LettersPanel(
        topic=letters.topic_name,
        channel=letters.channel_name,
        depth=letters.depth,
        url=page_request.links.channel(letters.topic_name, letters.channel_name, view="messages"),
        redrives=redrives,
        stop_url=page_request.links.action("stop_redrive_channel", topic=topic, channel=name) if may_stop else "",
    )
