"""A message as a consumer of the connector gets it."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """One delivery. `timestamp_ns` since 1970; `attempts` counts this delivery, too."""

    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes
