"""
twisted.web's HTTP connection, where NSQ's clients expect another behaviour.

- `Expect: 100-continue` is answered only when there is a body and it is wanted; when the request is refused at once
  the connection is closed, because nobody can say whether a body follows. Nothing else can be expected.
- A line may end with a bare LF, as people's own health checks send it, and header fields may be long and many.
- HTTP/1.1 needs a Host.
- HTTP/1.0 with `Connection: keep-alive` is kept.
- A client that ends its side of the connection after its request still gets the answer, if that has an end.
- How long a client may take for what is in `request_timeouts`. The time between two requests is long: publishers keep
  connections open, and one that is closed while the next publish is on its way makes the client guess whether it
  arrived.
- What two readers of HTTP could understand in different ways is refused, for one of them may be a proxy that decides
  who may ask what: trailers that are no header fields, other transfer codings, chunks in HTTP/1.0 or behind bare LFs.
  A request whose lines end with a bare LF is the last one of its connection.
- The next request waits until the client has read most of the answers before it.
- Requests that came together, and chunks of a body, are read a piece at a time, for STEP_SECONDS in a turn; other
  connections follow, in turn with them (nsqtw.runtime.long_work). Meanwhile the connection is not read from.
- The head of a request has at most MAX_HEAD_BYTES.
- A whole request whose head was read before is served without reading it again (head_cache).

Twisted tells the request line only once the body is there, so `_command`, `_path` and `_version` are read here;
and `_respondToBadRequestAndDisconnect` is the only door to what is answered to a client that speaks no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, _ChunkedTransferDecoder, _MalformedChunkedDataError
from zope.interface import implementer

from nsqtw.http.head_cache import MAX_CACHED_BYTES
from nsqtw.http.headers import error_in, is_field, persists, read_field
from nsqtw.http.request import HttpRequest
from nsqtw.http.request_timeouts import ANSWER, BODY, DROPPED, HEAD, IDLE, RequestTimeouts
from nsqtw.http.responses import HEADERS_TOO_LARGE, MALFORMED, TOO_MUCH_PARTIAL_INPUT, Answer
from nsqtw.net.addresses import address_text
from nsqtw.net.partial_input import SMALL_BYTES
from nsqtw.rights import Credentials
from nsqtw.runtime.chunks import READ_BYTES

if TYPE_CHECKING:
    from nsqtw.http.factory import HttpFactory
    from nsqtw.upgrades import Secured

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINE_END = b"\r\n"
_HEAD_END = 2 * _LINE_END
_LENGTH_FIELDS = frozenset((b"Content-Length", b"Transfer-Encoding"))
_MAX_LENGTH = 256
"""Bytes of a field that says how long the body is."""
MAX_HEAD_BYTES = 128 * 1024
"""Of the request line and all header fields; a credential alone may have 64 KiB."""
_MAX_FIELDS = 5000
PIECE_BYTES = 4096
"""Bytes of lines and of small chunks that are read at once. Of a body, or chunk, of known length all that came is."""
STEP_PIECES = 64
"""Pieces, each of one request at most, that are read before other connections have their turn, """
STEP_SECONDS = 0.002
"""or fewer, in so much time."""

_log = Logger()


@implementer(IHalfCloseableProtocol)
class HttpConnection(HTTPChannel):
    """One accepted connection, made by `factory`."""

    factory: HttpFactory
    requestFactory = HttpRequest  # type: ignore[assignment]
    MAX_LENGTH = totalHeadersSize = maxHeaders = MAX_HEAD_BYTES
    transport: Any
    peer_is_done = False
    """Whether the client sends no more. It may still read, or be gone."""
    address: Any = None
    """Where it comes from."""
    _timeouts: RequestTimeouts | None = None
    _is_over = False
    """Whether nothing more is read. It is not `persistent` then."""
    _has_bare_lines = False
    _holds = False
    """Whether what it keeps of an unfinished request is counted."""
    _field_count = 0
    _served_count = 0
    _done_and_unread: HttpRequest | None = None
    """A request that is answered, while the client has not read the answers; the next one waits behind it."""
    _was_paused = False
    """Whether the transport may have been told not to read since the end of the last request."""
    _is_between = True
    """Whether nothing has come since the end of the last request: then a whole one may be taken as it is."""
    _head = b""
    """The head that is being read, if it came as a whole."""
    _unread = b""
    """What was received and is not read yet, from `_offset` on; empty when all of it is."""
    _offset = 0
    _is_reading = False
    """True during a step of reading it."""
    _is_behind = False
    """True while further steps follow."""
    _send_some: Callable[[bytes], int] | None = None
    """The socket's own, as long as nothing waits to be written before what it is given."""

    # -- from the transport

    def dataReceived(self, data: bytes) -> None:
        if self._is_between:
            self._is_between = False
            cached = self.factory.heads.match(data)
            if cached is not None:
                # twisted.web takes it that it has read the request itself.
                request = HttpRequest(self)
                self.requests.append(request)
                self._handlingRequest, self.line_mode = True, 0
                request.repeat(*cached)
                return
        if self._unread:
            self._unread, self._offset = self._unread[self._offset :] + data, 0
        else:
            self._unread = data
            self._read_some()
        if self._unread and len(self._unread) - self._offset > self._optimisticEagerReadSize:
            self._networkProducer.pauseProducing()
        requests = self.requests
        kept = len(self._buffer) + len(self._unread)
        if self._holds or kept > SMALL_BYTES or (requests and not requests[-1].is_complete):
            self._account_memory()

    def connectionMade(self) -> None:
        super().connectionMade()  # type: ignore[no-untyped-call]
        if hasattr(self.transport, "setTcpKeepAlive"):
            self.transport.setTcpKeepAlive(True)
        self.transport.bufferSize = READ_BYTES
        socket = getattr(self.transport, "socket", None)
        self._send_some = None if socket is None else socket.send
        limits = self.factory.limits
        self._timeouts = RequestTimeouts(self, limits, self.factory.pump.now())
        limits.sweeper.join(self)
        self.factory.connections.add(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        limits = self.factory.limits
        limits.sweeper.leave(self)
        self.factory.connections.discard(self)
        limits.partial_input.drop(self)
        limits.connection_limiter.leave(self.address)
        self._drop_unread()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        # What refers to the connection, so that it is freed without the garbage collector.
        self._timeouts = self._transferDecoder = self._done_and_unread = None
        self.__dict__.pop("lineReceived", None)

    def readConnectionLost(self) -> None:
        self.peer_is_done = True
        request = self._last_request()
        if request is not None and request.is_stream:
            self.abort()  # there is no other sign that nobody reads any more
        elif not self._unread:
            self._end_input()

    def writeConnectionLost(self) -> None:
        """Only we end the writing side, and then the whole connection."""

    def pauseProducing(self) -> None:
        self._was_paused = True
        super().pauseProducing()  # type: ignore[no-untyped-call]

    def resumeProducing(self) -> None:
        super().resumeProducing()  # type: ignore[no-untyped-call]
        if self._unread:
            self._networkProducer.pauseProducing()
        request, self._done_and_unread = self._done_and_unread, None
        if request is not None:
            self.requestDone(request)

    # -- from the limits

    def check(self, now: float) -> bool:
        """DeadlineSweeper API. There is always something that it may take too long for."""
        if self._timeouts is not None:
            self._timeouts.check(now)
        return True

    def abort(self) -> None:
        """End at once."""
        self.factory.limits.sweeper.leave(self)
        self.transport.abortConnection()

    def leave(self) -> None:
        """End between two requests."""
        self._is_over = True
        self.persistent = False
        self._read_no_more()
        self.loseConnection()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """The broker stops: answer what was asked for, and read nothing more."""
        if self._is_over or self._has_pending_response():
            self.persistent = False
        else:
            self.leave()

    def evict(self) -> None:
        """PartialInput API"""
        self.factory.limits.rejections.record("max-unfinished-size", self.remote)
        self.refuse(TOO_MUCH_PARTIAL_INPUT)

    def refuse(self, answer: Answer) -> None:
        """Nothing more is waited for. Who has sent nothing of a request is not answered."""
        request = self._last_request()
        if request is not None:
            request.forget()
            self._end(request, answer)
        elif self._buffer or self._unread:
            self._buffer = b""
            self._end(None, answer)
        else:
            self.abort()

    @property
    def remote(self) -> str:
        """Where it comes from, for people."""
        return address_text(self.address)

    @property
    def stage(self) -> tuple[int, int]:
        """What is waited for, and how many requests were served before."""
        request = self._last_request()
        if self._is_over or self._unread or self._has_pending_response():
            part = ANSWER
        elif self.line_mode:
            part = HEAD if request is not None or self._buffer or not self._served_count else IDLE
        else:
            part = BODY if request is not None and request.awaits_body else DROPPED
        return part, self._served_count

    @property
    def received_bytes(self) -> int:
        """How much of the body has come that is read now."""
        request = self._last_request()
        return request.size if request is not None else 0

    # -- from requests

    @cached_property
    def anonymous(self) -> Credentials:
        """What is known of whoever has connected, without a secret."""
        secured: Secured | None = getattr(self.transport, "secured", None)
        return Credentials(
            b"",
            remote_ip=address_text(self.transport.getPeer()).rpartition(":")[0].strip("[]"),
            is_tls=secured is not None,
            common_name="" if secured is None else secured.common_name,
        )

    def send(self, data: bytes) -> None:
        """
        Write `data`. As long as the socket takes all of it at once, without a round through the reactor, which for an
        answer of this size costs more than making it: a publish took 40 us with this and 46 without. Asking the socket
        and not the transport spares 0.5 us more.
        """
        if self._send_some is not None:
            try:
                written = self._send_some(data)
            except OSError:  # it is full; or broken, which the reactor will find, too
                written = 0
            if written == len(data):
                return
            self._send_some = None  # the transport has something to write from now on, and knows about order
            data = data[written:]
        self.transport.write(data)

    def hold(self) -> None:
        """Read no more for now: nobody has shown yet that what comes is worth the memory."""
        self._was_paused = True
        self._networkProducer.pauseProducing()

    def go_on(self) -> None:
        """Read again."""
        if not (self._waitingForTransport or self._unread):
            self._networkProducer.resumeProducing()

    # -- from HTTPChannel

    def rawDataReceived(self, data: bytes) -> None:
        if self._handlingRequest:
            self._offset -= len(data)  # it is read after the answer
        else:
            super().rawDataReceived(data)

    def _finishRequestBody(self, data: bytes) -> None:
        self._offset -= len(data)  # what follows the body
        self.allContentReceived()  # type: ignore[no-untyped-call]

    def headerReceived(self, line: bytes) -> bool:
        field = read_field(line)
        if field is None:
            self._respondToBadRequestAndDisconnect()
            return False
        name, value = field
        if name in _LENGTH_FIELDS and len(value) > _MAX_LENGTH:
            self._respondToBadRequestAndDisconnect()  # int() raises for numbers of some thousand digits
            return False
        if name in _LENGTH_FIELDS and not self._choose_decoder(name, value):
            return False
        self._field_count += 1
        if self._field_count > _MAX_FIELDS:
            self._end(self._last_request(), HEADERS_TOO_LARGE)
            return False
        fields = self.requests[-1].requestHeaders
        fields[name] = b"%s, %s" % (fields[name], value) if name in fields else value
        return True

    def allHeadersReceived(self) -> None:
        request: HttpRequest = self.requests[-1]
        fields, version = request.requestHeaders, self._version
        self._field_count = 0
        self.persistent = persists(fields.get(b"Connection"), version) and not self._has_bare_lines
        error = error_in(fields, version)
        if self.length is None and (self._has_bare_lines or version != b"HTTP/1.1"):
            error = MALFORMED
        if error is not None:
            self._end(request, error)
            return
        answer = request.begin(self._command, self._path, version, self.length)
        if answer is MALFORMED:
            self._end(request, answer)
        elif fields.get(b"Expect") and version == b"HTTP/1.1" and self.length != 0:
            if answer is None:
                self.send(_CONTINUE)
            else:
                self._end(request, answer)
        elif answer is not None:
            request.answer(answer)
        elif self.persistent and not fields.get(b"Expect") and (head := request.head) is not None:
            self.factory.heads.learn(self._head, head)
        self._head = b""

    def requestDone(self, request: HttpRequest) -> None:
        if self._buffer:  # requests that follow, each of which may be left for another step
            self._offset -= len(self._buffer)
            self._buffer = b""
        if self.persistent and not (self._was_paused or self.peer_is_done):
            # The usual end: nothing is to be resumed. It spares a publish 1 us of 20.
            self._served_count += 1
            self._is_between = self._offset >= len(self._unread)
            self.requests.clear()
            self._handlingRequest, self.line_mode = False, 1
            if self._unread and not self._is_reading:
                self._read_later()
            return
        if self._is_over:
            return
        if self._waitingForTransport and self.persistent:  # else nothing follows
            self._done_and_unread = request
            self._networkProducer.pauseProducing()
            return
        self._served_count += 1
        self._is_between = self._offset >= len(self._unread)
        self._was_paused = False
        if not self.persistent:
            self._drop_unread()
        super().requestDone(request)  # type: ignore[no-untyped-call]
        if self._unread:
            if not self._is_reading:
                self._read_later()
        elif self.peer_is_done:
            self._leave_when_done()

    def lineLengthExceeded(self, line: bytes) -> None:
        self._end(self._last_request(), HEADERS_TOO_LARGE)

    def _respondToBadRequestAndDisconnect(self) -> None:
        request = self._last_request()
        if self._receivedHeaderSize > self.totalHeadersSize:
            self._end(request, HEADERS_TOO_LARGE)
        elif request is not None and request.awaits_body:
            self._break_off(request)
        else:
            self._end(request, MALFORMED)

    # -- inside

    def _read_some(self) -> None:
        """Read some of what was received: up to the next answer that is not known yet, for STEP_SECONDS at most."""
        self._is_reading = True
        until = self.factory.pump.now() + STEP_SECONDS
        for count in range(1, STEP_PIECES + 1):
            self._read_piece()
            if self._offset >= len(self._unread):
                self._drop_unread()
            if not self._unread or self._handlingRequest:
                break
            if count == STEP_PIECES or self.factory.pump.now() >= until:
                self._read_later()
                break
        self._is_reading = False

    def _read_piece(self) -> None:
        size = PIECE_BYTES
        if not self.line_mode and self._transferDecoder is not None:
            size = max(size, _bytes_left(self._transferDecoder))
        data = self._unread[self._offset : self._offset + size]
        self._offset += len(data)
        if self.line_mode and not (self._buffer or self.requests):
            data = self._read_head(data)
        if self.line_mode:
            end = data.find(b"\n")
            if end >= 0 and (data[end - 1 : end] or self._buffer[-1:]) != b"\r":
                self.delimiter = b"\n"
                self._has_bare_lines = True
                self.lineReceived = self._bare_line_received  # type: ignore[method-assign]
        LineReceiver.dataReceived(self, data)  # type: ignore[no-untyped-call]

    def _read_later(self) -> None:
        """Read on in later turns, and receive nothing meanwhile."""
        self._networkProducer.pauseProducing()
        if not self._is_behind:
            self._is_behind = True
            self.factory.limits.long_work.add(self._steps())

    def _steps(self) -> Iterator[None]:
        while self._unread and not self._handlingRequest:
            try:
                self._read_some()
            except Exception:  # where the reactor calls, it ends the connection, too
                _log.failure("reading requests of a connection failed")
                self.abort()
                return
            yield
        self._is_behind = False
        if self._unread:
            return  # until the request is answered
        if self._holds:
            self._account_memory()
        request = self._last_request()
        if self.peer_is_done and not self._handlingRequest:
            self._end_input()
        elif not (
            self._waitingForTransport or self.transport.disconnecting or (request and request.is_awaiting_rights)
        ):
            self._networkProducer.resumeProducing()

    def _drop_unread(self) -> None:
        self._unread, self._offset = b"", 0

    def _read_no_more(self) -> None:
        self.dataReceived = _ignore  # type: ignore[method-assign]
        self._drop_unread()

    def _end_input(self) -> None:
        """The peer sends no more, and all that it sent was read."""
        request = self._last_request()
        if request is not None and request.awaits_body:
            self._break_off(request)
        else:
            self._leave_when_done()

    def _read_head(self, data: bytes) -> bytes:
        """
        Read the head that `data` starts with, if that is whole, and return what is left to be read. LineReceiver, which
        copies what follows a line for each line, takes 3 us longer for a head of 8 lines.
        """
        stop = data.find(_HEAD_END, 0, MAX_CACHED_BYTES) + len(_HEAD_END)
        if stop < len(_HEAD_END) or data.find(b"\n") != data.find(b"\r\n") + 1:
            return data
        self._head, self._buffer = data[:stop], data[stop:]
        for line in self._head[: -len(_LINE_END)].split(_LINE_END):
            self.lineReceived(line)  # type: ignore[no-untyped-call]
            if self.transport.disconnecting:
                self._buffer = b""
                break
        return b""

    def _choose_decoder(self, name: bytes, value: bytes) -> bool:
        """Content-Length and Transfer-Encoding say how the body ends: one of them, once, and no coding but chunks."""
        if name == b"Transfer-Encoding" and value.lower() != b"chunked":
            self._respondToBadRequestAndDisconnect()
            return False
        if not self._maybeChooseTransferDecoder(name, value):  # type: ignore[no-untyped-call]
            return False
        if self.length is None:
            self._transferDecoder = _ChunkedDecoder(self.requests[-1].handleContentChunk, self._finishRequestBody)
        return True

    def _account_memory(self) -> None:
        """Have it counted what is kept of a request that is not complete."""
        request = self._last_request()
        size = len(self._unread) - self._offset
        if request is None or not request.is_complete:
            size += len(self._buffer) + self._receivedHeaderSize
            size += 0 if request is None else request.kept_bytes
        if self._holds or size > SMALL_BYTES:
            self._holds = size > SMALL_BYTES
            self.factory.limits.partial_input.hold(self, size)

    def _break_off(self, request: HttpRequest) -> None:
        """The body of a request is no good from here on. It is answered, and nothing follows."""
        self.persistent = False
        self._read_no_more()
        request.break_off()

    def _bare_line_received(self, line: bytes) -> None:
        """What `lineReceived` is on a connection whose lines end with LF. All others go without this step."""
        HTTPChannel.lineReceived(self, line.removesuffix(b"\r"))  # type: ignore[no-untyped-call]

    def _has_pending_response(self) -> bool:
        """Return whether a request waits for its answer, and not for more of what the client sends."""
        request = self._last_request()
        return request is not None and (request.is_complete or request.is_awaiting_rights)

    def _last_request(self) -> HttpRequest | None:
        return self.requests[-1] if self.requests else None

    def _end(self, request: HttpRequest | None, answer: Answer) -> None:
        """Answer, unless that is done, and close."""
        self.persistent = False
        self._is_over = True
        self._read_no_more()
        if request is None:
            self.send(answer.encode(b"HTTP/1.1", kept=False))
        elif not request.is_answered:
            request.answer(answer)
        self.loseConnection()  # type: ignore[no-untyped-call]

    def _leave_when_done(self) -> None:
        """The peer sends no more: close, unless a request is still to be answered, or that is done already."""
        if self.persistent and not (self.requests and self.requests[-1].is_complete):
            self.loseConnection()  # type: ignore[no-untyped-call]


class _ChunkedDecoder(_ChunkedTransferDecoder):
    """Chunks; behind them nobody looks at the fields, but they must be some, or another reader may see another end."""

    def _dataReceived_TRAILER(self) -> bool:
        count = len(self._trailerHeaders)
        goes_on = super()._dataReceived_TRAILER()
        if len(self._trailerHeaders) > count and not is_field(self._trailerHeaders[-1]):
            raise _MalformedChunkedDataError("A trailer is no header field")
        return goes_on


def _bytes_left(decoder: Any) -> int:
    """Return how many bytes of a body, or of a chunk that has begun, are still to come; 0 if that is not known."""
    if isinstance(decoder, _ChunkedDecoder):
        return decoder.length if decoder.state == "BODY" else 0
    remaining: int = decoder.contentLength or 0
    return remaining


def _ignore(data: bytes) -> None:
    """What comes behind the end."""
