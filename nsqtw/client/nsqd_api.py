"""The HTTP API of an nsqd for users, on any event loop: statistics, administration, and what only our broker has."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from typing import Any, NamedTuple
from urllib.parse import urlencode

from nsqtw.client.event_loop import EventLoop
from nsqtw.client.http import Answer, HttpQuery
from nsqtw.client.log_sections import messages_of
from nsqtw.client.lookup import ACCEPT, answer_of, base_url, refusal
from nsqtw.client.openapi import DESCRIPTION_PATH, has_parameter
from nsqtw.errors import LookupFailed
from nsqtw.rights import authorization

CONNECT_SECONDS = 2.0
REQUEST_SECONDS = 5.0
_SEEK = "/v2/channel/seek"
_DIGITS = 20
"""Digits of the largest position."""


class LogPart(NamedTuple):
    """
    A part of a topic's log. `next` is the position to read from next, `end` one past the last readable message.
    `headers` are those of each message, all empty unless they were asked for.
    """

    bodies: list[bytes]
    next: int
    end: int
    headers: list[dict[str, str]]


class BaseNsqdApi(ABC):
    """
    The HTTP API of the nsqd at `address`, host:port or a URL. `secret` is sent as a bearer token, one of the form
    `basic USER:PASSWORD` as Basic authentication. Every method raises LookupFailed with the answer's words when the
    nsqd refuses.
    """

    def __init__(self, address: str, *, secret: str = "", context: ssl.SSLContext | None = None) -> None:
        self._url = base_url(address)
        self._secret = secret
        self._context = context

    @abstractmethod
    def _make_loop(self) -> EventLoop:
        """Return the event loop."""

    async def ping(self) -> None:
        """Return if the nsqd is healthy."""
        await self._ask("GET", "/ping", {})

    async def stats(self, topic: str = "", channel: str = "") -> dict[str, Any]:
        """Return the object of `/stats?format=json`."""
        return await self._object("GET", "/stats", {"format": "json", "topic": topic, "channel": channel})

    async def change(self, what: str, action: str, topic: str, channel: str = "") -> None:
        """
        Change a topic or channel: `what` is "topic" or "channel", `action` "create", "delete", "empty", "pause" or
        "unpause".
        """
        await self._ask("POST", f"/{what}/{action}", {"topic": topic, "channel": channel})

    async def seek(self, topic: str, channel: str, to: str, *, dry_run: bool = False) -> dict[str, Any]:
        """
        Move a channel to `to`: "earliest", "latest", a time or the id of a message (docs/how-to/retention.md). With
        `dry_run` the answer says what would happen, and nothing is changed: an nsqd that would ignore `dry_run` is not
        asked, which is LookupFailed.
        """
        if dry_run and not has_parameter(await self._object("GET", DESCRIPTION_PATH, {}), _SEEK, "dry_run"):
            raise LookupFailed("this nsqd does not know dry_run and would move the channel; a later version does")
        parameters = {"topic": topic, "channel": channel, "to": to, "dry_run": "true" if dry_run else ""}
        return await self._object("POST", _SEEK, parameters)

    async def drain(self, timeout: float | None = None) -> dict[str, Any]:
        """
        Have the nsqd refuse publishes, deliver what it has for at most `timeout` seconds, and stop; 0 for any time,
        None for what its options say. Return what is left (docs/how-to/drain-and-reload.md).
        """
        given = "" if timeout is None else f"{round(timeout * 1000)}ms"
        return await self._object("POST", "/v2/drain", {"timeout": given})

    async def drain_state(self) -> dict[str, Any]:
        """Return whether the nsqd drains, and what is left."""
        return await self._object("GET", "/v2/drain", {})

    async def reload(self) -> dict[str, Any]:
        """Have the nsqd read its options and files again. Return what has changed, and what needs a restart."""
        return await self._object("POST", "/v2/reload", {})

    async def peek(self, topic: str, channel: str = "", *, state: str = "ready", limit: int = 10) -> dict[str, Any]:
        """Return messages of a channel, or those that wait for the topic's channels, without consuming them."""
        if channel:
            parameters = {"topic": topic, "channel": channel, "state": state, "limit": str(limit)}
            return await self._object("GET", "/v2/channel/messages", parameters)
        return await self._object("GET", "/v2/topic/messages", {"topic": topic, "limit": str(limit)})

    async def read_log(
        self,
        topic: str,
        position: int | str = "earliest",
        *,
        limit: int = 1 << 20,
        wait: float = 0.0,
        headers: bool = False,
    ) -> LogPart:
        """
        Read the topic's log from a position on, "earliest" or "latest": about `limit` bytes. With `wait`, a request
        that finds nothing is answered after up to so many seconds. `headers`: with the headers of the messages.
        """
        parameters = {"topic": topic, "from": str(position), "limit": str(limit), "wait": str(int(wait * 1000))}
        if headers:
            parameters["headers"] = "true"
        answer = await self._ask("GET", "/v2/topic/log", parameters, timeout=REQUEST_SECONDS + wait)
        found = messages_of(answer.body)
        place, end = (_position(answer, f"x-nsqtw-{name}") for name in ("next", "end"))
        return LogPart(found.bodies, place, end, found.headers)

    async def _object(self, method: str, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        answer = await self._ask(method, path, parameters)
        return answer_of(answer.status, answer.headers.get("x-nsq-content-type", ""), answer.body)

    async def _ask(
        self, method: str, path: str, parameters: dict[str, str], timeout: float = REQUEST_SECONDS
    ) -> Answer:
        query = urlencode({name: value for name, value in parameters.items() if value})
        url = f"{self._url}{path}?{query}" if query else f"{self._url}{path}"
        headers = {"Accept": ACCEPT}
        if self._secret:
            headers["Authorization"] = authorization(self._secret)
        asked = HttpQuery(self._make_loop(), url, method=method, headers=headers, context=self._context)
        answer = await asked.run(CONNECT_SECONDS, timeout)
        if answer.status != 200:
            raise LookupFailed(f"{path}: {refusal(answer.status, answer.body)}")
        return answer


def _position(answer: Answer, name: str) -> int:
    """Return the position in a header field. LookupFailed."""
    text = answer.headers.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise LookupFailed(f"the answer has no position in {name}")
    return int(text)
