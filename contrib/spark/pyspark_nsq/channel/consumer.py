"""
A consumer of one channel on any number of nsqds, in the reactor's thread.

It keeps a connection to each nsqd of the options, or of the nsqlookupds, and connects again after a connection is lost.
The nsqlookupds are asked every `lookupdPollMs`, and when one reports a change (lookup_watch). The connection to an nsqd
that no nsqlookupd names any more is kept, but not made again. `received` gets the messages, and finishes them later
through the connection that they came over. `allow` limits the unfinished messages over all connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.application.internet import ClientService, backoffPolicy
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall

from pyspark_nsq.channel.span import Span
from pyspark_nsq.channel.v2_connection import GIVE_TCP, V2Connection
from pyspark_nsq.errors import ReadError
from pyspark_nsq.http.lookup import Lookup, LookupFailed
from pyspark_nsq.http.lookup_watch import LookupWatch
from pyspark_nsq.http.servers import NSQD, no_answer
from pyspark_nsq.options.addresses import join_host_port
from pyspark_nsq.options.channel import ChannelOptions

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase

_log = logging.getLogger("pyspark_nsq")

_CONNECT_SECONDS = 10.0
_MAX_BACKOFF_SECONDS = 15.0
#: Time for nsqd's answer CLOSE_WAIT, after which the connection is closed without it.
_GIVE_BACK_SECONDS = 5.0

Address = tuple[str, int]


class ChannelConsumer:
    """Consumes a channel. `failure` is set when an nsqd has refused a command, which no retry would change."""

    def __init__(
        self, reactor: ReactorBase, options: ChannelOptions, received: Callable[[V2Connection, list[Span]], None]
    ) -> None:
        self.failure: ReadError | None = None
        self.trouble: str | None = None
        """The last thing that kept it from an nsqd or nsqlookupd; it goes on trying."""
        self._reactor = reactor
        self._options = options
        self._received = received
        self._allowed = 0
        self._services: dict[Address, ClientService] = {}
        self._connections: dict[V2Connection, None] = {}
        self._lookup = Lookup(reactor, options.security) if options.lookupds else None
        self._looking: LoopingCall | None = None
        self._watches: list[LookupWatch] = []
        self._named: dict[str, set[Address]] = {}
        self._stopping = False

    def start(self) -> None:
        """Connect, and connect again after each lost connection."""
        for address in self._options.nsqds:
            self._add(address)
        if self._lookup is not None:
            self._looking = LoopingCall(self._look_up, self._lookup)
            self._looking.clock = self._reactor
            self._looking.start(self._options.lookupd_poll_ms / 1000)
            self._watches = [self._watch(self._lookup, lookupd) for lookupd in self._options.lookupds]

    @property
    def complete(self) -> bool:
        """Whether every known nsqd is consumed from, and there is one."""
        return 0 < len(self._services) == len(self._connections)

    @property
    def connected(self) -> bool:
        """Whether any nsqd is consumed from."""
        return bool(self._connections)

    @property
    def missing(self) -> str:
        """Why there is nothing to consume from, with a remedy."""
        silent = [f"nsqd {join_host_port(*address)}" for address in self._services] or [
            f"nsqlookupd {lookupd}" for lookupd in self._options.lookupds
        ]
        return self.trouble or f"{', '.join(silent)} does not answer; check the address"

    def allow(self, count: int) -> None:
        """Set the largest number of unfinished messages."""
        self._allowed = count
        self._share()

    def stop(self) -> Deferred[Any]:
        """Requeue the unfinished messages, and close. Fires when all connections are closed."""
        self._stopping = True
        if self._looking is not None and self._looking.running:
            self._looking.stop()
        for watch in self._watches:
            watch.stop()
        given_back = [connection.give_back() for connection in self._connections]
        closed = DeferredList(given_back).addTimeout(_GIVE_BACK_SECONDS, self._reactor)
        closed.addErrback(lambda _: None)
        return closed.addCallback(
            lambda _: DeferredList([service.stopService() for service in self._services.values()])
        )

    def _share(self) -> None:
        """Return the RDY of each connection; 0 for some when it does not suffice for all."""
        connections = list(self._connections)
        for number, connection in enumerate(connections):
            part, rest = divmod(self._allowed, len(connections))
            connection.set_rdy(part + (number < rest))

    def _add(self, address: Address) -> None:
        if self._stopping or address in self._services:
            return
        host, port = address
        service = ClientService(
            HostnameEndpoint(self._reactor, host, port, timeout=_CONNECT_SECONDS),
            Factory.forProtocol(lambda: V2Connection(address, self._options, self._ready, self._received, self._ended)),
            retryPolicy=backoffPolicy(0.1, _MAX_BACKOFF_SECONDS),
            clock=self._reactor,
        )
        self._services[address] = service
        service.whenConnected(failAfterFailures=1).addErrback(
            lambda failure: self._record_failure(address, no_answer(failure.value, NSQD))
        )
        service.startService()

    def _record_failure(self, address: Address, why: str) -> None:
        if address in self._services:
            self.trouble = f"nsqd {join_host_port(*address)}: {why}"
            _log.warning("%s; trying again", self.trouble)

    def _ready(self, connection: V2Connection) -> None:
        self._connections[connection] = None
        self._share()

    def _ended(self, connection: V2Connection, refused: ReadError | None) -> None:
        if refused is not None and self.failure is None:
            self.failure = refused
        if refused is None and connection not in self._connections and not self._stopping:
            self._record_failure(connection.address, f"it closed the connection without an answer; {GIVE_TCP}")
        if self._connections.pop(connection, self) is None:
            self._share()

    def _look_up(self, lookup: Lookup) -> Deferred[Any]:
        """Ask all nsqlookupds. The time to the next question starts when all have answered."""
        return DeferredList([Deferred.fromCoroutine(self._ask(lookup, one)) for one in self._options.lookupds])

    def _watch(self, lookup: Lookup, lookupd: str) -> LookupWatch:
        options = self._options
        watch = LookupWatch(
            self._reactor,
            options.security,
            lookupd,
            options.topic,
            options.lookupd_poll_ms / 1000,
            lambda: Deferred.fromCoroutine(self._ask(lookup, lookupd)),
        )
        watch.start()
        return watch

    async def _ask(self, lookup: Lookup, lookupd: str) -> None:
        try:
            found = await lookup.producers_of(lookupd, self._options.topic)
            self._learn(lookupd, {(one.host, one.tcp_port) for one in found})
        except LookupFailed as failed:
            self.trouble = f"nsqlookupd {failed}"
            _log.warning("%s; trying again", self.trouble)
        except Exception as error:
            self.failure = ReadError(f"asking nsqlookupd {lookupd} failed: {type(error).__name__}: {error}")
            self.failure.__cause__ = error

    def _learn(self, lookupd: str, addresses: set[Address]) -> None:
        """Connect to the nsqds that an nsqlookupd names now."""
        if not addresses:
            self.trouble = (
                f'nsqlookupd {lookupd} knows no nsqd with the topic "{self._options.topic}"; correct its name, or '
                "publish a message"
            )
        self._named[lookupd] = addresses
        for address in sorted(addresses):
            self._add(address)
        self._drop_unnamed()

    def _drop_unnamed(self) -> None:
        """Forget nsqds that no nsqlookupd names. An nsqlookupd that does not answer counts with its last answer."""
        wanted = set[Address]().union(*self._named.values()) | {one.address for one in self._connections}
        for address in self._services.keys() - wanted:
            _log.info("nsqd %s is gone, and no nsqlookupd names it", join_host_port(*address))
            self._services.pop(address).stopService()
