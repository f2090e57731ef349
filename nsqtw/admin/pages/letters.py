"""Dead letters of a channel, and the redrive that puts them back, as its page shows them."""

from __future__ import annotations

import attrs

from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.viewer import Role
from nsqtw.cluster.model import ChannelStats, RedriveProgress
from nsqtw.errors import ClusterError


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


def letters_of(page_request: PageRequest, channel: ChannelStats) -> ChannelStats | None:
    """Return the channel that has the dead letters of a channel, merged over its nodes; None when there is none."""
    topics = page_request.stats().topics
    for node in channel.nodes or (channel,):
        name = node.letter_topic
        for found in topics[name].channels if name in topics else ():
            if found.channel_name == channel.channel_name:
                return found
    return None


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
