"""
The end of a reactor turn: everything that was read is stored, served and written at once.

Theory of operation. Whoever changes the broker calls `wake`; a call in the same reactor turn, after all its reads,
then does the broker's steps in order and lets each changed connection write once. Nothing here is done for a single
message. The pump also owns the only timer, set to when the broker is next needed, and the rhythm in which cuts are
saved: one at a time, about once a second, at once when somebody waits for it. A flight (`core.group_commit`) is handed
to the writer thread as soon as the one before has landed.

This module is hot, once per turn.
"""

from __future__ import annotations

from collections.abc import Callable
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
from nsqtw.runtime.turns import Connection, end_failed, end_of_turn

_log = Logger()

SAVE_SECONDS: Final = 1.0
PART_SECONDS: Final = 0.05
"""From one part of a cut to the next: so 2,000 topics and channels are saved in a second, which takes 4 % of it."""
STOP_ATTEMPTS: Final = 3
"""How often a stop tries the last save: a medium may fail once, and what is not saved comes again after the start."""
COMMIT_BYTES: Final = 4 * 1024 * 1024
"""A turn that reads more than this commits in between, so that what waits in memory has a bound."""


class Writer(Protocol):
    """Does a CheckpointJob or a CommitBatch somewhere else, and says in the reactor thread how it went."""

    def save(self, save: CheckpointJob, done: Callable[[CheckpointJob, BackendError | None], None]) -> None: ...

    def commit(
        self, batch: CommitBatch, done: Callable[[CommitBatch, dict[IBackendQueue, BackendError]], None]
    ) -> None: ...


