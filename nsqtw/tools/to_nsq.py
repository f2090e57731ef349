"""
`to_nsq`: publishes the records of stdin.

Each record is published to every nsqd. The original cuts the last byte off a final record without a delimiter, and has
no --version; this one publishes it whole.
"""

from __future__ import annotations

import attrs
from twisted.internet.task import deferLater

from nsqtw.client.event_loop import Future
from nsqtw.client.options import TOOL_AGENT, ClientOptions
from nsqtw.client.twisted import Producer
from nsqtw.errors import ClientLibraryError
from nsqtw.options.fields import option
from nsqtw.options.types import INTEGER, TEXT, TEXTS
from nsqtw.tools.program import Run, Tool, ToolError
from nsqtw.tools.sources import CLIENT_OPTIONS
from nsqtw.tools.stdin import StdinMessages

_IN_FLIGHT = 1000
"""Publishes without an answer, to each nsqd."""


@attrs.define(kw_only=True)
class ToNsqOptions:
    """The options of to_nsq."""

    topic: str = option(TEXT, "", "NSQ topic to publish to")
    nsqd_tcp_address: tuple[str, ...] = option(TEXTS, (), "destination nsqd TCP address (may be given multiple times)")
    delimiter: str = option(TEXT, "\n", "character to split input from stdin (defaults to newline)")
    rate: int = option(INTEGER, 0, "throttle messages to n/second. 0 to disable")
    producer_opt: tuple[str, ...] = option(
        CLIENT_OPTIONS, (), "option to passthrough to nsq.Producer (may be given multiple times)"
    )


def _mistake(options: ToNsqOptions) -> str:
    if not options.topic:
        return "--topic required"
    if len(options.delimiter.encode()) != 1:
        return "--delimiter must be a single byte"
    if not options.nsqd_tcp_address:
        return "--nsqd-tcp-address required"
    return ""


async def _run(options: ToNsqOptions, run: Run) -> None:
    client_options = ClientOptions.from_texts(options.producer_opt, user_agent=f"{run.name}/{TOOL_AGENT}")
    producers = [Producer(address, options=client_options) for address in options.nsqd_tcp_address]
    throttle = _Throttle(options.rate, run) if options.rate > 0 else None
    if throttle is not None:
        run.say(f"Throttling messages rate to max:{options.rate}/second")
    reader = StdinMessages(run.reactor, options.delimiter.encode())
    run.on_stop(reader.end)
    try:
        waiting: list[Future[None]] = []
        async for record in reader:
            if throttle is not None:
                await throttle.take()
            waiting += [producer.publish(options.topic, record) for producer in producers]
            if throttle is not None or len(waiting) >= _IN_FLIGHT or reader.is_idle:
                await _answers(waiting)
        await _answers(waiting)
    finally:
        for producer in producers:
            await producer.stop()


async def _answers(waiting: list[Future[None]]) -> None:
    """Wait for the answers to publishes. ToolError for the first that failed."""
    failure: ClientLibraryError | None = None
    for future in waiting:
        try:
            await future
        except ClientLibraryError as error:
            failure = failure or error
    waiting.clear()
    if failure is not None:
        raise ToolError(str(failure))


class _Throttle:
    """At most `rate` records a second, one at a time."""

    def __init__(self, rate: int, run: Run) -> None:
        self._interval = 1 / rate
        self._run = run
        self._next = run.reactor.seconds()

    async def take(self) -> None:
        """Wait until the next record may be published."""
        now = self._run.reactor.seconds()
        if self._next > now:
            await deferLater(self._run.reactor, self._next - now)
        self._next = max(now, self._next) + self._interval


TOOL = Tool("to_nsq", "publish the records of stdin", ToNsqOptions, _mistake, _run)
main = TOOL.main
