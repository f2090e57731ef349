"""The plugin of protocol V3."""

from __future__ import annotations

from collections.abc import Callable

from zope.interface import implementer

from nsqtw.interfaces import IBroker, IProtocolFactory
from nsqtw.protocols.v3.session import V3Session


@implementer(IProtocolFactory)
class V3Factory:
    """Makes V3 sessions."""

    name = "V3"
    summary = "headers, acknowledgements of ranges, several subscriptions on a connection"
    magic = b"  V3"
    broker_api = 2

    def session(self, broker: IBroker, remote_address: str, changed: Callable[[], None], now: float) -> V3Session:
        """IProtocolFactory API."""
        return V3Session(broker, changed, now)
