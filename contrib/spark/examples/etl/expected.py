"""The windows and dead letters that the pipeline must write, computed from the messages without Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_WINDOW = _DELAY = timedelta(minutes=10)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Start of a window, event and country.
Window = tuple[datetime, str, str]


@dataclass(frozen=True)
class Expected:
    """The rows that the pipeline must write, and the number of clicks that are too late for their window."""

    counts: Counter[Window]
    dead_letters: Counter[bytes]
    late: int


def expected(parts: Sequence[Sequence[bytes]], users: Mapping[str, str]) -> Expected:
    """Compute the rows that the pipeline writes, if it runs after each part.

    Between two runs the watermark moves to the newest click less the delay. Windows before it are complete: they are
    written, and clicks that come later for them are left out.
    """
    counts: Counter[Window] = Counter()
    dead: Counter[bytes] = Counter()
    late = 0
    watermark = newest = _EPOCH
    for messages in parts:
        for message in messages:
            click = _click(message)
            if click is None:
                dead[message] += 1
                continue
            time = datetime.fromisoformat(click["time"])
            newest = max(newest, time)
            if click["agent"] == "robot" or click["user"] not in users:
                continue
            start = time - (time - _EPOCH) % _WINDOW
            if start + _WINDOW <= watermark:
                late += 1
            else:
                counts[start, click["event"], users[click["user"]]] += 1
        watermark = newest - _DELAY
    complete = Counter({window: count for window, count in counts.items() if window[0] + _WINDOW <= watermark})
    return Expected(complete, dead, late)


def _click(message: bytes) -> dict[str, str] | None:
    """Return the click, or None for a message that is not one."""
    try:
        click: dict[str, str] = json.loads(message)
        datetime.fromisoformat(click["time"])
        click["user"]
    except (ValueError, KeyError):
        return None
    return click
