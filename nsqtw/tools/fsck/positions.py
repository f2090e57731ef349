"""
positions.db: whether it is valid, and whether it agrees with the logs.

It is loaded with the code of a start, on a copy, because loading writes. In addition every page is checked. Four
things are compared with each log:

    topic      the messages that were released to no channel: counted when they were published
    channel    the messages that it has not reached: counted when the topic released them
    channel    the messages that were in flight, requeued or deferred: each by its sequence
    channel    with priorities, how many messages of each class wait
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from tempfile import TemporaryDirectory

from attrs import define, evolve, field

from nsqtw.backends.check import StoredTopic
from nsqtw.backends.connection import connect
from nsqtw.backends.finding import Finding
from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import CursorState, SavedState, TopicState
from nsqtw.core.pending import all_rows
from nsqtw.errors import BackendError, BackendFull
from nsqtw.message_headers import PRIORITIES
from nsqtw.nsqd.build import POSITIONS_FILE

FRESH_FILE = f"{POSITIONS_FILE}.new"
"""The file of an interrupted quarantine: without a positions.db the next start uses it."""

_MAX_PROBLEMS = 10


@define
class PositionsCheck:
    """The state of positions.db."""

    path: str
    saved: SavedState | None = None
    """The state that a start loads; None: nothing, or it would not start."""
    is_there: bool = False
    refusal: str = ""
    """Why a start would fail: a newer nsqtw wrote it."""
    problems: list[str] = field(factory=list)
    """The findings of SQLite's own check."""
    invalid: list[str] = field(factory=list)
    """The invalid values, and how a start repairs them."""

    def findings(self, has_logs: bool) -> Iterator[Finding]:
        """The findings about the database itself. `has_logs`: some topic has messages."""
        fresh = "channels start at the oldest message kept: messages come again, none is lost"
        if not self.is_there:
            if has_logs:
                yield Finding("no positions", self.path, f"{fresh}; the next start makes a new one")
        elif self.refusal:
            yield Finding("newer format", self.path, f"{self.refusal}: a start fails")
        elif self.saved is None:
            costs = f"{'; '.join(self.problems) or 'it cannot be read'}; {fresh}"
            yield Finding("damaged positions", self.path, costs, "sets it aside, as the next start would")
        elif self.problems:
            costs = f"{'; '.join(self.problems)}; all in it can still be read"
            yield Finding("damaged positions", self.path, costs, "writes it anew and sets the old one aside")
        for costs in self.invalid:
            yield Finding("odd positions", self.path, costs)


def check_positions(directory: str) -> PositionsCheck:
    """Look into the positions.db of a data path. BackendError when that cannot be done, here or by a broker."""
    check = PositionsCheck(os.path.join(directory, POSITIONS_FILE))
    check.is_there = os.path.exists(check.path) and os.path.getsize(check.path) > 0
    if not check.is_there:
        return check
    with TemporaryDirectory(prefix="nsqtw-fsck-") as scratch:
        copy = os.path.join(scratch, POSITIONS_FILE)
        try:
            for suffix in ("", "-wal"):
                if os.path.exists(check.path + suffix):
                    shutil.copyfile(check.path + suffix, copy + suffix)
        except OSError as failure:
            raise BackendError(f"copy of {check.path}: {(failure.strerror or str(failure)).lower()}") from failure
        check.problems = _problems(copy)
        positions = Positions(copy)
        try:
            saved = positions.load()
        except BackendFull:
            raise
        except BackendError as refusal:
            check.refusal = str(refusal)
            return check
        if not saved.lost:
            check.saved = saved
            check.invalid = saved.invalid
            _read_pending(positions, saved)
            if check.problems:
                check.invalid = [*saved.invalid, *_read_publisher_ids(positions, saved)]
        positions.close(False)
    return check


def compare(path: str, saved: SavedState, logs: Mapping[str, StoredTopic]) -> Iterator[Finding]:
    """The differences between the positions, at `path`, and the logs."""
    topic_names = {topic.name for topic in saved.topics}
    costs = "nothing: the next start makes the topic, and its channels start at the oldest message kept"
    for name, log in logs.items():
        if name not in topic_names and log.is_known and log.end:
            yield Finding("unknown topic", log.place, costs, None, name)
    for topic in saved.topics:
        log = logs.get(topic.name, StoredTopic(topic.name, ""))
        if log.is_known:
            yield from _compare_topic(path, topic, log)


def topics_with_class_depths(saved: SavedState | None) -> set[str]:
    """Return the topics with a channel for which is saved how many messages of each class wait."""
    topics = saved.topics if saved is not None else []
    return {topic.name for topic in topics if any(cursor.class_depths for cursor in topic.cursors)}


def miscounted(saved: SavedState, logs: Mapping[str, StoredTopic]) -> list[TopicState]:
    """Return the topics with channels that wait for other numbers of each class than are saved; those channels only."""
    found = []
    for topic in saved.topics:
        log = logs.get(topic.name)
        cursors = [cursor for cursor in topic.cursors if log is not None and _is_miscounted(topic, cursor, log)]
        if cursors:
            found.append(evolve(topic, cursors=cursors))
    return found


def _read_pending(positions: Positions, saved: SavedState) -> None:
    """Load all pending rows, and what else is saved of them. BackendError."""
    for topic in saved.topics:
        for cursor in topic.cursors:
            cursor.pending = list(all_rows(positions, topic.name, cursor.name))
            cursor.pending_count = len(cursor.pending)
            cursor.held = positions.held(topic.name, cursor.name)


