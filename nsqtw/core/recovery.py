"""
Recovery of a broker from its stored state.

The saved checkpoint may be behind the log (a crash between two checkpoints: what is beyond it is released again) or
ahead of it (power loss: the newest messages are lost, and the counts are taken again). A topic with a log and without
saved state gets everything in the log for its first channel; the log of an ephemeral topic is removed. An empty log
invalidates the rows of its cursors. A topic that has messages and released none may have waited for channels that an
nsqlookupd knows (`Topic.hold`): with an nsqlookupd configured it waits again.

A message that has moved to another topic (a dead letter, for example) is stored there before the checkpoint is saved
that finishes it; the messages beyond the checkpoint tell (`core.policy.moves`).

`nsqd.dat` may name topics and channels that were not saved: an nsqd left them, or the saved state was lost. They are
created. A channel of a topic whose state was lost starts at the oldest message kept, which may repeat messages and
loses none; a channel of a saved topic starts where a new one does. Saved state is used as it is, pauses too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice, takewhile
from operator import attrgetter

from attrs import evolve

from nsqtw.core.broker import Broker
from nsqtw.core.checkpoint import Checkpoint, CursorState, NamedTopic, SavedState, TopicState, Waiting
from nsqtw.core.log import Log
from nsqtw.core.pending import all_rows
from nsqtw.core.policy.moves import Moves
from nsqtw.core.positions import IPositions
from nsqtw.core.retention import Ages, Mark, limits_of
from nsqtw.core.segment import SEQUENCE_MASK, Segment
from nsqtw.core.sequence_ranges import SequenceRanges
from nsqtw.core.sequences import BLOCK_SIZE
from nsqtw.core.topic import Topic
from nsqtw.interfaces import ICopyingBackend, ICountedQueue, IDamagedBackend, IDamagedQueue
from nsqtw.names import is_ephemeral
from nsqtw.options.broker import Options

_READ_BYTES = 1 << 20


def load(broker: Broker, saved: SavedState, stored: list[str], now: float, named: Iterable[NamedTopic] = ()) -> None:
    """
    Make the topics of `broker`: those that were saved, those in `stored`, the names its backend has something of, and
    those that `nsqd.dat` has `named`. BackendError when a log cannot be opened or read.
    """
    broker.pending_clock.start(broker.wall_offset_ns, saved.wall_shift_ms)
    if not broker.options.keep_deferred:
        broker.positions.forget_delays()
    saved_topics = {topic.name: topic for topic in saved.topics}
    for name in filter(is_ephemeral, stored):
        broker.backend.queue(name).delete()
    named_topics = _union(named, saved.lost_topics)
    durable = [name for name in dict.fromkeys([*saved_topics, *stored, *named_topics]) if not is_ephemeral(name)]
    if IDamagedBackend.providedBy(broker.backend):
        broker.backend.expect({topic.name: topic.end for topic in saved.topics})
    logs = {name: broker.open_log(name) for name in durable}
    states: dict[str, TopicState] = {}
    known_ids: dict[str, tuple[int, int]] = {}  # see _remember_ids
    moves = Moves()
    broker.sequences.start(saved.next_block, max((log.end for log in logs.values()), default=0))
    for name, log in logs.items():
        asked = named_topics.get(name, NamedTopic(name))
        state = _state_of(broker, log, asked, saved_topics.get(name), saved.next_block)
        if ICopyingBackend.providedBy(broker.backend):
            # What all channels had finished may be freed before this machine had a copy: channels stay behind it.
            log.end = max(log.end, state.end)
        backlog, saved_end, lost_from = _backlog_of(state), state.end, _lost_from(state, log)
        repair(state, log, broker.positions)
        if saved_end > log.end and backlog > _backlog_of(state):
            _report_loss(broker, name, log, saved_end, backlog - _backlog_of(state))
        elif name in saved_topics and ICountedQueue.providedBy(log.queue) and log.queue.check(_start(state), backlog):
            _recount(state, log, broker.positions)
        moves.add(state)
        _count_beyond(state, log, broker.options, moves)
        states[name], known_ids[name] = state, (saved_end, lost_from)
    moves.finish(broker.positions)
    for name, state in states.items():
        if not broker.options.keep_deferred:
            _forget_delays(state)
        topic = broker.topics[name] = Topic(broker, name, logs[name])
        if broker.options.lookupd_tcp_address and state.put_total and not state.released_total:
            topic.hold()
        topic.restore(state, now)
        _remember_ids(topic, *known_ids[name], now)
    for asked in named_topics.values():
        _add_ephemeral(broker, asked, now)
    broker.quotas.are_on = True


def _union(named: Iterable[NamedTopic], others: Iterable[NamedTopic]) -> dict[str, NamedTopic]:
    """Merge two lists of topics by name, with the channels of both."""
    topics = {topic.name: topic for topic in named}
    for other in others:
        topic = topics.get(other.name, other)
        channel_names = {channel.name for channel in topic.channels}
        more = tuple(channel for channel in other.channels if channel.name not in channel_names)
        topics[other.name] = evolve(topic, channels=topic.channels + more)
    return topics


def _state_of(
    broker: Broker, log: Log, asked: NamedTopic, saved: TopicState | None, next_block: int | None
) -> TopicState:
    """Return the state that a topic starts with: the saved one, if there is one and its numbers are consistent."""
    name = asked.name
    if saved is None:
        broker.log("info", f"TOPIC({name}): created")
    state = saved or TopicState(name, asked.paused, released=log.queue.first, end=log.queue.first)
    if not _is_possible(state, next_block):
        broker.log("error", f"TOPIC({name}): what was saved of it makes no sense - starts at the oldest message kept")
        state = _from_the_oldest(state, log)
    _add_channels(broker, state, asked)
    return state


def _is_possible(state: TopicState, next_block: int | None) -> bool:
    """
    Return whether saved numbers are consistent. No sequence can be in a block that was never reserved; after a power
    loss a cursor may be beyond what is released.
    """
    limit = SEQUENCE_MASK if next_block is None else next_block * BLOCK_SIZE
    return (
        state.released_total <= state.put_total
        and max(
            [state.released, *(position for cursor in state.cursors for position in (cursor.next, *cursor.positions))]
        )
        <= limit
        and all(cursor.taken_total <= state.released_total for cursor in state.cursors)
    )


def _from_the_oldest(state: TopicState, log: Log) -> TopicState:
    """Return the topic with its channels at the start of the log."""
    first = log.queue.first
    cursors = [
        CursorState(cursor.name, cursor.paused, next=first, emptied=True, policy=cursor.policy)
        for cursor in state.cursors
    ]
    kept = TopicState(state.name, state.paused, released=first, end=first, durability=state.durability)
    return evolve(kept, policy=state.policy, cursors=cursors)


def _add_channels(broker: Broker, state: TopicState, asked: NamedTopic) -> None:
    """Add to `state` the durable channels that it lacks, at the place where a topic's first channel starts."""
    channel_names = {cursor.name for cursor in state.cursors}
    for channel in asked.channels:
        if channel.name not in channel_names and not is_ephemeral(channel.name):
            cursor = CursorState(channel.name, channel.paused, state.released, state.released_total)
            state.cursors.append(cursor)
            broker.log("info", f"TOPIC({state.name}): new channel({channel.name})")


