"""`nsqtw pub` with headers, a time or a channel: messages are published over HTTP, many in a request."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Mapping, Sequence
from datetime import UTC, datetime

from nsqtw.cli.checks import check_name, duration_of
from nsqtw.cli.session import Session
from nsqtw.cli.stdin import StdinMessages
from nsqtw.errors import InvalidHeaders, OptionError
from nsqtw.message_headers import encode_headers

_UNIX_TIME = re.compile(r"[0-9]{9,15}(\.[0-9]+)?")
_MAX_MESSAGES = 1000
_MAX_BYTES = 1 << 20
"""Messages and bytes of a request, with the headers."""


def headers_of(given: Sequence[str], ttl: str, message_id: str, priority: str | None) -> dict[str, str]:
    """Return the headers of the options --header, --ttl, --id and --priority. OptionError."""
    headers: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise OptionError(f"--header {text!r} must be NAME=VALUE")
        _add(headers, name.lower(), value)
    if ttl:
        seconds = duration_of("--ttl", ttl, "a duration such as 60s")
        if round(seconds * 1000) <= 0:
            raise OptionError("--ttl must be at least 1ms")
        _add(headers, "ttl", str(round(seconds * 1000)))
    if message_id:
        _add(headers, "id", message_id)
    if priority:
        _add(headers, "priority", priority)
    try:
        encode_headers(headers)
    except InvalidHeaders as error:
        raise OptionError(f"--header: {error}") from error
    return headers


def parameters_of(delay: float, deliver_at: str, channel: str) -> dict[str, str]:
    """Return the parameters of /mpub for the options --defer, --deliver-at and --channel. OptionError."""
    parameters: dict[str, str] = {}
    if delay and deliver_at:
        raise OptionError("--defer and --deliver-at cannot be given together")
    if delay:
        parameters["defer"] = str(round(delay * 1000))
    if deliver_at:
        parameters["deliver_at"] = _time_of(deliver_at)
    if channel:
        check_name(channel)
        parameters["channel"] = channel
    return parameters


def _time_of(text: str) -> str:
    """Return a time as the nodes take it: Unix time as it is, a local time with its offset. OptionError."""
    if _UNIX_TIME.fullmatch(text):
        return text
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        raise OptionError(
            f"--deliver-at {text!r} must be a time such as 2026-01-31T08:00, or Unix time; a delay is --defer"
        ) from None


def _add(headers: dict[str, str], name: str, value: str) -> None:
    if headers.setdefault(name, value) != value:
        raise OptionError(f"the header {name} is given twice")


async def publish_with_headers(
    session: Session,
    topic: str,
    messages: AsyncIterable[bytes],
    headers: Mapping[str, str],
    count: int,
    parameters: Mapping[str, str],
) -> int:
    """
    Publish each message `count` times, with further `parameters` of /mpub. Return how many were published.
    OptionError, ClusterError.
    """
    published = 0
    headers_bytes = len(encode_headers(headers))
    waiting: list[tuple[bytes, Mapping[str, str]]] = []
    size = 0
    async with session.cluster() as cluster:

        async def flush() -> None:
            nonlocal published, size
            if waiting:
                await cluster.publish_with_headers(topic, waiting, parameters=parameters)
                published += len(waiting)
                size = 0
                waiting.clear()

        async for body in messages:
            if "id" in headers and (published or waiting):
                raise OptionError("an id is that of one message, and stdin has more")
            for _ in range(count):
                more = headers_bytes + len(body)
                if len(waiting) == _MAX_MESSAGES or size + more > _MAX_BYTES:
                    await flush()
                waiting.append((body, headers))
                size += more
            if isinstance(messages, StdinMessages) and messages.is_idle:
                await flush()
        await flush()
    return published
