"""Times as Go prints them: NSQ's logs and text statistics have durations like `1m5s` and `24.616µs`."""

from __future__ import annotations

from datetime import datetime

_US, _MS, _SECOND = 10**3, 10**6, 10**9
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE


def duration_text(ns: int) -> str:
    """A duration in nanoseconds, 0 or more: largest unit first, no trailing zeros."""
    if ns == 0:
        return "0s"
    if ns < _US:
        return f"{ns}ns"
    if ns < _MS:
        return f"{_decimal(ns, 3)}µs"
    if ns < _SECOND:
        return f"{_decimal(ns, 6)}ms"
    seconds = f"{_decimal(ns % _MINUTE, 9)}s"
    if ns < _MINUTE:
        return seconds
    minutes = f"{ns % _HOUR // _MINUTE}m{seconds}"
    return minutes if ns < _HOUR else f"{ns // _HOUR}h{minutes}"


def local_time_text(timestamp: int) -> str:
    """Unix seconds as RFC 3339 in local time, `Z` for no offset."""
    text = datetime.fromtimestamp(timestamp).astimezone().isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")


def _decimal(value: int, places: int) -> str:
    whole, fraction = divmod(value, 10**places)
    return f"{whole}.{fraction:0{places}}".rstrip("0") if fraction else str(whole)
