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
    """Collects what a resolver finds; of several an IPv4 one is wanted, as where a broker listens."""

    def __init__(self, name: str, found: Deferred[str]) -> None:
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
            self._found.callback(self._addresses[0].host)
        else:
            self._found.errback(DNSLookupError(f"no address for {self._name}"))


def resolve(reactor: Any, name: str) -> Deferred[str]:
    """
    Fires with an IPv4 or IPv6 address of the host. DNSLookupError when it has none. Cancelling it stops the waiting.
    """
    found: Deferred[str] = Deferred()
    try:
        name.encode("idna")  # in the resolver's thread this would end the lookup without an answer
    except UnicodeError:
        found.errback(DNSLookupError(f"{name} is no host name"))
        return found
    reactor.nameResolver.resolveHostName(
        _Addresses(name, found), name, addressTypes=(IPv4Address, IPv6Address), transportSemantics="UDP"
    )
    return found
