"""A stream from topics' logs. Spark's offset has the next position of each log (`pyspark_nsq.log.positions`).

The stream keeps no rows: it reads positions that Spark requests again from the log, with the same rows. Any number of
queries can read a log; they do not affect each other or the topic's channels.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_nsq.log.positions import Log, Positions, from_offset, to_offset
from pyspark_nsq.log.rows import LogPartition, read_log
from pyspark_nsq.options.log import LATEST, LogOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nsq.log.client import Extents, LogClient
    from pyspark_nsq.log.survey import Survey
    from pyspark_nsq.monitoring.log_lag import LogLag

Offset = dict[str, Any]

_log = logging.getLogger("pyspark_nsq")


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the logs that `options` select. Every method raises ReadError when a broker does not answer."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._asking: tuple[LogClient, Survey] | None = None
        #: With the trigger availableNow, the extents at its start.
        self._target: Extents | None = None
        self._is_target_whole = False
        self._planned: Offset | None = None
        self._has_warned = False

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_options": self._options,
            "_asking": None,
            "_target": None,
            "_is_target_whole": False,
            "_planned": None,
            "_has_warned": False,
        }

    def _open(self) -> tuple[LogClient, Survey]:
        """Connect."""
        if self._asking is None:
            from pyspark_nsq.log.client import LogClient
            from pyspark_nsq.log.survey import Survey

            client = LogClient(self._options)
            self._asking = client, Survey(client, self._options)
        return self._asking

    @cached_property
    def _lag(self) -> LogLag:
        from pyspark_nsq.monitoring.log_lag import LogLag

        client, _ = self._open()
        return LogLag(self._options.topic or "", lambda topic, address, at: client.lag(Log(topic, address), at))

    def prepareForTriggerAvailableNow(self) -> None:
        _, survey = self._open()
        self._target = survey.extents({})

    def initialOffset(self) -> Offset:
        """Return the starting positions."""
        from pyspark_nsq.log import plan as log_plan
        from pyspark_nsq.log.retention import warn_of_missing

        client, survey = self._open()
        logs = survey.extents({}) if self._target is None else self._target
        positions = log_plan.starting(client, self._options, logs, LATEST)
        if not self._has_warned:  # Spark asks for the initial offset twice
            self._has_warned = True
            warn_of_missing(client, positions, fails=False)
            for topic in log_plan.unknown_topics(self._options, positions):
                _log.warning(
                    'no nsqd has the topic "%s" yet; a stream reads it from its beginning once it exists', topic
                )
        return to_offset(self._options, positions)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of a micro-batch. Raises DataLossError for a deleted topic if failOnDataLoss is true."""
        from pyspark_nsq.log import plan as log_plan
        from pyspark_nsq.log.survey import ends

        client, survey = self._open()
        positions = from_offset(self._options, start)
        found = survey.extents(positions) if self._target is None else self._targeted(positions)
        planned = log_plan.limited(client, self._options, positions, ends(self._options, positions, found))
        self._planned = to_offset(self._options, planned)
        return self._planned

    def _targeted(self, start: Positions) -> Extents:
        """Return the target, with the logs of the checkpoint that were not found at the start of this run."""
        client, survey = self._open()
        assert self._target is not None
        if not self._is_target_whole:
            self._target |= client.extents_of_known(survey.missing(start, self._target))
            self._is_target_whole = True
        return self._target

    def reportLatestOffset(self) -> Offset | None:
        """Return the ends of the logs, with the figures of `monitoring.figures`. Spark only shows this."""
        client, _ = self._open()
        return None if self._planned is None else self._lag.report(self._planned, client.retried)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the partitions. Raises DataLossError when the beginning is lost, unless failOnDataLoss is false."""
        from pyspark_nsq.log import plan as log_plan

        client, _ = self._open()
        positions = from_offset(self._options, start), from_offset(self._options, end)
        return list(log_plan.plan(client, self._options, *positions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_log(self._options, partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: the broker keeps messages for the topic's retention time."""
