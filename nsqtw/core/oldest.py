"""
Age of the oldest message that waits in a channel.

A message waits when it could be delivered now, or when an earlier one of its key is delivered: it is neither in flight
nor deferred. Its publish time is in its frame, and for a backlog the frame is in the backend. So what was read is
remembered: the oldest message of a channel that stands still is read once, however often its age is asked for.

A channel whose next messages are all deferred is looked through for MAX_SEGMENTS segments, and then has no age.
"""

from __future__ import annotations

from nsqtw.core.channel import Channel
from nsqtw.core.cursor import Cursor
from nsqtw.core.ephemeral_queue import EphemeralQueue
from nsqtw.core.segment import timestamp_ns_of
from nsqtw.errors import BackendError

MAX_SEGMENTS = 8
MAX_READS = 500
"""Reads of the backend for one answer that is made in one go: up to 0.1 ms each when the system has it cached."""

_Times = dict[int, int]
"""When messages were published, in ns, by sequence."""


class OldestMessages:
    """The oldest waiting messages that are known of the channels of one broker."""

    def __init__(self) -> None:
        self._known: dict[Channel, _Times] = {}

    def ages(self, max_reads: float = MAX_READS) -> Ages:
        """Return the ages for one answer, which may read the backend so often. Forgets channels that are gone."""
        for channel in [channel for channel in self._known if channel.exiting]:
            del self._known[channel]
        return Ages(self._known, max_reads)


class Ages:
    """The ages of oldest messages. `known` is what was read before, and is added to."""

    def __init__(self, known: dict[Channel, _Times], max_reads: float) -> None:
        self._known = known
        self._reads_left = max_reads

    def age(self, channel: Channel, now: float) -> float | None:
        """
        Return the seconds since the oldest waiting message of `channel` was published. None when no message waits, and
        when that is not known without another read than the allowed ones.
        """
        if channel.cursor is not None:
            published_ns = self._oldest_ns(channel, channel.cursor)
        else:
            assert isinstance(channel.position, EphemeralQueue), "the other kind of position"
            published_ns = channel.position.oldest_ns()
        return None if published_ns is None else max(0, channel.topic.context.age_ns(published_ns, now)) / 1e9

    def _oldest_ns(self, channel: Channel, cursor: Cursor) -> int | None:
        """Return the timestamp of the oldest message. At most two of a channel are looked up and remembered."""
        known = self._known.pop(channel, {})
        times: _Times = {}
        requeued = min(channel.droppable.requeued_sequences(), default=None)
        if requeued is not None and (time := known.get(requeued) or self._look_up(channel, requeued, passes=False)):
            times[requeued] = time
        if cursor.has_unread and (time := known.get(cursor.next) or self._look_up(channel, cursor.next, passes=True)):
            times[cursor.next] = min(time, times.get(cursor.next, time))
        if not times:
            return None
        self._known[channel] = times
        return min(times.values())

    def _look_up(self, channel: Channel, sequence: int, *, passes: bool) -> int | None:
        """Read the message at `sequence`, or the one after it; `passes` deferred ones and those of other channels."""
        log, released = channel.topic.log, channel.topic.released
        for _ in range(MAX_SEGMENTS):
            if not log.has_in_memory(sequence):
                if not self._reads_left:
                    return None
                self._reads_left -= 1
            try:
                segments = log.read(sequence, 1)
            except BackendError:  # the reader of the channel meets it, too, and logs it
                return None
            if not segments or segments[0].first >= released:
                return None
            segment = segments[0]
            if not passes or (segment.is_for(channel.name) and not segment.delay_ms):
                index = max(0, sequence - segment.first)
                return timestamp_ns_of(segment.frames, segment.offsets[index])
            sequence = segment.end
        return None
