"""Factory of TCP and unix socket connections, and owner of their shared state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.protocol import Factory

from nsqtw.core.broker import Broker
from nsqtw.interfaces import IProtocolFactory
from nsqtw.net.limits import Limits
from nsqtw.net.low_water import LowWater
from nsqtw.net.tcp import BrokerConnection
from nsqtw.protocols.frames import ERROR, frame
from nsqtw.runtime.pump import Pump
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.read_size import keep_reads_on_the_heap

if TYPE_CHECKING:
    from nsqtw.net.tls_settings import TlsSettings

_TOO_MANY = frame(ERROR, b"E_TOO_MANY_CONNECTIONS too many connections")


class BrokerFactory(Factory):
    """Accepts connections for `broker`; `protocols` are the session factories by magic."""

    noisy = False

    def __init__(
        self,
        reactor: Reactor,
        broker: Broker,
        pump: Pump,
        protocols: Mapping[bytes, IProtocolFactory],
        limits: Limits | None = None,
    ) -> None:
        self.reactor = reactor
        self.broker = broker
        self.pump = pump
        self.protocols = protocols
        self.limits = limits or Limits(broker.options, reactor, pump.now)
        self.connections: set[BrokerConnection] = set()
        self.low_water = LowWater(reactor)
        self.needs_tls = bool(broker.options.tls_required)
        self.tls: TlsSettings | None = None
        """The TLS settings of connections; None without a certificate."""
        keep_reads_on_the_heap()

    def buildProtocol(self, addr: Any) -> Any:
        """A BrokerConnection, a RejectedConnection of one too many, or None."""
        if not self.limits.connection_limiter.enter(addr):
            return self.limits.connection_limiter.refusal(self.reactor, _TOO_MANY)
        return BrokerConnection(self, addr)

    def disconnect_all(self) -> None:
        """The broker stops: every client sees the end of its connection."""
        for connection in list(self.connections):
            connection.read_rest()
            connection.disconnect()
            connection.ignore()