def _add_ephemeral(broker: Broker, asked: NamedTopic, now: float) -> None:
    """Make what is not there yet of a topic that was named: ephemeral channels, or itself when it is ephemeral."""
    topic = broker.topic(asked.name)
    if asked.paused and topic.ephemeral:
        topic.pause()
    for named in asked.channels:
        if named.name not in topic.channels:
            channel = topic.channel(named.name, now)
            if named.paused:
                channel.pause()


def repair(state: TopicState, log: Log, positions: IPositions) -> None:
    """Let `state` refer to nothing that its log has not got. BackendError when that cannot be read."""
    if log.queue.first == log.queue.end:
        _forget_messages(state, log)
        return
    is_damaged = IDamagedQueue.providedBy(log.queue) and log.queue.is_damaged
    is_shorter = log.queue.end < state.end
    if is_damaged or is_shorter:  # after a power loss the checkpoint may also be older than the last trim
        _forget_lost_rows(state, log, positions)
    if is_shorter:
        _recount(state, log, positions)
    elif is_damaged:
        _count_unread(state, log)


def _start(state: TopicState) -> int:
    """Return the position of the slowest channel."""
    return min((cursor.next for cursor in state.cursors), default=state.released)


def _backlog_of(state: TopicState) -> int:
    """Return how many messages the channel with the longest backlog should find in the log, without deferred ones."""
    unread = max((state.released_total - cursor.taken_total for cursor in state.cursors), default=0)
    return unread + state.put_total - state.released_total


