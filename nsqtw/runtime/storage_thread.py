"""
The writer thread: positions, names, deletion, trimming, and the commits that take longer than a turn, away from the
reactor.

One thread, one job at a time, in order. A job is a `CheckpointJob` of the broker's, or a `CommitBatch`. Trimming
follows the saved state, so it is right for the running broker and for the one that comes after a crash. The thread is
a daemon: a process that ends does not wait for a medium that does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from time import monotonic

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from nsqtw.core.checkpoint import NamedTopic
from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.core.group_commit import CommitBatch
from nsqtw.core.positions import IPositions
from nsqtw.errors import BackendError, BackendFull
from nsqtw.interfaces import IBackendQueue, IFreeingQueue, OperatorLog
from nsqtw.runtime.reactor import Reactor

Committed = Callable[[CommitBatch, dict[IBackendQueue, BackendError]], None]

WriteNames = Callable[[Sequence[NamedTopic]], None]
"""Writes `nsqd.dat`. BackendError."""


class StorageThread:
    """
    Does saves and commits in a thread of its own; answers arrive through `reactor.callFromThread`. Without
    `write_names` the names of topics and channels are kept nowhere but in `positions`.
    """

    def __init__(
        self, reactor: Reactor, positions: IPositions, log: OperatorLog, write_names: WriteNames | None = None
    ) -> None:
        self._reactor = reactor
        self._positions = positions
        self._log = log
        self._write_names = write_names
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def save(self, save: CheckpointJob, done: Callable[[CheckpointJob, BackendError | None], None]) -> None:
        """Do it soon; `done(save, error)` is called in the reactor thread."""
        self._submit(lambda: self._perform(save, done))

    def commit(self, batch: CommitBatch, done: Committed) -> None:
        """Commit in the thread; `done(batch, failed)` is called in the reactor thread."""
        self._submit(lambda: self._commit(batch, done))

    def finish(self, last: Callable[[], None]) -> Deferred[None]:
        """Do everything that was started and then this, and end the thread. Fires when that is done, or has failed."""
        done: Deferred[None] = Deferred()

        def job() -> None:
            try:
                last()
            except Exception:
                failure = Failure()  # type: ignore[no-untyped-call]
                self._reactor.callFromThread(done.errback, failure)
            else:
                self._reactor.callFromThread(done.callback, None)

        self._submit(job)
        self._jobs.put(None)
        return done

    def close(self) -> None:
        """Wait for what was started, and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _submit(self, job: Callable[[], None]) -> None:
        if self._thread is None:  # not before there is something to do: a process may fork once more before
            thread = Thread(target=self._work, name="nsqtw-writer", daemon=True)
            thread.start()
            self._thread = thread
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # the next job may go well
                self._log("critical", "NSQ: a job of the writer thread failed")

    def _commit(self, batch: CommitBatch, done: Committed) -> None:
        began = monotonic()
        failed = batch.commit(self._log)
        batch.seconds = monotonic() - began
        self._reactor.callFromThread(done, batch, failed)

    def _perform(self, save: CheckpointJob, done: Callable[[CheckpointJob, BackendError | None], None]) -> None:
        try:
            error = perform(save, self._positions, self._log, self._write_names)
        except Exception as unforeseen:  # a broken backend of a third party must not leave waiters hanging
            error = BackendError(f"{type(unforeseen).__name__}: {unforeseen}")
        self._reactor.callFromThread(done, save, error)


def perform(
    save: CheckpointJob, positions: IPositions, log: OperatorLog, write_names: WriteNames | None = None
) -> BackendError | None:
    """
    Reserve, save, write the names, then delete and trim. Returns why nothing was saved; what fails after saving is
    logged, and tried again with a later save, or by the next start. Why names were not written is left in the save.

    On a full disk, where nothing can be saved, trimming may make room. It follows what was saved before.
    """
    try:
        if save.reserve is not None:
            positions.reserve(save.reserve)
        if save.checkpoint:
            positions.save(save.checkpoint)
    except BackendFull as error:
        _trim(save, positions, log)
        return error
    except BackendError as error:
        return error
    if save.names is not None and write_names is not None:
        try:
            write_names(save.names)
        except BackendError as failure:
            save.names_error = failure
    for name, queue in save.deleted:
        try:
            queue.delete()
        except BackendError as error:
            log("error", "TOPIC({topic}): failed to delete its files - {error}", topic=name, error=error)
    _trim(save, positions, log)
    return None


def _trim(save: CheckpointJob, positions: IPositions, log: OperatorLog) -> None:
    for name, queue, bounds in save.trims:
        if IFreeingQueue.providedBy(queue) and not queue.may_free:
            continue
        try:
            unfinished = bounds or positions.unfinished(name)
            if unfinished is not None:
                queue.trim(*unfinished)
        except BackendError as error:
            log("error", "TOPIC({topic}): failed to free space - {error}", topic=name, error=error)
