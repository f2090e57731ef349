"""
A whole nsqadmin as a Twisted service: checks its options, binds, serves, and stops cleanly.

The texts are nsqadmin's (suite specification 2.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IOpenSSLContextFactory
from twisted.logger import Logger
from twisted.protocols.policies import WrappingFactory
from twisted.protocols.tls import TLSMemoryBIOFactory
from zope.interface import implementer

from nsqtw.admin.access import Access
from nsqtw.admin.site import AdminWeb
from nsqtw.auth.authorization import PluginAuthorizations
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.credentials import ClusterCredentials, read_secrets
from nsqtw.cluster.http import Timeouts
from nsqtw.daemon.operator_log import log
from nsqtw.daemon.running_config import RunningConfig
from nsqtw.errors import AuthError, NsqtwError, OptionError
from nsqtw.interfaces import IAuthorizer
from nsqtw.net.descriptors import raise_limit
from nsqtw.net.listen import Listener
from nsqtw.net.tls_settings import make_context
from nsqtw.options.admin import NSQADMIN, AdminOptions, check_admin
from nsqtw.options.broker import Options
from nsqtw.options.files import exposures
from nsqtw.options.types import TLS_MIN, TLS_VERSIONS
from nsqtw.plugins import find_authorizer
from nsqtw.runtime.monotonic import use_monotonic_clock
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.resolver import resolve_blocking
from nsqtw.version import version_line

_log = Logger()


@attrs.define
class _ServerFiles:
    """The TLS options of a server, for nsqadmin's certificate."""

    tls_cert: str
    tls_key: str
    tls_root_ca_file: str = ""
    tls_client_auth_policy: str = ""
    tls_required: int = 0
    tls_min_version: int = TLS_VERSIONS[TLS_MIN]


@implementer(IOpenSSLContextFactory)
class _Certificate:
    """The certificate that connections are made with until it is read again."""

    def __init__(self, files: _ServerFiles) -> None:
        self._files = files
        self._context = make_context(files)

    def reload(self) -> None:
        """Read the files again. OptionError."""
        self._context = make_context(self._files)

    def getContext(self) -> Any:
        """Return the settings of a new connection, as Twisted asks for them."""
        return self._context


