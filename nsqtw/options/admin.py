"""
The options of nsqadmin: `AdminOptions`, the only declaration of each.

Names, defaults and meanings of the first groups are nsqadmin's, those of logs and
authorization are our nsqd's (`nsqtw.options.broker`); the rest is ours alone. Durations are seconds, as floats.
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Iterable
from urllib.parse import urlsplit

import attrs

from nsqtw.errors import OptionError
from nsqtw.options.addresses import is_host_port
from nsqtw.options.broker import Options
from nsqtw.options.broker_address import LISTEN_ADDRESS
from nsqtw.options.command_line import CommandLine, OptionReader
from nsqtw.options.fields import ABOVE_ZERO, NOT_NEGATIVE, OURS_ABOVE_ZERO, OptionTable, live, option, same, while_set
from nsqtw.options.redaction import without_password
from nsqtw.options.types import BOOLEAN, DURATION, INTEGER, TEXT, TEXTS

_SCHEMES = ("http", "https")
_URL = attrs.evolve(TEXT, config=without_password, plain=without_password)
"""A URL in which there may be a password."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@attrs.define(kw_only=True)
class AdminOptions:
    """
    The options of one nsqadmin; without arguments, the original's defaults. A reload changes those with `reload=`.
    """

    # Log and listener
    log_level: int = same(Options, "log_level")
    log_prefix: str = option(TEXT, "[nsqadmin] ", "prefix of every log line", reload=live)
    log_format: str = same(Options, "log_format")
    http_address: str = option(TEXT, "0.0.0.0:4171", "address for browsers and HTTP clients", limit=LISTEN_ADDRESS)
    allowed_host: tuple[str, ...] = same(Options, "allowed_host")
    base_path: str = option(TEXT, "/", "path that the path of each URL begins with")
    dev_static_dir: str = option(TEXT, "", "accepted, without effect: the pages are installed with nsqadmin")
    tls_cert: str = option(TEXT, "", "certificate file (PEM); with one the address takes HTTPS only", reload=while_set)
    tls_key: str = option(TEXT, "", "key file (PEM) of --tls-cert", reload=while_set)

    # The cluster
    lookupd_http_address: tuple[str, ...] = option(
        TEXTS,
        (),
        "HTTP address of an nsqlookupd; may be repeated",
        key="nsqlookupd_http_addresses",
        reload=live,
    )
    nsqd_http_address: tuple[str, ...] = option(
        TEXTS,
        (),
        "HTTP address of an nsqd, instead of --lookupd-http-address; may be repeated",
        key="nsqd_http_addresses",
        field="NSQDHTTPAddresses",
        reload=live,
    )
    http_client_connect_timeout: float = option(
        DURATION, 2.0, "time for a connection to an nsqd or nsqlookupd", limit=ABOVE_ZERO
    )
    http_client_request_timeout: float = option(
        DURATION, 5.0, "time for an answer of an nsqd or nsqlookupd", limit=ABOVE_ZERO
    )
    http_client_tls_insecure_skip_verify: bool = option(
        BOOLEAN,
        False,
        "accept any certificate of an nsqd or nsqlookupd",
        reload=live,
    )
    http_client_tls_root_ca_file: str = option(
        TEXT,
        "",
        "certificate authorities (PEM) for nsqd and nsqlookupd; empty for those of the system",
        reload=live,
    )
    http_client_tls_cert: str = option(TEXT, "", "client certificate file (PEM) for nsqd and nsqlookupd", reload=live)
    http_client_tls_key: str = option(TEXT, "", "key file (PEM) of --http-client-tls-cert", reload=live)
    nsqd_secret_file: str = option(TEXT, "", "file with the secret for nsqd's HTTP API; empty for none", reload=live)
    lookupd_secret_file: str = option(
        TEXT, "", "file with the secret for nsqlookupd's HTTP API; empty for none", reload=live
    )
    secrets_to_named_nodes: bool = option(
        BOOLEAN,
        False,
        "send the secret also to nsqds that only an nsqlookupd names, in plain HTTP or with any valid certificate",
        reload=live,
    )

    # Graphs of graphite
    graphite_url: str = option(
        _URL, "", "URL of graphite, for /api/graphite and /render; empty for none", field="GraphiteURL", reload=live
    )
    proxy_graphite: bool = option(BOOLEAN, False, "pass requests for /render on to graphite")
    statsd_prefix: str = option(TEXT, "nsq.%s", "accepted, without effect", reload=live)
    statsd_counter_format: str = option(TEXT, "stats.counters.%s.count", "accepted, without effect", reload=live)
    statsd_gauge_format: str = option(TEXT, "stats.gauges.%s", "accepted, without effect", reload=live)
    statsd_interval: float = option(
        DURATION,
        60.0,
        "interval at which nsqd sends to statsd, for the rates of /api/graphite",
        limit=OURS_ABOVE_ZERO,
        reload=live,
    )

    # Who may do what
    allow_config_from_cidr: str = option(
        TEXT,
        "127.0.0.1/8",
        "addresses that may use /config, as a CIDR block; empty for all",
        field="AllowConfigFromCIDR",
        reload=live,
    )
    acl_http_header: str = option(
        TEXT, "X-Forwarded-User", "HTTP header with the user's name, set by a proxy", field="ACLHTTPHeader", reload=live
    )
    acl_proxy_cidr: str = option(
        TEXT,
        "",
        "addresses of proxies, as a CIDR block, whose --acl-http-header and X-Forwarded-For count; empty: the header "
        "of all, X-Forwarded-For of none",
        reload=live,
    )
    admin_user: tuple[str, ...] = option(
        TEXTS,
        (),
        "user of --acl-http-header that may change everything; may be repeated",
        key="admin_users",
        reload=live,
    )
    publish_user: tuple[str, ...] = option(
        TEXTS,
        (),
        "user of --acl-http-header that may publish and read; may be repeated",
        key="publish_users",
        reload=live,
    )
    read_user: tuple[str, ...] = option(
        TEXTS,
        (),
        "user of --acl-http-header that may read; with one, users that are not named see nothing; may be repeated",
        key="read_users",
        reload=live,
    )
    body_user: tuple[str, ...] = option(
        TEXTS,
        (),
        "user of --acl-http-header that may read the bodies of messages beside --admin-user; may be repeated",
        key="body_users",
        reload=live,
    )
    max_connections: int = option(
        INTEGER,
        1000,
        "connections of browsers and HTTP clients; 0 for as many as open files allow",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_connections_per_address: int = same(Options, "max_connections_per_address")
    auth: str = same(Options, "auth")
    session_timeout: float = option(
        DURATION,
        12 * 3600.0,
        "time after which a user of --auth logs in again",
        limit=ABOVE_ZERO,
        reload=live,
    )
    notification_http_endpoint: str = option(
        _URL, "", "URL that gets a POST for each action; empty for none", reload=live
    )
    nsq_compat: bool = option(
        BOOLEAN,
        False,
        "be as lenient as the original: ignore unknown config keys and stray words, and take values it takes",
    )

    def __attrs_post_init__(self) -> None:
        self.base_path = normal_base_path(self.base_path) or "/"

    @property
    def has_users(self) -> bool:
        """Whether --acl-http-header decides about more than the right to change."""
        return bool(self.publish_user or self.read_user or self.body_user)

    @property
    def has_named_users(self) -> bool:
        """Whether it depends on the user in --acl-http-header what a request may do."""
        return bool(self.admin_user) or self.has_users


NSQADMIN = OptionTable("nsqadmin", AdminOptions)


@attrs.define
class AdminCommandLine(CommandLine):
    """The command line of nsqadmin."""

    help_auth: bool = attrs.field(
        default=False,
        metadata={"kind": BOOLEAN, "help": "print the authorizers that are installed and exit"},
    )


NSQADMIN_READER: OptionReader[AdminOptions, AdminCommandLine] = OptionReader(NSQADMIN, AdminCommandLine)


def check_admin(options: AdminOptions) -> None:
    """Raise OptionError, in nsqadmin's words, for the first option it cannot run with."""
    if not options.nsqd_http_address and not options.lookupd_http_address:
        raise OptionError("--nsqd-http-address or --lookupd-http-address required")
    if options.nsqd_http_address and options.lookupd_http_address:
        raise OptionError("use --nsqd-http-address or --lookupd-http-address not both")
    _check_pair(options, "http-client-tls-cert", "http-client-tls-key")
    _check_pair(options, "tls-cert", "tls-key")
    _check_addresses("lookupd-http-address", options.lookupd_http_address)
    _check_addresses("nsqd-http-address", options.nsqd_http_address)
    if options.proxy_graphite:
        _check_url("graphite-url", options.graphite_url)
    if options.notification_http_endpoint:
        _check_url("notification-http-endpoint", options.notification_http_endpoint)
    for flag in ("allow-config-from-cidr", "acl-proxy-cidr"):
        network_of(flag, getattr(options, flag.replace("-", "_")))


def network_of(flag: str, block: str) -> Network | None:
    """Return the addresses of a CIDR block; None, for all, when it is empty. OptionError."""
    if not block:
        return None
    try:
        if "/" not in block:
            raise ValueError("no slash")
        return ipaddress.ip_network(block, strict=False)
    except ValueError as error:
        raise OptionError(f"failed to parse --{flag} ({block}) - invalid CIDR address: {block}") from error


def normal_base_path(path: str) -> str:
    """Return a base path with a slash at its start and none at its end; "" for the root."""
    normal = posixpath.normpath(f"/{path.lstrip('/')}")
    return "" if normal == "/" else normal


def check_cluster_address(address: str) -> None:
    """Raise OptionError for an address that is neither host:port nor a URL with host and port."""
    scheme, separator, rest = address.rpartition("://")
    if separator and scheme not in _SCHEMES:
        raise OptionError(f"address {address}: unknown scheme {scheme}")
    if not is_host_port(rest) or rest.startswith(":"):
        raise OptionError(f"address {address}: it must be host:port, as 127.0.0.1:4161 or [::1]:4161")


def _check_addresses(flag: str, addresses: Iterable[str]) -> None:
    for address in addresses:
        try:
            check_cluster_address(address)
        except OptionError as error:
            raise OptionError(f"failed to resolve --{flag} ({address}) - {error}") from error


def _check_pair(options: AdminOptions, cert: str, key: str) -> None:
    has_cert, has_key = (bool(getattr(options, flag.replace("-", "_"))) for flag in (cert, key))
    if has_cert and not has_key:
        raise OptionError(f"--{key} must be specified with --{cert}")
    if has_key and not has_cert:
        raise OptionError(f"--{cert} must be specified with --{key}")


def _check_url(flag: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise OptionError(f"failed to parse --{flag} ({without_password(url)}) - it must be a URL, as http://host:80")
