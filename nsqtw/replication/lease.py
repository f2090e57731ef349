"""The lease of an owner: how long it may serve without hearing from the store."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from nsqtw.errors import ReplicaError


class Lease:
    """
    The lease of one claim, `seconds` long, by the clock `now`. Used from several threads.

    It is counted from the *beginning* of the last call that the store answered, so it ends here before it ends in the
    store. An owner whose lease is over pauses: it may have been replaced. Its next answer from the store tells.
    """

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self.seconds = seconds
        self._now = now
        self._renewed = -inf
        self.lost: ReplicaError | None = None
        """Why this broker is not the owner any more; once set, it stays."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called once when `lost` is set, from any thread."""

    def renew(self, began: float) -> None:
        """The store has answered a call that began at `began`, and this broker was the owner."""
        self._renewed = max(self._renewed, began)

    def lose(self, why: ReplicaError) -> None:
        """Another broker is the owner, or the store has lost what this one committed, or all of the data set."""
        if self.lost is None:
            self.lost = why
            self.on_lost()

    @property
    def ends(self) -> float:
        """The time of its end."""
        return self._renewed + self.seconds

    @property
    def left(self) -> float:
        """Seconds to its end; 0 if it is over, or lost."""
        return 0.0 if self.lost is not None else max(0.0, self.ends - self._now())
