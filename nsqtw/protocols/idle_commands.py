"""
Limit for commands without effect: a client that sends too many in a row is slowed, then disconnected.

A NOP, a RDY, and a FIN, REQ or TOUCH that fails cost the broker work and change no message. They are
counted until a message of the client is published, finished or requeued. A row of more than `--max-idle-commands` is
slowed: after each BATCH of commands the session rests for REST_SECONDS, in which the client is not read from. A row of
twice as many ends the session. A row whose average stays below LOW_RATE, such as the answers to heartbeats, is not
limited.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable
from sys import maxsize
from typing import Final

from nsqtw.errors import ClientError

OPTION: Final = "max-idle-commands"
BATCH: Final = 256
"""Commands that a slowed client may send between two rests."""
REST_SECONDS: Final = 0.1
LOW_RATE: Final = 100.0
"""Commands without effect a second that are never too many."""


class IdleCommands:
    """
    The count of one session. `limit` is the option, 0 for no limit; `effects` returns a number that changes when a
    command of the client has an effect; `rest` has the session rest until a time.
    """

    def __init__(self, limit: int, effects: Callable[[], int], rest: Callable[[float], None]) -> None:
        self._limit = limit or maxsize
        self._effects = effects
        self._rest = rest
        self._count = 0
        self._next_check = self._limit
        self._since = 0.0
        """The time of the first command in the row."""
        self._seen_effects = 0
        self.is_exceeded = False
        """True once the session was ended for this."""

    def close(self) -> None:
        """The session has ended, and is not asked any more."""
        self._effects = _no_effects
        self._rest = _no_rest

    def record(self, now: float) -> None:
        """Count one command at `now`, in seconds. ClientError when there are far too many."""
        if not self._count:
            self._since, self._seen_effects = now, self._effects()
        self._count += 1
        if self._count >= self._next_check:
            self._check(now)

    def _check(self, now: float) -> None:
        if self._effects() != self._seen_effects or self._count < LOW_RATE * (now - self._since):
            self._count, self._next_check = 0, self._limit
            return
        if self._count >= 2 * self._limit:
            self.is_exceeded = True
            raise ClientError("E_INVALID", "too many commands without effect")
        self._next_check = min(self._count + BATCH, 2 * self._limit)
        self._rest(now + REST_SECONDS)


def _no_effects() -> int:
    return 0


def _no_rest(until: float) -> None:
    pass
