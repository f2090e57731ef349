"""
The site of nsqadmin: all its routes below the base path, behind the authentication.

The pages are mounted by `nsqtw.admin.pages.mount`, which gets the same parts as the API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import attrs
from klein import Klein

from nsqtw.admin.access import Access
from nsqtw.admin.actions import ACTIONS, Action, Performer
from nsqtw.admin.api import Api
from nsqtw.admin.audit import Audit
from nsqtw.admin.authentication import AuthenticatedResource
from nsqtw.admin.config import Config
from nsqtw.admin.graphite import Graphite
from nsqtw.admin.health import HealthPages
from nsqtw.admin.login import Login
from nsqtw.admin.notifications import Notifications
from nsqtw.admin.routing import ErrorAnswers, mount_routes, plain
from nsqtw.admin.server import AdminSite, WebRequest
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.http import Timeouts
from nsqtw.options.admin import AdminOptions, normal_base_path

_PAGES = "nsqtw.admin.pages"


@attrs.define(kw_only=True)
class SiteContext:
    """
    The parts that API and pages share. `base_path` is "" or starts with a slash and ends without one. `on_stop` are
    functions to call when nsqadmin stops; `login.page` may be replaced.
    """

    reactor: Any
    options: AdminOptions
    base_path: str
    cluster: Cluster
    access: Access
    audit: Audit
    performer: Performer
    login: Login
    actions: Mapping[str, Action] = attrs.field(factory=lambda: ACTIONS)
    on_stop: list[Any] = attrs.field(factory=list)


class AdminWeb:
    """The web server of an nsqadmin, and what must be closed with it. `connections` are the open ones by listener."""

    def __init__(
        self,
        reactor: Any,
        options: AdminOptions,
        cluster: Cluster,
        access: Access,
        timeouts: Timeouts,
        connections: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        base_path = normal_base_path(options.base_path)
        audit = Audit(access)
        self._notifications = Notifications(reactor, options, timeouts)
        performer = Performer(cluster, access, audit, self._notifications)
        self.context = SiteContext(
            reactor=reactor,
            options=options,
            base_path=base_path,
            cluster=cluster,
            access=access,
            audit=audit,
            performer=performer,
            login=Login(access, audit, base_path),
        )
        self._health = HealthPages(reactor, cluster.requests, performer, connections)
        app = Klein()
        graphite = Graphite(reactor, options, timeouts)
        sections = (Api(cluster, performer), Config(options, cluster, access, audit), graphite)
        for section in (*sections, self.context.login, self._health):
            mount_routes(app, base_path, section)
        if options.proxy_graphite:
            app.route(f"{base_path}/render", methods=["GET"])(graphite.render)
        _mount_pages(app, self.context)
        ErrorAnswers(app)
        self.site = AdminSite(AuthenticatedResource(app.resource(), access, base_path), reactor)

    def start(self) -> None:
        """Start what works in the background."""
        self._health.start()

    async def close(self) -> None:
        """Stop what works in the background."""
        self._health.stop()
        for stop in self.context.on_stop:
            stop()
        self._notifications.close()
        await self.context.cluster.close()


def _mount_pages(app: Klein, context: SiteContext) -> None:
    """Add the pages; a text in their place where they are not installed."""
    if find_spec(_PAGES) is not None:
        import_module(_PAGES).mount(app, context)
        return

    @app.route(f"{context.base_path}/", methods=["GET"])
    def index(request: WebRequest) -> bytes:
        return plain(request, "nsqadmin of nsqtw: see /api/topics and /api/nodes\n")
