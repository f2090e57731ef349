"""A stream that cannot start. Spark does not show an error of `streamReader`, but shows those of its methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from pyspark_nsq.errors import NsqSparkError


class FailedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises `error` in the first method that Spark calls."""

    def __init__(self, error: NsqSparkError) -> None:
        self._error = error

    def _fail(self) -> NoReturn:
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        self._fail()

    def initialOffset(self) -> dict[str, Any]:
        self._fail()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._fail()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._fail()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._fail()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._fail()