def _read_publisher_ids(positions: Positions, saved: SavedState) -> Iterator[str]:
    """Load what a repair copies besides. Yields a line about each topic of which that is not possible."""
    for topic in saved.topics:
        try:
            topic.publisher_ids = positions.all_publisher_ids(topic.name)
        except BackendError as error:
            yield f"TOPIC({topic.name}): publishers' ids cannot be read, so repeats are not recognized: {error}"
        topic.dedupe_window_ms = 1  # remove none that is younger; the broker knows the window


def _compare_topic(path: str, topic: TopicState, log: StoredTopic) -> Iterator[Finding]:
    """The expectations of a topic's positions about its log."""
    lost_count = topic.put_total - topic.released_total - _count(log, topic.released, topic.end)
    if lost_count > 0:
        costs = f"not in the log: {lost_count} of those that no channel was given yet"
        yield Finding("missing messages", path, costs, None, topic.name)
    of_channels = [finding for cursor in topic.cursors for finding in _compare_channel(path, topic, cursor, log)]
    # Trim frees finished messages at the end of a log, too: a log that ends early and lacks nothing is as it should be.
    if 0 < log.end < topic.end and (lost_count > 0 or of_channels):
        beyond = [cursor.name for cursor in topic.cursors if cursor.next > log.end]
        shown = f"channels beyond it: {', '.join(beyond)}" if beyond else "no channel is beyond it"
        costs = f"the log ends at {log.end}, {shown}; the next start puts them right"
        yield Finding("positions outside the log", path, costs, None, topic.name, messages=(log.end, topic.end - 1))
    yield from of_channels


def _compare_channel(path: str, topic: TopicState, cursor: CursorState, log: StoredTopic) -> Iterator[Finding]:
    lost_count = topic.released_total - cursor.taken_total - _unread(topic, cursor, log)
    if cursor.counted_to is not None:
        place = max(cursor.next, cursor.counted_to), cursor.replays
        lost_count -= _count(log, *place) - _between(log, topic, cursor, *place)
    if lost_count > 0:
        costs = f"not in the log: {lost_count} of those it has not come to; its depth is right when it has passed them"
        yield Finding("missing messages", path, costs, None, topic.name, cursor.name)
    unfinished = {*cursor.first_deliveries, *(row.sequence for row in cursor.pending)}
    lost = sorted(sequence for sequence in unfinished if not log.has(sequence, cursor.name))
    if lost:
        costs = f"not in the log: {len(lost)} of those in flight, requeued or deferred; it passes them over"
        yield Finding("held without a record", path, costs, None, topic.name, cursor.name, messages=(lost[0], lost[-1]))

    if _is_miscounted(topic, cursor, log):
        counts, found = (_shown(numbers) for numbers in (cursor.class_depths[:-1], _class_depths(topic, cursor, log)))
        costs = f"{counts} wait by the saved counts, {found} by the log; nothing is lost, statistics and the choice of"
        costs += " what a bound drops are wrong"
        remedy = "removes the counts, and the next start counts anew"
        yield Finding("wrong class depths", path, costs, remedy, topic.name, cursor.name)


def _is_miscounted(topic: TopicState, cursor: CursorState, log: StoredTopic) -> bool:
    """Return whether other numbers of messages of each class wait than are saved, as far as both are known."""
    if not cursor.class_depths or log.classes is None or not log.is_known:
        return False
    return cursor.class_depths[:-1] != _class_depths(topic, cursor, log)


def _class_depths(topic: TopicState, cursor: CursorState, log: StoredTopic) -> list[int]:
    """Return how many messages of each class wait in the log, up to the sequence to which they are counted."""
    assert log.classes is not None
    of_class, end = log.classes.of, min(cursor.class_depths[-1], topic.released)
    depths = [0] * len(cursor.positions)
    for number, position in enumerate(cursor.positions):
        for low, high in _kept(topic, position, end):
            if number in of_class:
                depths[number] += of_class[number].count_for(cursor.name, low, high)
            else:
                depths[number] += _between(log, topic, cursor, low, high)
                depths[number] -= sum(other.count_for(cursor.name, low, high) for other in of_class.values())
    return depths


def _kept(topic: TopicState, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges between two places that were not dropped by emptying the topic."""
    for first, stop in sorted(topic.dropped):
        yield low, max(low, min(first, high))
        low = max(low, stop)
    yield low, max(low, high)


def _shown(counts: Sequence[int]) -> str:
    """Return the numbers of messages of each class in words."""
    return ", ".join(f"{count} {name}" for count, name in zip(counts, PRIORITIES, strict=True))


def _count(log: StoredTopic, low: int, high: int) -> int:
    return log.at_once.count(low, high) + log.deferred.count(low, high)


def _unread(topic: TopicState, cursor: CursorState, log: StoredTopic) -> int:
    """
    Released messages a cursor has not come to: dropped ones count as taken, as do those for other channels, and
    deferred ones but in a replay. With priorities these are too many, by those that were delivered ahead of others.
    """
    return _between(log, topic, cursor, cursor.next, topic.released) - sum(
        [_between(log, topic, cursor, max(first, cursor.next), stop) for first, stop in topic.dropped]
    )


def _between(log: StoredTopic, topic: TopicState, cursor: CursorState, low: int, high: int) -> int:
    """Return how many messages between two places a cursor reads from the log."""
    return log.at_once.count_for(cursor.name, low, min(high, topic.released)) + log.deferred.count_for(
        cursor.name, low, min(high, cursor.replays)
    )


def _problems(path: str) -> list[str]:
    """The damage of a database, in SQLite's words; nothing when it is sound."""
    try:
        with closing(connect(path)) as connection:
            rows = connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})").fetchall()
    except sqlite3.Error as error:
        return [str(error)]
    return [" ".join(str(row[0]).split()) for row in rows if row[0] != "ok"]
