"""
Addresses of nsqlookupds: the values of --lookupd-tcp-address, and the nsqlookupds that they name.

    10.0.0.1:4160, lookupd.example:4160     one nsqlookupd; the name is looked up at each connect
    dns://lookupd.example:4160              one at each address that the name has
    dns+srv://_nsqlookupd._tcp.example      one for each SRV record, with the port it says

A name of the last two kinds is looked up again every RESOLVE_SECONDS: what it does not stand for any more is left, what
is new is connected to. When it cannot be looked up, or stands for nothing, all stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from nsqtw.options.addresses import LOOKED_UP_HOST, LOOKED_UP_SERVICE, is_host_port, join_host_port, split_host_port
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.resolver import resolve_all
from nsqtw.runtime.waiting import ReadyEvent, RetryDelays, in_time

RESOLVE_SECONDS = 30.0
ANSWER_SECONDS = 5.0
_FIRST_RETRY_SECONDS = 1.0
_QUERY_SECONDS = (1, 2)

_log = Logger()


@attrs.frozen
class LookupdAddress:
    """The address of one nsqlookupd. `name` is the name in its certificate."""

    host: str
    port: int
    name: str

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


def fixed_address(address: str) -> LookupdAddress | None:
    """Parse `host:port`; None when it is invalid."""
    parts = split_host_port(address)
    if parts is None or not is_host_port(address):
        return None
    host = parts[0] or "localhost"
    return LookupdAddress(host, int(parts[1]), host)


def is_looked_up(address: str) -> bool:
    """Return whether it stands for as many places as a name server says."""
    return address.startswith((LOOKED_UP_HOST, LOOKED_UP_SERVICE))


class Names:
    """Asks name servers. `services`, a resolver of twisted.names, is made when it is first needed."""

    def __init__(self, reactor: Reactor, services: Any = None) -> None:
        self._reactor = reactor
        self._services = services

    async def places(self, address: str) -> list[LookupdAddress]:
        """Look up an address that `is_looked_up`. Any error when that fails."""
        if address.startswith(LOOKED_UP_SERVICE):
            return await self._of_service(address.removeprefix(LOOKED_UP_SERVICE))
        address_ = fixed_address(address.removeprefix(LOOKED_UP_HOST))
        if address_ is None:
            raise ValueError("invalid address, expected host:port")
        hosts = await resolve_all(self._reactor, address_.host)
        # A machine with addresses of both kinds is not two of them.
        is_v6 = ":" in hosts[0]
        return [attrs.evolve(address_, host=host) for host in sorted(hosts) if (":" in host) == is_v6]

    async def _of_service(self, name: str) -> list[LookupdAddress]:
        from twisted.names import dns
        from twisted.names.client import Resolver
        from twisted.names.error import DNSNameError, DomainError

        if self._services is None:
            self._services = Resolver(b"/etc/resolv.conf", reactor=self._reactor)  # type: ignore[no-untyped-call]
        try:
            answers, _, _ = await self._services.lookupService(name.strip("/"), _QUERY_SECONDS)
        except DomainError as failure:  # whose text is the whole answer
            is_unknown = isinstance(failure, DNSNameError)
            raise ValueError("no such name" if is_unknown else type(failure).__name__) from None
        records = [answer.payload for answer in answers if answer.type == dns.SRV]
        targets = {(str(record.target), record.port) for record in records}
        return [LookupdAddress(host, port, host) for host, port in sorted(targets) if host and port]


LookUp = Callable[[str], Coroutine[Any, Any, list[LookupdAddress]]]
"""Like Names.places."""


class Expansion:
    """
    The places that one `address` stands for, as `look_up` says. `changed` is called when they are others than before.
    `random` gives numbers from 0 up to 1.
    """

    def __init__(
        self, reactor: Reactor, address: str, look_up: LookUp, random: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        self.places: list[LookupdAddress] = []
        self.ready = ReadyEvent()
        self._reactor = reactor
        self._address = address
        self._look_up = look_up
        self._changed = changed
        self._backoff = RetryDelays(_FIRST_RETRY_SECONDS, RESOLVE_SECONDS, random)
        self._running: Deferred[Any]

    def start(self) -> None:
        """Look it up, and from then on again and again."""
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(_stopped)

    def stop(self) -> None:
        """Look nothing up any more."""
        self._running.cancel()
        self.ready.tell()

    async def _run(self) -> None:
        while True:
            looked_up = await self._ask()
            self.ready.tell()
            pause = RESOLVE_SECONDS if looked_up else self._backoff.failed()
            await deferLater(self._reactor, pause)

    async def _ask(self) -> bool:
        """Return whether there is an answer, which then is used."""
        asked = Deferred.fromCoroutine(self._look_up(self._address))
        try:
            places = await in_time(asked, ANSWER_SECONDS, self._reactor)
            if not places:
                raise ValueError("it stands for nothing")
        except CancelledError:
            raise
        except Exception as failure:  # any error of a resolver
            reason = str(failure) or type(failure).__name__
            _log.error("LOOKUP({lookupd}): looking it up - {error}", lookupd=self._address, error=reason)
            return False
        self._backoff.reset()
        if places != self.places:
            self.places = places
            self._changed()
        return True


def _stopped(failure: Failure) -> None:
    failure.trap(CancelledError)  # type: ignore[no-untyped-call]
