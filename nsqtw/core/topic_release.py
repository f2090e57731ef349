"""
The release of a topic's messages to its channels.

Theory of operation. Channels read the log up to `released`. While a topic is paused or has no channels, `released`
stays, and `Backlog` has the messages above it. A new topic waits until it has the channels that an nsqlookupd knows for
it (`TopicListener`), so that each of them gets its first message.

Performance: `release` is called once per commit.
"""

# mypyc: compiled

from __future__ import annotations

from nsqtw.core.backlog import Backlog, Direction
from nsqtw.core.channel import Channel
from nsqtw.core.channel_base import Awaited, ChannelOwner
from nsqtw.core.cursor import RETRY_READ_SECONDS
from nsqtw.core.segment import Segment
from nsqtw.core.timers import Timer
from nsqtw.errors import BackendError


class TopicRelease:
    """The release of the messages of `topic`, `backlog` included, to its `channels`. Later, there may be others."""

    def __init__(self, topic: ChannelOwner, channels: dict[str, Channel], backlog: Backlog) -> None:
        self._topic = topic
        self._channels = channels
        self._backlog = backlog

    def start(self, now: float) -> None:
        """
        The channels a new topic should have are there: release what was kept for them. When the medium fails, ephemeral
        channels get none of it; and when some of it is for one channel only, all wait until it can be read.
        """
        topic = self._topic
        kept: list[Segment] = []
        try:
            directions = self._backlog.directions()
        except BackendError as error:
            topic.read_failed(error)
            topic.context.timers.schedule(now + RETRY_READ_SECONDS, _StartAgain(topic, self))
            return
        try:
            kept = self._backlog.for_ephemeral(self._channels.values())
        except BackendError as error:  # durable channels read it later
            topic.read_failed(error)
        topic.is_awaiting_channels = False
        self.release_kept(kept, directions, now)
        topic.touch()

    def awaited_by(self, channel: str) -> Awaited:
        """Return the messages that a channel gets when the new topic starts; none of one that has started."""
        return self._backlog.awaited_by(channel) if self._topic.is_promised else Awaited()

    def release(self, segments: list[Segment], now: float) -> None:
        """Everything put is released; `segments` is what was not yet."""
        topic = self._topic
        count, start = topic.put_total - topic.released_total, topic.released
        topic.released, topic.released_total = topic.log.end, topic.put_total
        topic.released_in_memory = min(topic.released_in_memory + count, topic.mem_queue_size)
        deferring = bool(self._backlog.waiting)
        if deferring:
            self._backlog.forget()
        for channel in self._channels.values():
            if channel.ephemeral or deferring:
                channel.release(segments, now)
                if channel.ephemeral:
                    channel.wake()
        if topic.shows_releases:
            self._show_release(segments, start)
        if topic.caught_up:
            topic.to_serve.update(topic.caught_up)
            topic.caught_up.clear()

    def _show_release(self, segments: list[Segment], start: int) -> None:
        """Have the channels pass what was released, from `start` on, for others only, and count their classes."""
        for channel in self._channels.values():
            channel.joined_total += sum(segment.count for segment in segments if not segment.is_for(channel.name))
            if channel.cursor is not None:
                channel.cursor.see_release(segments, start)

    def release_kept(self, kept: list[Segment], directions: list[Direction], now: float) -> None:
        """The topic flows again: release what it kept, to whom `directions` say. Ephemeral channels get `kept`."""
        topic = self._topic
        if not topic.is_flowing or topic.released >= topic.log.end:
            return
        self._backlog.hold_back(self._channels.values(), directions, now)
        count = topic.depth
        topic.released, topic.released_total = topic.log.end, topic.put_total
        topic.released_in_memory = min(topic.released_in_memory + count, topic.mem_queue_size)
        for channel in self._channels.values():
            if channel.ephemeral:
                channel.release(kept, now)
            channel.wake()
        if topic.bounds is not None:
            topic.bounds.on_append([], now)
        topic.reader.notify()


class _StartAgain(Timer):
    """Starts a topic that could not read what it kept."""

    def __init__(self, topic: ChannelOwner, release: TopicRelease) -> None:
        super().__init__()
        self._topic = topic
        self._release = release

    def on_timer(self, now: float) -> float | None:
        """Timer API"""
        if self._topic.is_awaiting_channels and not self._topic.exiting:
            self._release.start(now)
        return None
