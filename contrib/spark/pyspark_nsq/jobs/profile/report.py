"""The document of a profile, as ``--json`` prints it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from pyspark_nsq.jobs.profile.figures import Figures, Minute
from pyspark_nsq.jobs.profile.quantiles import Durations, duration_of, percentiles
from pyspark_nsq.jobs.profile.scan import ID, VALUE, Repeats

Document = dict[str, Any]

_HOUR_MINUTES = 60
_HOUR_SECONDS = 3600
_MINUTE_SECONDS = 60
#: A gap within a minute is not seen.
_SHORTEST_GAP_SECONDS = 60
_GAPS = 5
_MAX_HOURS = 24 * 92
_BARS = 32
_NO_REPEATS = Repeats(0, 0, 0)


def document_of(topic: str, figures: Figures, repeats: Mapping[tuple[str, str], Repeats] | None) -> Document:
    """Return the document of a topic. `repeats`: None when they were not counted."""
    first = min(minute.first_us for minute in figures.minutes.values())
    last = max(minute.last_us for minute in figures.minutes.values())
    size = sum(minute.bytes for minute in figures.minutes.values())
    sizes = {**percentiles(figures.sizes), "max": max(figures.sizes)}
    document: Document = {
        "topic": topic,
        "messages": figures.messages,
        "bytes": size,
        "first": _moment(first),
        "last": _moment(last),
        "mean_per_second": round(figures.messages / max((last - first) / 1e6, _MINUTE_SECONDS), 3),
        "max_per_second": _busiest(figures),
        "hours": _hours(figures),
        "gaps": _gaps(figures),
        "size": {**sizes, "histogram": _histogram({float(size): count for size, count in figures.sizes.items()})},
        "json": _json(figures),
        "delay": _durations(figures.delays),
        "event_time": None,
        "duplicates": None,
    }
    events = figures.event_times
    if events.latencies.count or events.missing or events.unreadable or events.in_future:
        counts = {name: getattr(events, name) for name in ("missing", "unreadable", "in_future")}
        document["event_time"] = _durations(events.latencies) | counts
    if repeats is not None:
        names = {"by_value": VALUE, "by_id": ID}
        found = {name: repeats.get((topic, kind), _NO_REPEATS) for name, kind in names.items()}
        document["duplicates"] = {name: each._asdict() for name, each in found.items()}
    return document


def _moment(unix_us: int) -> str:
    return datetime.fromtimestamp(unix_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _hours(figures: Figures) -> list[Document]:
    """Return the hours from the first to the last; only those with messages if all would be too many."""
    minutes: dict[int, list[Minute]] = defaultdict(list)
    for number, minute in figures.minutes.items():
        minutes[number // _HOUR_MINUTES].append(minute)
    hours = range(min(minutes), max(minutes) + 1)
    return [_hour(hour, minutes[hour]) for hour in (hours if len(hours) <= _MAX_HOURS else sorted(minutes))]


def _hour(number: int, minutes: list[Minute]) -> Document:
    messages = sum(minute.messages for minute in minutes)
    return {
        "hour": _moment(number * _HOUR_SECONDS * 1_000_000)[: len("2026-11-25T14:00")] + "Z",
        "messages": messages,
        "bytes": sum(minute.bytes for minute in minutes),
        "mean_per_second": round(messages / _HOUR_SECONDS, 3),
        "max_per_second": round(max((minute.messages for minute in minutes), default=0) / _MINUTE_SECONDS, 3),
    }


def _busiest(figures: Figures) -> float:
    return round(max(minute.messages for minute in figures.minutes.values()) / _MINUTE_SECONDS, 3)


def _gaps(figures: Figures) -> list[Document]:
    """Return the longest times without a message, the longest first."""
    ordered = [figures.minutes[number] for number in sorted(figures.minutes)]
    found = [(after.first_us - before.last_us, before.last_us, after.first_us) for before, after in pairwise(ordered)]
    longest = sorted((each for each in found if each[0] >= _SHORTEST_GAP_SECONDS * 1_000_000), reverse=True)[:_GAPS]
    return [{"seconds": length / 1e6, "from": _moment(start), "to": _moment(end)} for length, start, end in longest]


def _json(figures: Figures) -> Document:
    example = figures.not_json_example
    return {
        "messages": figures.messages - figures.not_json,
        "not_json": figures.not_json,
        "not_json_example": None if example is None else _example(*example),
        "more_fields": figures.fields.is_cut,
        "fields": [
            {
                "field": row.path or "(message)",
                "present": round(row.present, 6),
                "conflict": row.is_conflict,
                "types": [
                    {"type": name, "count": each.count, "example": _example(*each.example)}
                    for name, each in sorted(row.types.items(), key=lambda pair: -pair[1].count)
                ],
            }
            for row in figures.fields.rows()
        ],
    }


def _example(nsqd: str, position: int) -> Document:
    return {"nsqd": nsqd, "position": position}


def _durations(found: Durations) -> Document:
    counts = {duration_of(bucket): count for bucket, count in found.buckets.items()}
    return {"messages": found.count, **found.percentiles(), "histogram": _histogram(counts)}


def _histogram(counts: Mapping[float, int]) -> list[Document]:
    """Return counts in bars of equal width, or of equal ratio when the values differ by more than a factor of 20."""
    if not counts:
        return []
    low, high = min(counts), max(counts)
    is_wide = low > 0 and high / low > 20

    def edge(number: int) -> float:
        return low * (high / low) ** (number / _BARS) if is_wide else low + (high - low) * number / _BARS

    edges = [edge(number) for number in range(1, _BARS)]
    bars = [0] * _BARS
    for value, count in counts.items():
        bars[bisect_right(edges, value)] += count
    starts = [low, *edges]
    return [{"from": round(start, 6), "messages": count} for start, count in zip(starts, bars, strict=True)]
