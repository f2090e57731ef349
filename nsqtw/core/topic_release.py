"""
The release of a topic's messages to its channels.

Theory of operation. Channels read the log up to `released`. While a topic is paused or has no channels, `released`
stays, and `Backlog` has the messages above it. A new topic waits until it has the channels that an nsqlookupd knows for
it (`TopicListener`), so that each of them gets its first message.

Performance: `_release` is called once per commit.
"""

# mypyc: compiled

from __future__ import annotations

from nsqtw.core.backlog import Backlog, Direction
from nsqtw.core.channel import Channel
from nsqtw.core.channel_base import Awaited, ChannelBase
from nsqtw.core.context import Context
from nsqtw.core.cursor import RETRY_READ_SECONDS
from nsqtw.core.log import Log
from nsqtw.core.segment import Segment
from nsqtw.core.timers import Timer
from nsqtw.core.topic_policy import PolicyTopic
from nsqtw.errors import BackendError


class ReleasingTopic(PolicyTopic):
    """A topic that releases its messages to `channels`."""

    def __init__(self, context: Context, name: str, log: Log, to_serve: dict[ChannelBase, None]) -> None:
        super().__init__(context, name, log, to_serve)
        self.channels: dict[str, Channel] = {}
        self._backlog = Backlog(self)

    @property
    def has_channels(self) -> bool:
        return bool(self.channels)

    @property
    def lowest_position(self) -> int:
        cursors = [channel.cursor for channel in self.channels.values() if channel.cursor is not None]
        return min((cursor.next for cursor in cursors), default=self.released)

    @property
    def shown_deferred_count(self) -> int:
        """How many of `shown_depth` are deferred."""
        return 0 if self.is_promised else self._backlog.deferred_count

    def hold(self) -> None:
        """Release nothing until `start`."""
        self.is_awaiting_channels = True

    def start(self, now: float) -> None:
        """
        The channels a new topic should have are there: release what was kept for them. When the medium fails, ephemeral
        channels get none of it; and when some of it is for one channel only, all wait until it can be read.
        """
        kept: list[Segment] = []
        try:
            directions = self._backlog.directions()
        except BackendError as error:
            self.read_failed(error)
            self.context.timers.schedule(now + RETRY_READ_SECONDS, _StartAgain(self))
            return
        try:
            kept = self._backlog.for_ephemeral(self.channels.values())
        except BackendError as error:  # durable channels read it later
            self.read_failed(error)
        self.is_awaiting_channels = False
        self._release_kept(kept, directions, now)
        self.touch()

    def awaited_by(self, channel: str) -> Awaited:
        """Return the messages that a channel gets when the new topic starts; none of one that has started."""
        return self._backlog.awaited_by(channel) if self.is_promised else Awaited()

    def unfinished(self) -> tuple[int, list[int]]:
        """Return what the channels of an ephemeral topic have not finished, as `IBackendQueue.trim` takes it."""
        below, keep = self.released, set[int]()
        for channel in self.channels.values():
            if channel.cursor is not None:
                below = min(below, channel.cursor.next)
                keep.update(channel.cursor.pending_in_memory(), channel.first_deliveries())
        return below, sorted(keep)

    def forget_lost(self, first: int, end: int, only: str) -> None:
        """
        Messages that were released at once are not in the log any more: no channel is to wait for them. `only` is the
        channel that they were for; "" if they were for all.
        """
        end = min(end, self.released)
        for channel in self.channels.values():
            cursor = channel.cursor
            if cursor is not None and only in ("", channel.name):
                start = max(first, cursor.next)
                dropped = sum([stop - begin for begin, stop in self.dropped.between(start, end)])
                count = min(end - start - dropped, self.released_total - cursor.taken_total)
                if count > 0:
                    cursor.drop_lost(count)

    def _release(self, segments: list[Segment], now: float) -> None:
        """Everything put is released; `segments` is what was not yet."""
        count, start = self.put_total - self.released_total, self.released
        self.released, self.released_total = self.log.end, self.put_total
        self.released_in_memory = min(self.released_in_memory + count, self.mem_queue_size)
        deferring = bool(self._backlog.waiting)
        if deferring:
            self._backlog.forget()
        for channel in self.channels.values():
            if channel.ephemeral or deferring:
                channel.release(segments, now)
                if channel.ephemeral:
                    channel.wake()
        if self.shows_releases:
            self._show_release(segments, start)
        if self.caught_up:
            self.to_serve.update(self.caught_up)
            self.caught_up.clear()

    def _show_release(self, segments: list[Segment], start: int) -> None:
        """Have the channels pass what was released, from `start` on, for others only, and count their classes."""
        for channel in self.channels.values():
            channel.joined_total += sum(segment.count for segment in segments if not segment.is_for(channel.name))
            if channel.cursor is not None:
                channel.cursor.see_release(segments, start)

    def _release_kept(self, kept: list[Segment], directions: list[Direction], now: float) -> None:
        """The topic flows again: release what it kept, to whom `directions` say. Ephemeral channels get `kept`."""
        if not self.is_flowing or self.released >= self.log.end:
            return
        self._backlog.hold_back(self.channels.values(), directions, now)
        count = self.depth
        self.released, self.released_total = self.log.end, self.put_total
        self.released_in_memory = min(self.released_in_memory + count, self.mem_queue_size)
        for channel in self.channels.values():
            if channel.ephemeral:
                channel.release(kept, now)
            channel.wake()
        if self.bounds is not None:
            self.bounds.on_append([], now)
        self.reader.notify()


class _StartAgain(Timer):
    """Starts a topic that could not read what it kept."""

    def __init__(self, topic: ReleasingTopic) -> None:
        super().__init__()
        self._topic = topic

    def on_timer(self, now: float) -> float | None:
        """Timer API"""
        if self._topic.is_awaiting_channels and not self._topic.exiting:
            self._topic.start(now)
        return None
