"""A connection to one nsqd that consumes a channel, from the handshake to the requeuing of unfinished messages.

    connect, IDENTIFY, [TLS], [AUTH], SUB, then RDY of `set_rdy`; ...; RDY 0, CLS, REQ of the unfinished, close

nsqd requeues the messages of a lost connection only after their timeout. So a connection that closes in order requeues
them one by one.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionClosed
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.policies import TimeoutMixin
from twisted.python.failure import Failure

from pyspark_nsq.channel import v2_commands as commands
from pyspark_nsq.channel.span import Span
from pyspark_nsq.channel.v2_frames import HEARTBEAT, InvalidFrame
from pyspark_nsq.channel.v2_spans import SpanReader
from pyspark_nsq.errors import OptionError, ReadError
from pyspark_nsq.http.tls import HttpsPolicy, told
from pyspark_nsq.options.addresses import join_host_port
from pyspark_nsq.options.channel import ChannelOptions

_HEARTBEAT_MS = 15_000
#: A connection without data for so many heartbeats is lost, or nsqd hangs.
_MISSED_HEARTBEATS = 3
#: Errors in answer to commands that came too late, which change nothing else.
_HARMLESS = (b"E_FIN_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED")
_MAX_RDY = 2500
_CLOSE_WAIT = b"CLOSE_WAIT"
GIVE_TCP = "give the TCP address of an nsqd, usually with port 4150"
#: nsqd sends no larger message than its --max-msg-size; anything near this is not NSQ.
_MOST_FRAME_BYTES = 1 << 30


class V2Connection(Protocol, TimeoutMixin):
    """
    `ready` is called after SUB; `received` is called with the messages of each read; `ended` is called when the
    connection is closed, with a ReadError when nsqd has refused a command.
    """

    transport: Any

    def __init__(
        self,
        address: tuple[str, int],
        options: ChannelOptions,
        ready: Callable[[V2Connection], None],
        received: Callable[[V2Connection, list[Span]], None],
        ended: Callable[[V2Connection, ReadError | None], None],
    ) -> None:
        self.address = address
        self.nsqd = join_host_port(*address)
        self.unfinished: set[Span] = set()
        self.max_rdy = _MAX_RDY
        self._options = options
        self._ready, self._received, self._ended = ready, received, ended
        self._frames = SpanReader(self.nsqd, _MOST_FRAME_BYTES)
        self._expecting: Callable[[bytes], None] = self._identified
        self._rdy = 0
        self._refused: ReadError | None = None
        self._closing: Deferred[None] | None = None

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        about = {
            "client_id": socket.gethostname(),
            "hostname": socket.getfqdn(),
            "user_agent": "pyspark-nsq/0.1",
            "feature_negotiation": True,
            "heartbeat_interval": _HEARTBEAT_MS,
            "msg_timeout": self._options.msg_timeout_ms,
            "tls_v1": self._options.tls,
        }
        self.transport.write(commands.MAGIC + commands.identify(about))
        self.setTimeout(_MISSED_HEARTBEATS * _HEARTBEAT_MS / 1000)  # type: ignore[no-untyped-call]

    def timeoutConnection(self) -> None:
        self.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        self.resetTimeout()  # type: ignore[no-untyped-call]
        try:
            self._read(data)
        except InvalidFrame as failure:
            self._refuse(f"it does not talk NSQ: {failure}; {GIVE_TCP}")
        except Exception as failure:
            # Twisted would only log the error, and the connection would be made again.
            self._refuse(f"reading failed: {type(failure).__name__}: {failure}", failure)

    def _read(self, data: bytes) -> None:
        spans, frames = self._frames.feed(data)
        self.unfinished.update(spans)
        for frame in frames:
            if frame.is_error:
                self._error(frame.data)
            elif frame.data == HEARTBEAT:
                self.transport.write(commands.NOP)
            else:
                self._expecting(frame.data)
        if spans:
            self._received(self, spans)

    def _identified(self, payload: bytes) -> None:
        try:
            about = json.loads(payload)
            self.max_rdy = int(about["max_rdy_count"])
            has_tls = bool(about["tls_v1"])
        except (ValueError, KeyError, TypeError):
            self._refuse(f"IDENTIFY was answered with {payload[:100]!r}; {GIVE_TCP}")
            return
        if self._options.tls and not has_tls:
            self._refuse('it offers no TLS; leave out the option "tls", or turn TLS on in nsqd')
        elif self._options.tls:
            self._expecting = self._secured
            try:
                policy = HttpsPolicy(self._options.security)
            except OptionError as failure:
                self._refuse(str(failure))
                return
            host, port = self.address
            self.transport.startTLS(policy.creatorForNetloc(host.encode("ascii"), port))
        else:
            self._introduce()

    def _secured(self, payload: bytes) -> None:
        self._introduce()

    def _introduce(self) -> None:
        try:
            secret = self._options.secret()
        except OptionError as failure:
            self._refuse(str(failure))
            return
        if secret is not None:
            self._expecting = self._authorized
            self.transport.write(commands.auth(secret))
        else:
            self._subscribe()

    def _authorized(self, payload: bytes) -> None:
        self._subscribe()

    def _subscribe(self) -> None:
        self._expecting = self._subscribed
        self.transport.write(commands.sub(self._options.topic, self._options.channel))

    def _subscribed(self, payload: bytes) -> None:
        self._expecting = self._told
        self._ready(self)

    def _told(self, payload: bytes) -> None:
        if payload == _CLOSE_WAIT:
            self.transport.write(b"".join([commands.req(one, 0) for span in self.unfinished for one in span.ids]))
            self.unfinished.clear()
            self.transport.loseConnection()

    def _error(self, payload: bytes) -> None:
        if not payload.startswith(_HARMLESS):
            self._refuse(payload.decode("utf-8", "replace"))

    def _refuse(self, why: str, cause: Exception | None = None) -> None:
        self._refused = ReadError(f"nsqd {self.nsqd}: {why}")
        self._refused.__cause__ = cause
        self.transport.loseConnection()

    def set_rdy(self, count: int) -> None:
        """Set the largest number of unfinished messages, below which nsqd sends more."""
        count = min(count, self.max_rdy)
        if count != self._rdy:
            self._rdy = count
            self.transport.write(commands.rdy(count))

    def finish(self, span: Span) -> None:
        """Finish the messages of a span of this connection, unless they are finished or the connection is closed."""
        if span in self.unfinished:
            self.unfinished.remove(span)
            self.transport.write(span.fins)

    def split(self, span: Span, count: int) -> tuple[Span, Span]:
        """Divide an unfinished span. Return its first `count` messages and the others as two spans."""
        parts = span.part(0, count), span.part(count, span.count)
        self.unfinished.discard(span)
        self.unfinished.update(parts)
        return parts

    def give_back(self) -> Deferred[None]:
        """Receive no more, requeue the unfinished messages, close. Fires when the connection is closed."""
        if self._closing is None:
            self._closing = Deferred()
            if self._expecting == self._told:
                self.set_rdy(0)
                self.transport.write(commands.CLS)
            else:
                self.transport.loseConnection()
        return self._closing

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.setTimeout(None)  # type: ignore[no-untyped-call]
        self.unfinished.clear()
        failed = reason.value
        if self._expecting == self._secured and failed is not None and not isinstance(failed, ConnectionClosed):
            # One side does not trust the other: a retry would not change this.
            self._refused = ReadError(f"nsqd {self.nsqd}: {told(failed)}")
        self._ended(self, self._refused)
        if self._closing is None:
            self._closing = Deferred()
        self._closing.callback(None)
