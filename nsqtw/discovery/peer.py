"""
The connection to one nsqlookupd, which is made again when it is lost.

    connecting ─▶ introduced ─▶ known ──────┐
        ▲            │                      │  lost, or ended for a `failure`
        └── waiting ◀┴──────────────────────┘

Theory of operation. What is said is the business of a LookupdProtocol, a new one for each connection; the link gives
it bytes and the time. Registrations of all topics created in a turn are one write, which reaches the socket before the
turn's publishes are answered: a client that looks up a new topic after its OK finds it. To connect may take
CONNECT_SECONDS, names and all. Between attempts the link waits from FIRST_RETRY_SECONDS up to MAX_RETRY_SECONDS,
longer each time, until a connection has lived for the time of a ping.

A name that the nsqlookupd refused is told again after REFUSED_SECONDS, and until then not to a new connection either:
each such answer may cost the connection, and all the other names with it. Of a refused channel the topic is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper
from twisted.python.failure import Failure

from nsqtw.discovery.protocol import PING_SECONDS, Lookupd, LookupdProtocol, Name
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.transport import Transport, set_socket_options
from nsqtw.runtime.waiting import ReadyEvent, RetryDelays, in_time

CONNECT_SECONDS = 1.0
FIRST_RETRY_SECONDS = 0.25
MAX_RETRY_SECONDS = 15.0
REFUSED_SECONDS = 300.0

Connect = Callable[[Factory], Deferred[Any]]
"""Connects a protocol of the factory, as an endpoint does. Any error when that cannot be."""
BeforeAnswers = Callable[[Callable[[], None]], object]
"""Calls something once, in this turn of the reactor, before the turn's answers are written."""
Speak = Callable[[Iterable[Name], float], LookupdProtocol]
"""Makes the dialogue of a new connection, with the current names, at the given time."""

_log = Logger()


