"""`nsqtw pub`: publishes messages of the command line or of stdin, through the client library."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator

import attrs

from nsqtw.cli.checks import check_name, duration_of
from nsqtw.cli.connect import client_options, nsqd_addresses
from nsqtw.cli.failures import explained
from nsqtw.cli.output import Document, is_terminal
from nsqtw.cli.progress import ProgressBar
from nsqtw.cli.session import Session
from nsqtw.cli.stdin import StdinMessages, delimiter_of
from nsqtw.client.event_loop import Future
from nsqtw.client.twisted import Producer
from nsqtw.errors import ClientLibraryError, CommandError, NsqtwError, OptionError, PermissionRefused, Refused

_IN_FLIGHT = 1000
"""Publishes without an answer."""
_Waiting = tuple[int, Future[None]]
"""The line of a message on stdin, from 1, or 0 for another message, and the answer to its publish."""


async def publish(
    session: Session,
    topic: str,
    bodies: tuple[str, ...],
    delimiter: str,
    defer: str,
    count: int,
    nsqd_tcp_address: tuple[str, ...],
) -> Document:
    """`nsqtw pub`."""
    check_name(topic)
    if any(not body for body in bodies):
        raise OptionError("a message has at least one byte")
    delay = duration_of("--defer", defer, "a duration such as 30s or 5m")
    if delay < 0:
        raise OptionError("--defer must not be negative")
    if not bodies and is_terminal(sys.stdin):
        session.say("a message on each line; Ctrl-D ends")
    source = StdinMessages(session.reactor, delimiter_of(delimiter)) if not bodies else None
    access = session.usable_access()
    if nsqd_tcp_address:
        access = attrs.evolve(access, nsqd_tcp_addresses=nsqd_tcp_address)
    producer = Producer(await nsqd_addresses(access, topic), options=client_options(access))
    published = 0
    waiting: list[_Waiting] = []
    bar = ProgressBar(f"publishing to {topic}", is_wanted=not (source is not None and is_terminal(sys.stdin)))
    try:
        await producer.start()
        messages = source if source is not None else _each(bodies)
        async for body in messages:
            for _ in range(count):
                line = source.number if source is not None and source.has_delimiter else 0
                waiting.append((line, producer.publish(topic, body, delay=delay)))
                if len(waiting) >= _IN_FLIGHT:
                    published += await _answers(waiting)
                    bar.show(published, None)
            if source is not None and source.is_idle:
                published += await _answers(waiting)
                bar.show(published, None)
        published += await _answers(waiting)
    except _Unpublished as error:
        raise _failure(error, published + error.answered) from error.cause
    finally:
        bar.close()
        await producer.stop()
    if source is not None and not published:
        session.warn("stdin had no message")
    return Document({"topic": topic, "published": published}, [f"published {_messages_text(published)} to {topic}"])


async def _each(bodies: tuple[str, ...]) -> AsyncIterator[bytes]:
    for body in bodies:
        yield os.fsencode(body)


async def _answers(waiting: list[_Waiting]) -> int:
    """Wait for the answers to publishes. Returns their number. _Unpublished for the first that failed."""
    failure: _Unpublished | None = None
    answered = 0
    taken, waiting[:] = waiting[:], []
    for line, future in taken:
        try:
            await future
            answered += 1
        except ClientLibraryError as error:
            failure = failure or _Unpublished(error, line)
    if failure is not None:
        failure.answered = answered
        raise failure
    return answered


class _Unpublished(Exception):
    """A publish failed; that of a line of stdin, from 1, or 0. `answered` others of its batch succeeded."""

    def __init__(self, cause: ClientLibraryError, line: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.line = line
        self.answered = 0


def _failure(error: _Unpublished, published: int) -> NsqtwError:
    """Return the error for the user: the message that failed, why, and how many were published."""
    shown = explained(error.cause)
    is_refused = isinstance(error.cause, Refused)  # another message might be accepted
    place = f"message {error.line} of stdin: " if error.line and is_refused else ""
    more = f"; {_messages_text(published)} {'was' if published == 1 else 'were'} published" if published else ""
    if not place and not more:
        return shown
    kind = PermissionRefused if isinstance(shown, PermissionRefused) else CommandError
    return kind(f"{place}{shown}{more}")


def _messages_text(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
