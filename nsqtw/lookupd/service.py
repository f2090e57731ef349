"""
A whole nsqlookupd as a Twisted service: binds, takes in its snapshot, serves, and stops cleanly.

The texts are nsqlookupd's, without the mistake in the one about an address that cannot be
had.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import attrs
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from nsqtw import NSQ_VERSION
from nsqtw.daemon.data_path import lock_data_path
from nsqtw.daemon.operator_log import log
from nsqtw.daemon.process import DaemonService
from nsqtw.daemon.readiness import Readiness
from nsqtw.daemon.reload import CERTIFICATE_OPTIONS, FileReader, Reload
from nsqtw.daemon.running_config import RunningConfig
from nsqtw.errors import NsqtwError
from nsqtw.gocompat.text import json_text
from nsqtw.http.bearer_auth import FREE
from nsqtw.http.browsers import allowed_hosts
from nsqtw.http.factory import HttpFactory
from nsqtw.http.health import Health
from nsqtw.http.metrics import Metrics
from nsqtw.http.reload import Reloading
from nsqtw.http.routes import Routes
from nsqtw.lookupd.auth import SecretAuth
from nsqtw.lookupd.http import LookupApi
from nsqtw.lookupd.metrics import LOOKUPD_FAMILIES, LookupView
from nsqtw.lookupd.model import RegistrationQuotas
from nsqtw.lookupd.registrations import Registrations
from nsqtw.lookupd.snapshot_file import SnapshotFile
from nsqtw.lookupd.tcp import NsqdFactory
from nsqtw.lookupd.v1 import V1Context, response
from nsqtw.lookupd.watchers import Watchers
from nsqtw.net.descriptors import Descriptors, raise_limit
from nsqtw.net.limits import Limits
from nsqtw.net.listen import Listener, open_listeners
from nsqtw.options.broker_address import hostname
from nsqtw.options.files import exposures, read_secret
from nsqtw.options.lookupd import ALL, CHANGES, NSQLOOKUPD, OFF, LookupdOptions
from nsqtw.options.protection import tls_protection
from nsqtw.options.types import CLIENT_AUTH_POLICIES, REQUIRE_VERIFY, TLS_REQUIRED
from nsqtw.rights import ADMIN
from nsqtw.runtime.monotonic import use_monotonic_clock
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.reactor_lag import ReactorLag
from nsqtw.runtime.resolver import resolve_blocking
from nsqtw.runtime.turns import PlainTurns
from nsqtw.stats.exposition import DaemonMetrics
from nsqtw.version import version_line

if TYPE_CHECKING:
    from nsqtw.net.tls_settings import TlsSettings

SECRET_FLAG = "--peer-secret-file"
PASS_TIME_SECONDS = 1.0
"""The interval of checks for silent producers."""
_NANOSECONDS = 1_000_000_000
_NOT_TLS = response(b"E_INVALID client must use TLS")

_log = Logger()


class LookupdService(DaemonService):
    """One nsqlookupd. `warnings` are logged at the start; `config` are its options with their sources."""

    def __init__(
        self,
        options: LookupdOptions,
        reactor: Reactor,
        warnings: Iterable[str] = (),
        config: RunningConfig | None = None,
    ) -> None:
        self._options = options
        self._reactor = reactor
        self._warnings = list(warnings)
        self._turns = PlainTurns(reactor)
        self._ports: list[tuple[str, str, IListeningPort, Any]] = []
        self._tls: TlsSettings | None = None
        self._secret_auth: SecretAuth | None = None
        self._limits: Limits
        self._watchers: Watchers
        self._snapshot: SnapshotFile | None = None
        self._lock = -1
        self._timer: Any = None
        self.reloading = Reload(config or RunningConfig(NSQLOOKUPD, options), self._file_readers, self._follow_reload)
        self._lag = ReactorLag(reactor)
        self._nsqd_factory: NsqdFactory
        self._site: HttpFactory
        self.readiness = Readiness()
        """What /readyz answers."""
        self.registrations = Registrations(
            round(options.inactive_producer_timeout * _NANOSECONDS),
            round(options.tombstone_lifetime * _NANOSECONDS),
            quotas_of(options),
        )
        self._context = V1Context(self.registrations, log)

    def startService(self) -> None:
        """Start to serve. NsqtwError, with the line for the user and nothing left open, when that cannot be."""
        use_monotonic_clock(self._reactor)
        resolve_blocking(self._reactor)
        raise_limit()
        _log.info("{version}", version=version_line("nsqlookupd"))
        with ExitStack() as cleanup:
            try:
                NSQLOOKUPD.check(self._options)
                self._read_files()
                if self._options.data_path:
                    self._lock = lock_data_path(self._options.data_path, "nsqlookupd")
                    cleanup.callback(os.close, self._lock)
                addresses = {"tcp": self._options.tcp_address, "http": self._options.http_address}
                listeners = open_listeners(addresses, cleanup)
            except NsqtwError as error:
                raise NsqtwError(f"failed to instantiate nsqlookupd - {error}") from error
            cleanup.pop_all()
        tcp, http = listeners["tcp"], listeners["http"]
        for warning in [*self._warnings, *invalid_options(self._options), *open_to_all(self._options, tcp, http)]:
            _log.warn("{warning}", warning=warning)
        _log.info("{protection}", protection=protection(self._options))
        self._serve(tcp, http)
        super().startService()  # type: ignore[no-untyped-call]

    def status(self) -> str:
        """Return a line for the service manager."""
        return f"{self.registrations.topic_count} topics, {self.registrations.channel_count} channels"

    # -- what /metrics needs

    @property
    def metrics(self) -> DaemonMetrics:
        """Its figures."""
        view = LookupView(
            program="nsqlookupd",
            readiness=self.readiness,
            lag=self._lag,
            connections=lambda: {
                "tcp": len(self._nsqd_factory.connections),
                "http": len(self._site.connections),
            },
            rejections=lambda: dict(self._limits.rejections.counts),
            certificates=lambda: {} if self._tls is None else self._tls.expiries(),
            registrations=self.registrations,
        )
        return DaemonMetrics(view, LOOKUPD_FAMILIES)

    @property
    def reactor(self) -> Reactor:
        return self._reactor

    def now(self) -> float:
        """The time in seconds, from an arbitrary start."""
        return self._turns.now()

    # -- inside

    def _read_files(self) -> None:
        """The files that options name. OptionError."""
        options = self._options
        if options.tls_required or options.tls_cert or options.tls_key or options.tls_root_ca_file:
            # Imported lazily: only needed with TLS.
            from nsqtw.net.certificates import check_certificates

            check_certificates(options)
        if options.tls_cert:
            from nsqtw.net.tls_settings import TlsSettings

            self._tls = TlsSettings(options, self._reactor)
        self._warnings += exposures({"--tls-key": options.tls_key, SECRET_FLAG: options.peer_secret_file})
        if options.peer_secret_file:
            self._secret_auth = SecretAuth(b"")
            self._read_secret(options)()

    def _read_secret(self, options: LookupdOptions) -> Callable[[], None]:
        """Read the secret. Returns the function that uses it from now on. OptionError."""
        secret = read_secret(options.peer_secret_file, SECRET_FLAG).encode()

        def use() -> None:
            self._context.secret = secret
            if self._secret_auth is not None:
                self._secret_auth.secret = secret

        return use

    def _file_readers(self) -> list[FileReader]:
        readers = [] if self._tls is None else [FileReader("certificates", self._tls.read, CERTIFICATE_OPTIONS)]
        return (
            readers
            if self._secret_auth is None
            else [*readers, FileReader("secrets", self._read_secret, frozenset(("peer_secret_file",)))]
        )

    def _follow_reload(self, changed: frozenset[str]) -> None:
        """A reload has changed these options."""
        options = self._options
        self.registrations.quotas = quotas_of(options)
        self._watchers.limit = options.max_watchers
        self._limits.follow_options()

    def _serve(self, tcp: Listener, http: Listener) -> None:
        options = self._options
        self._context.identity = json_text(
            {
                "broadcast_address": options.broadcast_address,
                "hostname": hostname(),
                "http_port": max(http.port, 0),
                "tcp_port": max(tcp.port, 0),
                "version": NSQ_VERSION,
            }
        )
        self._limits = limits = Limits(options, self._reactor, self._turns.now, Descriptors())
        self._watchers = Watchers(self.registrations, self._turns, options.max_watchers, limits.rejections)
        if options.data_path:
            self._snapshot = SnapshotFile(options.data_path, self.registrations, self._turns)
            self._snapshot.load()
            self._snapshot.start()
        self.readiness.add("recovered", lambda: "" if self.running else "the snapshot is not loaded yet")
        self._lag.start()
        self._listen("TCP", tcp, self._nsqds())
        self._listen("HTTP", http, self._http(http))
        self._pass_time()

    def _nsqds(self) -> Any:
        self._nsqd_factory = factory = NsqdFactory(self._context, self._options, self._turns, self._limits)
        return self._behind_tls(factory, bool(self._options.tls_required), lambda head: _NOT_TLS, "tcp")

    def _http(self, listener: Listener) -> Any:
        options = self._options
        secret_auth = None if options.http_auth == OFF else self._secret_auth
        needs = ADMIN if options.http_auth == ALL else FREE
        routes = [
            *LookupApi(self.registrations, self._turns, needs).routes(),
            *Health(self).routes(),
            *(attrs.evolve(route, needs=needs) for route in Metrics(self).routes()),
            *Reloading(self).routes(),
            self._watchers.route(needs),
        ]
        hosts = allowed_hosts(options, listener, has_login=secret_auth is not None and options.http_auth == ALL)
        self._site = factory = HttpFactory(Routes(routes), self._turns, self._limits, secret_auth, hosts)
        return self._behind_tls(factory, options.tls_required == TLS_REQUIRED["true"], None, "http")

    def _behind_tls(self, factory: Any, is_required: bool, not_tls: Callable[[bytes], bytes] | None, name: str) -> Any:
        """The factory, which takes TLS if there is a certificate, and nothing else if that is required."""
        if self._tls is None:
            return factory
        from nsqtw.net.https import TlsFactory, not_https

        limits = None if is_required else self._limits
        return TlsFactory(factory, self._tls, not_tls or not_https, name=name, plain_limits=limits)

    def _listen(self, name: str, listener: Listener, factory: Any) -> None:
        self._ports.append((name, listener.address, listener.serve(self._reactor, factory), factory))
        _log.info("{server}: listening on {address}", server=name, address=listener.address)

    def _pass_time(self) -> None:
        self.registrations.pass_time(self._turns.unix_ns())
        self._timer = self._reactor.callLater(PASS_TIME_SECONDS, self._pass_time)

    async def _stop(self) -> None:
        self._timer.cancel()
        self._lag.stop()
        for name, address, port, _ in self._ports:
            _log.info("{server}: closing {address}", server=name, address=address)
            await maybeDeferred(port.stopListening)
        # What they had is in the snapshot: it is written before they are gone.
        if self._snapshot is not None:
            await self._snapshot.stop()
        self._watchers.close()
        for _, _, _, factory in self._ports:
            factory.disconnect_all()
        self._limits.close()
        if self._lock >= 0:
            os.close(self._lock)


def quotas_of(options: LookupdOptions) -> RegistrationQuotas:
    """Return the limits on what may be registered."""
    return RegistrationQuotas(
        topics=options.max_topics,
        channels=options.max_channels,
        registrations=options.max_registrations,
        producer_registrations=options.max_registrations_per_connection,
    )


def invalid_options(options: LookupdOptions) -> list[str]:
    """A warning for each option that is set and has not the effect it seems to have."""
    policy = options.tls_client_auth_policy
    if policy in CLIENT_AUTH_POLICIES:
        return []
    policies = " and ".join(filter(None, CLIENT_AUTH_POLICIES))
    return [f"--tls-client-auth-policy={policy} asks for no client certificate: known are {policies}"]


def protection(options: LookupdOptions) -> str:
    """Return a log line about the access control of nsqlookupd."""
    secret = "off"
    if options.peer_secret_file:
        of_http = {CHANGES: "for HTTP requests that change something", ALL: "for HTTP", OFF: "not for HTTP"}
        secret = f"on for nsqds, {of_http[options.http_auth]}"
    return f"{tls_protection(options)}; the secret is {secret}"


def open_to_all(options: LookupdOptions, tcp: Listener, http: Listener) -> list[str]:
    """Return a warning for addresses where any client can change the results of lookups."""
    is_verified = options.tls_client_auth_policy == REQUIRE_VERIFY
    lines = []
    if not (is_verified or options.peer_secret_file or tcp.is_local):
        lines.append(
            f"TCP on {tcp.address} is open: without --peer-secret-file whoever reaches it may register as an nsqd"
        )
    is_verified = is_verified and options.tls_required == TLS_REQUIRED["true"]
    has_secret = options.peer_secret_file and options.http_auth != OFF
    if not (is_verified or has_secret or http.is_local):
        lines.append(f"HTTP on {http.address} is open: without --peer-secret-file whoever reaches it may delete topics")
    return lines
