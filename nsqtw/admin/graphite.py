"""
Graphite behind nsqadmin: /api/graphite, the rate of a metric, and with --proxy-graphite /render.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode, urlsplit

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from nsqtw.admin.routing import argument, route
from nsqtw.admin.server import WebRequest
from nsqtw.cluster.http import Timeouts
from nsqtw.errors import ApiError, ServerFailed
from nsqtw.http.client import make_client, read_body
from nsqtw.http.failures import reason_of
from nsqtw.options.admin import AdminOptions
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.waiting import in_time

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_PASSED_ON = ("Accept", "Accept-Language", "If-Modified-Since", "If-None-Match")
_PASSED_BACK = ("Content-Type", "Cache-Control", "Last-Modified", "ETag", "Expires")

_log = Logger()


class Graphite:
    """The routes of graphite."""

    def __init__(self, reactor: Reactor, options: AdminOptions, timeouts: Timeouts) -> None:
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
        parts = urlsplit(self._options.graphite_url)
        parts = parts._replace(path=f"{parts.path.rstrip('/')}/render", query=urlencode(query), fragment="")
        _log.info("GRAPHITE: {url}", url=parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
        try:
            status, _, body = await self._get(parts.geturl(), {})
            if status != 200:
                raise ServerFailed(f"got response {status}")
            value = float(json.loads(body)[0]["datapoints"][0][0])
        except Exception as error:  # any failure of the connection, and any document that is another one
            _log.error("graphite request failed - {error}", error=reason_of(error, parts.geturl()))
            raise ApiError(500, "INTERNAL_ERROR") from error
        return {"rate": "N/A" if value < 0 else f"{value / interval:.2f}"}

    async def render(self, request: Any) -> bytes:
        """Pass a request for /render on, and the answer back."""
        query = request.uri.partition(b"?")[2].decode("latin-1")
        headers = {name: value for name in _PASSED_ON if (value := request.getHeader(name))}
        url = urlsplit(self._options.graphite_url)._replace(path="/render", query=query, fragment="").geturl()
        try:
            status, found, body = await self._get(url, headers)
        except Exception as error:  # any failure of the connection
            _log.error("graphite request failed - {error}", error=reason_of(error, url))
            raise ApiError(502, "UPSTREAM_ERROR: graphite does not answer") from error
        request.setResponseCode(status)
        for name in _PASSED_BACK:
            for value in found.getRawHeaders(name, ()):
                request.setHeader(name, value)
        return body

    async def _get(self, url: str, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        """Return status, headers and body of an answer that is there in time."""
        asking = Deferred.fromCoroutine(self._exchange(url, headers))
        return await in_time(asking, self._timeout, self._reactor)

    async def _exchange(self, url: str, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        response = await self._client.request("GET", url, headers)
        return response.code, response.headers, await read_body(response, MAX_ANSWER_BYTES, ServerFailed)
