"""
Live pages: a page's URL, asked for as `text/event-stream`, sends the page again whenever its content has changed.

The browser changes only the elements that differ. A comment every KEEPALIVE_SECONDS keeps proxies from closing the
connection. When the viewer may not see the page any more, the event `leave` makes the browser load it, and find the
login.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from nsqtw.admin.server import WebRequest

CONTENT_TYPE = "text/event-stream"
KEEPALIVE_SECONDS = 15.0

_log = Logger()

Render = Callable[[], Awaitable["str | None"]]
"""Makes the page; None when the viewer may not see it."""


def is_wanted(request: WebRequest) -> bool:
    """Return whether a request asks for events."""
    return CONTENT_TYPE in (request.getHeader("accept") or "")


@implementer(IPushProducer)
class LivePage:
    """
    One connection of a browser. `run` lasts until it is closed. While the browser does not read, nothing is made or
    written, so no more than one page waits for it.
    """

    def __init__(self, request: WebRequest, reactor: IReactorTime, render: Render) -> None:
        self._request = request
        self._render = render
        self._last = ""
        self._is_open = True
        self._is_paused = False
        self._is_lost = False
        self._over: Deferred[None] = Deferred()
        self._rendering: Deferred[None] | None = None
        self._keepalive = LoopingCall(self._write, ": \n\n")
        self._keepalive.clock = reactor

    async def run(self, watch: Callable[[Callable[[], None]], Callable[[], None]]) -> None:
        """Send the page now, and again after each call that `watch` makes, until the connection is closed."""
        self._request.notifyFinish().addBoth(self._closed)
        self._request.setHeader("Content-Type", f"{CONTENT_TYPE}; charset=utf-8")
        self._request.setHeader("Cache-Control", "no-store")
        self._request.setHeader("X-Accel-Buffering", "no")
        self._request.registerProducer(self, True)
        leave = watch(self.update)
        self._keepalive.start(KEEPALIVE_SECONDS, now=False).addErrback(
            lambda failure: _log.failure("a live page failed", failure)
        )
        self.update()
        try:
            await self._over
        finally:
            leave()
            self._is_open = False
            if not self._is_lost:
                self._request.unregisterProducer()
            if self._keepalive.running:
                self._keepalive.stop()
            if self._rendering is not None:
                self._rendering.cancel()

    def pauseProducing(self) -> None:
        """IPushProducer API."""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """IPushProducer API."""
        self._is_paused = False
        self.update()

    def stopProducing(self) -> None:
        """IPushProducer API."""
        self._is_open = False

    def _closed(self, _: object) -> None:
        self._is_lost = True
        self._end()

    def _end(self) -> None:
        if not self._over.called:
            self._over.callback(None)

    def update(self) -> None:
        """Send the page if it changed. A call while one is being made is left out: the next one follows soon."""
        if self._rendering is not None or self._is_paused or not self._is_open:
            return
        self._rendering = ensureDeferred(self._send())
        self._rendering.addErrback(self._failed)
        self._rendering.addBoth(self._rendered)

    async def _send(self) -> None:
        html = await self._render()
        if html is None:
            self._write("event: leave\ndata: \n\n")
            self._end()
        elif html != self._last:
            self._last = html
            lines = "".join(f"data: {line}\n" for line in html.splitlines())
            self._write(f"event: page\n{lines}\n")

    def _failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, CancelledError):
            _log.failure("a live page could not be made", failure)

    def _rendered(self, _: object) -> None:
        self._rendering = None

    def _write(self, text: str) -> None:
        if self._is_open and not self._is_paused:
            self._request.write(text.encode())
