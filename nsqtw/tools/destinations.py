"""
Destinations of nsq_to_http and nsq_to_nsq: the choice among them, and the status lines with counts and durations of
their last messages.

    round-robin      in turn; the counter is raised first, so the second destination gets the first message
    hostpool         in turn, without destinations that failed: one is tried again after 30 s, 60 s, ... 900 s
    epsilon-greedy   the same, with the fast ones preferred: response times of the last 5 minutes decide, in 120
                     buckets of which the newest counts most
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

HOSTPOOL, EPSILON_GREEDY, ROUND_ROBIN = "hostpool", "epsilon-greedy", "round-robin"
"""The values of --mode."""
FIRST_RETRY_SECONDS: Final = 30.0
LAST_RETRY_SECONDS: Final = 900.0
_BUCKETS: Final = 120
_BUCKET_SECONDS: Final = 2.5
_FIRST_EPSILON: Final = 0.3
_LEAST_EPSILON: Final = 0.01
_EPSILON_DECAY: Final = 0.9
_PERCENTILES = (99, 95)


class _Host:
    """A destination."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.retry_at: float | None = None
        """When a dead destination is tried again; None for a live one."""
        self.retry_delay = 0.0
        self.counts = [0] * _BUCKETS
        self.sums = [0] * _BUCKETS
        """Responses and their milliseconds, by bucket of time."""

    def mean(self, newest: int) -> float:
        """Return the weighted mean of response times in ms, 0 for none. `newest` is the current bucket."""
        total = weights = value = 0.0
        for age in range(1, _BUCKETS + 1):
            bucket = (newest + age) % _BUCKETS
            weight = age / _BUCKETS
            if self.counts[bucket]:
                value = self.sums[bucket] / self.counts[bucket]
            if value:
                total += value * weight
                weights += weight
        return total / weights if weights else 0.0


class HostPool:
    """Destinations and how they fared. `epsilon_greedy` prefers fast ones."""

    def __init__(self, addresses: Sequence[str], random: Random, *, epsilon_greedy: bool = False) -> None:
        self._hosts = {address: _Host(address) for address in addresses}
        self._order = list(self._hosts.values())
        self._next = 0
        self._random = random
        self._is_epsilon_greedy = epsilon_greedy
        self._epsilon = _FIRST_EPSILON
        self._bucket = 0
        self._bucket_end: float | None = None

    def pick(self, now: float) -> str:
        """Return the destination of the next message. `now` is in seconds."""
        if self._is_epsilon_greedy:
            self._turn_buckets(now)
            if self._random.random() < self._epsilon:
                self._epsilon = max(self._epsilon * _EPSILON_DECAY, _LEAST_EPSILON)
            elif (fast := self._pick_fast(now)) is not None:
                return fast
        return self._pick_in_turn(now)

    def succeeded(self, address: str, seconds: float) -> None:
        """A destination answered after `seconds`."""
        host = self._hosts[address]
        host.retry_at = None
        if self._is_epsilon_greedy:
            host.counts[self._bucket] += 1
            host.sums[self._bucket] += int(seconds * 1000)

    def failed(self, address: str, now: float) -> None:
        """A destination failed: it gets no messages for a while."""
        host = self._hosts[address]
        if host.retry_at is None:
            host.retry_delay = FIRST_RETRY_SECONDS
            host.retry_at = now + host.retry_delay

    # -- inside

    def _pick_in_turn(self, now: float) -> str:
        for _ in self._order:
            host = self._order[self._next % len(self._order)]
            self._next += 1
            if self._may_use(host, now):
                return host.address
        for host in self._order:  # all are dead, and none is due
            host.retry_at = None
        self._next = 1
        return self._order[0].address

    def _pick_fast(self, now: float) -> str | None:
        """Return a random destination, the faster the more likely; None without any response time."""
        means = [(host, host.mean(self._bucket)) for host in self._order if self._may_use(host, now, takes=False)]
        weights = [(host, 1 / mean) for host, mean in means if mean]
        if not weights:
            return None
        chosen: _Host = self._random.choices([host for host, _ in weights], [weight for _, weight in weights])[0]
        self._may_use(chosen, now)
        return chosen.address

    def _may_use(self, host: _Host, now: float, *, takes: bool = True) -> bool:
        """Return whether a destination is alive or due for a retry, which `takes` counts."""
        if host.retry_at is None:
            return True
        if host.retry_at > now:
            return False
        if takes:
            host.retry_delay = min(host.retry_delay * 2, LAST_RETRY_SECONDS)
            host.retry_at = now + host.retry_delay
        return True

    def _turn_buckets(self, now: float) -> None:
        """Begin the bucket of the current time."""
        if self._bucket_end is None:
            self._bucket_end = now + _BUCKET_SECONDS
        while now >= self._bucket_end:
            self._bucket_end += _BUCKET_SECONDS
            self._bucket = (self._bucket + 1) % _BUCKETS
            for host in self._order:
                host.counts[self._bucket] = host.sums[self._bucket] = 0


class RoundRobin:
    """Destinations in turn, whatever becomes of the messages."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._counter = 0

    def pick(self, now: float) -> str:
        """Return the destination of the next message."""
        self._counter += 1
        return self._addresses[self._counter % len(self._addresses)]

    def succeeded(self, address: str, seconds: float) -> None:
        """A destination answered, which changes nothing."""

    def failed(self, address: str, now: float) -> None:
        """A destination failed, which changes nothing."""


def make_pool(mode: str, addresses: Sequence[str], random: Random) -> HostPool | RoundRobin:
    """Return the pool of a --mode: round-robin for unknown ones."""
    if mode in (HOSTPOOL, EPSILON_GREEDY):
        return HostPool(addresses, random, epsilon_greedy=mode == EPSILON_GREEDY)
    return RoundRobin(addresses)


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


def status_warning(every: int) -> str:
    """Return the warning for a number of messages that gives no percentiles, "" for none."""
    if 0 < every < 100:
        return f"Warning: use more than 100 status values for accurate percentiles (configured with {every})"
    return ""
