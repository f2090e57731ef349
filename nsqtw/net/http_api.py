"""
The HTTP edge: nsqd's HTTP API on twisted.web (nsqd specification 3).

    GET    /ping  /info  /stats                                             http_stats
    POST   /pub  /mpub                                                      http_publish
    POST   /topic/{create,delete,empty,pause,unpause}?topic=                http_admin
    POST   /channel/{create,delete,empty,pause,unpause}?topic=&channel=     http_admin
    GET    /config/:opt                                                     http_config
    PUT    /config/:opt                                                     http_config
    GET    /debug/pprof/...                                                 http_debug
    PUT    /debug/setblockrate                                              http_debug
    POST   /debug/freememory                                                http_debug
    GET    /v2/openapi.json                                                 openapi

Theory of operation. There is one table of routes and no tree of resources. A request (http_request) looks its route
up when its headers are there, takes in as much of its body as the route allows, and calls the handler once. The
handler returns the answer, or None and gives the broker a waiter; waiters are answered at the end of the pump's turn.

    bytes ─▶ http_connection ─▶ http_request ─▶ http_routing ─▶ handler ─▶ topic.put(..., waiter)
                                  answer ◀── flush, at the end of the turn ◀── waiter ◀── commit

What a request asks stands in its query, never in a form in its body.
"""

from __future__ import annotations

from twisted.web.http import HTTPFactory

from nsqtw.core.broker import Broker
from nsqtw.net.http_admin import Administration
from nsqtw.net.http_answers import Answer, tls_required
from nsqtw.net.http_config import Configuration
from nsqtw.net.http_connection import HttpConnection
from nsqtw.net.http_debug import Debugging
from nsqtw.net.http_publish import Publishing
from nsqtw.net.http_request import HttpRequest
from nsqtw.net.http_routing import OneAnswer, Route, Routes
from nsqtw.net.http_stats import Identity, Inspection
from nsqtw.net.pump import Pump


class HttpFactory(HTTPFactory):
    """
    Accepts HTTP connections. Of twisted.web's own it is the factory below `server.Site`: what Site adds, sessions
    and resources, is not used, and importing it would cost a starting broker 40 ms.
    """

    noisy = False
    protocol = HttpConnection  # type: ignore[assignment]

    def __init__(self, routes: Routes | OneAnswer, pump: Pump) -> None:
        super().__init__(timeout=None)  # type: ignore[arg-type]
        self.routes = routes
        self.pump = pump

    def startFactory(self) -> None:
        """Without the access log of twisted.web and its timer."""

    def stopFactory(self) -> None:
        """Nothing was started."""


def broker_site(
    broker: Broker,
    pump: Pump,
    *,
    tcp_port: int,
    http_port: int,
    version_line: str,
) -> HttpFactory:
    """
    The HTTP API of a broker. The ports are the real ones, 0 for none and -1 for a unix socket; `version_line` is how
    the text of /stats starts.
    """
    publishing = Publishing(broker, pump)
    inspection = Inspection(broker, pump, Identity(version_line, tcp_port, http_port))
    return HttpFactory(
        Routes(
            [
                Route(b"GET", b"/ping", inspection.ping, broken=None),
                Route(b"GET", b"/info", inspection.info, broken=None),
                Route(b"GET", b"/stats", inspection.stats),
                *publishing.routes(),
                *Administration(broker, pump).routes(),
                *Configuration(broker.options).routes(),
                *Debugging(pump.reactor).routes(),
                Route(b"GET", b"/v2/openapi.json", _api),
            ]
        ),
        pump,
    )


def refusing_site(site: HttpFactory, https_port: int) -> HttpFactory:
    """Refuses whatever `site` would serve: what is served, HTTPS serves, on that port, 0 for none."""
    assert isinstance(site.routes, Routes), "a site that serves"
    return HttpFactory(OneAnswer(site.routes, tls_required(https_port)), site.pump)


def _api(request: HttpRequest) -> Answer:
    # No start waits for the document.
    from nsqtw.net.openapi import served

    return served(request)