class LookupdPeer:
    """
    To the nsqlookupd that is called `address` in the log. `names` gives the topics and channels there are, `random`
    numbers from 0 up to 1.
    """

    def __init__(
        self,
        reactor: Reactor,
        address: str,
        connect: Connect,
        speak: Speak,
        names: Callable[[], Iterable[Name]],
        random: Callable[[], float],
        before_answers: BeforeAnswers,
    ) -> None:
        self.ready = ReadyEvent()
        """Tells when the first attempt has ended; `lookupd` is then known, or None."""
        self._reactor = reactor
        self._address = address
        self._connect = connect
        self._speak = speak
        self._names = names
        self._before_answers = before_answers
        self._backoff = RetryDelays(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, random)
        self._protocol: LookupdProtocol | None = None
        self._transport: Transport | None = None
        self._attempt: Deferred[Any] | None = None
        self._timer: Any = None
        self._flush_is_due = False
        self._stopped = False
        self._started_at = 0.0
        self._refused: dict[Name, float] = {}

    def start(self) -> None:
        """Connect, and from then on stay connected."""
        _log.info("LOOKUP({lookupd}): adding peer", lookupd=self._address)
        self._dial()

    def stop(self) -> None:
        """End the connection."""
        self._stopped = True
        self._cancel_timer()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._transport is not None:
            self._transport.loseConnection()
        self.ready.tell()

    @property
    def lookupd(self) -> Lookupd | None:
        """The identity of the nsqlookupd; None while it is unknown."""
        return None if self._protocol is None or self._stopped else self._protocol.lookupd

    # -- what there is

    def on_created(self, name: Name) -> None:
        """There is a new topic or channel."""
        if self._protocol is not None:
            self._protocol.on_created(name)
            self._flush_soon()

    def on_deleted(self, name: Name) -> None:
        """A topic or channel is deleted."""
        self._refused.pop(name, None)
        if self._protocol is not None:
            self._protocol.on_deleted(name)
            self._flush_soon()

    # -- from the connection

    def connected(self, transport: Transport) -> None:
        """There is a connection."""
        if self._stopped:
            transport.abortConnection()
            return
        now = self._reactor.seconds()
        self._transport = transport
        self._started_at = now
        self._refused = {name: until for name, until in self._refused.items() if until > now}
        self._protocol = self._speak(self._not_refused(), now)
        self._go_on(now)

    def received(self, data: bytes) -> None:
        """The nsqlookupd said something."""
        if self._protocol is None:
            return
        now = self._reactor.seconds()
        self._protocol.receive_data(data, now)
        self._refused |= dict.fromkeys(self._protocol.refused, now + REFUSED_SECONDS)
        self._protocol.refused.clear()
        if self._protocol.lookupd is not None and not self.ready.is_known:
            self.ready.tell()
        self._go_on(now)

    def lost(self, reason: Failure) -> None:
        """The connection is gone."""
        protocol, self._protocol, self._transport = self._protocol, None, None
        if self._stopped or protocol is None:
            return
        now = self._reactor.seconds()
        if now - self._started_at >= PING_SECONDS:
            self._backoff.reset()
        why = "EOF" if isinstance(reason.value, ConnectionDone) else reason.getErrorMessage()
        self._try_later(protocol.failure or why)

    # -- inside

    def _dial(self) -> None:
        self._timer = None
        _log.info("LOOKUP connecting to {lookupd}", lookupd=self._address)
        attempt = self._attempt = self._connect(_Factory(self))
        in_time(attempt, CONNECT_SECONDS, self._reactor)
        attempt.addCallbacks(self._attempt_done, self._attempt_failed)

    def _attempt_done(self, _: Any) -> None:
        self._attempt = None

    def _attempt_failed(self, failure: Failure) -> None:
        self._attempt = None
        if self._stopped:
            return
        self._try_later(failure.getErrorMessage())

    def _try_later(self, reason: str) -> None:
        _log.error("LOOKUPD({lookupd}): {error}", lookupd=self._address, error=reason)
        self.ready.tell()
        self._cancel_timer()
        self._timer = self._reactor.callLater(self._backoff.failed(), self._dial)

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._before_answers(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        self._go_on(self._reactor.seconds())

    def _go_on(self, now: float) -> None:
        """Write what there is to say, and see to the time."""
        protocol, transport = self._protocol, self._transport
        if protocol is None or transport is None or self._stopped:
            return
        if data := protocol.data_to_send(now):
            _write_now(transport, data)
        self._cancel_timer()
        if protocol.failure:
            transport.abortConnection()
        else:
            self._timer = self._reactor.callLater(max(0.0, protocol.next_due - now), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._reactor.seconds()
        if self._protocol is not None:
            for name in [name for name, until in self._refused.items() if until <= now]:
                del self._refused[name]
                self._protocol.on_created(name)
            self._protocol.tick(now)
        self._go_on(now)

    def _not_refused(self) -> list[Name]:
        """The names there are; instead of refused channels their topics."""
        names = [Name(name.topic) if name in self._refused else name for name in self._names()]
        return [name for name in dict.fromkeys(names) if name not in self._refused]

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _write_now(transport: Transport, data: bytes) -> None:
    """
    Write to the socket in this turn of the reactor; what it has no room for follows later.

    Twisted writes in the next turn. A failed write is found again by the reactor, which then ends the connection.
    """
    tcp: object = transport
    if isinstance(transport, ProtocolWrapper):
        from twisted.protocols.tls import TLSMemoryBIOProtocol  # with TLS only: the import of OpenSSL takes long

        tcp = transport.transport
        TLSMemoryBIOProtocol.write(transport, data)  # type: ignore[arg-type, no-untyped-call]  # its subclass delays small writes
    else:
        transport.write(data)
    if hasattr(tcp, "doWrite"):
        tcp.doWrite()


class _Connection(Protocol):
    """Hands over what comes."""

    transport: Transport

    def __init__(self, peer: LookupdPeer) -> None:
        self._peer = peer

    def connectionMade(self) -> None:
        set_socket_options(self.transport)  # a REGISTER does not wait for the acknowledgement of the one before
        self._peer.connected(self.transport)

    def dataReceived(self, data: bytes) -> None:
        self._peer.received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._peer.lost(reason)


class _Factory(Factory):
    """Makes the one connection of an attempt."""

    noisy = False

    def __init__(self, peer: LookupdPeer) -> None:
        self._peer = peer

    def buildProtocol(self, addr: Any) -> Any:
        return _Connection(self._peer)