def _report_loss(broker: Broker, topic: str, log: Log, saved_end: int, count: int) -> None:
    """The log is shorter than it was when positions were saved."""
    # Class memory promises nothing else when the process is killed.
    level = "warn" if broker.options.durability_of(topic) == "memory" else "error"
    text = "TOPIC({topic}): the log ends at {end}, positions.db knew it up to {saved_end}; messages lost: {count}"
    broker.damage.add(topic, lost=count, damaged=count)
    broker.log(level, text, topic=topic, end=log.end, saved_end=saved_end, count=count)


def _count_beyond(state: TopicState, log: Log, options: Options, moves: Moves) -> None:
    """Add to `state` what the log has beyond the end that was saved. `moves` learns of messages that have moved."""
    limits = limits_of(state.name, (state.retention_time, state.retention_bytes), options)
    runs, ages = SequenceRanges(state.end, state.runs), Ages(limits, state.end, map(Mark._make, state.marks))
    runs.truncate(log.end)
    ages.truncate(log.end)
    while read := log.queue.read(state.end, _READ_BYTES):
        for segment in read:
            runs.add(segment.first, segment.count)
            ages.on_append(segment)
        moves.read(read)
        state.put_total += sum(segment.count for segment in read)
        state.waiting += [Waiting(s.first, s.count, s.delay_ms) for s in read if s.delay_ms or s.channel]
        state.end = read[-1].end
    state.runs, state.marks = runs.state(), [*ages.state()]


def _lost_from(state: TopicState, log: Log) -> int:
    """
    Return where the messages begin that were saved as stored and are lost. What all channels had reached is not: it was
    finished, mostly, and trimmed.
    """
    return max(log.end, _start(state))


def _remember_ids(topic: Topic, saved_end: int, lost_from: int, now: float) -> None:
    """Know the publishers' ids of the messages beyond the end that was saved, and of none that was lost."""
    if topic.deduplication is None:
        return
    if saved_end > lost_from:
        topic.context.positions.forget_publisher_ids(topic.name, lost_from)
    while read := topic.log.queue.read(saved_end, _READ_BYTES):
        topic.deduplication.restore(read, now)
        saved_end = read[-1].end


def _forget_delays(state: TopicState) -> None:
    """Make all deferred messages due now."""
    state.waiting = [evolve(waiting, delay_ms=0) for waiting in state.waiting]


def _recount(state: TopicState, log: Log, positions: IPositions) -> None:
    """
    Count the messages from the log, up to the saved end. Messages beyond the end of the log are lost: they are not
    counted, and no channel waits for them.
    """
    stored_end = log.queue.end
    state.waiting = [
        evolve(waiting, count=min(waiting.count, stored_end - waiting.first))
        for waiting in state.waiting
        if waiting.first < stored_end
    ]
    for cursor in state.cursors:
        cursor.pending_count -= positions.forget_pending(state.name, cursor.name, stored_end)
        cursor.first_deliveries = [sequence for sequence in cursor.first_deliveries if sequence < stored_end]
        cursor.next = min(cursor.next, log.end)
    state.released = min(state.released, log.end)
    _count_unread(state, log)


