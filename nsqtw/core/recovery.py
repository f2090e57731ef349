"""
From what is stored back to a running broker.

The saved cut may be behind the log (a crash between two cuts: what is beyond it is released again) or ahead of it
(power loss: the cursors stand past the end, which is harmless). A topic that has a log and no saved state gets
everything in it for its first channel. A log that is empty takes its cursors' rows with it: there is nothing they
could refer to.
"""

from __future__ import annotations

from nsqtw.core.broker import Broker
from nsqtw.core.cut import Saved, SavedTopic, Waiting
from nsqtw.core.log import Log
from nsqtw.core.topic import Topic

_READ_BYTES = 1 << 20


def load(broker: Broker, saved: Saved, stored: list[str], now: float) -> None:
    """
    Make the topics of `broker`: those that were saved, and those in `stored`, the names its backend has something
    of. BackendError when a log cannot be opened or read.
    """
    wall_ms_at = broker.wall_offset_ns / 1e6
    known = {topic.name: topic for topic in saved.topics}
    logs = {name: broker.open_log(name) for name in [*known, *(name for name in stored if name not in known)]}
    broker.start_blocks(saved.next_block, max((log.end for log in logs.values()), default=0))
    for name, log in logs.items():
        state = known.get(name) or SavedTopic(name, released=log.queue.first, end=log.queue.first)
        if log.queue.first == log.queue.end:
            _forget_messages(state, log)
        topic = broker.topics[name] = Topic(broker, name, log)
        _count_beyond(state, log)
        topic.restore(state, now, wall_ms_at)


def _count_beyond(state: SavedTopic, log: Log) -> None:
    """Add to `state` what the log has beyond the end that was saved."""
    while read := log.queue.read(state.end, _READ_BYTES):
        state.put_total += sum(segment.count for segment in read)
        state.waiting += [Waiting(s.first, s.count, s.delay_ms) for s in read if s.delay_ms]
        state.end = read[-1].end


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
