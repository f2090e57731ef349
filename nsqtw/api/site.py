"""
The HTTP API of a broker: nsqd's, and the paths under /v2.

Each section declares its endpoints beside their handlers (`http.endpoints`).

Theory of operation. There is one table of routes and no tree of resources. A request (http.request) looks its route
up when its headers are there, takes in as much of its body as the route allows, and calls the handler once; a publish
with a head that was read before (head_cache) has its route from then. The handler returns the answer, or None and gives
the broker a waiter; waiters are answered at the end of the pump's turn.

    bytes ─▶ http.connection ─▶ http.request ─▶ http.routes ─▶ handler ─▶ topic.put(..., waiter)
                                  answer ◀── flush, at the end of the turn ◀── waiter ◀── commit

With an authorizer a request needs a credential (bearer_auth) that has the permission its route says, for the topic or
channel it is about; a route that says nothing needs `admin` for the whole broker. A request that another web page has
a browser send is refused (origin).

The parameters of a request are in its query, never in a form in its body.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from nsqtw.api.admin import Administration
from nsqtw.api.backup import Backup
from nsqtw.api.cancel import Cancelling
from nsqtw.api.config import Configuration
from nsqtw.api.context import ApiContext, Identity, SectionClass
from nsqtw.api.drain import DrainApi
from nsqtw.api.log import LogReading
from nsqtw.api.policies import Policies
from nsqtw.api.publish import Publishing
from nsqtw.api.redrive import Redriving
from nsqtw.api.replay import Replay
from nsqtw.api.replica import ReplicaApi
from nsqtw.api.stats import Inspection
from nsqtw.api.subscribe.section import Subscribing
from nsqtw.core.broker import Broker
from nsqtw.daemon.readiness import Readiness
from nsqtw.daemon.reload import Reload
from nsqtw.daemon.running_config import RunningConfig
from nsqtw.http.bearer_auth import ANY_RIGHT, BearerAuth
from nsqtw.http.browsers import AllowedHosts
from nsqtw.http.debug import Debugging
from nsqtw.http.endpoints import A_DOCUMENT, Endpoint, Section, endpoint
from nsqtw.http.factory import HttpFactory
from nsqtw.http.health import Health
from nsqtw.http.metrics import Metrics
from nsqtw.http.reload import Reloading
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, document, tls_required
from nsqtw.http.routes import OneAnswer, Routes
from nsqtw.net.limits import Limits
from nsqtw.options.broker import NSQD
from nsqtw.runtime.drain import Drain
from nsqtw.runtime.pump import Pump
from nsqtw.runtime.reactor_lag import ReactorLag
from nsqtw.stats.broker_families import BrokerView


class Description(Section):
    """The OpenAPI document, made from the endpoints of all sections."""

    def __init__(self, context: ApiContext) -> None:
        pass

    @endpoint("GET", "/v2/openapi.json", "This document", success=A_DOCUMENT, needs=ANY_RIGHT)
    def description(self, request: HttpRequest) -> Answer:
        """GET /v2/openapi.json"""
        from nsqtw.api.openapi import described  # no start waits for the document

        return document(described(endpoints()))


SECTIONS: tuple[SectionClass, ...] = (
    *(
        Inspection,
        Health,
        Metrics,
        Publishing,
        Cancelling,
        Administration,
        Policies,
        LogReading,
        Replay,
        Redriving,
        Subscribing,
        Configuration,
        Backup,
        DrainApi,
        ReplicaApi,
        Reloading,
        Debugging,
        Description,
    ),
)


def endpoints() -> list[Endpoint]:
    """Return the endpoints of all sections."""
    return [declared for section in SECTIONS for declared in section.endpoints()]


def broker_site(
    broker: Broker,
    pump: Pump,
    *,
    tcp_port: int,
    http_port: int,
    version_line: str,
    hosts: AllowedHosts | None = None,
    limits: Limits | None = None,
    reconfigured: Callable[[], None] = lambda: None,
    view: BrokerView | None = None,
    drain: Drain | None = None,
    reload: Reload | None = None,
) -> HttpFactory:
    """
    The HTTP API of a broker. The ports are the real ones, 0 for none and -1 for a unix socket; `version_line` is how
    the text of /stats starts; `hosts` are the names by which clients may ask; `limits` are those that its TCP edge has;
    `reconfigured` is called when an option has a new value; `view` is the broker as
    /readyz and /metrics show it; `drain` ends the process, `reload` reads its options again.
    """
    bearer_auth = (
        None if broker.authorizations is None or broker.options.http_is_open else BearerAuth(broker.authorizations)
    )
    limits = limits or Limits(broker.options, pump.reactor, pump.now)
    identity = Identity(version_line, tcp_port, http_port)
    if view is None:
        view = BrokerView(
            program="nsqd",
            readiness=Readiness(),
            lag=ReactorLag(pump.reactor),
            broker=broker,
            now=pump.now,
            data_path=broker.options.data_path or os.getcwd(),
        )
    drain = drain or Drain(broker, pump)
    reload = reload or Reload(RunningConfig(NSQD, broker.options))
    context = ApiContext(broker, pump, identity, limits, reconfigured, view, drain, reload, bearer_auth)
    routes = [route for section in SECTIONS for route in section(context).routes(broker.options)]
    return HttpFactory(Routes(routes), pump, limits, bearer_auth, hosts)


def refusing_site(site: HttpFactory, https_port: int) -> HttpFactory:
    """Return a site that refuses every request of `site`, because HTTPS serves it, on that port (0 for none)."""
    assert isinstance(site.routes, Routes), "a site that serves"
    return HttpFactory(OneAnswer(site.routes, tls_required(https_port)), site.pump, site.limits, None, site.hosts)
