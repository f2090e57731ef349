"""Charts: series of the history as the pages' script draws them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import attrs

from nsqtw.admin.history import History, Points, Subject
from nsqtw.admin.pages.formats import is_known, short

SPANS = {"10m": 600.0, "1h": 3600.0}
"""The lengths of charts in seconds, by their names in URLs."""
DEFAULT_SPAN = "10m"
_DIGITS = 4


@attrs.frozen
class Line:
    """A line of a chart: a figure of the history, its label, and the tone of its colour."""

    figure: str
    label: str
    tone: str


@attrs.frozen
class Series:
    """A line with its values."""

    label: str
    tone: str
    last: str
    points: Points


@attrs.frozen
class Chart:
    """A chart. `times` and `values` are JSON; `summary` has the newest values as a text."""

    name: str
    title: str
    series: Sequence[Series]
    times: str
    values: str
    span: int
    """Seconds."""
    summary: str


def span_in(text: str) -> str:
    """Return the name of a length; the default for an unknown one."""
    return text if text in SPANS else DEFAULT_SPAN


def chart(
    history: History, subject: Subject, name: str, title: str, lines: Sequence[Line], span: str, offset: float
) -> Chart:
    """Return a chart of a subject. `offset` is what is added to times of the history to make them Unix times."""
    found = [history.points(subject, line.figure, SPANS[span]) for line in lines]
    times = found[0].times if found else []
    series = [
        Series(line.label, line.tone, short(points.values[-1] if points.values else None), points)
        for line, points in zip(lines, found, strict=True)
    ]
    return Chart(
        name=name,
        title=title,
        series=series,
        times=json.dumps([round(at + offset) for at in times], separators=(",", ":")),
        values=json.dumps([_numbers(points) for points in found], separators=(",", ":")),
        span=round(SPANS[span]),
        summary=f"{title}: " + ", ".join(f"{each.label} {each.last}" for each in series),
    )


def _numbers(points: Points) -> list[float | None]:
    return [_rounded(value) if is_known(value) else None for value in points.values]


def _rounded(value: float) -> float:
    """Return a number with few digits, as an integer where it is one."""
    if value == 0:
        return 0
    digits = _DIGITS - 1 - math.floor(math.log10(abs(value)))
    rounded = round(float(value), max(digits, 0))
    return int(rounded) if rounded.is_integer() else rounded
