"""
A whole broker as a Twisted service: locks its data path, binds, opens what is stored, serves, and stops cleanly.

The order of the steps and the texts are nsqd's. Sockets are bound before what is
stored is read: clients that come in between wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.defer import Deferred, TimeoutError, maybeDeferred
from twisted.logger import Logger

from nsqtw.daemon.data_path import lock_data_path
from nsqtw.daemon.operator_log import log
from nsqtw.daemon.process import DaemonService
from nsqtw.daemon.readiness import DRAINING, Readiness
from nsqtw.daemon.reload import FileReader, Reload
from nsqtw.daemon.running_config import RunningConfig
from nsqtw.errors import MetadataError, NsqtwError
from nsqtw.interfaces import IAuthorizer, IProtocolFactory
from nsqtw.net.descriptors import LOW_LIMIT, raise_limit
from nsqtw.net.listen import UNIX_PORT, Listener, open_listeners
from nsqtw.net.tcp import V2_MAGIC
from nsqtw.nsqd.build import Parts, assemble, assemble_standby, open_authorizer, open_storage, write_names
from nsqtw.nsqd.reload import TOPIC_OPTIONS, file_readers
from nsqtw.options.addresses import join_host_port
from nsqtw.options.broker import CHECKS_AFTER_TLS, CHECKS_BEFORE_TLS, NSQD, Options, check
from nsqtw.options.broker_limits import DRAIN
from nsqtw.options.protection import tls_protection
from nsqtw.options.types import CLIENT_AUTH_POLICIES, REQUIRE_VERIFY, TLS_REQUIRED
from nsqtw.plugins import find_protocols
from nsqtw.runtime.drain import Drain
from nsqtw.runtime.leased_pump import LeasedPump
from nsqtw.runtime.monotonic import use_monotonic_clock
from nsqtw.runtime.reactor import Reactor, stop_once
from nsqtw.runtime.reactor_lag import ReactorLag
from nsqtw.runtime.resolver import resolve_blocking
from nsqtw.stats.broker_families import BrokerView
from nsqtw.version import version_line

if TYPE_CHECKING:
    from nsqtw.discovery.peers import LookupdPeers
    from nsqtw.http.factory import HttpFactory
    from nsqtw.net.tls_settings import TlsSettings
    from nsqtw.nsqd.replica import ReplicatedBroker
    from nsqtw.replication.ownership import Ownership
    from nsqtw.stats.statsd import Statsd

_log = Logger()


def unserved(options: Options) -> list[str]:
    """A warning for each option that is set and has no effect, or not the one it seems to have."""
    warnings = []
    policy = options.tls_client_auth_policy
    if policy not in CLIENT_AUTH_POLICIES:
        policies = " and ".join(filter(None, CLIENT_AUTH_POLICIES))
        text = f"--tls-client-auth-policy={policy} asks for no client certificate: known are {policies}"
        warnings.append(text)
    return warnings


def protection(options: Options) -> str:
    """Return a log line about the access control of the broker, and its protocols."""
    auth = "off"
    if options.authorizer:
        http = "HTTP is open" if options.http_is_open else "HTTP too"
        auth = f"on ({options.authorizer.partition(':')[0]}, {http})"
    return f"{tls_protection(options)}; AUTH is {auth}; protocols: {', '.join(dict.fromkeys(options.protocol))}"


def open_to_all(options: Options, tcp: Listener, http: Listener | None, https: Listener | None) -> list[str]:
    """Return a warning for addresses where clients of other machines need neither a credential nor a certificate."""
    if options.tls_client_auth_policy == REQUIRE_VERIFY:
        return []
    lines = []
    if not options.authorizer and not tcp.is_local:
        lines.append(
            f"TCP on {tcp.address} is open: without --auth whoever reaches it may publish to and read every topic"
        )
    if not options.http_is_open:
        return lines
    cure = "--http-auth=on" if options.authorizer else "--auth"
    served = {"HTTP": http if options.tls_required != TLS_REQUIRED["true"] else None, "HTTPS": https}
    for name, listener in served.items():
        if listener is not None and not listener.is_local:
            lines.append(
                f"{name} on {listener.address} is open: without {cure} whoever reaches it may publish, delete topics"
                " and change the configuration"
            )
    return lines


def fill_in(options: Options, tcp_port: int, http_port: int) -> None:
    """
    Set what was left open until the real ports were known: the ports that are broadcast and the statsd prefix.
    A port is 0 for none and UNIX_PORT for a unix socket.
    """
    if options.broadcast_tcp_port == 0 and tcp_port != UNIX_PORT:
        options.broadcast_tcp_port = tcp_port
    if options.broadcast_http_port == 0 and http_port != UNIX_PORT:
        options.broadcast_http_port = http_port
    if options.statsd_prefix:
        host = join_host_port(options.broadcast_address, options.broadcast_http_port)
        prefix = options.statsd_prefix.replace("%s", host.replace(".", "_").replace(":", "_"))
        options.statsd_prefix = prefix if prefix.endswith(".") else f"{prefix}."


class Port(NamedTuple):
    """A port that is served."""

    address: str
    port: Any
    """The port of Twisted, whose factory can be replaced."""
    factory: Any


class BrokerService(DaemonService):
    """
    One broker, from the lock on its data path to "NSQ: bye". `warnings` are logged at the start.

    `options` change: what was left open is filled in when the real ports are known, and a reload reads them again from
    the sources that `config` knows.
    """

    def __init__(
        self,
        options: Options,
        reactor: Reactor,
        warnings: Iterable[str] = (),
        config: RunningConfig | None = None,
    ) -> None:
        self._options = options
        self._reactor = reactor
        self._warnings = list(warnings)
        self._directory = options.data_path or os.getcwd()
        self._lock = -1
        self._parts: Parts
        self._drain: Drain
        self._config = config or RunningConfig(NSQD, options)
        self.reloading = Reload(self._config, self._file_readers, self._follow_reload)
        self._ports: dict[str, Port] = {}
        self._statsd: Statsd | None = None
        self._lookups: LookupdPeers | None = None
        self._tls: TlsSettings | None = None
        self._site: HttpFactory | None = None
        self._authorizer: IAuthorizer | None = None
        self._protocols: Mapping[bytes, IProtocolFactory] = {}
        self._replicated: ReplicatedBroker | None = None
        self._lag = ReactorLag(reactor)
        self.readiness = Readiness()
        """What /readyz answers."""

    def startService(self) -> None:
        """Start to serve. NsqtwError, with the line for the user and nothing left open, when that cannot be."""
        use_monotonic_clock(self._reactor)
        resolve_blocking(self._reactor)
        limit = raise_limit()
        if limit < LOW_LIMIT:
            text = "LIMIT: this process may have {limit} open files, and each connection takes one: raise 'ulimit -n'"
            _log.warn(text, limit=limit)
        with ExitStack() as cleanup:
            try:
                tcp, http, https = self._prepare(cleanup)
                fill_in(self._options, tcp.port, http.port if http else 0)
                self._authorizer = open_authorizer(self._options)
                if self._authorizer is not None:
                    cleanup.callback(self._authorizer.close)
                self._protocols = find_protocols(self._options.protocol)
                if self._options.replicate:
                    self._replicated = self._replica_of(tcp, http, https)
            except NsqtwError as error:
                raise NsqtwError(f"failed to instantiate nsqd - {error}") from error
            if self._replicated is None:
                self._parts = self._load(None)
            else:
                self._parts = assemble_standby(self._reactor, self._options, self._directory, self._authorizer)
            cleanup.pop_all()
        self._lag.start()
        if self._replicated is None:
            self._serve(tcp, http, https)
        else:
            self._stand_by(tcp, http, https)
        super().startService()  # type: ignore[no-untyped-call]

    def begin_drain(self) -> bool:
        """Begin a drain on SIGTERM, if the options say so, and return whether. It stops the reactor when it ends."""
        if self._options.sigterm != DRAIN:
            return False
        self._drain.begin(self._options.drain_timeout)
        return True

    @property
    def is_draining(self) -> bool:
        return self._drain.has_begun

    def status(self) -> str:
        """Return a line for the service manager."""
        broker = self._parts.broker
        if self._drain.has_begun:
            return f"draining: {self._drain.left()}"
        return f"{len(broker.topics)} topics, {len(broker.clients)} clients; storage {broker.health}"

    def _load(self, ownership: Ownership | None) -> Parts:
        """Open what is stored, with its copy if there is one, and load it. NsqtwError, with nothing left open."""
        with ExitStack() as cleanup:
            try:
                storage = open_storage(self._options, self._directory, ownership)
                cleanup.callback(storage.close, False, is_released=True)
            except NsqtwError as error:
                raise NsqtwError(f"failed to instantiate nsqd - {error}") from error
            try:
                parts = assemble(self._reactor, self._options, storage, self._authorizer, self._protocols)
            except MetadataError as error:
                remedy = f"restore it, or let 'nsqtw fsck --repair {self._directory}' set it aside"
                raise NsqtwError(f"failed to load metadata - {error}; {remedy}") from error
            except NsqtwError as error:
                raise NsqtwError(f"failed to load metadata - {error}") from error
            try:
                write_names(storage.metadata_path, parts.broker.metadata_sync.names())
            except NsqtwError as error:
                raise NsqtwError(f"failed to persist metadata - {error}") from error
            cleanup.pop_all()
        if ownership is not None:
            ownership.is_complete = True
        return parts

    def _replica_of(self, tcp: Listener, http: Listener | None, https: Listener | None) -> ReplicatedBroker:
        """Return what decides whether this broker serves. OptionError, PluginError."""
        # Only a broker with a replica store waits for what that takes.
        from nsqtw.nsqd.replica import ReplicatedBroker

        def serve(ownership: Ownership) -> None:
            parts = self._load(ownership)
            self._leave_standby()
            self._parts = parts
            self._serve(tcp, http, https)

        return ReplicatedBroker(
            self._reactor,
            self._options,
            self._directory,
            serve=serve,
            renewed=self._serve_until,
            stop=self._stop_with,
        )

    def _serve_until(self, end: float) -> None:
        """The lease ends at this time."""
        if isinstance(self._parts.pump, LeasedPump):
            self._parts.pump.serve_until(end)

    def _stop_with(self, code: int) -> None:
        """Stop the process in order, with this exit code."""
        self.exit_code = code
        stop_once(self._reactor)

    def _prepare(self, cleanup: ExitStack) -> tuple[Listener, Listener | None, Listener | None]:
        """Everything that can be wrong with the options: the data path, bounds, addresses."""
        options = self._options
        self._lock = lock_data_path(self._directory)
        cleanup.callback(os.close, self._lock)
        check(options, CHECKS_BEFORE_TLS)
        if options.tls_required or options.tls_cert or options.tls_key or options.tls_root_ca_file:
            # Imported lazily: only needed with TLS.
            from nsqtw.net.certificates import check_certificates

            check_certificates(options)
        if options.tls_cert:
            from nsqtw.net.tls_settings import TlsSettings
            from nsqtw.options.files import exposures

            self._tls = TlsSettings(options, self._reactor)
            self._warnings += exposures({"--tls-key": options.tls_key})
        check(options, CHECKS_AFTER_TLS)
        warnings = self._warnings + unserved(options)
        if options.lookupd_tls or options.lookupd_secret_file or options.lookupd_tcp_address:
            from nsqtw.discovery.tls import check_lookupd

            warnings += check_lookupd(options)
        _log.info("{version}", version=version_line())
        _log.info("ID: {node_id}", node_id=options.node_id)
        for warning in warnings:
            _log.warn("{warning}", warning=warning)
        https_address = options.https_address if self._tls is not None else ""
        addresses = {"tcp": options.tcp_address, "http": options.http_address, "https": https_address}
        listeners = open_listeners(addresses, cleanup, refusing=("tcp",) if options.replicate else ())
        tcp, http, https = listeners["tcp"], listeners.get("http"), listeners.get("https")
        for warning in open_to_all(options, tcp, http, https):
            _log.warn("{warning}", warning=warning)
        return tcp, http, https

    def _stand_by(self, tcp: Listener, http: Listener | None, https: Listener | None) -> None:
        """Serve HTTP, and wait to become the owner."""
        assert self._replicated is not None, "a standby has a replica store"
        parts = self._parts
        self._add_checks()
        self._drain = Drain(parts.broker, parts.pump, stop=partial(stop_once, self._reactor))
        if http is not None or https is not None:
            self._serve_http(tcp, http, https)
        self._replicated.start()

    def _leave_standby(self) -> None:
        """End the connections of a standby's HTTP; its ports go on."""
        self._drain.cancel()
        if self._site is not None:
            self._site.disconnect_all()
        self._parts.limits.close()

    def _serve(self, tcp: Listener, http: Listener | None, https: Listener | None) -> None:
        parts = self._parts
        self._add_checks()
        self._drain = Drain(parts.broker, parts.pump, self._leave_lookups, partial(stop_once, self._reactor))
        parts.pump.wake()  # what became due meanwhile does not wait for a client
        parts.clients.tls = self._tls
        _log.info("NSQ: {protection}", protection=protection(self._options))
        self._listen("TCP", tcp, self._tcp_clients())
        if http is not None or https is not None:
            self._serve_http(tcp, http, https)
        if self._options.statsd_address:
            from nsqtw.stats.statsd import Statsd

            self._statsd = Statsd(self._reactor, parts.broker, parts.pump.now)
            self._statsd.start()
        # The last one: the time for a connection to an nsqlookupd runs from here, and the imports above take long.
        self._follow_options()

    def _add_checks(self) -> None:
        """Name what makes this broker unready."""
        broker = self._parts.broker
        self.readiness.add("recovered", lambda: "" if self.running else "the topics are not loaded yet")
        self.readiness.add("disk", lambda: "" if broker.health.is_good else str(broker.health))
        self.readiness.add("lookupd", lambda: "" if self._lookups is None else self._lookups.why_unreachable())
        if self._replicated is not None:
            self.readiness.add("replica", self._replicated.reason)
        self.readiness.add(DRAINING, lambda: "the broker stops" if broker.stopping else self._drain.reason)

    def _tcp_clients(self) -> Any:
        """Return the factory of TCP connections. Those of other protocols than V2 may begin with a TLS handshake."""
        clients = self._parts.clients
        if self._tls is None or set(clients.protocols) <= {V2_MAGIC}:
            return clients
        from nsqtw.net.https import TlsFactory

        return TlsFactory(clients, self._tls, lambda head: b"", name="tcp", plain_limits=self._parts.limits)

    def _serve_http(self, tcp: Listener, http: Listener | None, https: Listener | None) -> None:
        from nsqtw.api.site import broker_site, refusing_site
        from nsqtw.http.browsers import allowed_hosts

        parts = self._parts
        self._site = site = broker_site(
            parts.broker,
            parts.pump,
            tcp_port=tcp.port,
            http_port=http.port if http is not None else 0,
            version_line=version_line(),
            hosts=allowed_hosts(self._options, http, has_login=not self._options.http_is_open) if http else None,
            limits=parts.limits,
            reconfigured=self._follow_options,
            view=self._view(),
            drain=self._drain,
            reload=self.reloading,
        )
        if http is not None:
            is_refused = self._options.tls_required == TLS_REQUIRED["true"]
            https_port = https.port if https is not None else 0
            self._listen("HTTP", http, refusing_site(site, https_port) if is_refused else site)
        if https is not None and self._tls is not None:
            from nsqtw.net.https import TlsFactory

            self._listen("HTTPS", https, TlsFactory(site, self._tls))

    def _view(self) -> BrokerView:
        """Return what /readyz and /metrics show."""
        parts = self._parts
        return BrokerView(
            program="nsqd",
            readiness=self.readiness,
            lag=self._lag,
            connections=self._connections,
            rejections=lambda: dict(parts.limits.rejections.counts),
            certificates=lambda: {} if self._tls is None else self._tls.expiries(),
            broker=parts.broker,
            now=parts.pump.now,
            data_path=self._directory,
            replica=self._replicated,
            lookupds=lambda: {} if self._lookups is None else self._lookups.states(),
        )

    def _connections(self) -> dict[str, int]:
        """Return the number of open connections; HTTP and HTTPS are one."""
        counts = {"tcp": len(self._parts.clients.connections)}
        if self._site is not None:
            counts["http"] = len(self._site.connections)
        return counts

    def _follow_options(self) -> None:
        """Options may have changed that are not looked at each time they are used."""
        if self._drain.has_begun or self._parts.broker.is_suspended:
            return
        if self._lookups is not None:
            self._lookups.follow()
        elif self._options.lookupd_tcp_address:
            # Only a broker with an nsqlookupd waits for what that takes.
            from nsqtw.discovery.peers import LookupdPeers

            configured = partial(self._config.configured, "lookupd_tcp_address")
            self._lookups = LookupdPeers(self._reactor, self._parts.broker, self._parts.pump, log, configured)
            self._lookups.start()

    def _leave_lookups(self) -> None:
        """Have no nsqlookupd name this broker any more."""
        if self._lookups is not None:
            self._lookups.stop()
            self._lookups = None

    def _file_readers(self) -> list[FileReader]:
        return file_readers(self._tls, self._parts.authorizations)

    def _follow_reload(self, changed: frozenset[str]) -> None:
        """A reload has changed these options."""
        parts = self._parts
        self._follow_options()
        parts.limits.follow_options()
        if self._site is not None and "allowed_host" in changed:
            self._site.forget_heads()
        if changed & TOPIC_OPTIONS:
            parts.broker.follow_options(parts.pump.now())
            parts.pump.wake()

    def _listen(self, name: str, listener: Listener, factory: Any) -> None:
        """Serve with a factory; on a port that serves already, new connections."""
        port: Any = self._ports[name].port if name in self._ports else listener.serve(self._reactor, factory)
        port.factory = factory
        self._ports[name] = Port(listener.address, port, factory)
        _log.info("{server}: listening on {address}", server=name, address=listener.address)

    async def _stop(self) -> None:
        parts = self._parts
        if self._replicated is not None:
            self._replicated.begin_stop()
        self._lag.stop()
        self._drain.cancel()
        self._leave_lookups()
        parts.broker.begin_stop()  # before connections end: their consumers have not failed
        for name, served in self._ports.items():
            _log.info("{server}: closing {address}", server=name, address=served.address)
            await maybeDeferred(served.port.stopListening)
            served.factory.disconnect_all()
        if parts.authorizations is not None:
            parts.authorizations.close()
        _log.info("NSQ: closing topics")
        if self._replicated is None or self._replicated.ownership is not None:
            await self._store_all()
        if self._replicated is not None:
            await self._replicated.stop()
        _log.info("NSQ: stopping subsystems")
        if self._statsd is not None:
            await self._statsd.stop()
        parts.limits.close()
        _log.info("QUEUESCAN: closing")
        os.close(self._lock)
        _log.info("NSQ: bye")

    async def _store_all(self) -> None:
        """Save everything and close the files. The wait for an unresponsive disk has a limit."""
        stored = Deferred.fromCoroutine(self._store())
        if self._options.stop_timeout:
            stored.addTimeout(self._options.stop_timeout, self._reactor)
        try:
            await stored
        except TimeoutError:
            _log.error("NSQ: the disk takes longer than --stop-timeout - the next start takes this for a crash")

    async def _store(self) -> None:
        parts = self._parts
        await parts.pump.stop()
        await parts.writer.finish(lambda: parts.storage.close(parts.broker.health.is_good))
