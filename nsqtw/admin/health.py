"""
/livez, /readyz and /metrics of nsqadmin (nsqtw.stats.daemon_pages).

nsqadmin is ready unless no nsqd and no nsqlookupd has answered for SILENT_SECONDS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from nsqtw.admin.actions import Performer
from nsqtw.admin.routing import route
from nsqtw.admin.server import WebRequest
from nsqtw.cluster.http import ServerRequests
from nsqtw.daemon.readiness import Readiness
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.reactor_lag import ReactorLag
from nsqtw.stats.daemon_families import DaemonView
from nsqtw.stats.daemon_pages import DaemonPages
from nsqtw.stats.families import COUNTER, Family

SILENT_SECONDS = 30.0
CLUSTER = "cluster"
"""The readiness check."""


@attrs.frozen(kw_only=True)
class AdminView(DaemonView):
    """An nsqadmin, as its metrics see it."""

    requests: Mapping[tuple[str, ...], int]
    actions: Mapping[tuple[str, ...], int]


ADMIN_FAMILIES: tuple[Family[AdminView], ...] = (
    Family(
        "nsq_admin_requests_total",
        COUNTER,
        "Requests to nsqds and nsqlookupds, by program and outcome: ok or failed.",
        lambda view: view.requests,
        ("program", "outcome"),
    ),
    Family(
        "nsq_admin_actions_total",
        COUNTER,
        "Actions of users, by name and outcome: done, failed, refused, or unknown when an answer is missing.",
        lambda view: view.actions,
        ("action", "outcome"),
    ),
)


class HealthPages:
    """The routes. The lag of the reactor is measured between `start` and `stop`."""

    def __init__(self, reactor: Reactor, requests: ServerRequests, performer: Performer, connections: Any) -> None:
        self._lag = ReactorLag(reactor)
        readiness = Readiness()
        readiness.add(CLUSTER, lambda: _why_unreachable(requests))
        view = AdminView(
            program="nsqadmin",
            readiness=readiness,
            lag=self._lag,
            connections=connections,
            requests=requests.counts,
            actions=performer.counts,
        )
        self._pages = DaemonPages(view, ADMIN_FAMILIES)

    def start(self) -> None:
        """Measure the lag from now on."""
        self._lag.start()

    def stop(self) -> None:
        """Measure no more."""
        self._lag.stop()

    @route("GET", "/livez")
    async def live(self, request: WebRequest) -> object:
        """Return OK: the event loop turns."""
        return self._page(request, "/livez")

    @route("GET", "/readyz")
    async def ready(self, request: WebRequest) -> object:
        """Return whether the cluster can be reached."""
        return self._page(request, "/readyz")

    @route("GET", "/metrics")
    async def metrics(self, request: WebRequest) -> object:
        return self._page(request, "/metrics")

    def _page(self, request: WebRequest, path: str) -> bytes:
        page = self._pages.page(path, request.getHeader("Accept") or "")
        assert page is not None, "the path has a page"
        request.setResponseCode(page.status)
        request.setHeader("Content-Type", page.content_type)
        return page.body


def _why_unreachable(requests: ServerRequests) -> str:
    """Return the reason of the readiness check."""
    if requests.silent_seconds < SILENT_SECONDS:
        return ""
    return f"no nsqd and no nsqlookupd has answered for {SILENT_SECONDS:.0f}s"
