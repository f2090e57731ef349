"""
A HTTP request as its handler sees it: what was asked, by whom, and the ways to answer.

    answer          the response, now
    answer_later    the response, when the pump's turn ends
    wait            the response waits for something to happen
    stream          a response that goes on until it is finished, or its client leaves
    upgrade         another protocol takes the connection

`nsqtw.http.received_request` reads the request, finds its route and calls the handler.

Theory of operation. `answer_later` writes at the end of a turn and not during the steps of the broker: the answer may
start the next request of the connection, which could change topics that a step iterates over.

Twisted's own Request is not used: its cookies, forms, sessions and addresses would cost more than all the rest of a
publish.

Performance: called once per request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote_to_bytes

import attrs
from twisted.logger import Logger, LogLevel

from nsqtw.http.bearer_auth import RequestAuthorizer, secret_in
from nsqtw.http.responses import EMPTY, INTERNAL_ERROR, SWITCHED, Answer, Refused, not_stored, stream_head
from nsqtw.interfaces import Waiter
from nsqtw.net.addresses import address_text
from nsqtw.options.texts import duration_text
from nsqtw.rights import Credentials

if TYPE_CHECKING:
    from nsqtw.net.line_budget import LineBudget
    from nsqtw.runtime.transport import Transport
    from nsqtw.runtime.turns import Turns
    from nsqtw.upgrades import Secured

REFUSED = 400
"""The lowest status of an error."""

_log = Logger()


class Streamer(Protocol):
    """The source of a response without an end. A push producer, which is told when the connection has ended."""

    def pauseProducing(self) -> None:
        """The client has enough to read."""

    def resumeProducing(self) -> None:
        """It has read most of it."""

    def stopProducing(self) -> None:
        """The connection is closing."""

    def ended(self) -> None:
        """Nobody is there any more."""


class Upgraded(Streamer, Protocol):
    """Another protocol on the connection."""

    def receive(self, data: bytes) -> None:
        """Take what the client has sent."""


class RequestOwner(Protocol):
    """The state that the requests of all connections share."""

    pump: Turns
    bearer_auth: RequestAuthorizer | None
    refusals: LineBudget


class RequestConnection(Protocol):
    """The connection of a request."""

    persistent: bool
    peer_is_done: bool

    @property
    def factory(self) -> RequestOwner: ...

    @property
    def transport(self) -> Transport: ...

    @property
    def remote(self) -> str: ...

    @property
    def anonymous(self) -> Credentials: ...

    def send(self, data: bytes, /) -> None: ...

    def start_stream(self, streamer: Streamer, /) -> None: ...

    def upgrade(self, streamer: Upgraded, /) -> None: ...

    def hold_upgraded(self) -> None: ...

    def go_on_upgraded(self) -> None: ...

    def request_done(self, request: HttpRequest, /) -> None: ...


class HttpRequest:
    """A request on `connection`, made when its first line arrives."""

    target = query = b""
    """The request target, and the part of it behind the `?`."""
    is_complete = False
    """Whether the request was read completely."""
    is_answered = False
    size = 0
    """Bytes of the body that were kept."""
    is_overlong = False
    """Whether the body exceeds the limit of the route."""
    is_broken = False
    """Whether the body ended early."""
    _method = b""
    _version = b"HTTP/1.1"
    _route: object | None = None
    """The route, once it is found."""
    _body = b""
    _began = 0.0
    _is_logged = False
    _identity = ""
    """Whose credential the request shows; empty without one."""
    _later: Answer | None = None
    _if_failed: Answer = INTERNAL_ERROR
    _streamer: Streamer | None = None
    _on_lost: Callable[[], None] | None = None
    _on_stop: Callable[[], None] | None = None

    def __init__(self, connection: RequestConnection) -> None:
        self._connection: RequestConnection | None = connection
        self._pump = connection.factory.pump
        self.fields: dict[bytes, bytes] = {}
        """The header fields by their canonical name, repeated ones as one list."""

    # -- for handlers

    @property
    def last_part(self) -> bytes:
        """The last segment of the path, decoded."""
        return unquote_to_bytes(self.target.partition(b"?")[0]).rpartition(b"/")[2]

    @property
    def body(self) -> bytes:
        """The body; of one that is overlong, one byte more than the route allows."""
        return self._body

    @property
    def version(self) -> bytes:
        """The HTTP version of the request."""
        return self._version

    @property
    def needs_client(self) -> bool:
        """Whether the response is a stream or waits for something, which a client may not wait for any more."""
        return self._streamer is not None or self._on_lost is not None

    @property
    def client(self) -> str:
        """The client's address, as the log shows it; empty when the connection is closed."""
        return "" if self._connection is None else self._connection.remote

    @property
    def is_patient(self) -> bool:
        """Whether the client waits with an open connection: one that has ended its side may be gone."""
        return self._connection is not None and not self._connection.peer_is_done

    @property
    def credentials(self) -> Credentials | None:
        """The secret that the request shows, and what is known of the connection; None without a secret."""
        return None if self._connection is None else self._credentials(self._connection)

    @property
    def identity(self) -> str:
        """Whose secret the request shows; empty without an authorizer."""
        return self._identity

    @property
    def secured(self) -> Secured | None:
        """What is known of the TLS of the connection; None without."""
        transport = None if self._connection is None else self._connection.transport
        return getattr(transport, "secured", None)

    def wait(self, on_lost: Callable[[], None], on_stop: Callable[[], None]) -> None:
        """
        The answer waits for something to happen: call `on_lost` when the client leaves before, `on_stop` when the
        daemon stops.
        """
        self._on_lost, self._on_stop = on_lost, on_stop

    def answer(self, answer: Answer) -> None:
        """Send the response, if the connection is still open."""
        connection = self._connection
        if connection is None:
            return
        self.is_answered = True
        connection.send(answer.encode(self._version, bool(connection.persistent), self._method == b"HEAD"))
        is_refusal = answer.status >= REFUSED and self._route is not None
        if self._is_logged or (is_refusal and connection.factory.refusals.admit()):
            self._log_access(answer, connection)
        if self.is_complete:
            connection.request_done(self)

    def answer_later(self, answer: Answer) -> None:
        """Send the answer at the end of the turn."""
        self._later = answer
        self._pump.changed(self)

    def stream(
        self,
        content_type: bytes,
        streamer: Streamer,
        on_stop: Callable[[], None] | None = None,
        *,
        is_chunked: bool = False,
    ) -> None:
        """
        Begin an answer of that type that goes on, with `send`, until `finish` or the end of the connection. `on_stop`
        is called when the daemon stops. `is_chunked`: what is sent are chunks.
        """
        self._on_stop = on_stop
        connection = self._connection
        if connection is None:
            streamer.ended()
            return
        self.is_answered = True
        self._streamer = streamer
        connection.start_stream(streamer)
        connection.send(stream_head(self._version, content_type, is_chunked=is_chunked))
        self._log_access(EMPTY, connection)

    def upgrade(self, head: bytes, streamer: Upgraded, on_stop: Callable[[], None]) -> None:
        """
        Switch to the protocol of `streamer`, after `head`, as bytes. `send` and `finish` are those of a stream.
        `on_stop` is called when the daemon stops.
        """
        connection = self._connection
        if connection is None:
            streamer.ended()
            return
        self.is_answered = True
        self._streamer, self._on_stop = streamer, on_stop
        connection.send(head)
        self._log_access(SWITCHED, connection)
        connection.upgrade(streamer)

    def hold_input(self) -> None:
        """Receive no more for the other protocol until `take_input`."""
        if self._connection is not None:
            self._connection.hold_upgraded()

    def take_input(self) -> None:
        """Receive again after `hold_input`."""
        if self._connection is not None:
            self._connection.go_on_upgraded()

    def send(self, data: bytes) -> None:
        """More of a stream."""
        if self._connection is not None:
            self._connection.send(data)

    def finish(self) -> None:
        """The end of a stream. The streamer is told nothing."""
        connection, self._streamer = self._connection, None
        if connection is not None:
            connection.request_done(self)

    def waiter(self, done: Answer, failed: Answer) -> Waiter:
        """Return a waiter for the broker, which answers with `done`, `failed`, or the word of the error."""
        self._later, self._if_failed = done, failed
        return self._told

    # -- from the pump

    def flush(self, now: float) -> None:
        """Connection API of the pump."""
        if self._later is not None:
            self.answer(self._later)

    def abort(self) -> None:
        """Connection API of the pump."""
        if self._connection is not None:
            self._connection.transport.abortConnection()

    def require(self, needs: str, topic: str, channel: str, then: Callable[[], Answer | None]) -> Answer | None:
        """
        For the answer of a handler: what `then` returns if the credential has this permission besides that of the
        route; None while it is not known.
        """
        connection = self._connection
        if connection is None or connection.factory.bearer_auth is None:
            return then()
        answers: list[Answer | None] = []
        is_late = False

        def decided(error: Answer | None, identity: str) -> None:
            answer = error if error is not None else answer_of(then)
            if not is_late:
                answers.append(answer)
            elif answer is not None:
                self.answer_later(answer)

        connection.factory.bearer_auth.authorize(self._credentials(connection), needs, topic, channel, decided)
        is_late = True
        return answers[0] if answers else None

    # -- inside

    def _told(self, error: Exception | None) -> None:
        if error is not None:
            self._later = not_stored(error, self._if_failed)
        self._pump.changed(self)

    def _credentials(self, connection: RequestConnection) -> Credentials | None:
        secret = secret_in(self.fields.get(b"Authorization"))
        return None if secret is None else attrs.evolve(connection.anonymous, secret=secret)

    def _log_access(self, answer: Answer, connection: RequestConnection) -> None:
        text = "{status} {method} {target} ({client}) {elapsed}"
        more = {}
        if answer.word and not self._is_logged:
            text += " - {error}"
            more["error"] = answer.word
        if self._identity:
            text += " (identity {identity})"
            more["identity"] = self._identity
        _log.info(
            text,
            status=answer.status,
            method=self._method.decode("latin-1"),
            target=self.target.decode("latin-1"),
            client=address_text(connection.transport.getPeer()),
            elapsed=duration_text(int((self._pump.now() - self._began) * 1e9) if self._began else 0),
            **more,
        )


def answer_of(handle: Callable[[], Answer | None]) -> Answer | None:
    """Return the answer of a handler. A mistake in it is the end of one request, and not of the connection."""
    try:
        return handle()
    except Refused as refused:
        return refused.answer
    except Exception as unforeseen:
        text = "panic in HTTP handler - {unforeseen}"
        _log.failure(text, level=LogLevel.error, unforeseen=f"{type(unforeseen).__name__}: {unforeseen}")
        return INTERNAL_ERROR
