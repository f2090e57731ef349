"""
A whole nsqadmin as a Twisted service: checks its options, binds, serves, and stops cleanly.

The texts are nsqadmin's.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory

from nsqtw.admin.access import Access
from nsqtw.admin.connections import AdmittedConnections
from nsqtw.admin.files import Certificate, file_readers, open_authorizer, read_credentials
from nsqtw.admin.site import AdminWeb
from nsqtw.auth.authorization import PluginAuthorizations
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.http import Timeouts
from nsqtw.daemon.process import DaemonService
from nsqtw.daemon.reload import FileReader, Reload
from nsqtw.daemon.running_config import RunningConfig
from nsqtw.errors import NsqtwError, OptionError
from nsqtw.http.browsers import allowed_hosts
from nsqtw.net.admission import ConnectionLimiter, Rejections
from nsqtw.net.descriptors import Descriptors, raise_limit
from nsqtw.net.listen import Listener, open_listeners
from nsqtw.options.admin import NSQADMIN, AdminOptions, check_admin
from nsqtw.runtime.monotonic import use_monotonic_clock
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.resolver import resolve_blocking
from nsqtw.version import version_line

_USER_OPTIONS = frozenset(("admin_user", "publish_user", "read_user", "body_user"))
_TRUST_OPTIONS = _USER_OPTIONS | {"acl_proxy_cidr"}

_log = Logger()


class AdminService(DaemonService):
    """One nsqadmin. `warnings` are logged at the start; `config` are its options with their sources."""

    def __init__(
        self,
        options: AdminOptions,
        reactor: Reactor,
        warnings: Iterable[str] = (),
        config: RunningConfig | None = None,
    ) -> None:
        self._options = options
        self._reactor = reactor
        self._warnings = list(warnings)
        self._certificate: Certificate | None = None
        self._authorizations: PluginAuthorizations | None = None
        self._cluster: Cluster
        self._web: AdminWeb
        self._descriptors: Descriptors
        self._factory: AdmittedConnections
        self._listener: Listener
        self._port: IListeningPort
        self.reloading = Reload(config or RunningConfig(NSQADMIN, options), self._file_readers, self._follow_reload)

    @property
    def address(self) -> str:
        """The address that the service listens on, with the real port."""
        return self._listener.address

    def startService(self) -> None:
        """Start to serve. NsqtwError, with the line for the user and nothing left open, when that cannot be."""
        use_monotonic_clock(self._reactor)
        resolve_blocking(self._reactor)
        raise_limit()
        options = self._options
        with ExitStack() as cleanup:
            try:
                NSQADMIN.check(options)
                check_admin(options)
                timeouts = Timeouts(options.http_client_connect_timeout, options.http_client_request_timeout)
                credentials, exposed = read_credentials(options)
                self._warnings += exposed
                self._cluster = Cluster(
                    self._reactor,
                    nsqds=options.nsqd_http_address,
                    lookupds=options.lookupd_http_address,
                    credentials=credentials,
                    timeouts=timeouts,
                )
                if options.tls_cert:
                    self._certificate = Certificate(options)
                authorizer = open_authorizer(options)
                if authorizer is not None:
                    cleanup.callback(authorizer.close)
                    self._authorizations = PluginAuthorizations(self._reactor, authorizer, self._reactor.seconds)
                _log.info("{version}", version=version_line("nsqadmin"))
                self._listener = open_listeners({"http": options.http_address}, cleanup)["http"]
            except NsqtwError as error:
                raise NsqtwError(f"failed to instantiate nsqadmin - {error}") from error
            cleanup.pop_all()
        for warning in [*self._warnings, *open_to_all(options, self._listener)]:
            _log.warn("{warning}", warning=warning)
        access = Access(options, self._authorizations)
        if self._authorizations is not None:
            self._authorizations.enter(access)
        hosts = allowed_hosts(options, self._listener, has_login=access.has_login)
        self._web = AdminWeb(self._reactor, options, self._cluster, access, timeouts, self._connections, hosts)
        inner: Any = self._web.site
        if self._certificate is not None:
            inner = TLSMemoryBIOFactory(self._certificate, False, inner)
        self._descriptors = Descriptors()
        limiter = ConnectionLimiter(options, Rejections(self._reactor.seconds), self._descriptors)
        self._factory = AdmittedConnections(inner, limiter, self._reactor, is_tls=self._certificate is not None)
        self._web.start()
        self._port = self._listener.serve(self._reactor, self._factory)
        name = "HTTP" if self._certificate is None else "HTTPS"
        _log.info("{server}: listening on {address}", server=name, address=self._listener.address)
        super().startService()  # type: ignore[no-untyped-call]

    def status(self) -> str:
        """Return a line for the service manager."""
        options = self._options
        count, kind = len(options.nsqd_http_address), "nsqds"
        if options.lookupd_http_address:
            count, kind = len(options.lookupd_http_address), "nsqlookupds"
        return f"the cluster of {count} {kind}"

    # -- inside

    def _connections(self) -> dict[str, int]:
        """Return the number of open connections by listener."""
        return {"http": len(self._factory.protocols)}

    def _file_readers(self) -> list[FileReader]:
        users = FileReader("users", self._check_users, _USER_OPTIONS)
        return [*file_readers(self._cluster, self._certificate, self._authorizations), users]

    def _check_users(self, options: AdminOptions) -> None:
        """Check that a reload leaves users, if there are any: a slip in a file must not make everybody an admin."""
        if self._options.has_named_users and not options.has_named_users:
            raise OptionError("without users every client could change everything: only a restart does that")

    def _follow_reload(self, changed: frozenset[str]) -> None:
        """A reload has changed these options."""
        if "lookupd_http_address" in changed:
            self._cluster.lookupds = self._options.lookupd_http_address
        if "nsqd_http_address" in changed:
            self._cluster.nsqds = self._options.nsqd_http_address
        if changed & _TRUST_OPTIONS:
            for warning in open_to_all(self._options, self._listener):
                _log.warn("{warning}", warning=warning)

    async def _stop(self) -> None:
        _log.info("HTTP: closing {address}", address=self._listener.address)
        await maybeDeferred(self._port.stopListening)
        await self._web.close()
        for connection in list(self._factory.protocols):
            connection.transport.abortConnection()
        self._descriptors.close()
        if self._authorizations is not None:
            self._authorizations.close()


def open_to_all(options: AdminOptions, listener: Listener) -> list[str]:
    """Return warnings for an address that accepts requests without proof of their user."""
    if listener.is_local or options.auth:
        return []
    if not options.has_named_users:
        return [f"HTTP on {listener.address} is open: without --auth or --admin-user any client may delete topics"]
    if not options.acl_proxy_cidr:
        return [
            f"HTTP on {listener.address}: without --acl-proxy-cidr any client may name itself any user in"
            f" {options.acl_http_header}"
        ]
    return []
