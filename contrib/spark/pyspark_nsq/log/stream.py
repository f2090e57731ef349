"""A stream from topics' logs. Spark's offset is a position for each log, where to go on (`pyspark_nsq.log.places`).

Nothing is kept here: positions that Spark asks for again are read again, and give the same rows. Any number of queries
read a log, and none takes anything from another or from the topic's channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_nsq.log.places import Places, from_offset, to_offset
from pyspark_nsq.log.rows import LogPartition, read_log
from pyspark_nsq.options.log import LATEST, LogOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nsq.log.client import Extents, LogClient
    from pyspark_nsq.log.survey import Survey

Offset = dict[str, Any]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the logs that `options` select. Every method raises ReadError when a broker cannot be asked."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._asking: tuple[LogClient, Survey] | None = None
        #: With the trigger availableNow, the extents at its start.
        self._target: Extents | None = None
        self._is_target_whole = False
        self._latest: Places | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_asking": None, "_target": None, "_is_target_whole": False, "_latest": None}

    def _open(self) -> tuple[LogClient, Survey]:
        """Raises OptionError for an option that only a batch can have."""
        if self._asking is None:
            from pyspark_nsq.log.client import LogClient
            from pyspark_nsq.log.survey import Survey

            self._options.check_stream()
            client = LogClient(self._options)
            self._asking = client, Survey(client, self._options)
        return self._asking

    def prepareForTriggerAvailableNow(self) -> None:
        _, survey = self._open()
        self._target = survey.extents({})

    def initialOffset(self) -> Offset:
        from pyspark_nsq.log import plan as log_plan

        client, survey = self._open()
        logs = survey.extents({}) if self._target is None else self._target
        return to_offset(self._options, log_plan.starting(client, self._options, logs, LATEST))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Raises DataLossError when a topic was deleted, unless failOnDataLoss is false."""
        from pyspark_nsq.log import plan as log_plan
        from pyspark_nsq.log.survey import ends

        client, survey = self._open()
        places = from_offset(self._options, start)
        found = survey.extents(places) if self._target is None else self._targeted(places)
        self._latest = ends(self._options, places, found)
        return to_offset(self._options, log_plan.limited(client, self._options, places, self._latest))

    def _targeted(self, start: Places) -> Extents:
        """Return the target, with the logs of the checkpoint that were not found at the start of this run."""
        client, survey = self._open()
        assert self._target is not None
        if not self._is_target_whole:
            self._target |= client.extents_of_known(survey.missing(start, self._target))
            self._is_target_whole = True
        return self._target

    def reportLatestOffset(self) -> Offset | None:
        """Return the ends of all logs as they were when `latestOffset` asked for them."""
        return None if self._latest is None else to_offset(self._options, self._latest)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Raises DataLossError when the beginning is gone, unless failOnDataLoss is false."""
        from pyspark_nsq.log import plan as log_plan

        client, _ = self._open()
        places = from_offset(self._options, start), from_offset(self._options, end)
        return list(log_plan.plan(client, self._options, *places))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_log(self._options, partition)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the broker keeps messages as long as the topic's retention says."""
