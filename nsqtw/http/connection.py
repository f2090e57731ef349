"""
An HTTP/1.x connection of a server.

    dataReceived ─▶ head_cache ─ whole request with a known head ─────────────▶ request ─▶ route ─▶ handler
                 └▶ parser ─▶ RequestHead, body parts, END ─ for STEP_SECONDS ─▶ request          │
                                                                send ◀─ answer ◀──────────────────┘

- A request is served when the one before it is answered and the client has read most of the answers.
- Requests that arrived together, and chunks of a body, are read for STEP_SECONDS a turn; other connections are served
  in between (runtime.long_work). Meanwhile the connection is not read from.
- `Expect: 100-continue` is answered only when there is a body and it is wanted. When the request is refused at once the
  connection is closed, because the server cannot know whether a body follows. Nothing else can be expected.
- HTTP/1.0 with `Connection: keep-alive` is kept.
- A client that ends its side of the connection after its request still gets the answer, unless that is a stream or
  waits for something to happen.
- After an upgrade the input is not HTTP any more. It is passed on, with the same backpressure.
- The time limits are in `request_timeouts`. The time between two requests is long: publishers keep connections open,
  and a connection that is closed while the next publish is under way leaves its client unsure whether it arrived.

twisted.web's HTTPChannel is not used: it reads all requests of a chunk in one turn, merges no half-closed connections,
and its behaviour could be changed through private names only (ADR 0018).

Performance: called once per request. Requests whose head is known do not reach the parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from nsqtw.http.headers import error_in, persists
from nsqtw.http.parser import InvalidRequest, RequestHead, RequestParser, Signal
from nsqtw.http.received_request import ReceivedRequest
from nsqtw.http.request_timeouts import RequestTimeouts, Stage
from nsqtw.http.responses import MALFORMED, TOO_MUCH_PARTIAL_INPUT, Answer
from nsqtw.net.addresses import address_text
from nsqtw.net.partial_input import SMALL_BYTES
from nsqtw.rights import Credentials
from nsqtw.runtime.read_size import READ_BYTES
from nsqtw.runtime.transport import SocketTransport, set_socket_options

if TYPE_CHECKING:
    from nsqtw.http.owner import ConnectionOwner
    from nsqtw.http.request import HttpRequest, Streamer, Upgraded
    from nsqtw.upgrades import Secured

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
STEP_EVENTS = 128
"""Events of the parser that are served before other connections have their turn, """
STEP_SECONDS = 0.002
"""The time after which fewer events are served in a turn."""
_MAX_PIPELINED_BYTES = 16 * 1024
"""Bytes of further requests that are received while one is served."""

_log = Logger()


class State(Enum):
    """The use that the connection makes of its input."""

    IDLE = auto()
    """Nothing has arrived since the end of the last request."""
    READING = auto()
    RESPONDING = auto()
    """A whole request waits for its answer. Input is buffered."""
    BLOCKED = auto()
    """The client has not read the answers. Input is buffered."""
    UPGRADED = auto()
    """The connection speaks another protocol, which takes the input."""
    CLOSED = auto()
    """Input is ignored."""


_IDLE, _READING, _RESPONDING, _BLOCKED, _UPGRADED, _CLOSED = State


class Pause(Enum):
    """Reasons for not reading from the transport."""

    LONG_WORK = auto()
    """Input is read in steps."""
    PIPELINED = auto()
    """Enough of the next requests is buffered."""
    UNREAD_ANSWERS = auto()
    RIGHTS = auto()
    """The permissions of the client are not known yet, so its body is not worth the memory."""
    UPGRADED = auto()
    """The other protocol has enough input for now."""


@implementer(IHalfCloseableProtocol, IPushProducer)
class HttpConnection(Protocol):
    """One accepted connection, made by `factory`."""

    factory: ConnectionOwner
    transport: SocketTransport
    persistent = True
    """Whether another request may follow the current one."""
    peer_is_done = False
    """Whether the client sends no more. It may still read."""
    address: Any = None
    """The peer's address."""
    _timeouts: RequestTimeouts | None = None
    _request: ReceivedRequest | None = None
    """The request that is read or served."""
    _streamer: Streamer | None = None
    _upgraded: Upgraded | None = None
    _served_count = 0
    _is_accounted = False
    """Whether the memory of an unfinished request is counted."""
    _is_reading = False
    """True within `_read_step`, whose caller reads on."""
    _is_write_blocked = False
    """Whether the transport's buffer is full."""
    _send_some: Callable[[bytes], int] | None = None
    """The socket's own `send`, as long as the transport has nothing to write."""

    def __init__(self) -> None:
        self._parser = RequestParser()
        self._state = _IDLE
        self._pauses: set[Pause] = set()

    # -- from the transport

    def connectionMade(self) -> None:
        set_socket_options(self.transport)
        self.transport.bufferSize = READ_BYTES
        self.transport.registerProducer(self, True)
        socket = getattr(self.transport, "socket", None)
        self._send_some = None if socket is None else socket.send
        limits = self.factory.limits
        self._timeouts = RequestTimeouts(self, limits, self.factory.pump.now())
        limits.sweeper.join(self)
        self.factory.connections.add(self)

    def dataReceived(self, data: bytes) -> None:
        if self._state is _IDLE:
            cached = self.factory.heads.match(data)
            if cached is not None:
                self._state = _RESPONDING
                self._request = ReceivedRequest(self)
                self._request.repeat(*cached)
                return
            self._state = _READING
        elif self._state is _UPGRADED:
            self._receive_upgraded(data)
            return
        elif self._state is _CLOSED or (not self.persistent and self._state is not _READING):
            return
        self._parser.receive(data)
        if self._state is _READING:
            if not (self._pauses and Pause.LONG_WORK in self._pauses) and self._read_step():
                self._read_later()
        elif self._parser.pending_bytes > _MAX_PIPELINED_BYTES:
            self._pause(Pause.PIPELINED)
        request = self._request
        if (
            self._is_accounted
            or self._parser.buffered_bytes > SMALL_BYTES
            or not (request is None or request.is_complete)
        ):
            self._account_memory()

    def readConnectionLost(self) -> None:
        self.peer_is_done = True
        if self._request is not None and self._request.needs_client:
            self.abort()  # there is no other sign that the client stopped reading
        elif Pause.LONG_WORK not in self._pauses:
            self._end_input()

    def writeConnectionLost(self) -> None:
        """Only the server ends the writing side, and then the whole connection."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._state = _CLOSED
        limits = self.factory.limits
        limits.sweeper.leave(self)
        self.factory.connections.discard(self)
        limits.partial_input.drop(self)
        limits.connection_limiter.leave(self.address)
        self._parser.discard()
        request, self._request = self._request, None
        if request is not None:
            request.connection_lost()
        # So that the connection is freed without the garbage collector.
        self._timeouts = self._streamer = self._upgraded = None

    def pauseProducing(self) -> None:
        self._is_write_blocked = True
        if self._streamer is not None:
            self._streamer.pauseProducing()
        if self._state is not _RESPONDING:
            self._pause(Pause.UNREAD_ANSWERS)

    def resumeProducing(self) -> None:
        self._is_write_blocked = False
        if self._streamer is not None:
            self._streamer.resumeProducing()
        if self._state is _BLOCKED:
            self._next_request()
        self._resume(Pause.UNREAD_ANSWERS)

    def stopProducing(self) -> None:
        if self._streamer is not None:
            self._streamer.stopProducing()

    # -- from the limits

    def check(self, now: float) -> bool:
        """DeadlineSweeper API. Some time limit always applies."""
        if self._timeouts is not None:
            self._timeouts.check(now)
        return True

    def abort(self) -> None:
        """Close at once, without writing what is buffered."""
        self.factory.limits.sweeper.leave(self)
        self.transport.abortConnection()

    def leave(self) -> None:
        """Close between two requests."""
        self._close()

    def stop(self) -> None:
        """The daemon stops: answer the current request, and read nothing more."""
        request = self._request
        if request is not None and self._has_pending_response():
            self.persistent = False
            request.stop()
        else:
            self._close()

    def evict(self) -> None:
        """PartialInput API"""
        self.factory.limits.rejections.record("max-unfinished-size", self.remote)
        self.refuse(TOO_MUCH_PARTIAL_INPUT)

    def refuse(self, answer: Answer) -> None:
        """Close with `answer`. A client that has sent nothing of a request gets none."""
        request = self._request
        if request is not None:
            request.forget()
            self._end(request, answer)
        elif self._parser.has_begun:
            self._end(None, answer)
        else:
            self.abort()

    @property
    def remote(self) -> str:
        """The peer's address, as the log shows it."""
        return address_text(self.address)

    @property
    def stage(self) -> tuple[Stage, int]:
        """The part of a request that the connection waits for, and the number of requests served before."""
        request = self._request
        is_served = self._state is not _READING and self._state is not _IDLE
        if is_served or not self._pauses.isdisjoint((Pause.LONG_WORK, Pause.RIGHTS)):
            stage = Stage.ANSWER
        elif request is not None:
            stage = Stage.BODY if request.awaits_body else Stage.DROPPED
        else:
            stage = Stage.HEAD if self._parser.has_begun or not self._served_count else Stage.IDLE
        return stage, self._served_count

    @property
    def received_bytes(self) -> int:
        """Bytes of the current body that have arrived."""
        return self._request.size if self._request is not None else 0

    # -- from requests

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return getattr(self.transport, "secured", None) is not None

    @cached_property
    def anonymous(self) -> Credentials:
        """The credentials of the client, without a secret."""
        secured: Secured | None = getattr(self.transport, "secured", None)
        return Credentials(
            b"",
            remote_ip=address_text(self.transport.getPeer()).rpartition(":")[0].strip("[]"),
            is_tls=secured is not None,
            common_name="" if secured is None else secured.common_name,
        )

    def send(self, data: bytes) -> None:
        """
        Write `data`: directly to the socket as long as that takes all of it, which saves a turn of the reactor. A
        publish took 40 us with this and 46 without. Asking the socket and not the transport saves another 0.5 us.
        """
        if self._send_some is not None:
            try:
                written = self._send_some(data)
            except OSError:  # the buffer is full, or the connection is broken, which the reactor detects, too
                written = 0
            if written == len(data):
                return
            self._send_some = None  # from now on the transport has data to write, and keeps the order
            data = data[written:]
        self.transport.write(data)

    def hold(self) -> None:
        """Receive no more until `go_on`."""
        self._pause(Pause.RIGHTS)

    def go_on(self) -> None:
        """Receive again after `hold`."""
        self._resume(Pause.RIGHTS)

    def start_stream(self, streamer: Streamer) -> None:
        """Tell `streamer` from now on whether the client reads what is sent. The connection ends with the stream."""
        self.persistent = False
        self._streamer = streamer

    def upgrade(self, streamer: Upgraded) -> None:
        """Hand over what arrives from now on, and what has arrived behind the request, to `streamer`."""
        self.start_stream(streamer)
        self._state = _UPGRADED
        self._upgraded = streamer
        rest = self._parser.take_rest()
        self._resume(Pause.PIPELINED)
        if rest:
            self._receive_upgraded(rest)

    def hold_upgraded(self) -> None:
        """Receive no more for the other protocol until `go_on_upgraded`."""
        self._pause(Pause.UPGRADED)

    def go_on_upgraded(self) -> None:
        """Receive again after `hold_upgraded`."""
        self._resume(Pause.UPGRADED)

    def request_done(self, request: HttpRequest) -> None:
        """The request is complete and answered: serve the next one, or close."""
        if self._state is _CLOSED:
            return
        self._request = self._streamer = None
        self._served_count += 1
        if not self.persistent:
            self._close()
        elif self._is_write_blocked:
            self._state = _BLOCKED
            self._pause(Pause.UNREAD_ANSWERS)
        else:
            self._next_request()

    # -- reading

    def _receive_upgraded(self, data: bytes) -> None:
        if self._upgraded is not None:
            self._upgraded.receive(data)

    def _next_request(self) -> None:
        """Read the next request, if there is some of it."""
        if not self._parser.has_begun:
            self._state = _IDLE
            if self._pauses:
                self._resume(Pause.PIPELINED)
            if self.peer_is_done and not self._is_reading:
                self._close()
            return
        self._state = _READING
        if not self._is_reading:
            self._read_later()
        if self._pauses:
            self._resume(Pause.PIPELINED)

    def _read_step(self) -> bool:
        """
        Read requests until one waits for its answer, for STEP_SECONDS at most. Returns whether there is more to read
        now.
        """
        self._is_reading = True
        try:
            now, next_event = self.factory.pump.now, self._parser.next_event
            until = now() + STEP_SECONDS
            for _ in range(STEP_EVENTS):
                event = next_event()
                if event is Signal.NEED_INPUT:
                    return False
                self._handle(event)
                if self._state is not _READING:
                    return False
                if now() >= until:
                    break
            return True
        finally:
            self._is_reading = False

    def _handle(self, event: RequestHead | bytes | InvalidRequest | Signal) -> None:
        request = self._request
        if isinstance(event, RequestHead):
            self._begin_request(event)
        elif isinstance(event, InvalidRequest):
            if request is not None and request.awaits_body:
                self._break_off(request)
            else:
                self._end(request, event.answer)
        elif request is not None:  # which it is between a head and the end
            if event is Signal.END:
                self._state = _RESPONDING
                request.end_body()
            elif isinstance(event, bytes):
                request.receive_body(event)

    def _begin_request(self, head: RequestHead) -> None:
        self.persistent = persists(head.fields.get(b"Connection"), head.version) and not head.has_bare_lines
        error = error_in(head.fields, head.version)
        if error is not None:
            self._end(None, error)
            return
        self._request = request = ReceivedRequest(self)
        answer = request.begin(head)
        expects = head.fields.get(b"Expect")
        if answer is MALFORMED:
            self._end(request, answer)
        elif expects and head.version == b"HTTP/1.1" and head.length != 0:
            if answer is None:
                self.send(_CONTINUE)
            else:
                self._end(request, answer)
        elif answer is not None:
            request.answer(answer)
        elif head.raw and self.persistent and not expects and (cached := request.cached_head) is not None:
            self.factory.heads.learn(head.raw, cached)

    def _read_later(self) -> None:
        """Read on in later turns, and receive nothing meanwhile."""
        if Pause.LONG_WORK not in self._pauses:
            self._pause(Pause.LONG_WORK)
            self.factory.limits.long_work.add(self._steps())

    def _steps(self) -> Iterator[None]:
        while self._state is _READING:
            try:
                has_more = self._read_step()
            except Exception:  # the reactor also ends a connection whose dataReceived raises
                _log.failure("reading requests of a connection failed")
                self.abort()
                return
            if not has_more:
                break
            yield
        if self._is_accounted:
            self._account_memory()
        if self._state is _RESPONDING and self._parser.pending_bytes:
            self._pause(Pause.PIPELINED)
        self._resume(Pause.LONG_WORK)
        if self.peer_is_done:
            self._end_input()

    def _end_input(self) -> None:
        """The client sends no more, and its input is read up to the request that is served."""
        if self._state is _READING and self._request is not None and self._request.awaits_body:
            self._break_off(self._request)
        elif self._state is _READING or self._state is _IDLE:
            self._close()

    def _break_off(self, request: ReceivedRequest) -> None:
        """The rest of a body is missing or invalid: answer, and close."""
        self.persistent = False
        self._state = _RESPONDING
        self._parser.discard()
        request.break_off()

    def _account_memory(self) -> None:
        """Account for the memory of a request that is not complete."""
        request = self._request
        size = self._parser.buffered_bytes
        if request is not None and not request.is_complete:
            size += request.kept_bytes
        if self._is_accounted or size > SMALL_BYTES:
            self._is_accounted = size > SMALL_BYTES
            self.factory.limits.partial_input.hold(self, size)

    def _has_pending_response(self) -> bool:
        """Return whether a request waits for its answer, and not for more of what the client sends."""
        request = self._request
        return request is not None and (request.is_complete or request.is_awaiting_rights)

    # -- the transport

    def _pause(self, reason: Pause) -> None:
        if not self._pauses and self._state is not _CLOSED:
            self.transport.pauseProducing()
        self._pauses.add(reason)

    def _resume(self, reason: Pause) -> None:
        if reason in self._pauses:
            self._pauses.remove(reason)
            if not self._pauses and self._state is not _CLOSED:
                self.transport.resumeProducing()

    def _end(self, request: HttpRequest | None, answer: Answer) -> None:
        """Answer, unless that is done, and close."""
        self.persistent = False
        self._state = _CLOSED
        if request is None:
            self.send(answer.encode(b"HTTP/1.1", kept=False))
        elif not request.is_answered:
            request.answer(answer)
        self._close()

    def _close(self) -> None:
        """Close once what is buffered is written."""
        self._state = _CLOSED
        self.persistent = False
        self._parser.discard()
        self.transport.unregisterProducer()
        self.transport.loseConnection()
