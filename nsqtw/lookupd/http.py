"""
The HTTP API of nsqlookupd.

    GET    /ping  /info  /topics  /channels?topic=  /lookup?topic=  /nodes  /debug
    POST   /topic/{create,delete}?topic=    /channel/{create,delete}?topic=&channel=
    POST   /topic/tombstone?topic=&node=
    GET    /livez  /readyz  /metrics                                        http.health, http.metrics
    GET    /debug/pprof/...                                                 http.debug
    GET    /v2/watch                                                        watchers

Bodies are ignored. Responses that are large with many registrations, /topics, /lookup?topic=*, /nodes and /debug, are
built in steps of some milliseconds, between which other clients are served. One of more than GATHERED_BYTES is sent as
it is built, as fast as the client reads it. /debug, which has everything, needs the secret wherever there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain

from twisted.logger import Logger

from nsqtw import NSQ_VERSION
from nsqtw.errors import CapReached
from nsqtw.http.bearer_auth import FREE
from nsqtw.http.debug import Debugging
from nsqtw.http.endpoints import JSON
from nsqtw.http.names import names, topic_name
from nsqtw.http.query import parameters
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import DONE, Answer, Refused, cap_reached, failure, plain, written
from nsqtw.http.routes import Route
from nsqtw.http.version import versioned
from nsqtw.lookupd.json_documents import (
    channels_document,
    debug_pieces,
    lookup_document,
    lookup_pieces,
    node_pieces,
    topic_pieces,
)
from nsqtw.lookupd.registrations import ANY, Registrations
from nsqtw.names import is_valid_name
from nsqtw.runtime.long_work import LongWork
from nsqtw.runtime.turns import PlainTurns

_PONG = plain(200, "OK")
_MISSING_NODE = failure(400, "MISSING_ARG_NODE")
_INVALID_TOPIC = failure(400, "INVALID_ARG_TOPIC")
_TOPIC_NOT_FOUND = failure(404, "TOPIC_NOT_FOUND")
_CHANNEL_NOT_FOUND = failure(404, "CHANNEL_NOT_FOUND")
_PPROF = b"/debug/pprof"
GATHERED_BYTES = 256 * 1024
"""Bytes of the largest answer that is sent as a whole."""
JSON_TYPE = JSON.encode()

_Change = Callable[[Mapping[str, str]], None]
"""Does what a query says. Refused, CapReached."""

_log = Logger()


class LookupApi:
    """Answers from `registrations`, and changes them. `needs`: what a request must have a right to that only looks."""

    def __init__(self, registrations: Registrations, turns: PlainTurns, needs: str = FREE) -> None:
        self._registrations = registrations
        self._turns = turns
        self._long_work = LongWork(turns.reactor, turns.now)
        self._needs = needs

    def routes(self) -> list[Route]:
        """All routes except /v2/watch."""
        questions: dict[bytes, Callable[[HttpRequest], Answer | None]] = {
            b"/info": lambda request: versioned(request, {"version": NSQ_VERSION}),
            b"/topics": self._topics,
            b"/channels": self._channels,
            b"/lookup": self._lookup,
            b"/nodes": self._nodes,
        }
        changes: dict[bytes, _Change] = {
            b"/topic/create": self._create_topic,
            b"/topic/delete": self._delete_topic,
            b"/topic/tombstone": self._tombstone,
            b"/channel/create": self._create_channel,
            b"/channel/delete": self._delete_channel,
        }
        pprof = [route for route in Debugging(self._turns).routes() if route.path.startswith(_PPROF)]
        return [
            Route(b"GET", b"/ping", lambda request: _PONG, broken=None, needs=FREE),
            *(Route(b"GET", path, handler, broken=None, needs=self._needs) for path, handler in questions.items()),
            Route(b"GET", b"/debug", self._debug, broken=None, is_change=True),
            *(Route(b"POST", path, partial(_perform, change), broken=None) for path, change in changes.items()),
            *pprof,
        ]

    # -- questions

    def _topics(self, request: HttpRequest) -> None:
        self._answer(request, topic_pieces(self._registrations.walk_names()))

    def _channels(self, request: HttpRequest) -> Answer:
        return written(channels_document(self._registrations.channels(topic_name(parameters(request.query)))))

    def _lookup(self, request: HttpRequest) -> Answer | None:
        topic, now = topic_name(parameters(request.query)), self._turns.unix_ns()
        if topic == ANY and self._registrations.is_topic(ANY):
            self._answer(request, lookup_pieces(self._registrations.walk_lookup(ANY, now)))
            return None
        result = self._registrations.lookup(topic, now)
        return _TOPIC_NOT_FOUND if result is None else written(lookup_document(result))

    def _nodes(self, request: HttpRequest) -> None:
        self._answer(request, node_pieces(self._registrations.walk_nodes(self._turns.unix_ns())))

    def _debug(self, request: HttpRequest) -> None:
        self._answer(request, debug_pieces(self._registrations.walk_debug()))

    def _answer(self, request: HttpRequest, pieces: Iterator[bytes]) -> None:
        self._long_work.add(self._gather(request, pieces))

    def _gather(self, request: HttpRequest, pieces: Iterator[bytes]) -> Iterator[None]:
        """Gather the pieces, one at each step, and answer with them, or begin to send them when they are large."""
        gathered: list[bytes] = []
        size = 0
        for piece in pieces:
            gathered.append(piece)
            size += len(piece)
            if size > GATHERED_BYTES:
                PieceStream(request, chain([b"".join(gathered)], pieces), self._long_work)
                return
            yield
        request.answer_later(written(b"".join(gathered)))

    # -- changes

    def _create_topic(self, params: Mapping[str, str]) -> None:
        topic = topic_name(params)
        if not is_valid_name(topic):
            raise Refused(_INVALID_TOPIC)
        _log.info("DB: adding topic({topic})", topic=topic)
        self._registrations.create_topic(topic)

    def _create_channel(self, params: Mapping[str, str]) -> None:
        topic, channel = names(params)
        _log.info("DB: adding channel({channel}) in topic({topic})", channel=channel, topic=topic)
        _log.info("DB: adding topic({topic})", topic=topic)
        self._registrations.create_channel(topic, channel)

    def _delete_topic(self, params: Mapping[str, str]) -> None:
        for key in self._registrations.delete_topic(topic_name(params)):
            if key.channel:
                text = "DB: removing channel({channel}) from topic({topic})"
                _log.info(text, channel=key.channel, topic=key.topic)
            else:
                _log.info("DB: removing topic({topic})", topic=key.topic)

    def _delete_channel(self, params: Mapping[str, str]) -> None:
        topic, channel = names(params)
        if not self._registrations.delete_channel(topic, channel):
            raise Refused(_CHANNEL_NOT_FOUND)
        _log.info("DB: removing channel({channel}) from topic({topic})", channel=channel, topic=topic)

    def _tombstone(self, params: Mapping[str, str]) -> None:
        topic = topic_name(params)
        if "node" not in params:
            raise Refused(_MISSING_NODE)
        text = "DB: setting tombstone for producer@{node} of topic({topic})"
        _log.info(text, node=params["node"], topic=topic)
        self._registrations.tombstone(topic, params["node"], self._turns.unix_ns())


class PieceStream:
    """
    Sends pieces, one at each step of `long_work`, while the client reads them: as chunks, so that it can tell an answer
    that is cut off, except with HTTP/1.0. Streamer API.
    """

    def __init__(self, request: HttpRequest, pieces: Iterator[bytes], long_work: LongWork) -> None:
        self._request = request
        self._pieces = pieces
        self._long_work = long_work
        self._is_paused = True
        self._is_running = self._is_over = False
        self._is_chunked = request.version == b"HTTP/1.1"
        request.stream(JSON_TYPE, self, self.stop, is_chunked=self._is_chunked)
        self.resumeProducing()

    def pauseProducing(self) -> None:
        """Streamer API."""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """Streamer API."""
        self._is_paused = False
        if not self._is_running and not self._is_over:
            self._is_running = True
            self._long_work.add(self._send())

    def stopProducing(self) -> None:
        """Streamer API."""
        self._is_over = True

    ended = stopProducing

    def stop(self) -> None:
        """The daemon stops."""
        self._is_over = True
        self._request.finish()

    def _send(self) -> Iterator[None]:
        for piece in self._pieces:
            if self._is_over:
                return
            if piece:
                self._request.send(b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece)
            if self._is_paused:
                self._is_running = False
                return
            yield
        self._is_over = True
        if self._is_chunked:
            self._request.send(b"0\r\n\r\n")
        self._request.finish()


def _perform(change: _Change, request: HttpRequest) -> Answer:
    try:
        change(parameters(request.query))
    except CapReached as reached:
        return cap_reached(reached)
    return DONE
