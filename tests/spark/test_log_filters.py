"""Bounds of what is read, from the filters that Spark pushes down."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from types import ModuleType

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark_nsq.log.batch import FilteredLogBatchReader, LogBatchReader, log_batch_reader
from pyspark_nsq.log.filters import Bounds
from pyspark_nsq.log.positions import Log
from pyspark_nsq.options.log import LogOptions

MOMENT = datetime(2026, 1, 1, 0, 0, 0, 1500, UTC)
MS = 1767225600001  # MOMENT is half a millisecond later

POSITION, TIMESTAMP = ("position",), ("timestamp",)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], Bounds()),
        ([GreaterThan(POSITION, 5), LessThan(POSITION, 9)], Bounds(first=6, end=9)),
        ([GreaterThanOrEqual(POSITION, 5), LessThanOrEqual(POSITION, 9)], Bounds(first=5, end=10)),
        ([GreaterThan(POSITION, 5), EqualTo(POSITION, 7)], Bounds(first=7, end=8)),
        ([In(POSITION, (9, 3, None))], Bounds(first=3, end=10)),
        ([EqualNullSafe(POSITION, 7), LessThan(POSITION, 2)], Bounds(first=7, end=2)),
        ([GreaterThanOrEqual(TIMESTAMP, MOMENT)], Bounds(start_ms=MS)),
        ([LessThanOrEqual(TIMESTAMP, MOMENT)], Bounds(end_ms=MS + 1)),
        ([LessThan(TIMESTAMP, datetime(2026, 1, 1, tzinfo=UTC))], Bounds(end_ms=MS - 1)),
        ([EqualTo(TIMESTAMP, MOMENT.astimezone(timezone(timedelta(hours=5))))], Bounds(start_ms=MS, end_ms=MS + 1)),
        ([EqualTo(("topic",), "a"), In(("topic",), ("a", "b"))], Bounds(topics=frozenset("a"))),
        ([EqualTo(("nsqd",), "x:1"), EqualTo(("nsqd",), "y:1")], Bounds(nsqds=frozenset())),
        ([IsNotNull(POSITION), Not(EqualTo(POSITION, 5)), EqualTo(("id",), "5")], Bounds()),
        ([StringStartsWith(("topic",), "a"), EqualTo(("value", "position"), 5)], Bounds()),
        ([In(POSITION, (None,))], Bounds()),
    ],
)
def test_bounds(filters: list[Filter], expected: Bounds) -> None:
    assert expected == Bounds.of(filters, slack_ms=0)


def test_a_clock_that_was_set_back() -> None:
    found = Bounds.of([EqualTo(TIMESTAMP, MOMENT)], slack_ms=1000)
    assert (found.start_ms, found.end_ms) == (MS - 1000, MS + 1001)


def test_which_logs_can_have_rows() -> None:
    log = Log("a", "https://x:1")
    assert Bounds().has_log(log)
    assert Bounds(topics=frozenset("a"), nsqds=frozenset(["x:1"])).has_log(log)
    assert not Bounds(topics=frozenset("b")).has_log(log)
    assert not Bounds(nsqds=frozenset(["y:1"])).has_log(log)


def test_a_reader_takes_filters_only_where_spark_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"replay": "log", "nsqdHttpAddresses": "x:1", "topic": "t"}
    plain, pushing = LogOptions.parse(given), LogOptions.parse(given | {"pushFilters": "true"})
    assert type(log_batch_reader(pushing)) is LogBatchReader
    name = "pyspark.sql.worker.data_source_pushdown_filters"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert type(log_batch_reader(plain)) is LogBatchReader
    reader = log_batch_reader(pushing)
    assert type(reader) is FilteredLogBatchReader
    filters: list[Filter] = [EqualTo(POSITION, 5)]
    assert filters == list(reader.pushFilters(filters)), "Spark applies them, too"
