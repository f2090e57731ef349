"""
`nsqtw pub`: publishes messages of the command line or of stdin, through the client library; those with headers, with a
time, or for one channel over HTTP, many in a request.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import attrs

from nsqtw.cli.connect import client_options, nsqd_addresses
from nsqtw.cli.failures import explained
from nsqtw.cli.output import Document, ProgressBar
from nsqtw.cli.session import Session
from nsqtw.cli.stdio import delimiter_of
from nsqtw.cli.verb import check_name, duration_of
from nsqtw.client.event_loop import Future
from nsqtw.client.twisted import Producer
from nsqtw.errors import (
    ClientLibraryError,
    CommandError,
    InvalidHeaders,
    NotConnected,
    NsqtwError,
    OptionError,
    PermissionRefused,
    Refused,
)
from nsqtw.message_headers import encode_headers
from nsqtw.printing import is_terminal
from nsqtw.tools.stdin import StdinMessages

_UNIX_TIME = re.compile(r"[0-9]{9,15}(\.[0-9]+)?")
_MAX_MESSAGES = 1000
_MAX_BYTES = 1 << 20
"""Messages and bytes of a request, with the headers."""
_IN_FLIGHT = 1000
"""Publishes without an answer."""
_DEFAULT_MAX_BYTES = 1 << 20
"""The default of nsqd's --max-msg-size."""


def _headers_of(given: Sequence[str], ttl: str, message_id: str, priority: str | None) -> dict[str, str]:
    """Return the headers of the options --header, --ttl, --id and --priority. OptionError."""
    headers: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise OptionError(f"--header {text!r} must be NAME=VALUE")
        _add_header(headers, name.lower(), value)
    if ttl:
        seconds = duration_of("--ttl", ttl, "a duration such as 60s")
        if round(seconds * 1000) <= 0:
            raise OptionError("--ttl must be at least 1ms")
        _add_header(headers, "ttl", str(round(seconds * 1000)))
    if message_id:
        _add_header(headers, "id", message_id)
    if priority:
        _add_header(headers, "priority", priority)
    try:
        encode_headers(headers)
    except InvalidHeaders as error:
        raise OptionError(f"--header: {error}") from error
    return headers


def _parameters_of(delay: float, deliver_at: str, channel: str) -> dict[str, str]:
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


def _add_header(headers: dict[str, str], name: str, value: str) -> None:
    if headers.setdefault(name, value) != value:
        raise OptionError(f"the header {name} is given twice")


async def _publish_with_headers(
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


class _Publish(NamedTuple):
    """A publish: the number of its message on stdin, from 1, or 0 for another one; its size in bytes; its answer."""

    number: int
    size: int
    answer: Future[None]


async def publish(
    session: Session,
    topic: str,
    bodies: tuple[str, ...],
    delimiter: str,
    defer: str,
    count: int,
    header: tuple[str, ...],
    ttl: str,
    message_id: str,
    priority: str | None,
    deliver_at: str,
    channel: str,
    nsqd_tcp_address: tuple[str, ...],
) -> Document:
    """`nsqtw pub`."""
    check_name(topic)
    if any(not body for body in bodies):
        raise OptionError("a message has at least one byte")
    delay = duration_of("--defer", defer, "a duration such as 30s or 5m")
    if delay < 0:
        raise OptionError("--defer must not be negative")
    headers = _headers_of(header, ttl, message_id, priority)
    parameters = _parameters_of(delay, deliver_at, channel)
    is_over_http = bool(headers or deliver_at or channel)
    if is_over_http and nsqd_tcp_address:
        raise OptionError("--nsqd-tcp-address cannot be given with headers, --deliver-at or --channel, which need HTTP")
    if "id" in headers and (len(bodies) > 1 or count > 1):
        raise OptionError("an id is that of one message")
    if not bodies and is_terminal(sys.stdin):
        session.say("a message on each line; Ctrl-D ends")
    source = StdinMessages(session.reactor, delimiter_of(delimiter)) if not bodies else None
    if is_over_http:
        published = await _publish_with_headers(session, topic, source or _each(bodies), headers, count, parameters)
        return _published(session, topic, published)
    access = session.usable_access()
    if nsqd_tcp_address:
        access = attrs.evolve(access, nsqd_tcp_addresses=nsqd_tcp_address)
    producer = Producer(await nsqd_addresses(access, topic), options=client_options(access))
    published = 0
    waiting: list[_Publish] = []
    bar = ProgressBar(f"publishing to {topic}", is_wanted=not (source is not None and is_terminal(sys.stdin)))
    try:
        await producer.start()
        messages = source if source is not None else _each(bodies)
        async for body in messages:
            for _ in range(count):
                number = source.number if source is not None and source.has_delimiter else 0
                waiting.append(_Publish(number, len(body), producer.publish(topic, body, delay=delay)))
                if len(waiting) >= _IN_FLIGHT:
                    published = await _answers(waiting, published)
                    bar.show(published, None)
            if source is not None and source.is_idle:
                published = await _answers(waiting, published)
                bar.show(published, None)
        published = await _answers(waiting, published)
    finally:
        bar.close()
        await producer.stop()
    return _published(session, topic, published)


def _published(session: Session, topic: str, published: int) -> Document:
    if not published:
        session.warn("stdin had no message")
    return Document({"topic": topic, "published": published}, [f"published {_messages_text(published)} to {topic}"])


async def _each(bodies: tuple[str, ...]) -> AsyncIterator[bytes]:
    for body in bodies:
        yield os.fsencode(body)


async def _answers(waiting: list[_Publish], published: int) -> int:
    """
    Wait for the answers to publishes. Returns the number of all messages that are published, which was `published`
    before. The error of `_failure` for the first one that failed.
    """
    failed: tuple[_Publish, ClientLibraryError] | None = None
    taken, waiting[:] = waiting[:], []
    for publish in taken:
        try:
            await publish.answer
            published += 1
        except ClientLibraryError as error:
            failed = failed or (publish, error)
    if failed is not None:
        raise _failure(*failed, published) from failed[1]
    return published


def _failure(publish: _Publish, error: ClientLibraryError, published: int) -> NsqtwError:
    """Return the error for the user: the message that failed, why, and how many were published."""
    shown = explained(error)
    is_refused = isinstance(error, Refused)  # another message might be accepted
    place = f"message {publish.number} of stdin: " if publish.number and is_refused else ""
    # nsqd closes the connection on a message that is too large: the error frame may be lost.
    if isinstance(shown, NotConnected) and publish.size > _DEFAULT_MAX_BYTES:
        shown = CommandError(f"{shown}; the message has {publish.size} bytes, and nsqd's --max-msg-size limits it")
    more = f"; {_messages_text(published)} {'was' if published == 1 else 'were'} published" if published else ""
    if not place and not more:
        return shown
    kind = PermissionRefused if isinstance(shown, PermissionRefused) else CommandError
    return kind(f"{place}{shown}{more}")


def _messages_text(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
