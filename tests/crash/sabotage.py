"""
Brokers with a broken promise, each broken in one place. The checker has to find every one of them.

Each of these functions changes the broker of its own process, before it starts.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from nsqtw.backends.disk.backend import DiskQueue
from nsqtw.backends.disk.writer import LogWriter
from nsqtw.backends.positions.store import Positions
from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.checkpoint import Checkpoint, CursorState
from nsqtw.core.cursor import Cursor
from nsqtw.core.segment import Segment
from nsqtw.core.topic import Topic
from tests.crash.file_layers import Volatile

_EVERY = 5
_TOO_SOON = 10
"""Delays are so many times shorter: on a slow machine a little would not show."""


def change_cuts(change: Callable[[CursorState], None]) -> None:
    """Have each cursor changed before it is saved."""
    save = Positions.save

    def wrong(self: Positions, checkpoint: Checkpoint) -> None:
        for topic in checkpoint.topics:
            for cursor in topic.cursors:
                change(cursor)
        save(self, checkpoint)

    Positions.save = wrong  # type: ignore[method-assign]


def forget_commit() -> None:
    """Says OK now and then for what it only has in memory."""
    store = Broker._store
    turns = count()

    def wrong(self: Broker, sealed: Any, now: float) -> Any:
        return {} if next(turns) % _EVERY == 0 else store(self, sealed, now)

    Broker._store = wrong  # type: ignore[method-assign]


def forget_sync() -> None:
    """Says OK before it is on stable storage."""
    Volatile.sync = lambda self, fd: None  # type: ignore[method-assign]


def forget_held_rows() -> None:
    """What is requeued or deferred is not there any more after a crash."""
    change_cuts(lambda cursor: cursor.pending.clear())


def forget_in_flight() -> None:
    """What is in flight is not there any more after a crash."""
    change_cuts(lambda cursor: cursor.first_deliveries.clear())


def forget_saving() -> None:
    """After a crash everything that was finished comes back."""

    def wrong(self: Positions, checkpoint: Checkpoint) -> None:
        if checkpoint.topics and not any(cursor.next for topic in checkpoint.topics for cursor in topic.cursors):
            save(self, checkpoint)

    save = Positions.save
    Positions.save = wrong  # type: ignore[method-assign]


def forget_attempts() -> None:
    """Every delivery is a second one at most."""
    again = Segment.redelivery_frame
    Segment.redelivery_frame = lambda self, index, attempts: again(self, index, min(attempts, 2))  # type: ignore[method-assign]


def forget_stored_attempts() -> None:
    """A crash takes the attempts back."""

    def change(cursor: CursorState) -> None:
        cursor.pending = [row._replace(attempts=min(row.attempts, 1)) for row in cursor.pending]

    change_cuts(change)


def deliver_early() -> None:
    """What was published with a delay comes before its time."""
    put = Topic.put

    def wrong(self: Topic, bodies: Sequence[bytes], delay_ms: int, *more: Any, **named: Any) -> None:
        put(self, bodies, delay_ms // _TOO_SOON, *more, **named)

    Topic.put = wrong  # type: ignore[method-assign,assignment]


def requeue_early() -> None:
    """What was requeued with a delay comes before its time."""
    requeue = Channel.requeue

    def wrong(
        self: Channel, consumer: Any, message_id: bytes, delay: float, now: float, detail: str = ""
    ) -> str | None:
        return requeue(self, consumer, message_id, delay / _TOO_SOON, now, detail)

    Channel.requeue = wrong  # type: ignore[method-assign]


def restore_early() -> None:
    """A restart makes everything due."""

    def change(cursor: CursorState) -> None:
        cursor.pending = [row._replace(due_ms=min(row.due_ms, 1)) for row in cursor.pending]

    change_cuts(change)


def miscount() -> None:
    """One message more is counted than was accepted."""
    accept = Topic.accept

    def wrong(self: Topic, segments: list[Segment], *arguments: Any, **options: Any) -> None:
        if not self.message_count:
            self.message_count += 1
        accept(self, segments, *arguments, **options)

    Topic.accept = wrong  # type: ignore[method-assign]


def garble() -> None:
    """Now and then the last byte of what is delivered is another."""
    slice_ = Segment.slice
    slices = count(1)

    def wrong(self: Segment, start: int, stop: int) -> bytes:
        frames = slice_(self, start, stop)
        return frames[:-1] + struct.pack("B", frames[-1] ^ 1) if next(slices) % _EVERY == 0 else frames

    Segment.slice = wrong  # type: ignore[method-assign]


def deliver_by_counts() -> None:
    """
    A channel is given as many messages as are counted, and what a failed sync has left in the log is not counted: the
    last message waits for the next publish.
    """

    def leave(self: LogWriter, file: Any, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    LogWriter._truncate = leave  # type: ignore[method-assign]
    DiskQueue.check = lambda self, start, expected: False  # type: ignore[method-assign]
    Cursor.available = property(lambda self: self.depth)  # type: ignore[method-assign, assignment]


SABOTAGES: dict[str, Callable[[], None]] = {
    sabotage.__name__: sabotage
    for sabotage in (
        forget_commit,
        forget_sync,
        forget_held_rows,
        forget_in_flight,
        forget_saving,
        forget_attempts,
        forget_stored_attempts,
        deliver_early,
        requeue_early,
        restore_early,
        miscount,
        garble,
        deliver_by_counts,
    )
}
