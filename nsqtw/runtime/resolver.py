"""
Resolution of host names, outside the reactor and outside its thread pool.

A lookup is a call of the C library, which cannot be stopped and takes half a minute when no name server answers.
Twisted would make it in the threads of the reactor, and wait for all of those before the process ends. The threads here
are not waited for.
"""

from __future__ import annotations

from threading import Thread
from typing import Any

from twisted.internet._resolver import GAIResolver
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.base import ReactorBase
from twisted.internet.defer import Deferred
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import IAddress, IHostResolution, IResolutionReceiver
from twisted.python.threadpool import ThreadPool
from zope.interface import implementer

from nsqtw.runtime.reactor import Reactor


@implementer(IResolutionReceiver)
class _Addresses:
    """Collects what a resolver finds, IPv4 before IPv6, as where a broker listens."""

    def __init__(self, name: str, result: Deferred[list[str]]) -> None:
        self._name = name
        self._found = result
        self._addresses: list[IPv4Address | IPv6Address] = []

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """A lookup cannot be stopped: it runs in a thread."""

    def addressResolved(self, address: IAddress) -> None:
        assert isinstance(address, IPv4Address | IPv6Address), "no other types were asked for"
        self._addresses.append(address)

    def resolutionComplete(self) -> None:
        if self._found.called:  # the lookup was cancelled
            return
        self._addresses.sort(key=lambda address: isinstance(address, IPv6Address))
        if self._addresses:
            self._found.callback(list(dict.fromkeys(address.host for address in self._addresses)))
        else:
            self._found.errback(DNSLookupError(f"no address for {self._name}"))


def resolve(reactor: Reactor, name: str) -> Deferred[str]:
    """Like `resolve_all`, with the first address only."""
    return resolve_all(reactor, name).addCallback(lambda addresses: addresses[0])


def resolve_all(reactor: Reactor, name: str) -> Deferred[list[str]]:
    """
    Fires with the addresses of the host, IPv4 before IPv6. DNSLookupError when it has none. Cancelling it stops the
    waiting.
    """
    result: Deferred[list[str]] = Deferred()
    try:
        name.encode("idna")  # in the resolver's thread this would end the lookup without an answer
    except UnicodeError:
        result.errback(DNSLookupError(f"{name} is no host name"))
        return result
    reactor.nameResolver.resolveHostName(
        _Addresses(name, result), name, addressTypes=(IPv4Address, IPv6Address), transportSemantics="UDP"
    )
    return result


MAX_LOOKUPS = 32
"""Lookups at a time; as many names may be without an answer before the others have to wait for them."""


def resolve_blocking(reactor: Reactor) -> None:
    """Let `reactor` look names up in threads that are not waited for. A test's reactor is not changed."""
    if isinstance(reactor, ReactorBase):
        pool = _Pool(0, MAX_LOOKUPS, "names")
        pool.start()
        reactor.installNameResolver(GAIResolver(reactor, lambda: pool))


class _Thread(Thread):
    """Ends with the process."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, daemon=True, **more)


class _Pool(ThreadPool):
    threadFactory = _Thread
