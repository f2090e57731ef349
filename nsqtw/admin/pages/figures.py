"""Figures of a subject for a page: the newest values, and those of the last minutes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nsqtw.admin.history import Subject
from nsqtw.admin.pages.visit import Visit


def figures(visit: Visit, subject: Subject, names: Iterable[str]) -> dict[str, Any]:
    """Return `rates`, the newest values by name, and `recent`, the last minutes of each."""
    history = visit.sampler.history
    chosen = tuple(names)
    return {
        "rates": {name: history.last(subject, name) for name in chosen},
        "recent": {name: history.recent(subject, name) for name in chosen},
    }
