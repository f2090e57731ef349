"""The figures of a topic. Those of parts of a topic can be merged, so that each task collects its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark_nsq.jobs.profile.fields import Example, Fields, Shapes
from pyspark_nsq.jobs.profile.quantiles import Durations

if TYPE_CHECKING:
    import pyarrow as pa

MINUTE_US = 60_000_000


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_parse = json.JSONDecoder(parse_constant=_refuse).decode


@dataclass
class Minute:
    """The messages that were published in a minute, and the first and the last moment in microseconds."""

    messages: int
    bytes: int
    first_us: int
    last_us: int

    def merge(self, other: Minute) -> None:
        self.messages += other.messages
        self.bytes += other.bytes
        self.first_us = min(self.first_us, other.first_us)
        self.last_us = max(self.last_us, other.last_us)


@dataclass
class EventTimes:
    """The latencies of messages: from the time in a field to the publishing."""

    latencies: Durations = field(default_factory=Durations)
    missing: int = 0
    unreadable: int = 0
    in_future: int = 0

    def add(self, value: Any, published_us: int) -> float | None:
        """Return the latency in seconds, or None when there is none."""
        if value is None:
            self.missing += 1
            return None
        seconds = unix_seconds(value)
        if seconds is None:
            self.unreadable += 1
            return None
        latency = published_us / 1e6 - seconds
        if latency < 0:
            self.in_future += 1
            return None
        return latency

    def merge(self, other: EventTimes) -> None:
        self.latencies.merge(other.latencies)
        self.missing += other.missing
        self.unreadable += other.unreadable
        self.in_future += other.in_future


@dataclass
class Figures:
    """The figures of the messages of a topic."""

    minutes: dict[int, Minute] = field(default_factory=dict)
    sizes: Counter[int] = field(default_factory=Counter)
    delays: Durations = field(default_factory=Durations)
    event_times: EventTimes = field(default_factory=EventTimes)
    fields: Fields = field(default_factory=Fields)
    not_json: int = 0
    not_json_example: Example | None = None

    @property
    def messages(self) -> int:
        return self.sizes.total()

    def merge(self, other: Figures) -> None:
        for minute, found in other.minutes.items():
            self.add_minute(minute, found)
        self.sizes.update(other.sizes)
        self.delays.merge(other.delays)
        self.event_times.merge(other.event_times)
        self.fields.merge(other.fields)
        self.add_not_json(other.not_json, other.not_json_example)

    def add_minute(self, number: int, found: Minute) -> None:
        known = self.minutes.get(number)
        if known is None:
            self.minutes[number] = found
        else:
            known.merge(found)

    def add_not_json(self, count: int, example: Example | None) -> None:
        self.not_json += count
        if example is not None:
            self.not_json_example = min(example, self.not_json_example or example)


class Collector:
    """Adds messages to the figures of a topic. Call `finish` after the last ones."""

    def __init__(self, event_time_field: str = "") -> None:
        self.figures = Figures()
        self._shapes = Shapes(self.figures.fields)
        self._event_time = event_time_field.split(".") if event_time_field else []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows with the columns value, timestamp, due, nsqd and position."""
        import pyarrow as pa
        import pyarrow.compute as pc

        times = rows.column("timestamp").cast(pa.int64())
        sizes = pc.binary_length(rows.column("value"))
        for pair in pc.value_counts(sizes).to_pylist():
            self.figures.sizes[pair["values"]] += pair["counts"]
        table = pa.table({"minute": pc.divide(times, MINUTE_US), "size": sizes, "time": times})
        by_minute = table.group_by("minute").aggregate(
            [("size", "count"), ("size", "sum"), ("time", "min"), ("time", "max")]
        )
        for row in by_minute.to_pylist():
            minute = Minute(row["size_count"], row["size_sum"], row["time_min"], row["time_max"])
            self.figures.add_minute(row["minute"], minute)
        delays = pc.subtract(rows.column("due").cast(pa.int64()), times).drop_null()
        self.figures.delays.add(delay / 1e6 for delay in delays.to_pylist())
        nsqds, positions = rows.column("nsqd"), rows.column("position")
        self._parse(
            rows.column("value").to_pylist(),
            times.to_pylist() if self._event_time else (),
            lambda index: (nsqds[index].as_py(), positions[index].as_py()),
        )

    def _parse(self, values: Sequence[bytes], times_us: Sequence[int], example_of: Callable[[int], Example]) -> None:
        figures, add_shape = self.figures, self._shapes.add
        latencies = []
        for index, value in enumerate(values):
            try:
                document = _parse(value.decode())
            except (ValueError, RecursionError):
                figures.add_not_json(1, example_of(index))
                continue
            add_shape(document, index, example_of)
            if self._event_time:
                latency = figures.event_times.add(_inside(document, self._event_time), times_us[index])
                if latency is not None:
                    latencies.append(latency)
        figures.event_times.latencies.add(latencies)

    def finish(self) -> Figures:
        """Return the figures."""
        self._shapes.flush()
        return self.figures


def _inside(document: Any, path: Sequence[str]) -> Any:
    """Return the value of a field, or None when there is none."""
    for name in path:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document


#: Least numbers that are Unix time in nanoseconds, microseconds and milliseconds; smaller ones are in seconds.
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))


def unix_seconds(value: Any) -> float | None:
    """Return the Unix time of a JSON value, a number or RFC 3339; None when it is neither."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        return None
    return value / next((unit for least, unit in _UNITS if value >= least), 1.0)
