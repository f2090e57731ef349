"""The figures of publishing: of one task, or of all tasks of a job.

A figure is declared in one place: as a field of `Tally`, or as a member of `Cause` for retries.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Self

from pyspark_nsq.http.causes import Cause


def _figure(name: str) -> Any:
    """Declare a number that is added up, with its name in lines of progress."""
    return field(default=0, metadata={"name": name})


@dataclass(kw_only=True)
class Tally:
    """The figures of publishing."""

    rows: int = _figure("rows")
    requests: int = _figure("requests")
    body_bytes: int = _figure("bytes")
    waited_ms: float = _figure("waitedMs")
    """Time that tasks waited for answers, with `maxInFlight` requests under way or no more rows to send."""
    retries: Counter[Cause] = field(default_factory=Counter)

    @property
    def retried(self) -> int:
        """The number of repeated requests, for all causes."""
        return self.retries.total()

    def add(self, other: Tally) -> Self:
        """Add the figures of another tally."""
        for each in dataclasses.fields(Tally):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self

    def figures(self) -> dict[str, int]:
        """Return the figures by their names in lines of progress."""
        numbers = {
            each.metadata["name"]: round(getattr(self, each.name))
            for each in dataclasses.fields(Tally)
            if "name" in each.metadata
        }
        causes = {f"retried{cause.value}": self.retries[cause] for cause in Cause}
        return numbers | {"retried": self.retried} | causes
