"""
The HTTP edge: nsqd's HTTP API on twisted.web (nsqd specification 3).

    GET    /ping  /info  /stats                                             http_stats
    POST   /pub  /mpub                                                      http_publish
    GET    /v2/topic/log  /v2/topic/log/range                               http_log
    POST   /v2/channel/seek                                                 http_replay
    GET    /v2/channel/messages  /v2/topic/messages                         http_replay
    POST   /topic/{create,delete,empty,pause,unpause}?topic=                http_admin
    POST   /channel/{create,delete,empty,pause,unpause}?topic=&channel=     http_admin
    GET    /config/:opt                                                     http_config
    PUT    /config/:opt                                                     http_config
    GET    /debug/pprof/...                                                 http_debug
    PUT    /debug/setblockrate                                              http_debug
    POST   /debug/freememory                                                http_debug

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
from nsqtw.net.http_config import Configuration
from nsqtw.net.http_connection import HttpConnection
from nsqtw.net.http_debug import Debugging
from nsqtw.net.http_log import LogReading
from nsqtw.net.http_publish import Publishing
from nsqtw.net.http_replay import Replay
from nsqtw.net.http_routing import Route, Routes
from nsqtw.net.http_stats import Identity, Inspection
from nsqtw.net.pump import Pump


class HttpFactory(HTTPFactory):
    """
    Accepts HTTP connections. Of twisted.web's own it is the factory below `server.Site`: what Site adds, sessions
    and resources, is not used, and importing it would cost a starting broker 40 ms.
    """

    noisy = False
    protocol = HttpConnection  # type: ignore[assignment]

    def __init__(self, routes: Routes, pump: Pump) -> None:
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
                *LogReading(broker, pump).routes(),
                *Replay(broker, pump).routes(),
                *Configuration(broker.options).routes(),
                *Debugging(pump.reactor).routes(),
            ]
        ),
        pump,
    )
