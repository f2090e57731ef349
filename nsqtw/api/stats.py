"""
GET /ping, /info, /stats and /debug/places: the state of a broker.

The text of /stats is made from the same document as its JSON. Users read it, and tools split it by its columns.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from nsqtw import NSQ_VERSION
from nsqtw.api.context import ApiContext
from nsqtw.backends.files import Files
from nsqtw.gocompat.time import local_time_text
from nsqtw.http.bearer_auth import ANY_RIGHT, FREE
from nsqtw.http.endpoints import A_DOCUMENT, AN_OK, BAD_QUERY, CHANNEL, JSON, TEXT, TOPIC, Parameter, Section, endpoint
from nsqtw.http.query import parameters
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, document, plain, text
from nsqtw.http.version import HEADER, versioned
from nsqtw.options.broker_address import hostname
from nsqtw.options.texts import duration_text
from nsqtw.replication.status import OWNER, SILENT_SECONDS
from nsqtw.runtime.memory import undisturbed
from nsqtw.runtime.process_memory import memory
from nsqtw.stats.document import document as stats_document
from nsqtw.stats.metrics import CHANNEL_METRICS, TOPIC_METRICS, Metric

_OFF = ("false", "0")
_ON = ("true", "1")
_NS = 10**9
_LATENCY_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "us"))


def _flag(name: str) -> Parameter:
    return Parameter(name, {"type": "string", "enum": ["true", "false"]})


_FORMAT = Parameter("format", {"type": "string", "enum": ["json", "text"]})
_STATS = {TEXT: {"type": "string"}, JSON: {"type": "object", "required": ["version", "health", "topics"]}}


class Inspection(Section):
    """Shows the state of a broker."""

    def __init__(self, context: ApiContext) -> None:
        self._broker = context.broker
        self._limits = context.limits
        self._pump = context.pump
        self._identity = context.identity
        self._view = context.view

    @endpoint(
        "GET",
        "/ping",
        "Whether the last attempt to store something went well",
        success=AN_OK,
        errors={500: []},
        needs=FREE,
        broken=None,
    )
    def ping(self, request: HttpRequest) -> Answer:
        """GET /ping: whether the last attempt to store something went well."""
        health = str(self._broker.health)
        return plain(200 if health == "OK" else 500, health)

    @endpoint(
        "GET",
        "/info",
        "Version, addresses, ports and limits",
        optional=(_flag("include_version"),),
        success=A_DOCUMENT,
        needs=ANY_RIGHT,
        broken=None,
    )
    def info(self, request: HttpRequest) -> Answer:
        """GET /info. Durations are nanoseconds."""
        options = self._broker.options
        return versioned(
            request,
            {
                "version": NSQ_VERSION,
                "broadcast_address": options.broadcast_address,
                "hostname": hostname(),
                "http_port": self._identity.http_port,
                "tcp_port": self._identity.tcp_port,
                "start_time": self._broker.start_time,
                "max_heartbeat_interval": round(options.max_heartbeat_interval * _NS),
                "max_output_buffer_size": options.max_output_buffer_size,
                "max_output_buffer_timeout": round(options.max_output_buffer_timeout * _NS),
                "max_deflate_level": options.max_deflate_level,
                "topology_zone": options.topology_zone,
                "topology_region": options.topology_region,
            },
        )

    @endpoint(
        "GET",
        "/stats",
        "Topics, channels and clients",
        optional=(
            *(_FORMAT, TOPIC, CHANNEL, _flag("include_clients"), _flag("include_mem"), _flag("include_limits")),
            *(_flag("include_version"), _flag("include_ages"), _flag("include_deferred"), _flag("include_disk")),
        ),
        success=_STATS,
        errors=BAD_QUERY,
        needs=ANY_RIGHT,
    )
    def stats(self, request: HttpRequest) -> Answer:
        with undisturbed():
            return self._stats(request)

    def _stats(self, request: HttpRequest) -> Answer:
        params = parameters(request.query)
        document_ = stats_document(
            self._broker,
            NSQ_VERSION,
            now=self._pump.now(),
            topic=params.get("topic", ""),
            channel=params.get("channel", ""),
            include_clients=params.get("include_clients") not in _OFF,
            memory=memory() if params.get("include_mem") not in _OFF else None,
            ages=self._view.oldest.ages() if params.get("include_ages") in _ON else None,
            include_deferred=params.get("include_deferred") in _ON,
            replica=None if self._view.replica is None else self._view.replica.status(),
        )
        if params.get("include_disk") in _ON:
            document_["disk"] = self._disk_document()
        if params.get("include_limits") in _ON or self._limits.rejections.counts:
            document_["limits"] = self._limits_document()
        if params.get("format") == "json":
            return versioned(request, document_)
        shown = stats_text(document_, self._identity.version_line, time.time_ns())
        return text(shown.encode("utf-8", "replace"), HEADER)

    @endpoint(
        "GET",
        "/debug/places",
        "How many messages of each channel are in each place",
        optional=(TOPIC, CHANNEL),
        success=A_DOCUMENT,
        errors=BAD_QUERY,
        logged=False,
    )
    def places(self, request: HttpRequest) -> Answer:
        """GET /debug/places: the numbers of messages by topic, channel and place (`core.place`)."""
        params = parameters(request.query)
        names = [params.get(parameter.name, "") for parameter in (TOPIC, CHANNEL)]
        found: dict[str, dict[str, dict[str, int]]] = {}
        for topic in self._broker.topics.values():
            for channel in topic.channels.values() if names[0] in ("", topic.name) else ():
                if names[1] in ("", channel.name):
                    counts = {place.value: count for place, count in channel.places().items()}
                    found.setdefault(topic.name, {})[channel.name] = counts
        return document(found)

    def _disk_document(self) -> dict[str, int | None]:
        """Return the bytes of the data path; None for those of a file system that does not tell."""
        try:
            free, capacity = Files().free_space(self._view.data_path)
        except OSError:
            return {"free_bytes": None, "capacity_bytes": None, "stored_bytes": self._stored_bytes()}
        return {"free_bytes": free, "capacity_bytes": capacity, "stored_bytes": self._stored_bytes()}

    def _stored_bytes(self) -> int:
        topics = self._broker.topics.values()
        return sum(topic.log.queue.size for topic in topics if not topic.log.is_in_memory)

    def _limits_document(self) -> dict[str, Any]:
        """Return the current values of the limits, and the addresses that exceeded one."""
        limits = self._limits
        return {
            "connections": limits.connection_limiter.count,
            "addresses": len(limits.connection_limiter.by_address),
            "unfinished_bytes": limits.partial_input.total,
            "topics": len(self._broker.topics),
            "channels": self._broker.quotas.channel_count,
            "over": dict(limits.rejections.counts),
        }


def stats_text(stats: dict[str, Any], version_line: str, now_ns: int) -> str:
    """The document of /stats as text. `now_ns` is the wall clock."""
    start_time = stats["start_time"]
    lines = [
        version_line,
        f"start_time {local_time_text(start_time)}",
        f"uptime {duration_text(max(0, now_ns - start_time * _NS))}",
        "",
        f"Health: {stats['health']}",
    ]
    if "replica" in stats:
        lines.append(_replica_line(stats["replica"]))
    if "memory" in stats:
        lines += ["", "Memory:", *(f"   {name:<25}\t{value}" for name, value in stats["memory"].items())]
    if "damage" in stats:
        counts = [(name, value) for name, value in stats["damage"].items() if name != "set_aside"]
        lines += ["", "Damage:", *(f"   {name:<25}\t{value}" for name, value in counts)]
        lines += [f"   set aside: {name}" for name in stats["damage"]["set_aside"]]
    lines += ["", "Topics:" if stats["topics"] else "Topics: None"]
    for number, topic in enumerate(stats["topics"] or ()):
        if number:
            lines.append("")
        lines += _topic_lines(topic, now_ns)
    lines += ["", "Producers:" if stats["producers"] else "Producers: None"]
    lines += [f"   {_client_text(client, now_ns)}" for client in stats["producers"] or ()]
    return "\n".join(lines) + "\n"


def _replica_line(replica: dict[str, Any]) -> str:
    """Return what a broker with a replica store is. A standby that has not reached the store knows no data set."""
    start = f"Replica: {replica['role']} of {replica['data_set'] or '-'}, epoch {replica['epoch']}"
    if replica["role"] != OWNER:
        return f"{start}, transactions behind: {replica['behind_transactions']}"
    running = sum(standby["seconds_ago"] <= SILENT_SECONDS for standby in replica["standbys"])
    return f"{start}, standbys that run: {running}"


def _topic_lines(topic: dict[str, Any], now_ns: int) -> Iterator[str]:
    yield (
        f"{'*P ' if topic['paused'] else '   '}[{topic['topic_name']:<15}]"
        f"{_columns(TOPIC_METRICS.columns, topic)} e2e%: {_latencies(topic)}"
        f"{_columns(TOPIC_METRICS.extra_columns, topic)}"
    )
    for channel in topic["channels"]:
        yield (
            f"{'   *P ' if channel['paused'] else '      '}[{channel['channel_name']:<25}]"
            f"{_columns(CHANNEL_METRICS.columns, channel)} e2e%: {_latencies(channel)}"
            f"{_columns(CHANNEL_METRICS.extra_columns, channel)}"
        )
        for client in channel["clients"] or ():
            yield f"        {_client_text(client, now_ns)}"


def _columns(metrics: Iterable[Metric[Any]], numbers: dict[str, Any]) -> str:
    return "".join(metric.text(numbers) for metric in metrics)


def _latencies(latencies: dict[str, Any]) -> str:
    """The percentiles of a topic or channel, "" when none are measured."""
    measured = latencies["e2e_processing_latency"]["percentiles"] or ()
    return ", ".join(_latency_text(percentile["value"]) for percentile in measured)


def _latency_text(ns: float) -> str:
    for size, unit in _LATENCY_UNITS:
        if ns > size:
            return f"{ns / size:.1f}{unit}"
    return f"{ns:.1f}ns"


def _client_text(client: dict[str, Any], now_ns: int) -> str:
    port = client["remote_address"].rpartition(":")[2] if ":" in client["remote_address"] else ""
    name = f"{client['hostname']}:{port} {client['user_agent']}"
    connected = duration_text(max(0, now_ns // _NS - client["connect_ts"]) * _NS)
    start = f"[{client['version']} {name:<21}]"
    if "pub_counts" in client:
        total = sum(published["count"] for published in client["pub_counts"])
        topics = ",".join(f"{published['topic']}={published['count']}" for published in client["pub_counts"])
        return f"{start} msgs: {total:<8} topics: {topics} connected: {connected}"
    return (
        f"{start} state: {client['state']} inflt: {client['in_flight_count']:<4} rdy: {client['ready_count']:<4}"
        f" fin: {client['finish_count']:<8} re-q: {client['requeue_count']:<8}"
        f" msgs: {client['message_count']:<8} connected: {connected}"
    )
