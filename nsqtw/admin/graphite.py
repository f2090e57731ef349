"""
Graphite behind nsqadmin: /api/graphite, the rate of a metric, and with --proxy-graphite /render.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from nsqtw.admin.routing import argument, route
from nsqtw.admin.server import WebRequest
from nsqtw.cluster.http import Timeouts
from nsqtw.errors import ApiError, ServerFailed
from nsqtw.http.client import make_client, read_body
from nsqtw.options.admin import AdminOptions
from nsqtw.options.redaction import without_password
from nsqtw.runtime.waiting import in_time

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_PASSED_ON = ("Accept", "Accept-Language", "If-Modified-Since", "If-None-Match")
_PASSED_BACK = ("Content-Type", "Cache-Control", "Last-Modified", "ETag", "Expires")

_log = Logger()


@attrs.frozen
class _Server:
    """The parts of a URL of graphite: without user and password, without the path, and user and password."""

    url: str
    root: str
    credentials: tuple[str, str] | None

    @classmethod
    def at(cls, url: str) -> _Server:
        parts = urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        name, _, password = user.partition(":")
        return cls(
            urlunsplit(parts._replace(netloc=host, query="", fragment="")).rstrip("/"),
            urlunsplit((parts.scheme, host, "", "", "")),
            (unquote(name), unquote(password)) if at else None,
        )


class Graphite:
    """The routes of graphite."""

    def __init__(self, reactor: Any, options: AdminOptions, timeouts: Timeouts) -> None:
        self._reactor = reactor
        self._options = options
        self._timeout = timeouts.request
        self._client = make_client(reactor, timeouts.connect)

    @route("GET", "/api/graphite")
    async def rate(self, request: WebRequest) -> object:
        """Return the rate of a metric in the last interval."""
        if argument(request, "metric") != "rate":
            raise ApiError(400, "INVALID_ARG_METRIC")
        target = argument(request, "target")
        if target is None:
            raise ApiError(400, "INVALID_ARG_TARGET")
        interval = int(self._options.statsd_interval)
        query = {"format": "json", "from": f"-{2 * interval}sec", "target": target, "until": f"-{interval}sec"}
        server = _Server.at(self._options.graphite_url)
        url = f"{server.url}/render?{urlencode(query)}"
        _log.info("GRAPHITE: {url}", url=url)
        try:
            status, _, body = await self._get(server, url, {})
            if status != 200:
                raise ServerFailed(f"got response {status}")
            value = float(json.loads(body)[0]["datapoints"][0][0])
        except Exception as error:  # any failure of the connection, and any document that is another one
            _log.error("graphite request failed - {error}", error=without_password(str(error) or type(error).__name__))
            raise ApiError(500, "INTERNAL_ERROR") from error
        return {"rate": "N/A" if value < 0 else f"{value / interval:.2f}"}

    async def render(self, request: Any) -> bytes:
        """Pass a request for /render on, and the answer back."""
        query = request.uri.partition(b"?")[2].decode("latin-1")
        headers = {name: value for name in _PASSED_ON if (value := request.getHeader(name))}
        server = _Server.at(self._options.graphite_url)
        try:
            status, found, body = await self._get(server, f"{server.root}/render?{query}", headers)
        except Exception as error:  # any failure of the connection
            _log.error("graphite request failed - {error}", error=str(error) or type(error).__name__)
            raise ApiError(502, "UPSTREAM_ERROR: graphite does not answer") from error
        request.setResponseCode(status)
        for name in _PASSED_BACK:
            for value in found.getRawHeaders(name, ()):
                request.setHeader(name, value)
        return body

    async def _get(self, server: _Server, url: str, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        """Return status, headers and body of an answer that is there in time."""
        asking = Deferred.fromCoroutine(self._exchange(server, url, headers))
        return await in_time(asking, self._timeout, self._reactor)

    async def _exchange(self, server: _Server, url: str, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        response = await self._client.request("GET", url, headers, credentials=server.credentials)
        return response.code, response.headers, await read_body(response, MAX_ANSWER_BYTES, ServerFailed)
