"""The status lines of nsq_to_http and nsq_to_nsq: counts and durations of the last messages."""

from __future__ import annotations

from collections.abc import Callable

_PERCENTILES = (99, 95)


class _Durations:
    """The durations since the last line, for one name."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def line(self, name: str) -> str:
        ordered = sorted(self.seconds)
        places = [min(int(percent / 100 * len(ordered) + 0.5), len(ordered) - 1) for percent in _PERCENTILES]
        parts = [f"{percent}th: {_text(ordered[place])}" for percent, place in zip(_PERCENTILES, places, strict=True)]
        average = sum(ordered) / len(ordered)
        return f"[{name}]: finished {len(ordered)} - {' - '.join(parts)} - avg: {_text(average)}"


class Status:
    """
    Writes a line with `say` after every `every` messages, 0 for never; with several `names`, destinations, one for each
    of them as well.
    """

    def __init__(self, every: int, names: list[str], say: Callable[[str], None]) -> None:
        self._every = every
        self._say = say
        self._total = _Durations()
        self._of_name = {name: _Durations() for name in names} if len(names) > 1 else {}

    def add(self, name: str, seconds: float) -> None:
        """Count a message that destination `name` took."""
        if not self._every:
            return
        if name in self._of_name:
            self._record(name, self._of_name[name], seconds)
        self._record("aggregate", self._total, seconds)

    def _record(self, name: str, durations: _Durations, seconds: float) -> None:
        if len(durations.seconds) >= self._every:
            self._say(durations.line(name))
            durations.seconds.clear()
        durations.seconds.append(seconds)


def _text(seconds: float) -> str:
    return f"{seconds * 1000:.2f}ms"


def warning(every: int) -> str:
    """Return the warning for a number of messages that gives no percentiles, "" for none."""
    if 0 < every < 100:
        return f"Warning: use more than 100 status values for accurate percentiles (configured with {every})"
    return ""
