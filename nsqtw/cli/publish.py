"""`nsqtw pub`: publishes messages of the command line or of stdin, through the client library."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator

import attrs

from nsqtw.cli.checks import check_name, duration_of
from nsqtw.cli.connect import client_options, nsqd_addresses
from nsqtw.cli.output import Document, is_terminal
from nsqtw.cli.progress import ProgressBar
from nsqtw.cli.session import Session
from nsqtw.cli.stdin import StdinMessages, delimiter_of
from nsqtw.client.event_loop import Future
from nsqtw.client.twisted import Producer
from nsqtw.errors import ClientLibraryError, CommandError, OptionError

_IN_FLIGHT = 1000
"""Publishes without an answer."""


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
    access = session.access()
    if nsqd_tcp_address:
        access = attrs.evolve(access, nsqd_tcp_addresses=nsqd_tcp_address)
    producer = Producer(await nsqd_addresses(access, topic), options=client_options(access))
    published = 0
    waiting: list[Future[None]] = []
    bar = ProgressBar(f"publishing to {topic}", is_wanted=not (source is not None and is_terminal(sys.stdin)))
    try:
        await producer.start()
        messages = source if source is not None else _each(bodies)
        async for body in messages:
            for _ in range(count):
                waiting.append(producer.publish(topic, body, delay=delay))
                if len(waiting) >= _IN_FLIGHT:
                    published += await _answers(waiting)
                    bar.show(published, None)
            if source is not None and source.is_idle:
                published += await _answers(waiting)
                bar.show(published, None)
        published += await _answers(waiting)
    except ClientLibraryError as error:
        if published:
            raise CommandError(f"{error}; {published} messages were published before") from error
        raise
    finally:
        bar.close()
        await producer.stop()
    messages_text = "1 message" if published == 1 else f"{published} messages"
    return Document({"topic": topic, "published": published}, [f"published {messages_text} to {topic}"])


async def _each(bodies: tuple[str, ...]) -> AsyncIterator[bytes]:
    for body in bodies:
        yield os.fsencode(body)


async def _answers(waiting: list[Future[None]]) -> int:
    """Wait for the answers to publishes. Returns their number. ClientLibraryError for the first that failed."""
    failure: ClientLibraryError | None = None
    answered, waiting[:] = waiting[:], []
    for future in answered:
        try:
            await future
        except ClientLibraryError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return len(answered)
