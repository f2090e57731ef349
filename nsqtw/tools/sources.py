"""Options and connections that NSQ's consuming tools share."""

from __future__ import annotations

from typing import Any

import attrs

from nsqtw.client.consumer import Handler
from nsqtw.client.options import TOOL_AGENT, ClientOptions
from nsqtw.client.twisted import Consumer
from nsqtw.errors import OptionError
from nsqtw.names import is_valid_name
from nsqtw.options.fields import option
from nsqtw.options.types import TEXTS
from nsqtw.tools.program import Run, ToolError

STOP_SECONDS = 30.0
"""Time that a stop waits for the messages in hand; then they are requeued."""


def _client_option(text: str) -> tuple[str, ...]:
    """Check one option of the client library. ValueError."""
    try:
        ClientOptions.from_texts([text])
    except OptionError as error:
        raise ValueError(str(error)) from error
    return (text,)


CLIENT_OPTIONS = attrs.evolve(TEXTS, form="name,value", parse=_client_option)
"""Options of the client library, as `name,value`."""


@attrs.define(kw_only=True)
class SourceOptions:
    """The options of a tool that consumes."""

    nsqd_tcp_address: tuple[str, ...] = option(TEXTS, (), "nsqd TCP address (may be given multiple times)")
    lookupd_http_address: tuple[str, ...] = option(TEXTS, (), "lookupd HTTP address (may be given multiple times)")
    consumer_opt: tuple[str, ...] = option(
        CLIENT_OPTIONS, (), "option to passthrough to nsq.Consumer (may be given multiple times)"
    )


def source_mistake(options: SourceOptions) -> str:
    """Return what is wrong with the addresses, "" for nothing."""
    if not options.nsqd_tcp_address and not options.lookupd_http_address:
        return "--nsqd-tcp-address or --lookupd-http-address required"
    if options.nsqd_tcp_address and options.lookupd_http_address:
        return "use --nsqd-tcp-address or --lookupd-http-address not both"
    return ""


def make_consumer(
    run: Run,
    options: SourceOptions,
    topic: str,
    channel: str,
    handler: Handler | None,
    *,
    max_in_flight: int,
    **named: Any,
) -> Consumer:
    """Return a consumer that is not started. `named` are arguments of `Consumer`. ToolError."""
    if not is_valid_name(topic):
        raise ToolError("invalid topic name")
    if not is_valid_name(channel):
        raise ToolError("invalid channel name")
    client_options = ClientOptions.from_texts(
        options.consumer_opt, max_in_flight=max_in_flight, user_agent=f"{run.name}/{TOOL_AGENT}"
    )
    return Consumer(
        topic,
        channel,
        handler,
        nsqd=options.nsqd_tcp_address,
        lookupd=options.lookupd_http_address,
        options=client_options,
        **named,
    )


async def consume(run: Run, consumers: list[Consumer]) -> None:
    """
    Start consumers, and stop them when the tool is to stop: gracefully, up to STOP_SECONDS. Messages that are left then
    are requeued, which the log says. ConnectFailed when a direct nsqd cannot be reached.
    """
    for consumer in consumers:
        run.on_stop(consumer.stop)
        if not run.is_stopping:
            await consumer.start(needs_all=True)
    for consumer in consumers:
        requeued = await consumer.wait_stopped()
        if requeued:
            run.say(f"requeued {requeued} messages of topic {consumer.topic}")
