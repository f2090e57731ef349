"""The parts of a broker that the sections of its HTTP API share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from attrs import frozen

from nsqtw.core.broker import Broker
from nsqtw.daemon.readiness import Readiness
from nsqtw.daemon.reload import Reload
from nsqtw.http.bearer_auth import BearerAuth
from nsqtw.http.endpoints import Endpoint, Section
from nsqtw.net.limits import Limits
from nsqtw.runtime.drain import Drain
from nsqtw.runtime.pump import Pump
from nsqtw.stats.broker_families import BrokerView
from nsqtw.stats.broker_scrape import BrokerMetrics


@frozen
class Identity:
    """
    The version and ports of a broker. `version_line` is what --version prints; a port is 0 for none and -1 for a unix
    socket.
    """

    version_line: str
    tcp_port: int
    http_port: int


@frozen
class ApiContext:
    """
    `reconfigured` is called when an option has a new value; `drain` ends the process; `reloading` reads the
    options again.
    """

    broker: Broker
    pump: Pump
    identity: Identity
    limits: Limits
    reconfigured: Callable[[], None]
    view: BrokerView
    """The broker as /readyz and /metrics show it."""
    drain: Drain
    reloading: Reload
    bearer_auth: BearerAuth | None
    """The rights of requests; None: every request may do everything."""

    @property
    def readiness(self) -> Readiness:
        """The checks of the daemon."""
        return self.view.readiness

    @property
    def metrics(self) -> BrokerMetrics:
        """The figures of the daemon."""
        return BrokerMetrics(self.view)

    @property
    def reactor(self) -> Any:
        return self.pump.reactor

    def now(self) -> float:
        """The clock of the broker."""
        return self.pump.now()


class SectionClass(Protocol):
    """A class of sections that serve a broker's API."""

    def __call__(self, context: ApiContext, /) -> Section:
        """Make the section of a broker."""

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints that its methods declare."""
