"""
GET /v2/watch: connections on which clients get changes as server-sent events (`events`).

Theory of operation. A `Subscription` has the line of what a client is to be told; at the end of a turn a piece of it is
written, as long as the client reads. What waits for one that does not is bounded by the line, which starts over when
it is too long, and by write-timeout, after which the connection ends. KEEP_ALIVE_SECONDS without anything else are
ended by a comment, so that both sides notice when the other one is gone.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from nsqtw.http.query import parameters
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, failure
from nsqtw.http.routes import Route
from nsqtw.lookupd.events import CONTENT_TYPE, KEEP_ALIVE, events
from nsqtw.lookupd.registrations import Registrations
from nsqtw.lookupd.subscription import Subscription
from nsqtw.names import is_valid_name
from nsqtw.net.admission import Rejections
from nsqtw.runtime.turns import PlainTurns

KEEP_ALIVE_SECONDS = 15.0
MAX_WAITING = 1000
"""Changes that may wait for one watcher."""
_PIECE = 200
"""Events written in one turn."""
_INVALID_TOPIC = failure(400, "INVALID_ARG_TOPIC")
_TOO_MANY = failure(503, "TOO_MANY_WATCHERS")


class Watchers:
    """The watchers of one nsqlookupd, at most `limit`."""

    def __init__(self, registrations: Registrations, turns: PlainTurns, limit: int, rejections: Rejections) -> None:
        self.registrations = registrations
        self.turns = turns
        self.limit = limit
        self._turned_away = rejections
        self._watchers: set[Watcher] = set()
        self._timer: Any = None

    def route(self, needs: str) -> Route:
        """Return the route of /v2/watch, which needs the permission `needs`."""
        return Route(b"GET", b"/v2/watch", self._begin, broken=None, needs=needs)

    def leave(self, watcher: Watcher) -> None:
        """It is gone."""
        self._watchers.discard(watcher)

    def close(self) -> None:
        """nsqlookupd stops."""
        for watcher in list(self._watchers):
            watcher.finish()
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, request: HttpRequest) -> Answer | None:
        topic = parameters(request.query).get("topic")
        if topic is not None and not is_valid_name(topic):
            return _INVALID_TOPIC
        if len(self._watchers) >= self.limit:
            self._turned_away.record("max-watchers", request.client)
            return _TOO_MANY
        watcher = Watcher(self, request, topic)
        self._watchers.add(watcher)
        request.stream(CONTENT_TYPE, watcher)
        self.turns.changed(watcher)
        if self._timer is None:
            self._timer = self.turns.reactor.callLater(KEEP_ALIVE_SECONDS, self._keep_alive)
        return None

    def _keep_alive(self) -> None:
        self._timer = None
        for watcher in self._watchers:
            watcher.keep_alive()
        if self._watchers:
            self._timer = self.turns.reactor.callLater(KEEP_ALIVE_SECONDS, self._keep_alive)


@implementer(IPushProducer)
class Watcher:
    """One client, which watches one topic or all. Streamer, and Connection of turns."""

    def __init__(self, watchers: Watchers, request: HttpRequest, topic: str | None) -> None:
        self._watchers = watchers
        self._request = request
        self._watch = Subscription(watchers.registrations, self._wake, topic, limit=MAX_WAITING)
        self._is_paused = False
        self._is_over = False
        self._is_idle = False
        self._next_number = 1

    # -- from the turns

    def flush(self, now: float) -> None:
        """Write a piece of what waits."""
        if self._is_over or self._is_paused:
            return
        changes = self._watch.take(_PIECE, self._watchers.turns.unix_ns())
        if not changes:
            return
        number = self._next_number
        self._next_number += len(changes)
        self._is_idle = False
        self._request.send(events(changes, number))
        self._watchers.turns.changed(self)

    def abort(self) -> None:
        """End at once: something in here is broken."""
        self._request.abort()

    # -- from the request

    def pauseProducing(self) -> None:
        """Streamer API"""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """Streamer API"""
        self._is_paused = False
        self._wake()

    def stopProducing(self) -> None:
        """Streamer API"""

    def ended(self) -> None:
        """Streamer API"""
        self._is_over = True
        self._watch.close()
        self._watchers.leave(self)

    # -- from the watchers

    def keep_alive(self) -> None:
        """Say that the connection is good, if nothing else was said for a while."""
        if self._is_idle and not self._is_paused:
            self._request.send(KEEP_ALIVE)
        self._is_idle = True

    def finish(self) -> None:
        """End it."""
        self.ended()
        self._request.finish()

    def _wake(self) -> None:
        self._watchers.turns.changed(self)
