"""
Events of an nsqlookupd about changes of a topic (`GET /v2/watch`).

The content of the events is ignored: `changed` is called, and asks the nsqlookupd. An nsqlookupd without events, such
as NSQ's own, is asked at intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.iweb import IResponse

from pyspark_nsq.http.client import make_client
from pyspark_nsq.http.tls import HttpsPolicy
from pyspark_nsq.options.security import Security

if TYPE_CHECKING:
    from twisted.internet.base import ReactorBase
    from twisted.internet.interfaces import IDelayedCall

_CONNECT_SECONDS = 10.0
_COLLECT_SECONDS = 0.05
"""Changes come in groups: a topic with its channels."""
_OK = 200


class LookupWatch:
    """Listens to the nsqlookupd at `lookupd`. Connects again `again_seconds` after the end of a connection."""

    def __init__(
        self,
        reactor: ReactorBase,
        security: Security,
        lookupd: str,
        topic: str,
        again_seconds: float,
        changed: Callable[[], object],
    ) -> None:
        """Raises OptionError when a file of `security` cannot be used."""
        self._reactor = reactor
        self._client = make_client(reactor, _CONNECT_SECONDS, HttpsPolicy(security))
        self._url = f"{lookupd}/v2/watch?topic={quote(topic)}"
        self._again_seconds = again_seconds
        self._changed = changed
        self._asking: Deferred[None] | None = None
        self._events: _Events | None = None
        self._again: IDelayedCall | None = None
        self._told: IDelayedCall | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to listen."""
        self._again = None
        self._asking = Deferred.fromCoroutine(self._listen())
        self._asking.addErrback(lambda _: None)  # the request for the nsqds reports the error
        self._asking.addBoth(self._ended)

    def stop(self) -> None:
        """Stop listening. `changed` is not called again."""
        self._stopped = True
        for call in (self._again, self._told):
            if call is not None and call.active():
                call.cancel()
        if self._events is not None:
            self._events.close()
        elif self._asking is not None:
            self._asking.cancel()

    async def _listen(self) -> None:
        response: IResponse = await self._client.request("GET", self._url, {"Accept": "text/event-stream"})
        can_tell = response.code == _OK
        self._events = events = _Events(self._hear if can_tell else _ignore)
        response.deliverBody(events)  # type: ignore[no-untyped-call]
        if not can_tell:
            events.close()
        await events.over

    def _hear(self) -> None:
        if not self._stopped and (self._told is None or not self._told.active()):
            self._told = self._reactor.callLater(_COLLECT_SECONDS, self._changed)

    def _ended(self, _result: object) -> None:
        self._asking = self._events = None
        if not self._stopped:
            self._again = self._reactor.callLater(self._again_seconds, self.start)


class _Events(Protocol):
    """A stream of server-sent events. `over` fires at its end."""

    def __init__(self, hear: Callable[[], None]) -> None:
        self.over: Deferred[None] = Deferred()
        self._hear = hear

    def close(self) -> None:
        """End the connection."""
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        # A comment, which only keeps the connection alive, starts with a colon.
        if not data.startswith(b":"):
            self._hear()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.over.called:
            self.over.callback(None)


def _ignore() -> None:
    """Ignore data that is not a stream of events."""
