"""
A stream from a channel. Spark's offset is a row number in the spool: ``{"spool": uuid, "seq": number of the last
row}``.

One process of Python on the driver has the reader while the query runs. Another reader is made for planning, and
pickled for the tasks. So the spool and the connections are opened by the first method that needs them.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_nsq.channel.rows import MOST_INLINE_BYTES, InlinePartition, SharedPartition, cuts
from pyspark_nsq.errors import OptionError, SpoolError
from pyspark_nsq.machine import tasks_run_here
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.progress import tell

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nsq.channel.intake import Intake
    from pyspark_nsq.channel.span import Span
    from pyspark_nsq.monitoring.channel_lag import ChannelLag

Offset = dict[str, Any]


class ChannelStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream from the channel that `options` name."""

    def __init__(self, options: ChannelOptions) -> None:
        self._options = options
        self._intake: Intake | None = None
        self._is_available_now = False
        self._target: int | None = None
        self._planned: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        fresh = {"_intake": None, "_is_available_now": False, "_target": None, "_planned": None}
        return {"_options": self._options} | fresh

    def prepareForTriggerAvailableNow(self) -> None:
        """Make `latestOffset` take the messages that NSQ has, once. It knows which rows of the spool are processed."""
        self._is_available_now = True

    def initialOffset(self) -> Offset:
        intake = self._open()
        return {"spool": intake.uuid, "seq": intake.first() - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the last row of the spool. Raises ReadError or SpoolError if the consumer or the spool has failed.

        Raises OptionError for the checkpoint of another source.
        """
        _must_be_of_a_channel(start)
        intake = self._open()
        self._check(start)
        end = intake.end()
        # A spool that is not the checkpoint's is read from its first row.
        after = int(start["seq"]) if start["spool"] == intake.uuid else intake.first() - 1
        # Spark commits a micro-batch to the source with the next one, which a full spool would never let come.
        intake.mark_processed(after)
        if self._is_available_now:
            end = self._take_all(intake)
        if isinstance(limit, ReadMaxRows):
            end = min(end, after + limit.max_rows)
        if self._options.most_bytes is not None and end > after:
            end = intake.fit(after, end, self._options.most_bytes)
        self._planned = max(end, after)
        return {"spool": intake.uuid, "seq": self._planned}

    def _take_all(self, intake: Intake) -> int:
        """Take what NSQ has at the first call; nothing more comes into this run. Raises ReadError."""
        if self._target is None:
            intake.drain()
            self._target = intake.end()
        return self._target

    @cached_property
    def _lag(self) -> ChannelLag:
        from pyspark_nsq.monitoring.channel_lag import ChannelLag

        return ChannelLag(self._options)

    def reportLatestOffset(self) -> Offset:
        """Return the end of the spool, with the figures of `monitoring.figures`."""
        intake = self._open()
        end = intake.end()
        planned = end if self._planned is None else self._planned
        waiting: list[Span] = []
        with suppress(SpoolError):  # a micro-batch that asks for the row raises it
            waiting = intake.spans(planned, min(planned + 1, end))
        oldest_ns = waiting[0].first_timestamp_ns if waiting else None
        return self._lag.report({"spool": intake.uuid, "seq": end}, max(0, end - planned), oldest_ns, intake.repeated)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the rows as partitions. Raises SpoolError when rows are missing, unless failOnDataLoss is false."""
        _must_be_of_a_channel(start)
        intake = self._open()
        after, last = self._range(intake, start, end)
        if last <= after:
            return []
        found: list[InputPartition]
        mode = self._options.spool_mode
        if mode == "shared" or (mode == "auto" and tasks_run_here()):
            # A task runs in another folder.
            path = str(Path(str(self._options.spool_path)).absolute())
            names = self._options.topic, self._options.channel, path, intake.uuid
            skips_damage = not self._options.fail_on_data_loss
            ranges = cuts(after, last, self._options.partitions)
            found = [SharedPartition(*names, *each, skips_damage=skips_damage) for each in ranges]
        else:
            found = list(self._inline(intake, after, last))
        self._tell(intake, after, last, len(found))
        return found

    def _tell(self, intake: Intake, after: int, last: int, tasks: int) -> None:
        tell(
            "taken",
            self._options.show_progress,
            topic=self._options.topic,
            channel=self._options.channel,
            after=after,
            end=last,
            rows=last - after,
            bytes=intake.body_bytes(after, last),
            repeated=intake.repeated,
            waiting=intake.end() - last,
            tasks=tasks,
        )

    def _inline(self, intake: Intake, after: int, last: int) -> Iterator[InlinePartition]:
        for low, high in cuts(after, last, self._options.partitions):
            while low < high:
                stop = intake.fit(low, high, MOST_INLINE_BYTES)
                yield InlinePartition(self._options.topic, self._options.channel, intake.spans(low, stop))
                low = stop

    def _range(self, intake: Intake, start: Offset, end: Offset) -> tuple[int, int]:
        """Return the range of existing rows: first number excluded, last one included."""
        self._check(start)
        self._check(end)
        after, last = int(start["seq"]), int(end["seq"])
        first, kept_last = intake.first(), intake.end()
        if end["spool"] != intake.uuid:  # reported, without a failure: these rows are lost
            return 0, 0
        if start["spool"] != intake.uuid:
            return first - 1, min(last, kept_last)
        if (after + 1 < first or last > kept_last) and last > after:
            self._lose(f"rows {after + 1} to {last} are asked for; it has {first} to {kept_last}")
        return max(after, first - 1), min(last, kept_last)

    def _check(self, offset: Offset) -> None:
        intake = self._open()
        if offset["spool"] != intake.uuid:
            self._lose("it does not belong to this checkpoint")
            return
        seen = max(intake.opened_end, self._planned or 0)
        if int(offset["seq"]) > seen:
            # The next messages would get numbers that are behind those that the stream asks for.
            self._lose(f"it ends at row {seen}, and the stream had read it up to row {offset['seq']}")
            intake.skip_to(int(offset["seq"]))

    def _lose(self, why: str) -> None:
        if self._options.fail_on_data_loss:
            raise SpoolError(
                f'the spool {self._options.spool_path}: {why}; set the option "failOnDataLoss" to "false" to go on '
                "with what there is"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, InlinePartition | SharedPartition)
        return partition.batches()

    def commit(self, end: Offset) -> None:
        """Forget the rows up to the offset: Spark does not need them any more."""
        _must_be_of_a_channel(end)
        intake = self._open()
        if end["spool"] == intake.uuid:
            intake.forget(int(end["seq"]))

    def stop(self) -> None:
        """Requeue the messages that are not in the spool."""
        if self._intake is not None:
            self._intake.close()
            self._intake = None

    def _open(self) -> Intake:
        if self._intake is None:
            from pyspark_nsq.channel.intake import Intake

            if self._options.spool_path is None:
                raise OptionError(
                    'option "spoolPath" is required for a stream, for example "/var/lib/spark/clicks.spool"'
                )
            self._intake = Intake(self._options, self._options.spool_path)
            _leave_in_order()
        return self._intake


def _must_be_of_a_channel(offset: Offset) -> None:
    if set(offset) != {"spool", "seq"}:
        raise OptionError(
            f"the checkpoint is not of a query on a channel, but has the offset {json.dumps(offset)[:200]}; go on with "
            'the source that it is of, such as replay=log, or give "checkpointLocation" another folder'
        )


def _leave_in_order() -> None:
    """Raise an exception at SIGTERM, with which Spark ends this process, so that Spark's loop calls `stop`."""

    def leave(_signal: int, _frame: object) -> None:
        raise SystemExit

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, leave)
