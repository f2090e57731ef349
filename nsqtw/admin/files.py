"""
Files that the options of nsqadmin name: its certificate, the credentials for the cluster, and the users. They are read
at the start and with each reload.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
from twisted.internet.interfaces import IOpenSSLContextFactory
from twisted.logger import Logger
from zope.interface import implementer

from nsqtw.auth.authorization import PluginAuthorizations, grants_reader
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.credentials import ClusterCredentials, TlsPolicy, read_secrets
from nsqtw.daemon.operator_log import log
from nsqtw.daemon.reload import CERTIFICATE_OPTIONS, FileReader
from nsqtw.errors import AuthError, OptionError
from nsqtw.interfaces import IAuthorizer
from nsqtw.net.tls_settings import make_context
from nsqtw.options.admin import AdminOptions, check_admin
from nsqtw.options.broker import Options
from nsqtw.options.files import exposures
from nsqtw.options.types import TLS_MIN, TLS_VERSIONS
from nsqtw.plugins import find_authorizer

_CHECKED_OPTIONS = frozenset(
    (
        *("lookupd_http_address", "nsqd_http_address", "graphite_url", "notification_http_endpoint"),
        *("allow_config_from_cidr", "acl_proxy_cidr", "tls_cert", "tls_key"),
        *("http_client_tls_cert", "http_client_tls_key"),
    )
)
_CREDENTIAL_OPTIONS = frozenset(
    (
        *("http_client_tls_root_ca_file", "http_client_tls_cert", "http_client_tls_key", "secrets_to_named_nodes"),
        *("http_client_tls_insecure_skip_verify", "nsqd_secret_file", "lookupd_secret_file"),
    )
)

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
class Certificate:
    """The certificate that connections are made with until it is read again. OptionError."""

    def __init__(self, options: AdminOptions) -> None:
        self._context = _context(options)

    def read(self, options: AdminOptions) -> Callable[[], None]:
        """Read the files of `options`. Return the function that uses them for new connections. OptionError."""
        context = _context(options)

        def use() -> None:
            self._context = context

        return use

    def getContext(self) -> Any:
        """Return the settings of a new connection, as Twisted asks for them."""
        return self._context


def read_credentials(options: AdminOptions) -> tuple[ClusterCredentials, list[str]]:
    """Return the credentials for the cluster, and warnings about files that others can read. OptionError."""
    (nsqd_secret, lookupd_secret), warnings = read_secrets(
        {"--nsqd-secret-file": options.nsqd_secret_file, "--lookupd-secret-file": options.lookupd_secret_file}
    )
    credentials = ClusterCredentials(
        nsqd_secret=nsqd_secret,
        lookupd_secret=lookupd_secret,
        root_ca_file=options.http_client_tls_root_ca_file,
        cert=options.http_client_tls_cert,
        key=options.http_client_tls_key,
        is_verification_skipped=options.http_client_tls_insecure_skip_verify,
        sends_secrets_to_named_nodes=options.secrets_to_named_nodes,
    )
    keys = {"--tls-key": options.tls_key, "--http-client-tls-key": options.http_client_tls_key}
    return credentials, [*warnings, *exposures(keys)]


def open_authorizer(options: AdminOptions) -> IAuthorizer | None:
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


def file_readers(
    cluster: Cluster, certificate: Certificate | None, authorizations: PluginAuthorizations | None
) -> list[FileReader]:
    """Return what a reload reads; first the checks of options that a start makes, too."""
    readers = [FileReader("addresses", _check, _CHECKED_OPTIONS)]
    if certificate is not None:
        readers.append(FileReader("certificates", certificate.read, CERTIFICATE_OPTIONS))
    readers.append(FileReader("cluster credentials", partial(_read_credentials, cluster), _CREDENTIAL_OPTIONS))
    if authorizations is not None:
        readers.append(FileReader("grants", grants_reader(authorizations)))
    return readers


def _context(options: AdminOptions) -> Any:
    return make_context(_ServerFiles(options.tls_cert, options.tls_key))


def _check(options: AdminOptions) -> None:
    """Check what a start checks; there is nothing to use. OptionError."""
    check_admin(options)


def _read_credentials(cluster: Cluster, options: AdminOptions) -> Callable[[], None] | None:
    credentials, warnings = read_credentials(options)
    policy = TlsPolicy(credentials)

    def use() -> None:
        cluster.requests.use(credentials, policy)
        for warning in warnings:
            _log.warn("{warning}", warning=warning)

    has_files = bool(credentials.root_ca_file or credentials.cert or credentials.nsqd_secret)
    is_same = credentials == cluster.requests.credentials
    return None if is_same and not (has_files or credentials.lookupd_secret) else use
