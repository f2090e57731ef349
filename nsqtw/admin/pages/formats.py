"""Text of numbers, sizes and durations as the pages show them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape

from nsqtw.admin.history import Points
from nsqtw.options.texts import brief_duration, readable_duration, readable_size

NOTHING = "–"
"""The text of a number that is not known."""
_LEAST_SECONDS = 120.0
_SHORT_UNITS = ("", "k", "M", "G", "T")
_HEX_COLUMNS = 16
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_COLOURED = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\b[0-9][0-9.eE+-]*')
_OPENING, _CLOSING = ("{", "["), ("}", "]")


def is_known(value: float | None) -> bool:
    """Return whether there is a number."""
    return value is not None and not math.isnan(value)


def count(value: float | None) -> str:
    """Return a whole number with separators: 1,234,567."""
    return f"{round(value):,}" if value is not None and is_known(value) else NOTHING


def short(value: float | None) -> str:
    """Return a number with three digits: 1.23M."""
    if value is None or not is_known(value):
        return NOTHING
    size, unit = abs(value), 0
    while size >= 999.5 and unit < len(_SHORT_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    digits = 0 if unit == 0 and float(value).is_integer() else 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{'-' if value < 0 else ''}{size:.{digits}f}{_SHORT_UNITS[unit]}"


def rate(value: float | None) -> str:
    """Return a rate, without its unit (messages a second)."""
    if value is None or not is_known(value):
        return NOTHING
    if value == 0:
        return "0"
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else count(value)


def size(value: float | None) -> str:
    """Return a number of bytes with a unit: 12.3 MB."""
    return readable_size(value) if value is not None and is_known(value) else NOTHING


def duration(seconds: float | None) -> str:
    """Return a duration with its two largest units: 2 h 5 min, 350 ms."""
    return readable_duration(seconds) if seconds is not None and is_known(seconds) else NOTHING


def brief(seconds: float | None) -> str:
    """Return a duration in its largest unit: 2.1 h, 35 min."""
    return brief_duration(seconds) if seconds is not None and is_known(seconds) else NOTHING


def percent(part: float) -> str:
    """Return a fraction of 1 as a percentage."""
    return f"{part * 100:.1f}%" if part < 0.1 else f"{part * 100:.0f}%"


def quantile(value: float) -> str:
    """Return the name of a quantile: 0.99 is p99, 0.999 is p99.9."""
    return f"p{value * 100:.4g}"


def plural(number: float, one: str, many: str = "") -> str:
    """Return a number and its noun: 1 node, 3 nodes."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def hex_dump(body: bytes) -> str:
    """Return lines of an offset, 16 bytes in hexadecimal, and the same as ASCII."""
    lines = []
    for offset in range(0, len(body), _HEX_COLUMNS):
        row = body[offset : offset + _HEX_COLUMNS]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{offset:08x}  {left:<23}  {right:<23}  {printable}")
    return "\n".join(lines)


def pretty_json(text: str) -> str | None:
    """
    Return a JSON document with indentation, and every number and string as it was; None if it is no document, or a bare
    number or word.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return "".join(_indented(_TOKEN.findall(text)))


def coloured(text: str) -> Markup:
    """Return a JSON document as HTML, with its keys, strings and other values marked."""
    pieces, end = [], 0
    for match in _COLOURED.finditer(text):
        string, colon = match[1], match[2]
        kind = ("key" if colon else "string") if string else "literal"
        pieces.append(escape(text[end : match.start()]))
        pieces.append(Markup('<span class="{}">{}</span>{}').format(kind, string or match[0], colon or ""))
        end = match.end()
    return Markup("").join([*pieces, escape(text[end:])])


def _indented(tokens: Sequence[str]) -> Iterator[str]:
    depth = 0
    for token, following in zip(tokens, (*tokens[1:], ""), strict=True):
        if token in _OPENING:
            is_empty = following in _CLOSING
            depth += 0 if is_empty else 1
            yield token if is_empty else f"{token}\n{'  ' * depth}"
        elif token in _CLOSING:
            yield token
        elif token == ",":
            yield f",\n{'  ' * depth}"
        else:
            yield ": " if token == ":" else token
        if following in _CLOSING and token not in _OPENING:
            depth -= 1
            yield f"\n{'  ' * depth}"


def polylines(points: Points, seconds: float, width: float, height: float, floor: float = 0.0) -> list[str]:
    """
    Return the points of SVG polylines through a series, by time: the right edge is its last sample, the left one its
    first, at most `seconds` before and at least _LEAST_SECONDS. `floor` is the smallest value that the top stands for.
    Unknown values are gaps.
    """
    if not points.times:
        return []
    seconds = min(seconds, max(points.times[-1] - points.times[0], _LEAST_SECONDS))
    start, top = points.times[-1] - seconds, max((floor, *filter(is_known, points.values))) or 1.0
    runs: list[list[str]] = [[]]
    for at, value in zip(points.times, points.values, strict=True):
        if not is_known(value):
            runs.append([])
        elif at >= start:
            x, y = (at - start) / seconds * width, height - max(0.0, value) / top * height
            runs[-1].append(f"{x:.1f},{y:.1f}")
    return [" ".join(run) for run in runs if len(run) > 1]


def area(points: str, height: float) -> str:
    """Return the points of the polygon between a polyline and its base."""
    first, last = points.split(" ", 1)[0], points.rsplit(" ", 1)[-1]
    return f"{first.split(',')[0]},{height} {points} {last.split(',')[0]},{height}"
