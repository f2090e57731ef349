"""
The end of a reactor turn: everything that was read is stored, served and written at once.

    wake ─▶ end of the turn: tick ─▶ commit ─▶ serve ─▶ write ─▶ begin a checkpoint ─▶ set the timer
                                      │ group commits            │
                                      └──────▶ storage thread ◀──┘

Theory of operation. Every change of the broker calls `wake`; after all reads of the same reactor turn the pump does the
broker's steps in order and lets each changed connection write once. Nothing here is done for a single message. The pump
owns the only timer, set to the time at which the broker is next needed. It begins checkpoints: one at a time, about one
a second, and at once when a waiter asks for it. It hands a group commit (`core.group_commit`) to the storage thread as
soon as the one before has ended.

`stop` goes through the phases in order: commits end (STOPPING), the last checkpoint is written and retried
(LAST_CHECKPOINT), and then nothing is done any more but to write answers (STOPPED).

Performance: called once per turn.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from math import inf
from time import monotonic, monotonic_ns, time_ns
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from nsqtw.core.broker import Broker
from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.core.group_commit import CommitBatch
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackendQueue
from nsqtw.runtime.flushable import Flushable
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.turns import Connection, end_failed, end_of_turn

_log = Logger()

SAVE_SECONDS: Final = 1.0
PART_SECONDS: Final = 0.05
"""Between two parts of a checkpoint: 2,000 topics and channels are saved in a second, which takes 4 % of it."""
STOP_ATTEMPTS: Final = 3
"""Attempts at the last checkpoint: a medium may fail once, and what is not saved is delivered again after the start."""
COMMIT_BYTES: Final = 4 * 1024 * 1024
"""A turn that reads more than this commits in between, which bounds the memory of unstored publishes."""


class Phase(Enum):
    """The life of a pump."""

    RUNNING = auto()
    STOPPING = auto()
    """`Pump.stop` was called; a group commit is in the thread."""
    LAST_CHECKPOINT = auto()
    STOPPED = auto()


class CheckpointState(Enum):
    """The checkpoint that is due next."""

    IDLE = auto()
    WRITING = auto()
    """A part is in the thread."""
    BACKING_OFF = auto()
    """The last one could not be begun: the next one begins in SAVE_SECONDS, even if there are waiters."""


_RUNNING: Final = Phase.RUNNING
_STOPPED: Final = Phase.STOPPED
_WRITING: Final = CheckpointState.WRITING
"""Looked up once: the attribute of an Enum class is computed in Python."""


class Writer(Protocol):
    """Executes a CheckpointJob or a CommitBatch elsewhere, and reports in the reactor thread."""

    def save(self, save: CheckpointJob, done: Callable[[CheckpointJob, BackendError | None], None]) -> None: ...

    def commit(
        self, batch: CommitBatch, done: Callable[[CommitBatch, dict[IBackendQueue, BackendError]], None]
    ) -> None: ...


class Pump:
    """Drives `broker`. `now` is its clock, in seconds from an arbitrary start."""

    def __init__(self, reactor: Reactor, broker: Broker, writer: Writer, now: Callable[[], float] = monotonic) -> None:
        self.now = now
        """The time of the broker's clock."""
        self._reactor = reactor
        self._at_end = end_of_turn(reactor)
        self._broker = broker
        self._publish_ack = broker.publish_ack
        self._writer = writer
        self._queued: list[Flushable] = []
        """Connections to flush that know whether they are queued."""
        self._changed: dict[Connection, None] = {}
        """Connections to flush that do not know whether they are queued."""
        self._before_answers: list[Callable[[], None]] = []
        self._turn_is_due = False
        self._read_bytes = 0
        self._timer: Any = None
        self._timer_at = inf
        """The time of `_timer`; inf without one."""
        self._phase = Phase.RUNNING
        self._stopped: Deferred[None] | None = None
        self._is_committing = False
        """Whether a group commit is in the thread."""
        self._checkpoint = CheckpointState.IDLE
        self._last_checkpoint = 0.0
        """The time of the last one."""
        self._attempts_left = STOP_ATTEMPTS
        """Attempts at the last checkpoint that are left."""
        set_clock(broker, self.now())

    @property
    def reactor(self) -> Any:
        return self._reactor

    def wake(self) -> None:
        """The broker changed: do a turn after all reads of this reactor turn."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self._at_end(self._turn)

    def before_answers(self, call: Callable[[], None]) -> None:
        """Call `call` once, before the publishes of this turn are committed or answered."""
        self._before_answers.append(call)
        self.wake()

    def changed(self, connection: Connection) -> None:
        """A connection may have something to write."""
        if isinstance(connection, Flushable):
            self._record(connection)
        else:
            self._changed[connection] = None
        if not self._turn_is_due:
            self.wake()

    def received(self, connection: Flushable, count: int) -> None:
        """A connection gave `count` bytes to its session, and may have something to write."""
        self._record(connection)
        self.on_read(count)

    def on_read(self, count: int) -> None:
        """`count` bytes were read and given to a session."""
        self._read_bytes += count
        if self._read_bytes > COMMIT_BYTES:
            self._read_bytes = 0
            self._call_before_answers()
            now = self.now()
            answered_count = self._broker.commit(now)
            self._publish_ack.observe(self.now() - now, answered_count)
        if not self._turn_is_due:
            self.wake()

    def stop(self) -> Deferred[None]:
        """
        Refuse publishes and save everything. Fires when that is done, or when several attempts have failed: then the
        stored state is the one that a crash would leave.
        """
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        self._phase = Phase.STOPPING
        self._broker.begin_stop()
        now = self.now()
        self._call_before_answers()
        self._broker.commit(now)
        self._begin_commit(now)
        if not self._is_committing:
            self._begin_last_checkpoint(now)
        return stopped

    def _begin_last_checkpoint(self, now: float) -> None:
        if self._phase is Phase.STOPPING:  # once: a commit that cannot be handed over ends before `stop` goes on
            self._phase = Phase.LAST_CHECKPOINT
            self._broker.stop(now)
            self._broker.checkpointer.ask(lambda error: None)
            self._begin_checkpoint(now)

    def _record(self, connection: Flushable) -> None:
        if not connection.is_queued:
            connection.is_queued = True
            self._queued.append(connection)

    def _on_timer(self) -> None:
        self._timer_at = inf
        self._turn()

    def _turn(self) -> None:
        now = self.now()
        self._turn_is_due = True  # changes until the writes are written in this turn
        self._read_bytes = 0
        more = False
        try:
            more = self._work(now)
        except Exception:  # the next turn must come
            _log.failure("the end of a turn failed")
            self._reactor.callLater(SAVE_SECONDS, self.wake)
        self._turn_is_due = False
        if more:
            self.wake()
        self._set_timer(now, self._begin_checkpoint(now))

    def _work(self, now: float) -> bool:
        """Do the steps of a turn. Returns whether there is more to do in the next one."""
        broker = self._broker
        more = False
        if self._phase is not _STOPPED:
            set_clock(broker, now)
            broker.tick(now)
            self._call_before_answers()
            if broker.to_commit:
                answered_count = broker.commit(now)
                if answered_count:
                    self._publish_ack.observe(self.now() - now, answered_count)
            self._begin_commit(now)
            if broker.to_serve:
                more = self._serve(now)
        self._write(now)
        more = more or bool(self._phase is not _STOPPED and (broker.to_commit or broker.to_serve))
        return more or bool(self._queued or self._changed or self._before_answers)

    def _call_before_answers(self) -> None:
        if self._before_answers:
            calls, self._before_answers = self._before_answers, []
            for call in calls:
                try:
                    call()
                except Exception:  # a failed call does not stop the commit
                    _log.failure("a call before the answers failed")

    def _write(self, now: float) -> None:
        """Flush the changed connections, those first that may have been given messages."""
        for queued in self._take_queued():
            try:
                queued.flush(now)
            except Exception:
                _log.failure("a connection failed to write")
                end_failed(queued)
        if self._changed:
            changed, self._changed = self._changed, {}
            for connection in changed:
                try:
                    connection.flush(now)
                except Exception:
                    _log.failure("a connection failed to write")
                    end_failed(connection)

    def _serve(self, now: float) -> bool:
        """Serve the channels. Deliveries are written before the OKs, because consumers work with them."""
        answered = self._take_queued()
        try:
            return self._broker.serve(now)
        finally:
            for connection in answered:
                self._record(connection)

    def _take_queued(self) -> list[Flushable]:
        """Return the queued connections, and empty the queue."""
        taken, self._queued = self._queued, []
        for connection in taken:
            connection.is_queued = False
        return taken

    def _begin_commit(self, now: float) -> None:
        if not self._is_committing and (batch := self._broker.group_commit.begin(now)) is not None:
            self._is_committing = True
            try:
                self._writer.commit(batch, self._on_committed)
            except Exception as error:  # no thread can be started
                _log.failure("a group commit could not begin")
                self._on_committed(batch, batch.failed(BackendError(f"{error}")))

    def _on_committed(self, batch: CommitBatch, failed: dict[IBackendQueue, BackendError]) -> None:
        self._is_committing = False
        now = self.now()
        self._broker.group_commit.end(batch, failed, now)
        if self._stopped is not None:
            self._begin_commit(now)
            if not self._is_committing:
                self._begin_last_checkpoint(now)
        self.wake()

    def _begin_checkpoint(self, now: float) -> float:
        """Begin a checkpoint if it is time. Returns when it will be; inf if one was begun or none is wanted."""
        checkpointer = self._broker.checkpointer
        is_busy = self._checkpoint is _WRITING or self._phase is _STOPPED
        if is_busy or not checkpointer.are_wanted:
            return inf
        due = self._next_checkpoint()
        if now < due:
            return due
        self._last_checkpoint = now
        try:
            job = checkpointer.begin(now)
        except Exception:  # the next checkpoint contains what this one left
            _log.failure("a save could not be begun")
            self._checkpoint = CheckpointState.BACKING_OFF
            self._end_checkpoint(failed=True)
        else:
            self._write_checkpoint(job)
        return inf

    def _next_checkpoint(self) -> float:
        """Return the earliest time of the next checkpoint. One without waiters leaves time for other things."""
        checkpointer = self._broker.checkpointer
        may_begin = self._checkpoint is not CheckpointState.BACKING_OFF or self._phase is Phase.LAST_CHECKPOINT
        if checkpointer.are_waited_for and may_begin:
            return -inf
        return self._last_checkpoint + (PART_SECONDS if checkpointer.are_in_parts else SAVE_SECONDS)

    def _write_checkpoint(self, job: CheckpointJob) -> None:
        self._checkpoint = CheckpointState.WRITING
        try:
            self._writer.save(job, self._on_checkpoint_written)
        except Exception as error:  # no thread can be started
            _log.failure("a save could not be given to the writer")
            self._checkpoint = CheckpointState.BACKING_OFF
            self._on_checkpoint_written(job, BackendError(f"{error}"))

    def _on_checkpoint_written(self, job: CheckpointJob, error: BackendError | None) -> None:
        if self._checkpoint is _WRITING:
            self._checkpoint = CheckpointState.IDLE
        failed = error is not None
        try:
            self._broker.checkpointer.end(job, error)
        except Exception:
            _log.failure("the end of a save failed")
            failed = True
        may_retry = self._phase is Phase.LAST_CHECKPOINT and self._checkpoint is not CheckpointState.BACKING_OFF
        if error is not None and may_retry:
            self._attempts_left -= 1
            if self._attempts_left > 0:
                self._broker.checkpointer.ask(lambda error: None)
                self._begin_checkpoint(self.now())
                return
        self._end_checkpoint(failed=failed)

    def _end_checkpoint(self, *, failed: bool) -> None:
        """Go on after a checkpoint, or stop if it was the last one."""
        is_last = self._phase is Phase.LAST_CHECKPOINT and (failed or not self._broker.checkpointer.are_waited_for)
        if self._stopped is not None and is_last:
            if self._timer_at < inf:
                self._timer_at = inf
                self._timer.cancel()
            self._phase = Phase.STOPPED
            stopped, self._stopped = self._stopped, None
            stopped.callback(None)
        self.wake()

    def _set_timer(self, now: float, checkpoint_at: float) -> None:
        """Set the timer to when the broker is next needed, unless it is set to an earlier time."""
        when = self._broker.timers.next_due
        if when is None or checkpoint_at < when:
            when = checkpoint_at
        if when >= self._timer_at or self._phase is not _RUNNING:
            return
        delay = max(0.0, when - now)
        if self._timer_at == inf:
            self._timer = self._reactor.callLater(delay, self._on_timer)
        else:
            self._timer.reset(delay)
        self._timer_at = when


def set_clock(broker: Broker, now: float) -> None:
    """Set the wall clock of the broker."""
    broker.follow_wall(time_ns() - monotonic_ns(), now)