class AdminService(Service):
    """One nsqadmin. `warnings` are logged at the start."""

    def __init__(
        self,
        options: AdminOptions,
        reactor: Reactor,
        warnings: Iterable[str] = (),
        config: RunningConfig | None = None,
    ) -> None:
        self._options = options
        self._reactor: Any = reactor
        self._warnings = list(warnings)
        self._certificate: _Certificate | None = None
        self._authorizations: PluginAuthorizations | None = None
        self._access: Access
        self._web: AdminWeb
        self._factory: WrappingFactory
        self._listener: Listener
        self._port: IListeningPort

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
                cluster = self._cluster(timeouts)
                if options.tls_cert:
                    self._certificate = _Certificate(_ServerFiles(options.tls_cert, options.tls_key))
                self._warnings += exposures(
                    {"--tls-key": options.tls_key, "--http-client-tls-key": options.http_client_tls_key}
                )
                authorizer = _open_authorizer(options)
                if authorizer is not None:
                    cleanup.callback(authorizer.close)
                    self._authorizations = PluginAuthorizations(self._reactor, authorizer, self._reactor.seconds)
                _log.info("{version}", version=version_line("nsqadmin"))
                self._listener = Listener(options.http_address)
                cleanup.callback(self._listener.close)
            except NsqtwError as error:
                raise NsqtwError(f"failed to instantiate nsqadmin - {error}") from error
            cleanup.pop_all()
        for warning in [*self._warnings, *open_to_all(options, self._listener)]:
            _log.warn("{warning}", warning=warning)
        self._access = Access(options, self._authorizations)
        if self._authorizations is not None:
            self._authorizations.enter(self._access)
        self._web = AdminWeb(self._reactor, options, cluster, self._access, timeouts)
        inner: Any = self._web.site
        if self._certificate is not None:
            inner = TLSMemoryBIOFactory(self._certificate, False, inner)
        self._factory = WrappingFactory(inner)  # type: ignore[no-untyped-call]
        self._factory.noisy = False
        self._port = self._listener.serve(self._reactor, self._factory)
        name = "HTTP" if self._certificate is None else "HTTPS"
        _log.info("{server}: listening on {address}", server=name, address=self._listener.address)
        super().startService()  # type: ignore[no-untyped-call]

    def stopService(self) -> Deferred[None]:
        """Fires when everything is closed."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    def begin_drain(self) -> bool:
        """An nsqadmin has nothing to deliver."""
        return False

    def reload(self) -> None:
        """Read the certificate and the grants again. What cannot be used is logged, and stays as it was."""
        if self._certificate is not None:
            try:
                self._certificate.reload()
            except OptionError as error:
                _log.error("SIGHUP: what cannot be used stays as it was - {error}", error=str(error))
            else:
                _log.info("SIGHUP: certificates are reloaded")
        if self._authorizations is not None:
            self._authorizations.reload()
        if self._certificate is None and self._authorizations is None:
            _log.info("SIGHUP: there is nothing to reload")

    # -- inside

    def _cluster(self, timeouts: Timeouts) -> Cluster:
        """Return the cluster of the options. OptionError for a file that cannot be used."""
        options = self._options
        (nsqd_secret, lookupd_secret), warnings = read_secrets(
            {"--nsqd-secret-file": options.nsqd_secret_file, "--lookupd-secret-file": options.lookupd_secret_file}
        )
        self._warnings += warnings
        return Cluster(
            self._reactor,
            nsqds=options.nsqd_http_address,
            lookupds=options.lookupd_http_address,
            credentials=ClusterCredentials(
                nsqd_secret=nsqd_secret,
                lookupd_secret=lookupd_secret,
                root_ca_file=options.http_client_tls_root_ca_file,
                cert=options.http_client_tls_cert,
                key=options.http_client_tls_key,
                is_verification_skipped=options.http_client_tls_insecure_skip_verify,
                is_open=options.plain_secrets,
            ),
            timeouts=timeouts,
        )

    async def _stop(self) -> None:
        _log.info("HTTP: closing {address}", address=self._listener.address)
        await maybeDeferred(self._port.stopListening)
        await self._web.close()
        for connection in list(self._factory.protocols):
            connection.transport.abortConnection()
        if self._authorizations is not None:
            self._authorizations.close()


def open_to_all(options: AdminOptions, listener: Listener) -> list[str]:
    """Return warnings for an address where users need not show who they are."""
    if listener.is_local or options.auth:
        return []
    if not (options.admin_user or options.has_users):
        return [
            f"HTTP on {listener.address} is open: without --auth or --admin-user whoever reaches it may delete topics"
        ]
    if not options.acl_proxy_cidr:
        return [
            f"HTTP on {listener.address}: without --acl-proxy-cidr whoever reaches it may say in"
            f" {options.acl_http_header} to be any user"
        ]
    return []


def _open_authorizer(options: AdminOptions) -> IAuthorizer | None:
    """Return the authorizer of --auth; None without one. OptionError, PluginError."""
    if not options.auth:
        return None
    if options.admin_user or options.has_users:
        raise OptionError("use --auth or the users of --acl-http-header (--admin-user, --read-user, ...), not both")
    factory, argument = find_authorizer(options.auth)
    settings = Options(
        auth=options.auth,
        http_client_connect_timeout=options.http_client_connect_timeout,
        http_client_request_timeout=options.http_client_request_timeout,
        tls_root_ca_file=options.http_client_tls_root_ca_file,
    )
    try:
        return factory.open(argument, settings, log)
    except AuthError as error:
        raise OptionError(f"--auth={factory.name} cannot be used - {error}") from error
