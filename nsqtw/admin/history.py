"""
History of a cluster in memory: an hour of figures for the cluster, each node, each topic and each channel.

A sample has the figures of every subject at one time. The last FINE_SAMPLES samples are kept as they are (10 minutes
at one sample every 5 seconds), and their means over COARSE_SECONDS for an hour. Memory is bounded by the number of
subjects: a series whose value never changed is one number, any other one is two arrays of single-precision floats (1
KB).

`now` is a time in seconds. A figure is a level, or the rate of a counter (`nsqtw.cluster.rates`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping

import attrs

FINE_SAMPLES = 120
COARSE_SECONDS = 30.0
RECENT_SECONDS = 600.0
"""The time that is shown beside a figure."""
COARSE_SAMPLES = 120
MAX_SUBJECTS = 50_000
"""Subjects beyond this number have no history."""

Subject = tuple[str, ...]
"""("cluster",), ("node", node), ("topic", topic) or ("channel", topic, channel)."""
CLUSTER: Subject = ("cluster",)

_NAN = math.nan
_STEP = 100
"""Subjects in a step."""


@attrs.frozen
class Points:
    """A series over time, oldest first. A value is NaN where the subject gave none."""

    times: list[float]
    values: list[float]


class _Timeline:
    """
    The times of the samples in a ring. A sample is written into a slot that is not in use, and is there when all of its
    values are (`add`).
    """

    def __init__(self, samples: int) -> None:
        self.size = samples + 1
        self.count = 0
        self.times = array("d", [_NAN]) * self.size

    @property
    def next(self) -> int:
        """The slot of the sample that is being written."""
        return self.count % self.size

    @property
    def last(self) -> int:
        """The slot of the newest sample."""
        return (self.count - 1) % self.size

    def add(self, now: float) -> None:
        """Add the sample that was written."""
        self.times[self.next] = now
        self.count += 1
        self.times[self.next] = _NAN

    def slots(self) -> Iterator[int]:
        """Iterate over the slots in use, oldest first."""
        start = max(0, self.count - self.size + 1)
        return (number % self.size for number in range(start, self.count))


class _Series:
    """The values of one figure of one subject, in the slots of the two timelines."""

    __slots__ = ("_coarse", "_constant", "_fine", "_since")

    def __init__(self, since: float) -> None:
        self._constant: float | None = None
        self._since = since
        self._fine: array[float] | None = None
        self._coarse: array[float] | None = None

    def put(self, value: float, fine: _Timeline, coarse: _Timeline) -> None:
        """Set the value in the fine sample that is being written."""
        if self._fine is None:
            if self._constant is None:
                self._constant = value
            if value == self._constant:
                return
            self._allocate(fine, coarse)
            assert self._fine is not None
        self._fine[fine.next] = value

    def put_mean(self, fine: _Timeline, coarse: _Timeline, samples: int) -> None:
        """Set the value in the coarse sample that is being written to the mean of the last `samples` fine ones."""
        if self._fine is None or self._coarse is None:
            return
        numbers = range(max(0, fine.count + 1 - samples), fine.count + 1)
        known = [value for number in numbers if not math.isnan(value := self._fine[number % fine.size])]
        self._coarse[coarse.next] = sum(known) / len(known) if known else _NAN

    def fine(self, timeline: _Timeline) -> list[float]:
        """Return the fine values, oldest first."""
        return self._read(self._fine, timeline)

    def coarse(self, timeline: _Timeline) -> list[float]:
        """Return the coarse values, oldest first."""
        return self._read(self._coarse, timeline)

    def last(self, timeline: _Timeline) -> float:
        """Return the newest fine value."""
        if self._fine is not None:
            return self._fine[timeline.last]
        return _NAN if self._constant is None else self._constant

    def _read(self, values: array[float] | None, timeline: _Timeline) -> list[float]:
        if values is not None:
            return [values[slot] for slot in timeline.slots()]
        constant = _NAN if self._constant is None else self._constant
        return [constant if timeline.times[slot] >= self._since else _NAN for slot in timeline.slots()]

    def _allocate(self, fine: _Timeline, coarse: _Timeline) -> None:
        constant = _NAN if self._constant is None else self._constant
        self._fine, self._coarse = (
            array("f", [constant if at >= self._since else _NAN for at in timeline.times])
            for timeline in (fine, coarse)
        )


@attrs.define
class _Record:
    """What is kept of one subject."""

    series: dict[str, _Series] = attrs.field(factory=dict)
    seen: int = 0
    """The number of the sample that had it last."""


class History:
    """The series of all subjects. A sample that is being written is not seen."""

    def __init__(self) -> None:
        self._fine = _Timeline(FINE_SAMPLES)
        self._coarse = _Timeline(COARSE_SAMPLES)
        self._records: dict[Subject, _Record] = {}
        self._now = _NAN
        self._coarse_from = _NAN
        self._coarse_count = 0

    def __len__(self) -> int:
        return len(self._records)

    def begin(self, now: float) -> None:
        """Begin a sample. `put` follows for each subject, perhaps in later turns, and then `end`."""
        self._now = now
        if self._fine.count == 0:
            self._coarse_from = now
        self._coarse_count += 1

    def put(self, subject: Subject, figures: Mapping[str, float]) -> None:
        """Set the figures of a subject in this sample."""
        record = self._records.get(subject)
        if record is None:
            if len(self._records) >= MAX_SUBJECTS:
                return
            record = self._records[subject] = _Record()
        record.seen = self._fine.count
        for name, value in figures.items():
            series = record.series.get(name)
            if series is None:
                series = record.series[name] = _Series(self._now)
            series.put(value, self._fine, self._coarse)
        if len(record.series) > len(figures):
            for name in record.series.keys() - figures.keys():
                record.series[name].put(_NAN, self._fine, self._coarse)

    def end(self) -> Iterator[None]:
        """
        End the sample, in steps for a caller with other work in between. A subject that has no figures in it gets a
        gap, and is removed when it had none in the last FINE_SAMPLES.
        """
        is_coarse = self._now - self._coarse_from >= COARSE_SECONDS
        samples = min(self._coarse_count, FINE_SAMPLES)
        for number, (subject, record) in enumerate(list(self._records.items())):
            if record.seen != self._fine.count:
                if record.seen <= self._fine.count - FINE_SAMPLES:
                    del self._records[subject]
                    continue
                for series in record.series.values():
                    series.put(_NAN, self._fine, self._coarse)
            if is_coarse:
                for series in record.series.values():
                    series.put_mean(self._fine, self._coarse, samples)
            if number % _STEP == _STEP - 1:
                yield
        self._fine.add(self._now)
        if is_coarse:
            self._coarse.add(self._now)
            self._coarse_from, self._coarse_count = self._now, 0

    def recent(self, subject: Subject, name: str) -> Points:
        """Return the values of the last RECENT_SECONDS."""
        return self.points(subject, name, RECENT_SECONDS)

    def points(self, subject: Subject, name: str, seconds: float) -> Points:
        """Return the values of the last `seconds`; of the older ones there are means."""
        fine_times = [self._fine.times[slot] for slot in self._fine.slots()]
        if not fine_times:
            return Points([], [])
        series = self._series(subject, name) or _Series(math.inf)
        start = fine_times[-1] - seconds
        coarse_times = [self._coarse.times[slot] for slot in self._coarse.slots()]
        older = [
            (at, value)
            for at, value in zip(coarse_times, series.coarse(self._coarse), strict=True)
            if start <= at < fine_times[0]
        ]
        newer = [(at, value) for at, value in zip(fine_times, series.fine(self._fine), strict=True) if at >= start]
        return Points([at for at, _ in older + newer], [value for _, value in older + newer])

    def last(self, subject: Subject, name: str) -> float:
        """Return the value of the newest sample, NaN without one."""
        series = self._series(subject, name)
        return _NAN if series is None else series.last(self._fine)

    def _series(self, subject: Subject, name: str) -> _Series | None:
        record = self._records.get(subject)
        return None if record is None else record.series.get(name)