class Pump:
    """Drives `broker`. `now` is its clock, in seconds; only differences of it mean something."""

    def __init__(self, reactor: Any, broker: Broker, writer: Writer, now: Callable[[], float] = monotonic) -> None:
        self.now = now
        """The moment, in the broker's clock."""
        self._reactor = reactor
        self._at_end = end_of_turn(reactor)
        self._broker = broker
        self._writer = writer
        self._queued: list[Flushable] = []
        """Of what changed, what knows that."""
        self._changed: dict[Connection, None] = {}
        """The others."""
        self._before_answers: list[Callable[[], None]] = []
        self._woken = False
        self._read_bytes = 0
        self._timer: Any = None
        self._timer_at = inf
        """When it rings; never, if there is none."""
        self._last_save = 0.0
        self._saving = False
        self._must_rest = False
        """The last save broke before it had begun: the next one begins when it is time, whoever waits for it."""
        self._flying = False
        self._stopped: Deferred[None] | None = None
        self._is_last_save_due = False
        """While it stops: everything else is done, and what is saved now is saved for the last time."""
        self._attempts_left = STOP_ATTEMPTS
        """For the last save."""
        self._is_over = False
        """Everything is saved: what is stored is being closed, and nothing is done any more but to write answers."""
        set_clock(broker, self.now())

    @property
    def reactor(self) -> Any:
        """What runs all of it."""
        return self._reactor

    def wake(self) -> None:
        """Something changed: do a turn when everything that can be read now has been read."""
        if not self._woken:
            self._woken = True
            self._at_end(self._turn)

    def before_answers(self, call: Callable[[], None]) -> None:
        """Call it once, in this turn, before anything published in the turn is committed or answered."""
        self._before_answers.append(call)
        self.wake()

    def changed(self, connection: Connection) -> None:
        """A connection may have something to write."""
        if isinstance(connection, Flushable):
            self._record(connection)
        else:
            self._changed[connection] = None
        if not self._woken:
            self.wake()

    def received(self, connection: Flushable, count: int) -> None:
        """A connection read so many bytes, gave them to its session, and may have something to write."""
        self._record(connection)
        self.on_read(count)

    def on_read(self, count: int) -> None:
        """So many bytes were read and given to a session."""
        self._read_bytes += count
        if self._read_bytes > COMMIT_BYTES:
            self._read_bytes = 0
            self._call_before_answers()
            self._broker.commit(self.now())
        if not self._woken:
            self.wake()

    def stop(self) -> Deferred[None]:
        """
        Take nothing more and save everything. Fires when it is saved, or when several attempts have failed: what is
        stored is then what a crash would leave.
        """
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        self._broker.stopping = True
        now = self.now()
        self._call_before_answers()
        self._broker.commit(now)
        self._fly(now)
        if not self._flying:
            self._save_all(now)
        return stopped

    def _save_all(self, now: float) -> None:
        """The last thing before the end, once: a flight that cannot be given away lands before `stop` goes on."""
        if self._is_last_save_due:
            return
        self._is_last_save_due = True
        self._broker.stop(now)
        self._broker.checkpointer.ask(lambda error: None)
        self._save(now)

    def _record(self, connection: Flushable) -> None:
        if not connection.is_queued:
            connection.is_queued = True
            self._queued.append(connection)

    def _ring(self) -> None:
        self._timer_at = inf
        self._turn()

    def _turn(self) -> None:
        now = self.now()
        self._woken = True  # what changes until the writes is written in this turn
        self._read_bytes = 0
        more = False
        try:
            more = self._work(now)
        except Exception:  # whatever broke in there, the next turn comes
            _log.failure("the end of a turn failed")
            self._reactor.callLater(SAVE_SECONDS, self.wake)
        self._woken = False
        if more:
            self.wake()
        self._arm(now, self._save(now))

    def _work(self, now: float) -> bool:
        """Do what the turn is for; returns whether there is more to do in the next one."""
        broker = self._broker
        more = False
        if not self._is_over:
            set_clock(broker, now)
            broker.tick(now)
            self._call_before_answers()
            if broker.to_commit:
                broker.commit(now)
            self._fly(now)
            if broker.to_serve:
                more = self._serve(now)
        self._write(now)
        more = more or bool(not self._is_over and (broker.to_commit or broker.to_serve))
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
        """Have all that changed write, those first that may have been given messages."""
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
        """What is delivered is written before the OKs: of the two it is what somebody works with."""
        answered = self._take_queued()
        try:
            return self._broker.serve(now)
        finally:
            for connection in answered:
                self._record(connection)

    def _take_queued(self) -> list[Flushable]:
        """Those that are noted, and no longer are."""
        taken, self._queued = self._queued, []
        for connection in taken:
            connection.is_queued = False
        return taken

    def _fly(self, now: float) -> None:
        if not self._flying and (batch := self._broker.group_commit.begin(now)) is not None:
            self._flying = True
            try:
                self._writer.commit(batch, self._on_committed)
            except Exception as error:  # no thread can be started
                _log.failure("a flight could not begin")
                self._on_committed(batch, batch.failed(BackendError(f"{error}")))

    def _on_committed(self, batch: CommitBatch, failed: dict[IBackendQueue, BackendError]) -> None:
        self._flying = False
        now = self.now()
        self._broker.group_commit.end(batch, failed, now)
        if self._stopped is not None:
            self._fly(now)
            if not self._flying:
                self._save_all(now)
        self.wake()

    def _save(self, now: float) -> float:
        """Begin a save if it is time for one. When it will be; inf: it was, or none is wanted, or one is on its way."""
        checkpointer = self._broker.checkpointer
        if self._saving or self._is_over or not checkpointer.are_wanted:
            return inf
        save_at = self._next_save()
        if now < save_at:
            return save_at
        self._last_save = now
        try:
            save = checkpointer.begin(now)
        except Exception:  # whatever broke in there, what it left is saved by the next one
            _log.failure("a save could not be begun")
            self._must_rest = True
            self._end_save(failed=True)
        else:
            self._give(save)
        return inf

    def _next_save(self) -> float:
        """The earliest moment for it. What nobody waits for leaves time for other things."""
        checkpointer = self._broker.checkpointer
        if checkpointer.are_waited_for and (self._is_last_save_due or not self._must_rest):
            return -inf
        return self._last_save + (PART_SECONDS if checkpointer.are_in_parts else SAVE_SECONDS)

    def _give(self, save: CheckpointJob) -> None:
        self._saving, self._must_rest = True, False
        try:
            self._writer.save(save, self._saved)
        except Exception as error:  # no thread can be started
            _log.failure("a save could not be given to the writer")
            self._must_rest = True
            self._saved(save, BackendError(f"{error}"))

    def _saved(self, save: CheckpointJob, error: BackendError | None) -> None:
        self._saving = False
        failed = error is not None
        try:
            self._broker.checkpointer.end(save, error)
        except Exception:
            _log.failure("the end of a save failed")
            failed = True
        if error is not None and self._is_last_save_due and not self._must_rest:
            self._attempts_left -= 1
            if self._attempts_left > 0:
                self._broker.checkpointer.ask(lambda error: None)
                self._save(self.now())
                return
        self._end_save(failed=failed)

    def _end_save(self, *, failed: bool) -> None:
        """Go on after a save, or be done if it was the last one."""
        is_last = self._is_last_save_due and (failed or not self._broker.checkpointer.are_waited_for)
        if self._stopped is not None and is_last:
            if self._timer_at < inf:
                self._timer_at = inf
                self._timer.cancel()
            self._is_over = True
            stopped, self._stopped = self._stopped, None
            stopped.callback(None)
        self.wake()

    def _arm(self, now: float, save_at: float) -> None:
        """Set the timer to when the broker is next needed, unless it is set to an earlier moment."""
        when = self._broker.timers.next_due
        if when is None or save_at < when:
            when = save_at
        if when >= self._timer_at or self._stopped is not None or self._is_over:
            return
        delay = max(0.0, when - now)
        if self._timer_at == inf:
            self._timer = self._reactor.callLater(delay, self._ring)
        else:
            self._timer.reset(delay)
        self._timer_at = when


def set_clock(broker: Broker, now: float) -> None:
    """Tell the broker what the wall clock is."""
    broker.follow_wall(time_ns() - monotonic_ns(), now)
