"""Filters of a query on columns of a log, as bounds of the positions that have to be read.

The bounds exclude only rows that a filter certainly rejects. Spark applies all filters to the rows that are read.

Spark 4.2 and 4.3 keep one plan of a Python data source for each `load()`, and replace it whenever they push filters. In
a DataFrame that is used twice, as in a self-join, a union or a second query, one use then lacks rows. So filters are
pushed only with the option `pushFilters`, by which the user promises to use the DataFrame once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_nsq.log.positions import Log

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def are_pushed() -> bool:
    """Return whether Spark pushes filters down, in the process that plans a read.

    Without ``spark.sql.python.filterPushdown.enabled`` Spark refuses a reader that takes filters. Only with it, Spark
    plans in a process that runs this module of its own.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING_WORKER in sys.modules or getattr(main, "name", None) == _PUSHING_WORKER


@dataclass(frozen=True)
class Bounds:
    """Limits of the rows that can pass the filters of a query. None: there is no limit."""

    topics: frozenset[str] | None = None
    nsqds: frozenset[str] | None = None
    first: int | None = None
    end: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None

    def has_log(self, log: Log) -> bool:
        """Return whether rows of this log can pass."""
        nsqd = log.address.partition("://")[2]
        return (self.topics is None or log.topic in self.topics) and (self.nsqds is None or nsqd in self.nsqds)

    @classmethod
    def of(cls, filters: Iterable[Filter], slack_ms: int) -> Bounds:
        """Return the bounds of all filters together.

        nsqd finds a time by a binary search, which assumes that timestamps only grow. `slack_ms`: most time by which
        its clock was set back.
        """
        found = _Collected()
        for each in filters:
            found.add(each)
        start_ms = None if found.low_us is None else max(0, found.low_us // 1000 - slack_ms)
        end_ms = None if found.high_us is None else max(0, found.high_us // 1000 + 1 + slack_ms)
        return cls(found.topics, found.nsqds, found.first, found.end, start_ms, end_ms)


class _Collected:
    def __init__(self) -> None:
        self.topics: frozenset[str] | None = None
        self.nsqds: frozenset[str] | None = None
        self.first: int | None = None
        self.end: int | None = None
        self.low_us: int | None = None
        self.high_us: int | None = None

    def add(self, each: Filter) -> None:
        column: tuple[str, ...] = getattr(each, "attribute", ())
        take = _TAKES.get(column[0]) if len(column) == 1 else None
        if take is not None:
            take(self, each)

    def topic(self, each: Filter) -> None:
        self.topics = _common(self.topics, _values(each))

    def nsqd(self, each: Filter) -> None:
        self.nsqds = _common(self.nsqds, _values(each))

    def position(self, each: Filter) -> None:
        low, high = _limits(each, int)
        if low is not None:
            self.first = low if self.first is None else max(self.first, low)
        if high is not None:
            self.end = high + 1 if self.end is None else min(self.end, high + 1)

    def timestamp(self, each: Filter) -> None:
        low, high = _limits(each, _microseconds)
        if low is not None:
            self.low_us = low if self.low_us is None else max(self.low_us, low)
        if high is not None:
            self.high_us = high if self.high_us is None else min(self.high_us, high)


_TAKES: dict[str, Callable[[_Collected, Filter], None]] = {
    "topic": _Collected.topic,
    "nsqd": _Collected.nsqd,
    "position": _Collected.position,
    "timestamp": _Collected.timestamp,
}


def _values(each: Filter) -> list[Any] | None:
    """Return the values of which the column must have one; None for another kind of filter."""
    if isinstance(each, (EqualTo, EqualNullSafe)):
        return [each.value]
    return list(each.value) if isinstance(each, In) else None


def _common(known: frozenset[str] | None, values: list[Any] | None) -> frozenset[str] | None:
    if values is None:
        return known
    found = frozenset(str(value) for value in values if value is not None)
    return found if known is None else known & found


def _limits(each: Filter, number: Callable[[Any], int]) -> tuple[int | None, int | None]:
    """Return the least and the greatest number that can pass, both included; None where there is no limit."""
    values = _values(each)
    if values is not None:
        numbers = [number(value) for value in values if value is not None]
        return (min(numbers), max(numbers)) if numbers else (None, None)
    if isinstance(each, GreaterThan):
        return number(each.value) + 1, None
    if isinstance(each, GreaterThanOrEqual):
        return number(each.value), None
    if isinstance(each, LessThan):
        return None, number(each.value) - 1
    if isinstance(each, LessThanOrEqual):
        return None, number(each.value)
    return None, None


def _microseconds(value: Any) -> int:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int((moment - _EPOCH) // _MICROSECOND)
