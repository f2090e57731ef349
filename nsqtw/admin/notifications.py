"""
Notifications of actions: a POST of a JSON document to --notification-http-endpoint, in the background, one at a time.

`user` is the user of the request; where there are no users, it is that of HTTP's Basic authentication, as in the
original. Unlike the original, an endpoint that cannot be reached is only logged.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from nsqtw.admin.access import is_https
from nsqtw.admin.audit import Target
from nsqtw.admin.server import WebRequest
from nsqtw.cluster.http import Timeouts
from nsqtw.errors import ServerFailed
from nsqtw.gocompat.text import json_text
from nsqtw.http.client import make_client, read_body
from nsqtw.http.failures import reason_of
from nsqtw.options.addresses import join_host_port
from nsqtw.options.admin import AdminOptions
from nsqtw.options.broker_address import hostname
from nsqtw.options.redaction import without_password
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.waiting import in_time

MAX_WAITING = 1000
"""Notifications that may wait for earlier ones; further ones are dropped with a log line."""
MAX_ANSWER_BYTES = 1024 * 1024
_TOPIC_ONLY = "_topic"

_log = Logger()


class Notifications:
    """Sends notifications to the endpoint of the options; none when it is empty."""

    def __init__(self, reactor: Reactor, options: AdminOptions, timeouts: Timeouts) -> None:
        self._reactor = reactor
        self._options = options
        self._timeout = timeouts.request
        self._waiting: deque[bytes] = deque()
        self._running: Deferred[None] | None = None
        self._client = make_client(reactor, timeouts.connect)

    def send(self, request: WebRequest, user: str, action: str, target: Target) -> None:
        """Send a notification about an action that `request` has caused."""
        if not self._options.notification_http_endpoint:
            return
        if len(self._waiting) >= MAX_WAITING:
            _log.error("failed to POST notification - {count} others are waiting", count=MAX_WAITING)
            return
        self._waiting.append(json_text(notification(request, user, action, target, int(time.time()))))
        if self._running is None:
            self._running = Deferred.fromCoroutine(self._run())

    def close(self) -> None:
        """Send nothing more."""
        self._waiting.clear()
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._post(self._waiting.popleft())
        finally:
            self._running = None

    async def _post(self, body: bytes) -> None:
        endpoint = self._options.notification_http_endpoint
        _log.info("POSTing notification to {endpoint}", endpoint=without_password(endpoint))
        try:
            await in_time(Deferred.fromCoroutine(self._exchange(endpoint, body)), self._timeout, self._reactor)
        except Exception as error:  # any failure of the connection
            _log.error("failed to POST notification - {error}", error=reason_of(error, endpoint))

    async def _exchange(self, endpoint: str, body: bytes) -> None:
        """Post a notification, and read the answer to its end."""
        response = await self._client.request("POST", endpoint, {"Content-Type": "application/json"}, body)
        await read_body(response, MAX_ANSWER_BYTES, ServerFailed)


def notification(request: WebRequest, user: str, action: str, target: Target, now: int) -> dict[str, Any]:
    """Return the document of a notification. `now` is a Unix time in seconds."""
    headers: Any = request
    peer = headers.getClientAddress()
    document: dict[str, Any] = {"action": action, "topic": target.topic}
    if target.channel and not action.endswith(_TOPIC_ONLY):
        document["channel"] = target.channel
    if target.node:
        document["node"] = target.node
    if target.message:
        document["message"] = target.message
    document["timestamp"] = now
    if user:
        document["user"] = user
    return document | {
        "remote_ip": join_host_port(peer.host, peer.port) if hasattr(peer, "host") else "",
        "user_agent": headers.getHeader("User-Agent") or "",
        "url": _url(request),
        "via": hostname(),
    }


def _url(request: Any) -> str:
    scheme = "https" if is_https(request) else "http"
    host = request.getHeader("Host") or ""
    return f"{scheme}://{host}{quote(request.uri, safe='/?&=%+:,;@')}"
