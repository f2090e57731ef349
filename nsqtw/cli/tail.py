"""`nsqtw tail`, also `sub`: prints messages as they come, through the client library."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from nsqtw.cli.connect import Problems, client_options, nsqd_addresses, registered_nsqds
from nsqtw.cli.failures import ExitCode
from nsqtw.cli.messages import headers_text
from nsqtw.cli.output import body_fields
from nsqtw.cli.session import Session
from nsqtw.cli.stdio import Pipe, PipeWatcher, delimiter_of
from nsqtw.cli.verb import check_name
from nsqtw.client.message import Message
from nsqtw.client.twisted import Consumer
from nsqtw.errors import NotFound, NsqtwError
from nsqtw.foreign_text import json_text
from nsqtw.names import EPHEMERAL
from nsqtw.printing import cannot_write, is_stderr_terminal, is_stdout_terminal, write_message
from nsqtw.runtime.reactor import Reactor

_MAX_IN_FLIGHT = 200
_STOP_SECONDS = 5.0
_SILENT_SECONDS = 1.0
"""Time without a message after which a pause is looked for."""


async def tail(
    session: Session,
    topic: str,
    channel: str | None,
    n: int | None,
    json: bool,
    headers: bool,
    delimiter: str,
    create: bool,
    nsqd_tcp_address: tuple[str, ...],
) -> int:
    """`nsqtw tail`. Ctrl-C is its end without -n, and an interruption with -n."""
    for name in filter(None, (topic, channel)):
        check_name(name)
    access = session.usable_access()
    if nsqd_tcp_address:
        access = attrs.evolve(access, nsqd_tcp_addresses=nsqd_tcp_address)
    printer = _Printer(session.reactor, n, delimiter_of(delimiter), is_json=json, shows_headers=headers)
    finds_by_lookup = bool(access.lookupd_http_addresses) and not access.nsqd_tcp_addresses
    if not access.nsqd_tcp_addresses:
        await _prepare(session, topic, channel, is_waiting=finds_by_lookup, must_create=create)
    # An nsqlookupd is asked again and again, and names nodes that get the topic later.
    nsqds = [] if finds_by_lookup else await nsqd_addresses(access, topic)
    if finds_by_lookup and not await registered_nsqds(access, topic):
        session.say(f"no node has a topic {topic!r} yet; waiting for one")
    problems = Problems(session, lambda: consumer.stop(_STOP_SECONDS))
    consumer = Consumer(
        topic,
        channel or f"tail-{secrets.token_hex(4)}{EPHEMERAL}",
        printer.handle,
        nsqd=nsqds,
        lookupd=access.lookupd_http_addresses if finds_by_lookup else (),
        on_problem=problems.add,
        options=client_options(
            access,
            max_in_flight=min(_MAX_IN_FLIGHT, n or _MAX_IN_FLIGHT),
            max_attempts=0,
            lookupd_poll_interval=5.0,
            headers=headers,
        ),
    )
    printer.consumer = consumer
    watcher = PipeWatcher(session.reactor, lambda: consumer.stop(_STOP_SECONDS))
    looking: Deferred[None] | None = None
    try:
        await consumer.start()
        problems.show()
        if is_stderr_terminal() and is_stdout_terminal():
            session.say(_introduction(topic, channel))
        looking = Deferred.fromCoroutine(_tell_pause(session, printer, topic, channel))
        await consumer.wait_stopped()
    except CancelledError:
        if is_stderr_terminal():  # the line has ^C on it
            session.say("")
        await consumer.stop(_STOP_SECONDS)
        return ExitCode.INTERRUPTED if n else ExitCode.DONE
    finally:
        watcher.stop()
        if looking is not None:
            looking.addErrback(_ignore_cancellation)
            looking.cancel()
            await looking
    if problems.refusal is not None:
        raise problems.refusal
    if isinstance(printer.failure, BrokenPipeError):
        raise printer.failure
    if printer.failure is not None:
        raise cannot_write(printer.failure)
    return ExitCode.DONE


async def _prepare(session: Session, topic: str, channel: str | None, *, is_waiting: bool, must_create: bool) -> None:
    """
    Create the topic and the channel if they must be; otherwise tell of a channel that the subscription creates. Nodes
    that cannot be asked are told of later. NotFound for a topic that no node has, unless the consumer waits for one.
    """
    async with session.cluster() as cluster:
        if must_create:
            session.value_of(await cluster.create(topic, channel or ""))
            session.exit_code = ExitCode.DONE
            return
        try:
            nodes = (await cluster.topic_nodes(topic)).value
            channels = (await cluster.topic(topic)).value.channels if nodes else ()
        except NsqtwError:
            return
    if not nodes and not is_waiting:
        raise NotFound(f"no node has a topic {topic!r}; --create makes it, and 'nsqtw topic list' shows the others")
    if nodes and channel is not None and all(found.channel_name != channel for found in channels):
        gets = ": it gets the messages from now on" if channels else ""
        session.say(f"channel {channel} of topic {topic} is created{gets}")


def _introduction(topic: str, channel: str | None) -> str:
    if channel is None:
        return f"copies of the new messages of {topic}; Ctrl-C stops"
    return f"consuming {topic}/{channel}: each message is finished after it is printed; Ctrl-C stops"


def _ignore_cancellation(failure: Failure) -> None:
    failure.trap(CancelledError)  # type: ignore[no-untyped-call]


async def _tell_pause(session: Session, printer: _Printer, topic: str, channel: str | None) -> None:
    """Tell the user when no message comes because of a pause. Nodes that cannot be asked are none."""
    await deferLater(session.reactor, _SILENT_SECONDS)
    if printer.has_printed:
        return
    with suppress(NsqtwError):
        async with session.cluster() as cluster:
            found = (await cluster.topic(topic)).value
        if found.is_paused:
            session.say(f"topic {topic} is paused: 'nsqtw topic unpause {topic}' resumes it")
        if any(entry.is_paused for entry in found.channels if entry.channel_name == channel):
            session.say(f"channel {channel} is paused: 'nsqtw channel unpause {topic} {channel}' resumes it")


class _Printer:
    """Prints messages, and stops the consumer after `left` of them, or when stdout cannot be written."""

    def __init__(self, reactor: Reactor, left: int | None, end: bytes, *, is_json: bool, shows_headers: bool) -> None:
        self._reactor = reactor
        self._left = left
        self._is_json = is_json
        self._shows_headers = shows_headers
        self._end = end
        self.consumer: Consumer | None = None
        self.failure: OSError | None = None
        self.has_printed = False
        self._pipe = Pipe.of_stdout()

    async def handle(self, message: Message) -> None:
        """Print a message. It is finished when this returns, and not when stdout failed or its reader is gone."""
        assert self.consumer is not None
        if self._left == 0 or self.failure is not None:
            message.requeue(0, backoff=False)
            return
        try:
            write_message(self._text(message), b"\n" if self._is_json else self._end)
            self.has_printed = True
            if self._pipe is not None:
                await self._pipe.read_by_other(self._reactor)
        except OSError as error:
            self.failure = error
            message.requeue(0, backoff=False)
            self.consumer.stop(_STOP_SECONDS)
            return
        if self._left is not None:
            self._left -= 1
            if not self._left:
                message.finish()
                self.consumer.stop(_STOP_SECONDS)

    def _text(self, message: Message) -> bytes:
        if self._is_json:
            document = document_of(message)
            if self._shows_headers:
                document["headers"] = dict(message.headers)
            return json_text(document).encode()
        return (f"{headers_text(message.headers)}\t".encode() if self._shows_headers else b"") + message.body


def document_of(message: Message) -> dict[str, Any]:
    """Return a message for JSON."""
    time = datetime.fromtimestamp(message.timestamp / 10**9, UTC).isoformat(timespec="milliseconds")
    return {
        "id": message.id.decode("latin-1"),
        "time": time.replace("+00:00", "Z"),
        "timestamp": message.timestamp,
        "attempts": message.attempts,
        "node": message.nsqd_address,
        **body_fields(message.body),
    }
