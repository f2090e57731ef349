"""The nsqds that a task publishes to: a list from the options, or all that the nsqlookupds know.

A task uses one nsqd until an attempt fails there, and then the next one. When the list changes, it starts again at its
index in the list, so that some tasks use a new nsqd. For the reactor's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure

from pyspark_nsq.http.attempt import AttemptFailed
from pyspark_nsq.http.causes import Cause
from pyspark_nsq.http.lookup import Lookup, LookupFailed, Producer
from pyspark_nsq.options.security import Security
from pyspark_nsq.options.sink import SinkOptions

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

_log = logging.getLogger("pyspark_nsq")


class Nsqds:
    """A list of nsqds, and the index of one task in it. `first` is the index of its first nsqd."""

    def __init__(self, addresses: Sequence[str], first: int) -> None:
        self._addresses = tuple(addresses)
        self._first = first
        self._place = first

    @property
    def current(self) -> str:
        """The nsqd in use. The list must not be empty."""
        return self._addresses[self._place % len(self._addresses)]

    def leave(self, address: str) -> None:
        """Use the next nsqd, unless another one than `address` is in use already."""
        if self._addresses and address == self.current:
            self._place += 1

    def update(self, addresses: Sequence[str]) -> None:
        """Use another list."""
        if tuple(addresses) != self._addresses:
            self._addresses = tuple(addresses)
            self._place = self._first


class Discovery:
    """The nsqds that some nsqlookupds know, for all tasks of this process.

    They are asked again by the first request after `poll_seconds`, and after a failed attempt. When one does not
    answer, the answers of the others are used. When none answers, or one does not answer and the others know no nsqd,
    the known nsqds are used.
    """

    def __init__(self, clock: ReactorBase, lookup: Lookup, lookupds: Sequence[str], poll_seconds: float) -> None:
        self._clock = clock
        self._lookup = lookup
        self._lookupds = lookupds
        self._poll_seconds = poll_seconds
        self._known: tuple[str, ...] = ()
        self._trouble = ""
        self._asked_at: float | None = None
        self._waiting: list[Deferred[None]] | None = None
        """Fired at the end of the round of questions; None: there is none."""

    async def addresses(self) -> tuple[str, ...]:
        """Return the base URLs of the nsqds. Wait only when none is known, or the last answers are old.

        Raises AttemptFailed when no nsqd is known.
        """
        age = None if self._asked_at is None else self._clock.seconds() - self._asked_at
        if age is None or age >= self._poll_seconds or not self._known:
            self.ask()
        if not self._known or (age is not None and age >= 2 * self._poll_seconds):
            await self._answers()
        if not self._known:
            raise AttemptFailed(self._trouble, Cause.REFUSED)
        return self._known

    def ask(self) -> None:
        """Ask now, unless the nsqlookupds are being asked."""
        if self._waiting is None:
            self._waiting = []
            self._asked_at = self._clock.seconds()
            Deferred.fromCoroutine(self._ask_all()).addBoth(self._asked)

    def _answers(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self._waiting is None:
            done.callback(None)
        else:
            self._waiting.append(done)
        return done

    async def _ask_all(self) -> None:
        outcomes = await DeferredList(
            [Deferred.fromCoroutine(self._lookup.nodes(one)) for one in self._lookupds], consumeErrors=True
        )
        found: set[Producer] = set()
        troubles: list[str] = []
        for _, outcome in outcomes:
            if isinstance(outcome, Failure):
                outcome.trap(LookupFailed)
                troubles.append(str(outcome.value))
            else:
                found |= outcome
        if found or not troubles:
            self._known = tuple(sorted(one.url for one in found))
        if troubles:
            self._trouble = f"no nsqd is known: nsqlookupd {'; nsqlookupd '.join(troubles)}"
        else:
            names = ", ".join(self._lookupds)
            self._trouble = f"no nsqd is known to nsqlookupd {names}; nsqd registers with --lookupd-tcp-address"

    def _asked(self, outcome: Failure | None) -> None:
        waiting, self._waiting = self._waiting or [], None
        if isinstance(outcome, Failure):  # a mistake in the connector
            self._trouble = f"nsqlookupd cannot be asked: {outcome.value!r}"
            _log.error("%s", self._trouble)
        for done in waiting:
            done.callback(None)


#: The discoveries of this process, kept from task to task.
_discoveries: dict[tuple[Security, tuple[str, ...], int], Discovery] = {}


def shared_discovery(reactor: ReactorBase, options: SinkOptions) -> Discovery:
    """Return the discovery of this process. Raises OptionError when a file of `options` cannot be used."""
    key = (options.security.without_secret(), options.lookupds, options.lookupd_poll_ms)
    known = _discoveries.get(key)
    if known is None:
        lookup = Lookup(reactor, options.security)
        known = Discovery(reactor, lookup, options.lookupds, options.lookupd_poll_ms / 1000)
        _discoveries[key] = known
    return known
