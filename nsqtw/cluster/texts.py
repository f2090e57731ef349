"""Texts of sizes and durations, for nsqadmin and the command line."""

from __future__ import annotations

from nsqtw.options.types import SIZE_UNITS

_LARGEST_UNIT = max(SIZE_UNITS, key=SIZE_UNITS.__getitem__)
_DURATION_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def size_text(count: float) -> str:
    """Return a number of bytes with a unit: 12.3 MB. The units are those that options have."""
    # The next unit from the amount on that would be shown as 1024 of this one.
    unit = next((name for name, size in SIZE_UNITS.items() if count / size < 1023.5), _LARGEST_UNIT)
    amount = count / SIZE_UNITS[unit]
    digits = 0 if unit == "B" or amount >= 99.95 or amount == int(amount) else 1
    return f"{amount:.{digits}f} {unit}"


def duration_text(seconds: float) -> str:
    """Return a duration with its two largest units: 2 h 5 min, 350 ms."""
    if seconds < 1:
        return f"{seconds * 1000:.{0 if seconds >= 0.01 or seconds == 0 else 2}f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    parts: list[str] = []
    for length, unit in _DURATION_UNITS:
        number, whole = divmod(whole, length)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
    return " ".join(part for part in parts[:2] if part)


def brief_duration_text(seconds: float) -> str:
    """Return a duration in its largest unit: 2.1 h, 35 min."""
    if seconds < 60:
        return duration_text(seconds)
    length, unit = next((length, unit) for length, unit in _DURATION_UNITS if seconds >= length)
    number = seconds / length
    return f"{number:.{1 if number < 9.95 else 0}f} {unit}"
