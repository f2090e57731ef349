"""Host names to addresses, without waiting in the reactor."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import IAddress, IHostResolution, IResolutionReceiver
from zope.interface import implementer


@implementer(IResolutionReceiver)
class _Addresses:
    """Collects what a resolver finds, IPv4 before IPv6, as where a broker listens."""

    def __init__(self, name: str, found: Deferred[list[str]]) -> None:
        self._name = name
        self._found = found
        self._addresses: list[IPv4Address | IPv6Address] = []

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """What is in progress cannot be stopped anyway: it runs in a thread."""

    def addressResolved(self, address: IAddress) -> None:
        assert isinstance(address, IPv4Address | IPv6Address), "no other types were asked for"
        self._addresses.append(address)

    def resolutionComplete(self) -> None:
        if self._found.called:  # nobody waits any more
            return
        self._addresses.sort(key=lambda address: isinstance(address, IPv6Address))
        if self._addresses:
            self._found.callback(list(dict.fromkeys(address.host for address in self._addresses)))
        else:
            self._found.errback(DNSLookupError(f"no address for {self._name}"))


def resolve(reactor: Any, name: str) -> Deferred[str]:
    """As `resolve_all`, with the first of them."""
    return resolve_all(reactor, name).addCallback(lambda addresses: addresses[0])


def resolve_all(reactor: Any, name: str) -> Deferred[list[str]]:
    """
    Fires with the addresses of the host, IPv4 before IPv6. DNSLookupError when it has none. Cancelling it stops the
    waiting.
    """
    found: Deferred[list[str]] = Deferred()
    try:
        name.encode("idna")  # in the resolver's thread this would end the lookup without an answer
    except UnicodeError:
        found.errback(DNSLookupError(f"{name} is no host name"))
        return found
    reactor.nameResolver.resolveHostName(
        _Addresses(name, found), name, addressTypes=(IPv4Address, IPv6Address), transportSemantics="UDP"
    )
    return found
