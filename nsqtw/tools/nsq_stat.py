"""`nsq_stat`: prints rates and depths of a channel, a line each interval."""

from __future__ import annotations

import json
from typing import TypeVar

import attrs

from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.http import Timeouts
from nsqtw.cluster.model import ChannelStats, Partial
from nsqtw.errors import ClusterError, UnknownObject
from nsqtw.options.fields import option
from nsqtw.options.types import DURATION, INTEGER, TEXT, TEXTS, choice
from nsqtw.printing import write_line, write_lines
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
_LINE = "{:7d} {:7d} | {:7d} {:7d} {:7d} {:5d} {:5d} | {:7d} {:7d} {:12d} {:7d}"


V = TypeVar("V")


@attrs.frozen
class ChannelCounts:
    """Counts of a channel, summed over nsqds. `depth` includes `disk`."""

    depth: int
    disk: int
    in_flight: int
    deferred: int
    requeued: int
    timed_out: int
    messages: int
    clients: int

    @classmethod
    def of(cls, channel: ChannelStats) -> ChannelCounts:
        """Return the counts of a channel."""
        return cls(
            channel.depth,
            channel.backend_depth,
            channel.in_flight_count,
            channel.deferred_count,
            channel.requeue_count,
            channel.timeout_count,
            channel.message_count,
            channel.client_count,
        )

    @property
    def memory(self) -> int:
        """The messages that wait in memory."""
        return self.depth - self.disk


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
    cluster = Cluster(
        run.reactor,
        nsqds=options.nsqd_http_address,
        lookupds=options.lookupd_http_address,
        timeouts=Timeouts(options.http_client_connect_timeout, options.http_client_request_timeout),
    )
    run.on_hang_up(run.stop)
    before: ChannelCounts | None = None
    polls = 0
    while not run.is_stopping and (options.count is None or polls <= options.count):
        now = await _poll(cluster, options)
        if options.output == TABLE and polls % _HEAD_EVERY == 0:
            write_lines(_HEAD)
        if before is not None:
            write_line(_json(before, now, options) if options.output == JSON else _line(before, now, options))
        before = now
        polls += 1
        await run.sleep(options.interval)


async def _poll(cluster: Cluster, options: StatOptions) -> ChannelCounts:
    topic, channel = options.topic, options.channel
    try:
        nodes = _whole(await cluster.topic_nodes(topic))
    except ClusterError as error:
        raise ToolError(f"ERROR: failed to get topic producers - {error}") from error
    if not nodes:
        raise ToolError(f"ERROR: failed to get nsqd stats - failed to query any nsqd: none has topic {topic}")
    try:
        return ChannelCounts.of(_whole(await cluster.channel_on(nodes, topic, channel, has_clients=False)))
    except UnknownObject as error:
        text = f"failed to find channel({channel}) in stats metadata for topic({topic})"
        raise ToolError(f"ERROR: {text}") from error
    except ClusterError as error:
        raise ToolError(f"ERROR: failed to get nsqd stats - {error}") from error


def _whole(result: Partial[V]) -> V:
    """Return a result. ClusterError when a server failed: rates of a part of the nsqds would mislead."""
    if result.warnings:
        raise ClusterError("\n".join(result.warnings))
    return result.value


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
    return json.dumps({"ingress": ingress, "egress": egress, "memory": now.memory, **attrs.asdict(now)})


TOOL = Tool("nsq_stat", "print rates and depths of a channel", StatOptions, _mistake, _run)
main = TOOL.main
