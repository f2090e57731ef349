"""
A topic: a log, the sequence up to which its channels read it, and the publishes of the turn.

Theory of operation. `put` only collects. At the end of the turn the broker seals the publishes into segments, commits
them, and either calls `accept`, which moves `released` so that the channels see the messages, or tells the waiters the
error. No message is visible before it is committed.

Performance: called once per publish command and per segment.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nsqtw.core.backlog import Backlog
from nsqtw.core.channel import Channel
from nsqtw.core.channel_base import Awaited, ChannelBase, ChannelOwner
from nsqtw.core.checkpoint import CursorState, NamedChannel, NamedTopic, TopicState
from nsqtw.core.context import Context
from nsqtw.core.damage import DamageLedger
from nsqtw.core.dropped_ranges import DroppedRanges
from nsqtw.core.latency import Measure
from nsqtw.core.log import Log
from nsqtw.core.packed_messages import PackedMessages
from nsqtw.core.policy.letter import Letters
from nsqtw.core.positions import IPositions
from nsqtw.core.publish_buffer import PublishBuffer
from nsqtw.core.segment import BODY_AT, Segment
from nsqtw.core.topic_policy import TopicPolicies
from nsqtw.core.topic_release import TopicRelease
from nsqtw.errors import BackendError, ChannelNotFound, Exiting, HeadersRefused
from nsqtw.interfaces import Assigned, OperatorLog, Waiter
from nsqtw.names import is_ephemeral
from nsqtw.options.broker import Options
from nsqtw.options.topics import DURABILITIES, EARLIEST


class Cancelled(NamedTuple):
    """The places from which a deferred message was removed."""

    is_released: bool
    """False: no channel was given it, and none will be."""
    channels: list[str]


class TopicOwner(Context):
    """The broker, as its topics see it."""

    def __init__(
        self,
        options: Options,
        log: OperatorLog,
        positions: IPositions,
        damage: DamageLedger,
        measure: Measure | None,
        page_rows: int,
    ) -> None:
        super().__init__(options, log, positions, damage, measure, page_rows)
        self.to_commit: list[Topic] = []
        """Topics with publishes of this turn."""
        self.to_serve: dict[ChannelBase, None] = {}
        """Channels that may have something to deliver at the end of this turn."""
        self.touched: dict[Topic, None] = {}
        """Topics that changed since the last checkpoint."""

    def topic(self, name: str) -> Topic:
        """Return the topic of that name, created when there is none. NsqtwError."""
        raise NotImplementedError

    def save(self, waiter: Waiter) -> None:
        """Have a checkpoint saved that has everything up to now; then the waiter is called."""
        raise NotImplementedError

    def delete_topic(self, name: str, waiter: Waiter | None = None) -> None:
        """Remove a topic with all its channels and messages."""
        raise NotImplementedError

    def move_out_of_memory(self, topic: Topic) -> None:
        """An ephemeral topic gets a durable channel: keep its log in the backend. BackendError."""
        raise NotImplementedError

    def flush_write_behind(self, topic: Topic) -> None:
        """Store what class memory has not stored yet. BackendError."""
        raise NotImplementedError

    def on_channel_created(self, topic: str, channel: str) -> None:
        """A topic has a new channel."""
        raise NotImplementedError

    def on_channel_deleted(self, topic: str, channel: str, *, is_stored: bool) -> None:
        """A channel is deleted. `is_stored`: the next checkpoint must remove it."""
        raise NotImplementedError

    def on_names_changed(self, *, at_once: bool) -> None:
        """See `MetadataSync.change`."""
        raise NotImplementedError


class Topic(ChannelOwner):
    """One topic of the broker `owner`, created by it."""

    def __init__(self, owner: TopicOwner, name: str, log: Log) -> None:
        super().__init__(owner, name, log, owner.to_serve)
        self._owner = owner
        self.channels: dict[str, Channel] = {}
        self._backlog = Backlog(self)
        self._release = TopicRelease(self, self.channels, self._backlog)
        self.policies.follow()
        self.durability: str = owner.options.durability_of(name)
        """The guarantee of an OK: memory, os or fsync (docs/architecture.md)."""
        self._given_durability = ""
        self.message_bytes = 0
        self._publish_buffer = PublishBuffer(owner)
        self._in_checkpoint: list[tuple[Channel, CursorState]] = []
        self.saved_with: set[Topic] = set()
        """
        Topics with which messages were exchanged since the last checkpoint: one transaction saves what has changed of
        this topic and of them.
        """
        self._saved_with: set[Topic] = set()
        """The value of `saved_with` when the current checkpoint was made."""
        self._named: NamedTopic | None = None

    # -- what /stats shows

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

    @property
    def deduplicated_count(self) -> int | None:
        """Messages that repeated others and were not stored; None without a `dedupe_window`."""
        return None if self.deduplication is None else self.deduplication.repeat_count

    @property
    def is_write_behind(self) -> bool:
        """Whether publishes reach the backend after their OK."""
        return self.durability == "memory" and not self.ephemeral

    @property
    def commits_async(self) -> bool:
        """Whether storing publishes takes longer than a turn may."""
        if self.log.is_in_thread:
            return not self.is_write_behind
        return self.durability == "fsync" and not self.ephemeral

    @property
    def policies(self) -> TopicPolicies:
        """What changes its policy."""
        return TopicPolicies(self)

    # -- publishing

    def put(
        self,
        bodies: Sequence[bytes],
        delay_ms: int,
        waiter: Waiter,
        headers: Sequence[bytes] | None = None,
        channel: str = "",
        assigned: Assigned | None = None,
    ) -> None:
        """
        Take messages (`bytes`, nothing like them), to be delivered after `delay_ms`. The waiter is called when they are
        as safe as the topic's durability class says, or with a BackendError, Exiting, Draining or Overflow;
        ChannelNotFound; HeadersRefused when the backend cannot store `headers` and `channel`. `headers` are the encoded
        headers of each message (`message_headers`), None when no message has any; `channel` is the only channel that is
        to have them, "" for all. `assigned` is told the ids of the messages. A message that repeats another one
        (`Deduplication`) is taken as the others are, and not stored.
        """
        if (
            delay_ms
            or headers is not None
            or channel
            or assigned is not None
            or self.bounds is not None
            or self.exiting
            or not self._owner.is_taking_publishes
        ):
            self._put_as_asked(bodies, delay_ms, waiter, headers, channel, assigned)
            return
        buffer = self._publish_buffer
        if not buffer.waiters:
            self._owner.to_commit.append(self)
        buffer.add_plain(bodies, waiter)

    def put_packed(self, messages: PackedMessages, waiter: Waiter) -> None:
        """Take messages as `put` does, without a delay or anything else."""
        if self.bounds is not None or self.exiting or not self._owner.is_taking_publishes:
            self.put([*messages], 0, waiter)
            return
        buffer = self._publish_buffer
        if not buffer.waiters:
            self._owner.to_commit.append(self)
        buffer.add_packed(messages, waiter)

    def _put_as_asked(
        self,
        bodies: Sequence[bytes],
        delay_ms: int,
        waiter: Waiter,
        headers: Sequence[bytes] | None,
        channel: str,
        assigned: Assigned | None,
    ) -> None:
        """Take messages as `put` does, or refuse them."""
        if self.exiting or not self._owner.is_taking_publishes:
            waiter(Exiting() if self.exiting else self._owner.refusal())
            return
        if (headers is not None or channel) and not self.log.stores_headers:
            waiter(HeadersRefused())
            return
        if channel:
            if channel not in self.channels:
                waiter(ChannelNotFound(channel))
                return
            self.shows_releases = True
        if self.bounds is not None:
            admitted = self.bounds.admit(bodies, headers, waiter, channel, is_first=not self._publish_buffer.waiters)
            if admitted is None:
                return
            waiter = admitted
        if not self._publish_buffer.waiters:
            self._owner.to_commit.append(self)
        if delay_ms and self._backlog.forgets_delays(self._publish_buffer.count()):
            delay_ms = 0
        if assigned is not None:
            self._publish_buffer.want_ids(len(bodies), assigned)
        self._publish_buffer.add(bodies, delay_ms, waiter, headers, channel)

    def seal(self, timestamp_ns: int) -> list[Segment]:
        """Return the publishes since the last call as segments with their position in the log."""
        segments = self._publish_buffer.seal(timestamp_ns, self.deduplication)
        if self.ephemeral and not self.is_flowing:
            segments, rest = self._backlog.fitting(segments)
            self._count(rest)
        return segments

    @property
    def waiter_count(self) -> int:
        """The number of waiters since the last `seal`."""
        return len(self._publish_buffer.waiters)

    def take_waiters(self) -> list[Waiter]:
        """Return the waiters of the last `seal`; the caller answers them."""
        return self._publish_buffer.take_waiters()

    def accept(self, segments: list[Segment], now: float, *, pinned: bool = False) -> None:
        """These are in the log now (`pinned`: will be); let the channels have them."""
        self.put_total += self._count(segments)
        if self.deduplication is not None:
            self.deduplication.accept()
        self.log.append(segments, pinned=pinned)
        self.reader.on_append(segments, now)
        for segment in segments:
            if segment.delay_ms or segment.channel:
                self._backlog.on_append(segment)
        if self.is_flowing:
            self._release.release(segments, now)
        if self.bounds is not None:
            self.bounds.on_append(segments, now)
        if self.log.is_in_memory:
            self.log.queue.trim(*self.unfinished())
        self.reader.notify()
        self.touch()

    # -- channels

    def hold(self) -> None:
        """Release nothing until `start`."""
        self.is_awaiting_channels = True

    def start(self, now: float) -> None:
        """The channels that a new topic should have are there: release what was kept for them."""
        self._release.start(now)

    def awaited_by(self, channel: str) -> Awaited:
        """See `ChannelOwner`."""
        return self._release.awaited_by(channel)

    def channel(self, name: str, now: float, start: str = "") -> Channel:
        """
        The channel of that name, created when there is none: it starts at `released`, the first one so gets
        what the topic kept; or at the oldest message kept, when `start`, or else the options, say "earliest". Whoever
        must rely on its birth waits for `broker.save`. Exiting; InvalidName; CapReached; BackendError when an
        ephemeral topic cannot move its log out of memory for it, or when it cannot be read whom kept messages are for.
        """
        existing = self.channels.get(name)
        if existing is not None:
            return existing
        if self.exiting:
            raise Exiting
        self._owner.quotas.check_channel(name)
        if self.ephemeral and not is_ephemeral(name):
            self._owner.move_out_of_memory(self)
        is_waiting = self.is_paused_or_pending
        directions = [] if is_waiting else self._backlog.directions()
        channel = Channel(self, name)
        kept = self._backlog.segments() if channel.ephemeral and not is_waiting else []
        if (start or self._owner.options.channel_start_of(self.name)) == EARLIEST and not channel.is_saved:
            try:
                channel.seek(self.reader.kept_from)
            except BackendError:
                channel.exit()  # its bounds must not refuse publishes
                raise
        self.channels[name] = channel
        self._owner.quotas.channel_count += 1
        self._owner.log("info", "TOPIC({topic}): new channel({channel})", topic=self.name, channel=name)
        self._release.release_kept(kept, directions, now)
        self.touch()
        if not channel.ephemeral:
            self.change_names()
        self._owner.on_channel_created(self.name, name)
        return channel

    def delete_channel(self, name: str) -> None:
        """
        Remove a channel and everything in it, and disconnect its consumers. KeyError. The next checkpoint records it.
        """
        channel = self.channels.pop(name)
        self._owner.quotas.channel_count -= 1
        if not self.exiting:
            self._owner.log("info", "TOPIC({topic}): deleting channel {channel}", topic=self.name, channel=name)
        self._owner.log("info", "CHANNEL({channel}): deleting", topic=self.name, channel=name)
        channel.exit()
        channel.empty()
        self.caught_up.pop(channel, None)
        self.to_serve.pop(channel, None)
        is_stored = not (self.ephemeral or channel.ephemeral or self.exiting)
        self._owner.on_channel_deleted(self.name, name, is_stored=is_stored)
        if is_stored:
            self.change_names(at_once=True)
        self.touch()
        if self.ephemeral and not self.channels and not self.exiting:
            self._owner.delete_topic(self.name)

    # -- administration

    def pause(self) -> None:
        """Release nothing until `unpause`; publishing goes on."""
        self.paused = True
        self._tell_paused()
        self.touch()
        self.change_names(at_once=True)

    def unpause(self, now: float) -> None:
        """
        Release what was kept. BackendError when it cannot be read, and ephemeral channels are to have it, or a part of
        it is for one channel only; the topic stays paused.
        """
        kept = self._backlog.for_ephemeral(self.channels.values())
        directions = self._backlog.directions()
        self.paused = False
        self._tell_paused()
        self._release.release_kept(kept, directions, now)
        self.touch()
        self.change_names(at_once=True)

    def _tell_paused(self) -> None:
        for channel in self.channels.values():
            channel.tell_paused()

    def set_durability(self, durability: str) -> None:
        """
        Change the guarantee of an OK; "": the one in the options. BackendError when unstored messages of class memory
        cannot be stored, and then nothing changes.
        """
        if self.is_write_behind:
            self._owner.flush_write_behind(self)
        self._given_durability = durability
        self.durability = durability or self._owner.options.durability_of(self.name)
        self.touch()

    def flush(self) -> None:
        """Store what class memory has answered and not stored yet. BackendError."""
        self._owner.flush_write_behind(self)

    def follow_options(self, now: float) -> None:
        """
        The options may say something else of this topic; its channels follow by themselves. What was set while a broker
        ran stays. BackendError when unstored messages of class memory cannot be stored, and then its class stays as it
        was.
        """
        if self.policies.follow():
            self.touch()
        if self.reader.retention_policy.follow_options(now):
            self.reader.notify()
            self.touch()
        if not self._given_durability and self.durability != self._owner.options.durability_of(self.name):
            self.set_durability("")

    def cancel(self, sequence: int, now: float, channel: str = "") -> Cancelled | None:
        """
        Remove a deferred message that is not due, from all channels or from one of them. What a consumer has deferred
        by REQ stays. None when no channel has it and it does not wait for its release; or when it does, for all
        channels, and is to be removed from one. BackendError. The next checkpoint makes it durable.
        """
        if sequence >= self.released:
            if (channel and self._backlog.channel_of(sequence) != channel) or not self._backlog.cancel(sequence):
                return None
            self.put_total -= 1
            self.cancelled_count += 1
            self.touch()
            return Cancelled(is_released=False, channels=[])
        names = [name for name, one in self.channels.items() if channel in ("", name) and one.cancel(sequence, now)]
        if not names:
            return None
        self.cancelled_count += 1
        return Cancelled(is_released=True, channels=names)

    def keeps_deferred(self, sequence: int) -> bool:
        """Return whether a deferred message waits for its release to all channels. BackendError."""
        return sequence >= self.released and self._backlog.channel_of(sequence) == ""

    def empty(self) -> None:
        """Drop what was not released. Channels keep what they have."""
        dropped = self.depth
        if (self.channels or self.reader.retention_policy.is_on) and self.log.end > self.released:
            self.dropped.add(self.released, self.log.end)
        for channel in self.channels.values():
            channel.joined_total += dropped
            if channel.cursor is not None:
                channel.cursor.drop(dropped)
        self.released = self.log.end
        self.released_total = self.put_total
        self._backlog.forget()
        self.touch()

    def exit(self) -> None:
        """The topic is being deleted: its publishers and consumers are told."""
        self.exiting = True
        for topic in self.saved_with:
            topic.saved_with.discard(self)
        self._publish_buffer.forget()
        for waiter in self.take_waiters():
            waiter(Exiting())
        for name in list(self.channels):
            self.delete_channel(name)
        self.reader.notify()
        self.log.close()

    def say_closing(self) -> None:
        """Tell the operator that the broker stops."""
        self._owner.log("info", "TOPIC({topic}): closing", topic=self.name)
        for name in self.channels:
            self._owner.log("info", "CHANNEL({channel}): closing", topic=self.name, channel=name)

    # -- for channels and cursors

    def touch(self) -> None:
        """Something changed that the next checkpoint must contain."""
        self._owner.touched[self] = None

    def change_names(self, *, at_once: bool = False) -> None:
        """This topic, or a durable channel of it, is new or gone, or its pause changed (see `MetadataSync.change`)."""
        self._named = None
        if not self.ephemeral:
            self._owner.on_names_changed(at_once=at_once)

    # -- dead letters

    def save(self, waiter: Waiter) -> None:
        """See `TopicLog`."""
        self._owner.save(waiter)

    def put_dead_letters(self, letters: Letters, waiter: Waiter, now: float) -> None:
        """See `TopicLog`."""
        topic = self._owner.topic(letters.topic)
        needed = "fsync" if self.durability == "fsync" else "os"
        if not topic.ephemeral and DURABILITIES.index(topic.durability) < DURABILITIES.index(needed):
            topic.set_durability(needed)

        def put(error: Exception | None) -> None:
            if error is not None:
                waiter(error)
            else:
                topic.put(letters.bodies, 0, self.move_waiter(topic, waiter), letters.headers)

        if is_ephemeral(letters.channel) or topic.channel(letters.channel, now).is_saved:
            put(None)
        else:  # a crash must not leave a letter without the channel that is to have it
            self._owner.save(put)

    def move_waiter(self, topic: Topic, waiter: Waiter) -> Waiter:
        """Return the waiter of a publish that moves messages between this topic and another one."""

        def stored(error: Exception | None) -> None:
            if error is None:
                self.saved_with.add(topic)
                topic.saved_with.add(self)
            waiter(error)

        return stored

    # -- saving

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

    def named(self) -> NamedTopic:
        """
        Return the entry of `nsqd.dat`. Cached until it changes: for thousands of topics building it takes a while.
        """
        if self._named is None:
            channels = [NamedChannel(c.name, c.paused) for c in self.channels.values() if not c.ephemeral]
            self._named = NamedTopic(self.name, self.paused, tuple(channels))
        return self._named

    def state(self, now: float) -> TopicState:
        """Return what changed since the last checkpoint."""
        state = TopicState(
            self.name,
            paused=self.paused,
            released=self.released,
            released_total=self.released_total,
            end=self.log.end,
            put_total=self.put_total,
            waiting=list(self._backlog.waiting),
            durability=self._given_durability,
            policy=self.given_policy,
        )
        self.reader.save_into(state, self._owner.timestamp_ns(now) // 10**6)
        self.dropped.forget_below(self.reader.kept_from)
        state.dropped = self.dropped.state()
        state.dedupe_window_ms = 0
        if self.deduplication is not None:
            state.publisher_ids = self.deduplication.unsaved()
            state.dedupe_window_ms = self.deduplication.window_ms
        self._in_checkpoint.clear()
        self._saved_with, self.saved_with = self.saved_with, set()
        for channel in self.channels.values():
            if channel.cursor is not None and channel.cursor.touched:
                cursor = channel.cursor.changes(channel.name, channel.first_deliveries())
                cursor.paused, cursor.policy = channel.paused, channel.given_policy
                cursor.interrupted = channel.interrupted()
                state.cursors.append(cursor)
                self._in_checkpoint.append((channel, cursor))
        return state

    def end_checkpoint(self, *, failed: bool) -> None:
        """
        The result of the last `state` is saved, channels included; or saving it `failed`, and the next checkpoint must
        contain it.
        """
        for channel, cursor in self._in_checkpoint:
            channel.is_saved = channel.is_saved or not failed
            if channel.cursor is not None:
                channel.cursor.end_checkpoint(cursor, failed=failed)
        self._in_checkpoint.clear()
        if self.deduplication is not None:
            self.deduplication.end_checkpoint(failed=failed)
        if failed:
            self.saved_with |= self._saved_with
            self.touch()
        self._saved_with = set()

    def restore(self, state: TopicState, now: float) -> None:
        """
        Become what was saved. What was put and not released goes to the channels now, deferred messages counted
        from their publish time.
        """
        self.paused = state.paused
        self._given_durability = state.durability
        self.durability = state.durability or self.durability
        if state.policy:
            self.given_policy = dict(state.policy)
            self.policies.follow()
        self.released, self.released_total = state.released, state.released_total
        self.put_total = state.put_total
        self.dropped = DroppedRanges(state.dropped)
        self._backlog.restore(state.waiting)
        for cursor in state.cursors:
            channel = self.channels[cursor.name] = Channel(self, cursor.name, cursor.policy)
            self._owner.quotas.channel_count += 1
            channel.restore(cursor)
        if self.is_flowing:
            directions = self._backlog.directions()
            self._backlog.hold_back(self.channels.values(), directions, now, since_publish=True)
            self.released, self.released_total = self.log.end, self.put_total
        for channel in self.channels.values():
            channel.joined_total = self.released_total
            channel.await_deferred(now)
        self.reader.restore(state, now)
        self.touch()

    # -- inside

    def _count(self, segments: list[Segment]) -> int:
        """Messages that were accepted; how many."""
        count = size = 0
        for segment in segments:
            count += segment.count
            size += len(segment.frames)
        self.message_count += count
        self.message_bytes += size - BODY_AT * count
        return count
