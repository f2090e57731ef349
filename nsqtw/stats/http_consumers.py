"""
Counts of the consumers over HTTP, by their kind: poll, events, websocket.

A kind is there from its first consumer on, so a broker without such consumers has no samples.
"""

from __future__ import annotations

from collections import Counter

from attrs import field, frozen


@frozen
class HttpConsumers:
    """The counts of one broker."""

    subscribers: Counter[str] = field(factory=Counter)
    """Those that are there, counted as --max-http-subscribers does."""
    delivered: Counter[str] = field(factory=Counter)
    """Messages that were sent to them."""

    @property
    def count(self) -> int:
        """The number of subscribers of all kinds."""
        return self.subscribers.total()
