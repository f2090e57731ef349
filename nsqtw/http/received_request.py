"""
A HTTP request as it is received: the body arrives, the handler is called once.

    begin          the head has arrived        no route, no right or too large a body: answered at once
    receive_body   part of the body            kept up to the limit of the route; the rest is dropped
    end_body       the request is complete     the handler is called, and answers now or later
    repeat         all three at once           for a head that was read before

Theory of operation. A request that is answered before its body was read keeps its connection: the rest of the body is
read and dropped, so that a client that sends first and reads afterwards gets its answer and not a reset. The length of
a chunked body is known only at its end, so the handler is called as soon as the body exceeds its limit.

Performance: called once per request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import attrs

from nsqtw.http.bearer_auth import FREE
from nsqtw.http.body import RequestBody
from nsqtw.http.browsers import CROSS_ORIGIN, HOST_NOT_ALLOWED, is_of_another_site
from nsqtw.http.head_cache import CachedHead
from nsqtw.http.parser import RequestHead
from nsqtw.http.query import parameters
from nsqtw.http.request import HttpRequest, RequestConnection, answer_of
from nsqtw.http.responses import MALFORMED, Answer, Refused, failure
from nsqtw.http.routes import BODY_IGNORED, Route

if TYPE_CHECKING:
    from nsqtw.http.owner import ConnectionOwner

_ONLY_LOOKING = (b"GET", b"HEAD", b"OPTIONS")
_CROSS_ORIGIN, _HOST_NOT_ALLOWED = failure(403, CROSS_ORIGIN), failure(403, HOST_NOT_ALLOWED)


class ReceivingConnection(RequestConnection, Protocol):
    """The connection that a request is received on."""

    @property
    def factory(self) -> ConnectionOwner: ...

    @property
    def is_tls(self) -> bool: ...

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


class ReceivedRequest(HttpRequest):
    """A request that its connection receives."""

    is_awaiting_rights = False
    """Whether the permissions of the client are still unknown."""
    _connection: ReceivingConnection | None
    _is_due = False
    """Whether the handler is called when they are known."""
    _route: Route | None = None
    _limit = BODY_IGNORED
    _parts: RequestBody | None = None
    """The body, while it arrives in several parts."""

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

    @property
    def kept_bytes(self) -> int:
        """Bytes of the body in memory."""
        return len(self._body) if self._parts is None else self._parts.size

    def forget(self) -> None:
        """Keep nothing more of the body."""
        self._body, self._parts, self._limit = b"", None, BODY_IGNORED

    # -- inside

    def _join_parts(self) -> None:
        if self._parts is not None:
            self._body = self._parts.join()
            self._parts = None

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
        answer = answer_of(partial(self._route.handler, self))
        if answer is not None:
            self.answer(answer)
