"""
From what is stored back to a running broker.

The saved cut may be behind the log (a crash between two cuts: what is beyond it is released again) or ahead of it
(power loss: the newest messages are gone, and the counts are taken anew). A topic that has a log and no saved state
gets everything in it for its first channel; what an ephemeral one left behind is removed. A log that is empty takes
its cursors' rows with it: there is nothing they could refer to.
"""

from __future__ import annotations

from nsqtw.core.broker import Broker
from nsqtw.core.cut import Saved, SavedTopic, Waiting
from nsqtw.core.log import Log
from nsqtw.core.segment import Segment
from nsqtw.core.topic import Topic
from nsqtw.names import is_ephemeral

_READ_BYTES = 1 << 20


def load(broker: Broker, saved: Saved, stored: list[str], now: float) -> None:
    """
    Make the topics of `broker`: those that were saved, and those in `stored`, the names its backend has something
    of. BackendError when a log cannot be opened or read.
    """
    wall_ms_at = broker.wall_offset_ns / 1e6
    known = {topic.name: topic for topic in saved.topics}
    for name in filter(is_ephemeral, stored):
        broker.backend.queue(name).delete()
    names = [*known, *(name for name in stored if name not in known and not is_ephemeral(name))]
    logs = {name: broker.open_log(name) for name in names}
    broker.start_blocks(saved.next_block, max((log.end for log in logs.values()), default=0))
    for name, log in logs.items():
        state = known.get(name) or SavedTopic(name, released=log.queue.first, end=log.queue.first)
        mend(state, log)
        _count_beyond(state, log)
        topic = broker.topics[name] = Topic(broker, name, log)
        topic.restore(state, now, wall_ms_at)


def mend(state: SavedTopic, log: Log) -> None:
    """Let `state` refer to nothing that its log has not got. BackendError when that cannot be read."""
    if log.queue.first == log.queue.end:
        _forget_messages(state, log)
    elif log.end < state.end:
        _count_again(state, log)


def _count_beyond(state: SavedTopic, log: Log) -> None:
    """Add to `state` what the log has beyond the end that was saved."""
    while read := log.queue.read(state.end, _READ_BYTES):
        state.put_total += sum(segment.count for segment in read)
        state.waiting += [Waiting(s.first, s.count, s.delay_ms) for s in read if s.delay_ms]
        state.end = read[-1].end


def _count_again(state: SavedTopic, log: Log) -> None:
    """The log ends before the end that was saved: what is gone is not counted, and nobody waits for it."""
    state.waiting = [waiting for waiting in state.waiting if waiting.first < log.end]
    for cursor in state.cursors:
        cursor.dropped_rows += [row.sequence for row in cursor.held if row.sequence >= log.end]
        cursor.held = [row for row in cursor.held if row.sequence < log.end]
        cursor.first_deliveries = [sequence for sequence in cursor.first_deliveries if sequence < log.end]
        cursor.taken_total = state.released_total
    state.put_total = state.released_total
    sequence = min([state.released, *(cursor.next for cursor in state.cursors)])
    while read := log.queue.read(sequence, _READ_BYTES):
        sequence = read[-1].end
        for segment in read:
            state.put_total += max(0, segment.end - max(segment.first, state.released))
            for cursor in state.cursors:
                if not segment.delay_ms:
                    cursor.taken_total -= _unread(segment, cursor.next, state)


def _unread(segment: Segment, start: int, state: SavedTopic) -> int:
    """How many messages of a segment a cursor at `start` still has to read of what is released."""
    low, high = max(segment.first, start), min(segment.end, state.released)
    dropped = sum(max(0, min(high, stop) - max(low, first)) for first, stop in state.dropped)
    return max(0, high - low) - dropped


def _forget_messages(state: SavedTopic, log: Log) -> None:
    """The log is empty: so is the topic, and so are its channels. The counters go on."""
    state.put_total = state.released_total = max(state.put_total, state.released_total)
    state.released = state.end = log.end
    state.waiting.clear()
    state.dropped.clear()
    for cursor in state.cursors:
        cursor.next = log.end
        cursor.taken_total = state.released_total
        cursor.emptied = bool(cursor.held)
        cursor.held.clear()
        cursor.first_deliveries.clear()
