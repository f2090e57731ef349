"""The figures of a source in Spark's StreamingQueryProgress: a key of the JSON object ``sources[n].latestOffset``.

    {"http://127.0.0.1:4151": 4503599627371496,
     "@metrics": {"lag": [{"topic": "clicks", "channel": "", "messages": 1000, "seconds": 2.5}],
                  "unanswered": 0, "repeated": 0, "retried": 0}}

Spark has no metrics of sources that are written in Python. It shows the result of `reportLatestOffset` unchanged, and
does not plan with it (docs/decisions/0026).

The lag is the messages that the query has not read after the micro-batch of this progress. `messages` is a count, not a
difference of positions; `seconds` is the time since the oldest of the messages was published, or null when it is not
known. `unanswered` is the number of nsqds that did not answer, whose messages are not counted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

KEY = "@metrics"
"""No topic and no address has such a name."""


class Lag(NamedTuple):
    """The messages of a topic, or of a channel of it, that a query has not read. `channel` is "" for a log."""

    topic: str
    channel: str
    messages: int
    seconds: float | None


def reported(offset: dict[str, Any], lags: Sequence[Lag], unanswered: int, **counts: int) -> dict[str, Any]:
    """Return the result of `reportLatestOffset`: an offset with the figures of the source."""
    return offset | {KEY: {"lag": [lag._asdict() for lag in lags], "unanswered": unanswered} | counts}


def figures_of(latest_offset: str) -> dict[str, Any] | None:
    """Return the figures in the text of a `latestOffset`. None for those of another kind of source."""
    try:
        found = json.loads(latest_offset)
    except ValueError:
        return None
    figures = found.get(KEY) if isinstance(found, dict) else None
    return figures if isinstance(figures, dict) else None
