"""`nsq_stat`: prints rates and depths of a channel, a line each interval (suite specification 3.4)."""

from __future__ import annotations

import json
import sys

import attrs

from nsqtw.errors import LookupFailed
from nsqtw.options.fields import option
from nsqtw.options.types import DURATION, INTEGER, TEXT, TEXTS, choice
from nsqtw.tools.cluster import ChannelCounts, Cluster, Queries
from nsqtw.tools.program import Run, Tool, ToolError

TABLE, JSON = "table", "json"
"""The values of --output."""
COUNT = attrs.evolve(INTEGER, show=lambda count: "" if count is None else str(count))
"""A number that may be absent."""
_HEAD_EVERY = 25
_HEAD = (
    "------rate------+----------------depth----------------+--------------metadata---------------\n"
    "ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
)
_LINE = "{:7d} {:7d} | {:7d} {:7d} {:7d} {:5d} {:5d} | {:7d} {:7d} {:12d} {:7d}\n"


@attrs.define(kw_only=True)
class StatOptions:
    """The options of nsq_stat."""

    topic: str = option(TEXT, "", "NSQ topic")
    channel: str = option(TEXT, "", "NSQ channel")
    interval: float = option(DURATION, 2.0, "duration of time between polling/printing output")
    count: int | None = option(COUNT, None, "number of reports; unlimited unless given")
    http_client_connect_timeout: float = option(DURATION, 2.0, "timeout for HTTP connect")
    http_client_request_timeout: float = option(DURATION, 5.0, "timeout for HTTP request")
    nsqd_http_address: tuple[str, ...] = option(TEXTS, (), "nsqd HTTP address (may be given multiple times)")
    lookupd_http_address: tuple[str, ...] = option(TEXTS, (), "lookupd HTTP address (may be given multiple times)")
    output: str = option(choice(TABLE, JSON), TABLE, "table, or json: one object a line")


def _mistake(options: StatOptions) -> str:
    checks = (
        (not options.topic or not options.channel, "--topic and --channel are required"),
        (options.interval <= 0, "--interval should be positive"),
        (options.http_client_connect_timeout <= 0, "--http-client-connect-timeout should be positive"),
        (options.http_client_request_timeout <= 0, "--http-client-request-timeout should be positive"),
        (options.count is not None and options.count <= 0, "--count should be positive"),
        (
            not options.nsqd_http_address and not options.lookupd_http_address,
            "--nsqd-http-address or --lookupd-http-address required",
        ),
        (
            bool(options.nsqd_http_address and options.lookupd_http_address),
            "use --nsqd-http-address or --lookupd-http-address not both",
        ),
        *(
            (address.startswith("http"), f"--{flag} error - address should not contain scheme")
            for flag, addresses in (
                ("nsqd-http-address", options.nsqd_http_address),
                ("lookupd-http-address", options.lookupd_http_address),
            )
            for address in addresses
        ),
    )
    return next((text for is_wrong, text in checks if is_wrong), "")


async def _run(options: StatOptions, run: Run) -> None:
    queries = Queries(run.reactor, options.http_client_connect_timeout, options.http_client_request_timeout)
    cluster = Cluster(queries, options.nsqd_http_address, options.lookupd_http_address)
    run.on_hang_up(run.stop)
    before: ChannelCounts | None = None
    polls = 0
    while not run.is_stopping and (options.count is None or polls <= options.count):
        now = await _poll(cluster, options)
        if options.output == TABLE and polls % _HEAD_EVERY == 0:
            sys.stdout.write(_HEAD)
        if before is not None:
            sys.stdout.write(_json(before, now, options) if options.output == JSON else _line(before, now, options))
        sys.stdout.flush()
        before = now
        polls += 1
        await run.sleep(options.interval)


async def _poll(cluster: Cluster, options: StatOptions) -> ChannelCounts:
    try:
        producers = await cluster.producers(options.topic)
    except LookupFailed as error:
        raise ToolError(f"ERROR: failed to get topic producers - {error}") from error
    try:
        return await cluster.channel(producers, options.topic, options.channel)
    except LookupFailed as error:
        raise ToolError(f"ERROR: failed to get nsqd stats - {error}") from error


def _rates(before: ChannelCounts, now: ChannelCounts, interval: float) -> tuple[int, int]:
    """Return messages a second that came in and went out, rounded towards zero."""
    published = now.messages - before.messages
    return int(published / interval), int((published - (now.depth - before.depth)) / interval)


def _line(before: ChannelCounts, now: ChannelCounts, options: StatOptions) -> str:
    rates = _rates(before, now, options.interval)
    depths = (now.depth, now.memory, now.disk, now.in_flight, now.deferred)
    return _LINE.format(*rates, *depths, now.requeued, now.timed_out, now.messages, now.clients)


def _json(before: ChannelCounts, now: ChannelCounts, options: StatOptions) -> str:
    ingress, egress = _rates(before, now, options.interval)
    return json.dumps({"ingress": ingress, "egress": egress, "memory": now.memory, **attrs.asdict(now)}) + "\n"


TOOL = Tool("nsq_stat", "print rates and depths of a channel", StatOptions, _mistake, _run)
main = TOOL.main
