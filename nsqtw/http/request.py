"""
A HTTP request: the body arrives, the handler is called once, an answer is sent.

    begin          the head has arrived        no route, no right or too large a body: answered at once
    receive_body   part of the body            kept up to the limit of the route; the rest is dropped
    end_body       the request is complete     the handler is called, and answers now or later
    repeat         all three at once           for a head that was read before
    flush          the pump's turn ends        writes an answer of `answer_later`

Theory of operation. A request that is answered before its body was read keeps its connection: the rest of the body is
read and dropped, so that a client that sends first and reads afterwards gets its answer and not a reset. The length of
a chunked body is known only at its end, so the handler is called as soon as the body exceeds its limit.

`answer_later` writes at the end of a turn and not during the steps of the broker: the answer may start the next request
of the connection, which could change topics that a step iterates over.

Twisted's own Request is not used: its cookies, forms, sessions and addresses would cost more than all the rest of a
publish.

Performance: called once per request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote_to_bytes

import attrs
from twisted.logger import Logger, LogLevel

from nsqtw.http.bearer_auth import secret_in
from nsqtw.http.body import RequestBody
from nsqtw.http.browsers import CROSS_ORIGIN, HOST_NOT_ALLOWED, is_of_another_site
from nsqtw.http.head_cache import CachedHead
from nsqtw.http.parser import RequestHead
from nsqtw.http.query import parameters
from nsqtw.http.responses import (
    EMPTY,
    INTERNAL_ERROR,
    MALFORMED,
    SWITCHED,
    Answer,
    Refused,
    failure,
    not_stored,
    stream_head,
)
from nsqtw.http.routes import BODY_IGNORED, FREE, Route
from nsqtw.interfaces import Waiter
from nsqtw.net.addresses import address_text
from nsqtw.options.texts import duration_text
from nsqtw.rights import Credentials

if TYPE_CHECKING:
    from nsqtw.http.connection import HttpConnection
    from nsqtw.upgrades import Secured

_ONLY_LOOKING = (b"GET", b"HEAD", b"OPTIONS")
_CROSS_ORIGIN, _HOST_NOT_ALLOWED = failure(403, CROSS_ORIGIN), failure(403, HOST_NOT_ALLOWED)
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
    is_awaiting_rights = False
    """Whether the permissions of the client are still unknown."""
    _is_due = False
    """Whether the handler is called when they are known."""
    _method = b""
    _version = b"HTTP/1.1"
    _route: Route | None = None
    _limit = BODY_IGNORED
    _body = b""
    _parts: RequestBody | None = None
    """The body, while it arrives in several parts."""
    _began = 0.0
    _is_logged = False
    _identity = ""
    """Whose credential the request shows; empty without one."""
    _later: Answer | None = None
    _if_failed: Answer = INTERNAL_ERROR
    _streamer: Streamer | None = None
    _on_lost: Callable[[], None] | None = None
    _on_stop: Callable[[], None] | None = None

    def __init__(self, connection: HttpConnection) -> None:
        self._connection: HttpConnection | None = connection
        self._pump = connection.factory.pump
        self.fields: dict[bytes, bytes] = {}
        """The header fields by their canonical name, repeated ones as one list."""

    # -- from the connection

    def begin(self, head: RequestHead) -> Answer | None:
        """Find the route of the request. Returns the answer if the head alone tells it."""
        self._method, self.target, self._version, self.fields, length, _, _ = head
        self.query = self.target.partition(b"?")[2]
        self._began = self._pump.now()
        assert self._connection is not None, "a request begins while its connection is there"
        factory = self._connection.factory
        route = factory.routes.find(self._method, self.target)
        if route is None:
            return MALFORMED
        self._is_logged = route.logged
        if factory.hosts is not None and not self._connection.is_tls and factory.hosts.refuse(self.fields):
            return _HOST_NOT_ALLOWED
        if not isinstance(route, Route):
            return route.answer
        if route.handler_of_head is not None:
            handler = route.handler_of_head(self.fields, self.query)
            if handler is not None:
                route = attrs.evolve(route, handler=handler)
        self._route = route
        error = self._cross_origin() or self._authorize(route)
        if error is not None:
            return error
        if route.too_big is not None and length is not None and length > route.limit:
            return route.too_big
        if self.is_awaiting_rights:
            self._connection.hold()
        self._limit = route.limit
        return None

    def repeat(self, head: CachedHead, body: bytes) -> None:
        """The request is complete, and its head is one that `begin` has accepted before."""
        self._method, self.target, self.query, self._version, self.fields, route = head
        self._route = route
        self._body, self.size, self.is_complete = body, len(body), True
        error = self._authorize(route)
        if error is None and route.too_big is not None and self.size > route.limit:
            error = route.too_big
        if error is not None:
            self.answer(error)
            return
        if self.is_awaiting_rights and self._connection is not None:
            self._connection.hold()
        self._run()

    @property
    def cached_head(self) -> CachedHead | None:
        """
        The head that `repeat` takes when the same bytes arrive again, with TLS or without; None if its route or host do
        not allow that.
        """
        hosts = None if self._connection is None else self._connection.factory.hosts
        if self._route is None or not self._route.repeats or (hosts is not None and hosts.refuse(self.fields)):
            return None
        return CachedHead(self._method, self.target, self.query, self._version, self.fields, self._route)

    def receive_body(self, data: bytes) -> None:
        """A part of the body."""
        if self.size <= self._limit:
            if not self.size:
                self._body = data
            else:
                if self._parts is None:
                    self._parts = RequestBody()
                    self._parts.append(self._body)
                self._parts.append(data)
            self.size += len(data)
            if self.size > self._limit:
                self.is_overlong = True
                self._join_parts()
                self._body = self._body[: self._limit + 1]
                self._run()

    def end_body(self) -> None:
        """The request is complete."""
        self.is_complete = True
        self._join_parts()
        if not (self.is_answered or self.is_overlong):
            self._run()
        elif self.is_answered and self._connection is not None:
            self._connection.request_done(self)

    def connection_lost(self) -> None:
        """Nobody is there to be answered any more."""
        self._connection = None
        streamer, self._streamer = self._streamer, None
        if streamer is not None:
            streamer.ended()
        elif self._on_lost is not None and not self.is_answered:
            self._on_lost()

    def stop(self) -> None:
        """The daemon stops."""
        if self._on_stop is not None:
            self._on_stop()

    def break_off(self) -> None:
        """The body ends before its end, or is no HTTP: answer as far as that is possible."""
        assert self._route is not None, "a request without a route is answered in `begin`"
        self.is_complete = self.is_broken = True
        self._join_parts()
        if self._route.broken is None:
            self._run()
        else:
            self.answer(self._route.broken)

    @property
    def awaits_body(self) -> bool:
        """Whether more of the body is expected and used."""
        return self._route is not None and not (self.is_complete or self.is_answered or self.is_overlong)

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
    def kept_bytes(self) -> int:
        """Bytes of the body in memory."""
        return len(self._body) if self._parts is None else self._parts.size

    def forget(self) -> None:
        """Keep nothing more of the body."""
        self._body, self._parts, self._limit = b"", None, BODY_IGNORED

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
            answer = error if error is not None else _answer_of(then)
            if not is_late:
                answers.append(answer)
            elif answer is not None:
                self.answer_later(answer)

        connection.factory.bearer_auth.authorize(self._credentials(connection), needs, topic, channel, decided)
        is_late = True
        return answers[0] if answers else None

    # -- inside

    def _join_parts(self) -> None:
        if self._parts is not None:
            self._body = self._parts.join()
            self._parts = None

    def _told(self, error: Exception | None) -> None:
        if error is not None:
            self._later = not_stored(error, self._if_failed)
        self._pump.changed(self)

    def _cross_origin(self) -> Answer | None:
        """Return the response to a request that a web page of another origin has sent; None for others."""
        is_change = self._method not in _ONLY_LOOKING or (self._route is not None and self._route.is_change)
        return _CROSS_ORIGIN if is_of_another_site(self.fields, is_change=is_change) else None

    def _authorize(self, route: Route) -> Answer | None:
        """Return the response to a request without permission, if that is known at once."""
        connection = self._connection
        assert connection is not None, "a request begins while its connection is there"
        factory = connection.factory
        if factory.bearer_auth is None or route.needs == FREE:
            return None
        answers: list[Answer | None] = []
        has_started = False

        def decided(error: Answer | None, identity: str) -> None:
            self.is_awaiting_rights = False
            self._identity = identity
            if not has_started:
                answers.append(error)
                return
            if self._connection is not None:
                self._connection.go_on()
            if not self.is_answered:
                self._admit(error)

        self.is_awaiting_rights = True
        factory.bearer_auth.authorize(self._credentials(connection), route.needs, *self._names(route), decided)
        has_started = True
        return answers[0] if answers else None

    def _admit(self, error: Answer | None) -> None:
        """It is known now whether the request may be served."""
        if error is not None:
            self.answer(error)
        elif self._is_due and self._connection is not None:
            self._run()

    def _credentials(self, connection: HttpConnection) -> Credentials | None:
        secret = secret_in(self.fields.get(b"Authorization"))
        return None if secret is None else attrs.evolve(connection.anonymous, secret=secret)

    def _names(self, route: Route) -> tuple[str, str]:
        """The topic and the channel the request is about."""
        if not route.about:
            return "", ""
        try:
            params = parameters(self.query)
        except Refused:  # which the handler finds, too
            params = {}
        # Bytes that are no UTF-8 are in no name, and patterns are not for them.
        names = (params.get(name, "").encode("utf-8", "replace").decode() for name in route.about)
        topic, channel = (*names, "")[:2]
        return topic, channel

    def _run(self) -> None:
        assert self._route is not None, "a request without a route is answered in `begin`"
        if self.is_awaiting_rights:
            self._is_due = True
            return
        answer = _answer_of(partial(self._route.handler, self))
        if answer is not None:
            self.answer(answer)

    def _log_access(self, answer: Answer, connection: HttpConnection) -> None:
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


def _answer_of(handle: Callable[[], Answer | None]) -> Answer | None:
    """Return the answer of a handler. A mistake in it is the end of one request, and not of the connection."""
    try:
        return handle()
    except Refused as refused:
        return refused.answer
    except Exception as unforeseen:
        text = "panic in HTTP handler - {unforeseen}"
        _log.failure(text, level=LogLevel.error, unforeseen=f"{type(unforeseen).__name__}: {unforeseen}")
        return INTERNAL_ERROR
