"""The run of an archive: micro-batches until all messages are archived, once, or repeatedly until it is stopped."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pyspark.errors import StreamingQueryException

from pyspark_nsq.archive.source import lag
from pyspark_nsq.slow_start import Starts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_SECONDS = 1
_PAUSE_SECONDS = 2.0
_MAINTAIN_SECONDS = 600.0
#: Consecutive failures after which a run without an end fails, unless only a broker cannot be reached.
_MOST_FAILURES = 5
_IS_UNREACHABLE = re.compile(r"pyspark_nsq\.errors\.ReadError")
_IS_OURS = re.compile(r"pyspark_nsq\.errors\.\w+")


class Table(Protocol):
    """A table to which a micro-batch is added once, also when Spark repeats it."""

    def add(self, batch_id: int, log: DataFrame) -> None: ...


class _StopRequestedError(Exception):
    """The run has to stop: ends a micro-batch that has not begun."""


class Run:
    """Archives a stream of logs into a table. `say` is called with a line for each micro-batch and each failure."""

    def __init__(
        self,
        log: DataFrame,
        table: Table,
        checkpoint: str,
        say: Callable[[str], None],
        stopping: threading.Event | None = None,
    ) -> None:
        """With `stopping`, the run ends also when it is set elsewhere."""
        self.rows = 0
        self._log = log
        self._table = table
        self._checkpoint = checkpoint
        self._say = say
        self._stopping = stopping or threading.Event()

    def stop(self) -> None:
        """End the run after the micro-batch that is being written."""
        self._stopping.set()

    def once(self) -> None:
        """Archive the messages that the logs have now. Raises StreamingQueryException."""
        starts = Starts(self._say)
        while not self._stopping.is_set() and (failure := self._run_query()) is not None and not _is_stop(failure):
            if self._stopping.is_set() or not starts.again(failure):
                raise failure

    def _run_query(self) -> StreamingQueryException | None:
        """Run a query until it ends. Return its failure."""
        query = self._start()
        told = -1
        while True:
            ended = _ended(query)
            told = self._tell(query, told)
            if ended:
                return query.exception()

    def for_ever(
        self,
        trigger_seconds: float,
        explained: Callable[[BaseException], str],
        maintain: Callable[[], None] | None = None,
    ) -> None:
        """Archive new messages every `trigger_seconds`, until `stop` is called. Maintain the table now and then.

        Raises StreamingQueryException for a failure that persists, or that no repetition resolves.
        """
        failures = 0
        maintained = time.monotonic()
        while not self._stopping.is_set():
            began = time.monotonic()
            rows = self.rows
            try:
                self.once()
                failures = 0
            except StreamingQueryException as error:
                failures = 1 if self.rows > rows else failures + 1
                if self._stopping.is_set() or not _may_heal(str(error), failures):
                    raise
                self._say(f"{explained(error)}; trying again")
                self._stopping.wait(min(trigger_seconds, _PAUSE_SECONDS))
                continue
            if maintain is not None and time.monotonic() - maintained > _MAINTAIN_SECONDS:
                maintained = time.monotonic()
                maintain()
            self._stopping.wait(max(0.0, began + trigger_seconds - time.monotonic()))

    def _start(self) -> StreamingQuery:
        writer = self._log.writeStream.foreachBatch(self._add).option("checkpointLocation", self._checkpoint)
        return writer.trigger(availableNow=True).start()

    def _add(self, log: DataFrame, batch_id: int) -> None:
        if self._stopping.is_set():
            raise _StopRequestedError
        self._table.add(batch_id, log)

    def _tell(self, query: StreamingQuery, told: int) -> int:
        """Report the progress of the micro-batches after `told`, and return the number of the last one."""
        for progress in query.recentProgress:
            rows, batch = progress["numInputRows"], progress["batchId"]
            if batch <= told or not rows:
                continue
            told = batch
            self.rows += rows
            seconds = max(1, progress["durationMs"].get("triggerExecution", 0)) / 1000
            behind = [lag(source) for source in progress["sources"]]
            known = [one for one in behind if one is not None]
            waiting = f", {sum(known):,} behind" if known else ""
            self._say(f"batch {batch}: {rows:,} rows, {rows / seconds:,.0f} rows/s{waiting}")
        return told


def _is_stop(failure: BaseException) -> bool:
    """Return whether `stop` ended the query, and nothing has failed."""
    return _StopRequestedError.__name__ in str(failure)


def _ended(query: StreamingQuery) -> bool:
    try:
        return bool(query.awaitTermination(_POLL_SECONDS))
    except StreamingQueryException:
        return True


def _may_heal(text: str, failures: int) -> bool:
    """Return True when another attempt may succeed: a broker cannot be reached, or a task or Spark itself failed."""
    if _IS_UNREACHABLE.search(text):
        return True
    return not _IS_OURS.search(text) and failures <= _MOST_FAILURES