def _forget_lost_rows(state: TopicState, log: Log, positions: IPositions) -> None:
    """
    Remove saved rows of messages that are not stored any more: no channel waits for them, and no depth counts them.
    """
    firsts: list[int] = []
    ends: list[int] = []
    sequence = log.queue.first
    while read := log.queue.read(sequence, _READ_BYTES):
        sequence = read[-1].end
        for segment in read:
            if ends and ends[-1] == segment.first:
                ends[-1] = segment.end
            else:
                firsts.append(segment.first)
                ends.append(segment.end)

    def is_stored(sequence: int) -> bool:
        index = bisect_right(firsts, sequence) - 1
        return index >= 0 and sequence < ends[index]

    for cursor in state.cursors:
        cursor.first_deliveries = [*filter(is_stored, cursor.first_deliveries)]
        rows = all_rows(positions, state.name, cursor.name) if cursor.pending_count else ()
        cursor.dropped_rows = [row.sequence for row in rows if not is_stored(row.sequence)]
        cursor.pending_count = max(0, cursor.pending_count - len(cursor.dropped_rows))
    if any(cursor.dropped_rows for cursor in state.cursors):
        positions.save(Checkpoint(topics=[state]))
    for cursor in state.cursors:
        cursor.dropped_rows = []


def _count_unread(state: TopicState, log: Log) -> None:
    """Count what is stored from where the slowest channel is, up to the end that was saved."""
    state.put_total = state.released_total
    for cursor in state.cursors:
        cursor.taken_total, cursor.class_depths, cursor.counted_to = state.released_total, [], None
    sequence = min([state.released, *(cursor.next for cursor in state.cursors)])
    while sequence < state.end and (read := log.queue.read(sequence, _READ_BYTES)):
        sequence = read[-1].end
        for segment in read:
            state.put_total += _unreleased(segment, state)
            for cursor in state.cursors:
                if segment.is_for(cursor.name):
                    stop = min(cursor.replays, state.released) if segment.delay_ms else state.released
                    cursor.taken_total -= _unread(segment, cursor.next, stop, state)


def _unreleased(segment: Segment, state: TopicState) -> int:
    """Return how many messages of a segment wait for their release. Of deferred ones some may be cancelled."""
    low, high = max(segment.first, state.released), min(segment.end, state.end)
    if not segment.delay_ms:
        return max(0, high - low)
    place = max(0, bisect_right(state.waiting, low, key=_first) - 1)
    runs = takewhile(lambda run: run.first < high, islice(state.waiting, place, None))
    return sum(max(0, min(run.first + run.count, high) - max(run.first, low)) for run in runs)


def _unread(segment: Segment, start: int, stop: int, state: TopicState) -> int:
    """Return how many messages of a segment a cursor at `start` still has to read up to `stop`."""
    low, high = max(segment.first, start), min(segment.end, stop)
    dropped = sum(max(0, min(high, stop) - max(low, first)) for first, stop in state.dropped)
    return max(0, high - low) - dropped


def _forget_messages(state: TopicState, log: Log) -> None:
    """The log is empty: so is the topic, and so are its channels. The counters go on."""
    state.put_total = state.released_total = max(state.put_total, state.released_total)
    state.released = state.end = log.end
    state.waiting.clear()
    state.dropped.clear()
    for cursor in state.cursors:
        cursor.next, cursor.replays, cursor.counted_to = log.end, 0, None
        cursor.taken_total, cursor.class_depths = state.released_total, []
        cursor.emptied = cursor.pending_count > 0
        cursor.pending_count = 0
        cursor.first_deliveries.clear()


_first = attrgetter("first")
