"""
Distribution of a consumer's max_in_flight over its connections.

Each connection gets an equal share as its RDY count. With more connections than `max_in_flight` only some get RDY 1,
and `redistribute` moves it: a connection without messages for a while gives it up, a random other one gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from nsqtw.client.options import ClientOptions

RETRY_SECONDS = 5.0
"""Time after which a connection that got no RDY because of max_in_flight is tried again."""


class ReadyConnection(Protocol):
    """The part of a consumer's connection that this module reads and changes."""

    rdy: int
    last_rdy: int
    """The RDY count that nsqd was told last."""
    rdy_since: float
    """When a count above zero was set last."""
    last_message: float
    """When a message was received last, or the time of the connect."""
    is_closing: bool
    has_retry: bool
    """Whether a grant is to be tried again after RETRY_SECONDS."""

    @property
    def max_rdy_count(self) -> int:
        """The limit of the nsqd."""

    def send_rdy(self, count: int) -> None:
        """Send RDY."""


class ReadyDistribution:
    """RDY counts of `connections`, which the consumer keeps. `retry` is told of a connection to try again."""

    def __init__(
        self,
        options: ClientOptions,
        connections: Sequence[ReadyConnection],
        random: Random,
        retry: Callable[[ReadyConnection], None],
    ) -> None:
        self._options = options
        self._connections = connections
        self._random = random
        self._retry = retry
        self.max_in_flight = options.max_in_flight
        self.needs_redistribution = False
        """Whether a connection with a share was closed."""

    @property
    def share(self) -> int:
        """The RDY count of each connection."""
        count = len(self._connections)
        return int(min(max(1, self.max_in_flight / count), self.max_in_flight)) if count else 0

    @property
    def total(self) -> int:
        """The sum of all RDY counts."""
        return sum(connection.rdy for connection in self._connections)

    def share_out(self, now: float, last: ReadyConnection | None = None) -> None:
        """Give every connection its share, `last` at the end."""
        ordered = [connection for connection in self._connections if connection is not last]
        for connection in [*ordered, *([last] if last is not None else [])]:
            self.set(connection, self.share, now)

    def stop_all(self, now: float) -> None:
        """Set every connection to RDY 0."""
        for connection in self._connections:
            self.set(connection, 0, now)

    def set(self, connection: ReadyConnection, count: int, now: float) -> None:
        """Set the RDY count of a connection, as far as max_in_flight and the nsqd allow."""
        if connection.is_closing:
            return
        count = min(count, connection.max_rdy_count)
        connection.has_retry = False
        possible = self.max_in_flight - self.total + connection.rdy
        if count > 0 and possible <= 0 and not connection.rdy:
            connection.has_retry = True
            self._retry(connection)
            return
        count = min(count, max(0, possible))  # lower than before when max_in_flight was lowered
        if not count and not connection.rdy:
            return
        changed = count != connection.rdy
        connection.rdy = count
        if count:
            connection.rdy_since = now
        if changed:
            connection.send_rdy(count)

    def redistribute(self, now: float, *, in_backoff: bool) -> None:
        """Move RDY counts among the connections, if there are too few for all. Not during a pause of backoff."""
        count = len(self._connections)
        if not count:
            return
        if count > self.max_in_flight or (in_backoff and count > 1):
            self.needs_redistribution = True
        if not self.needs_redistribution:
            return
        self.needs_redistribution = False
        options = self._options
        for connection in self._connections:
            if not connection.rdy:
                continue
            is_idle = now - connection.last_message > options.low_rdy_idle_timeout
            if is_idle or now - connection.rdy_since > options.low_rdy_timeout:
                self.set(connection, 0, now)
        available = (min(1, self.max_in_flight) if in_backoff else self.max_in_flight) - self.total
        candidates = [connection for connection in self._connections if not connection.is_closing]
        self._random.shuffle(candidates)
        for connection in candidates[: max(0, available)]:
            self.set(connection, 1, now)
