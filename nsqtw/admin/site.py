"""The site of nsqadmin: its API, its pages and its login below the base path, behind the authentication."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klein import Klein

from nsqtw.admin.access import Access
from nsqtw.admin.actions import Performer
from nsqtw.admin.api import Api
from nsqtw.admin.audit import Audit
from nsqtw.admin.authentication import AuthenticatedResource
from nsqtw.admin.config import Config
from nsqtw.admin.context import SiteContext
from nsqtw.admin.graphite import Graphite
from nsqtw.admin.health import HealthPages
from nsqtw.admin.login import Login
from nsqtw.admin.notifications import Notifications
from nsqtw.admin.pages.mount import mount
from nsqtw.admin.policy_api import PolicyApi
from nsqtw.admin.routing import ErrorAnswers, mount_routes
from nsqtw.admin.server import AdminSite
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.http import Timeouts
from nsqtw.http.browsers import AllowedHosts
from nsqtw.options.admin import AdminOptions, normal_base_path
from nsqtw.runtime.reactor import Reactor


class AdminWeb:
    """
    The web server of an nsqadmin, and what must be closed with it. `connections` are the open ones by listener,
    `hosts` the names by which clients may ask.
    """

    def __init__(
        self,
        reactor: Reactor,
        options: AdminOptions,
        cluster: Cluster,
        access: Access,
        timeouts: Timeouts,
        connections: Callable[[], Mapping[str, int]] = dict,
        hosts: AllowedHosts | None = None,
    ) -> None:
        base_path = normal_base_path(options.base_path)
        audit = Audit(access)
        self._notifications = Notifications(reactor, options, timeouts)
        performer = Performer(cluster, access, audit, self._notifications)
        self._cluster = cluster
        self._health = HealthPages(reactor, cluster.requests, performer, connections)
        app = Klein()
        graphite = Graphite(reactor, options, timeouts)
        self._pages = mount(
            app,
            SiteContext(reactor=reactor, base_path=base_path, cluster=cluster, access=access, performer=performer),
        )
        login = Login(access, audit, base_path, self._pages.login_page)
        apis = (Api(cluster, performer), PolicyApi(cluster, performer))
        sections = (*apis, Config(options, cluster, access, audit), graphite, login)
        for section in (*sections, self._health):
            mount_routes(app, base_path, section)
        if options.proxy_graphite:
            app.route(f"{base_path}/render", methods=["GET"])(graphite.render)
        ErrorAnswers(app)
        resource = AuthenticatedResource(app.resource(), access, base_path, hosts)
        self.site = AdminSite(resource, reactor, access.body_limit)

    def start(self) -> None:
        """Start what works in the background."""
        self._health.start()
        self._pages.start()

    async def close(self) -> None:
        """Stop what works in the background."""
        self._health.stop()
        self._pages.stop()
        self._notifications.close()
        await self._cluster.close()
