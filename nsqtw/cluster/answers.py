"""
Answers of nsqd and nsqlookupd as models: the border behind which every value has its type and its bounds.

Whatever a server sends becomes a model or ServerFailed, so that it costs the figures of that server alone
(`nsqtw.cluster.fields`). Further values are ignored. The number of values in a document is checked before it is
parsed, that of topics, channels and clients before there are models of them: one server has a bounded part of the
memory.
"""

from __future__ import annotations

import base64
import json
import re
from binascii import Error as Base64Error
from collections.abc import Iterable
from typing import Any

import attrs

from nsqtw.cluster import fields as read
from nsqtw.cluster.fields import JsonObject
from nsqtw.cluster.model import (
    CHANNEL_COUNTS,
    TOPIC_COUNTS,
    Cancelled,
    ChannelStats,
    ConsumerStats,
    CountNames,
    DrainState,
    Latency,
    Message,
    MessageHolder,
    Node,
    NodeMessages,
    NodePolicy,
    NodeStats,
    NodeTopic,
    OptionChange,
    Percentile,
    ProducerStats,
    RedriveProgress,
    ReloadReport,
    Retention,
    Seek,
    TopicStats,
)
from nsqtw.errors import ServerFailed
from nsqtw.replication.status import ReplicaStatus, StandbyStatus

MAX_VALUES = 1_000_000
"""Values in the document of an nsqd. A topic with a channel has 28."""
MAX_PARTS = 60_000
"""Topics, channels and clients of an nsqd. One that is kept takes about 1 KB."""
MAX_PARTS_TOGETHER = 5 * MAX_PARTS
"""Topics and channels of all nsqds together; without those with the most of them when there are more."""

_MILLISECONDS = 1000.0
_DEFAULT_DURABILITY = "os"
_MEMORY = (
    *("heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes"),
    *("gc_pause_usec_100", "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes", "gc_total_runs"),
)
_MAX_PERCENTILES = 100
_MAX_STANDBYS = 100
_DIGITS = 18
"""Digits of the largest number in a version. Python refuses to read one of thousands."""
_BEHIND = ("behind_transactions", "behind_messages", "behind_bytes")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_VERSION = re.compile(
    r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)


def document_in(body: bytes, most_values: int | None = None) -> JsonObject:
    """Return the JSON object of an answer; none for an empty one. ServerFailed, also with more than `most_values`."""
    if most_values is not None and _has_more(body, most_values):
        raise ServerFailed(f"the answer has more than {most_values} values")
    try:
        document = json.loads(body or b"{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ServerFailed(f"the answer is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise ServerFailed("the answer is no JSON object")
    return document


def names_in(document: JsonObject, key: str) -> tuple[str, ...]:
    """Return a list of names. ServerFailed."""
    return read.texts(document, key)


def nodes_in(document: JsonObject) -> tuple[Node, ...]:
    """Return the producers of /nodes or /lookup. ServerFailed."""
    return tuple(map(_node, read.objects(document, "producers")))


def node_in(info: JsonObject, topics: Iterable[str]) -> Node:
    """Return an nsqd from its /info and the names of its topics. ServerFailed."""
    named = {key: value for key, value in info.items() if key not in ("topics", "tombstones", "remote_address")}
    return attrs.evolve(_node(named), topics=tuple(NodeTopic(topic) for topic in topics))


def topic_names_in(stats: JsonObject) -> tuple[str, ...]:
    """Return the topics of /stats. ServerFailed."""
    return tuple(read.name(topic, "topic_name") for topic in read.objects(stats, "topics"))


def channel_names_in(stats: JsonObject, topic: str) -> tuple[str, ...]:
    """Return the channels of a topic in /stats. ServerFailed."""
    return tuple(
        read.name(channel, "channel_name")
        for found in read.objects(stats, "topics")
        if read.name(found, "topic_name") == topic
        for channel in read.objects(found, "channels")
    )


def node_stats_in(stats: JsonObject, node: Node, nsqtw_version: str) -> NodeStats:
    """Return a node from its /stats. ServerFailed."""
    memory, disk = read.typed(stats, "memory", dict, {}), read.typed(stats, "disk", dict, {})
    replica = read.typed(stats, "replica", dict, None)
    return NodeStats(
        node=node,
        topics=topics_in(stats, node, bool(nsqtw_version)),
        health=read.text(stats, "health"),
        start_time=read.integer(stats, "start_time"),
        memory={name: read.count(memory, name) for name in _MEMORY if name in memory},
        nsqtw_version=nsqtw_version,
        producers=_producers(stats, node),
        disk_free=read.optional_count(disk, "free_bytes"),
        disk_capacity=read.optional_count(disk, "capacity_bytes"),
        disk_stored=read.optional_count(disk, "stored_bytes"),
        replica=None if replica is None else replica_in(replica),
    )


def replica_in(document: JsonObject) -> ReplicaStatus:
    """Return the state of a broker with a replica store, of /stats or /v2/replica. ServerFailed."""
    values: dict[str, Any] = {
        **{name: read.text(document, name) for name in ("role", "data_set", "identity", "owner", "error")},
        **{name: read.count(document, name) for name in ("epoch", "lsn", *_BEHIND)},
        **{name: read.number(document, name) for name in ("lease_left", "behind_seconds")},
    }
    standbys = tuple(map(_standby, read.objects(document, "standbys")[:_MAX_STANDBYS]))
    return ReplicaStatus(**values, standbys=standbys)


def topics_in(stats: JsonObject, node: Node, is_nsqtw: bool) -> tuple[TopicStats, ...]:
    """Return the topics of /stats of a node. ServerFailed."""
    topics = read.objects(stats, "topics")
    channels = [channel for fields in topics for channel in read.objects(fields, "channels")]
    parts = len(topics) + len(channels) + sum(len(read.array(channel, "clients")) for channel in channels)
    if parts > MAX_PARTS:
        raise ServerFailed(f"the answer has more than {MAX_PARTS} topics, channels and clients")
    return tuple(_topic(fields, node, is_nsqtw) for fields in topics)


def messages_in(document: JsonObject, node: str) -> NodeMessages:
    """Return the messages of /v2/channel/messages or /v2/topic/messages. ServerFailed."""
    messages = tuple(_message(fields, node) for fields in read.objects(document, "messages"))
    return NodeMessages(
        node=node, messages=messages, has_more=read.boolean(document, "more"), next=read.text(document, "next")
    )


def seek_in(document: JsonObject, node: str) -> Seek:
    """Return the result of /v2/channel/seek. ServerFailed."""
    counts = {name: read.count(document, name) for name in ("position", "skipped", "replayed", "depth")}
    return Seek(node=node, max_drops=read.count({"max_drops": 0, **document}, "max_drops"), **counts)


def drops_in(fields: JsonObject) -> int | None:
    """Return how many messages the bounds of a channel would drop as a dry run says; 0 when it says nothing."""
    return read.optional_count({"drops": 0, **fields}, "drops")


def policy_in(document: JsonObject, node: str) -> NodePolicy:
    """Return the policy of /v2/topic/policy or /v2/channel/policy. ServerFailed."""
    found: JsonObject = read.typed(document, "settings", dict, {})
    settings = {
        read.unicode(name, "settings"): {
            "value": read.plain(read.checked(setting, dict, name).get("value"), name),
            "source": read.text(setting, "source"),
        }
        for name, setting in found.items()
    }
    given = read.plain_values(document, "set")
    return NodePolicy(node=node, settings=settings, given=given, unused=read.texts(document, "unused"))


def redrive_in(document: JsonObject, node: str) -> RedriveProgress:
    """Return the progress of /v2/channel/redrive. ServerFailed."""
    counts = {name: read.count(document, name) for name in ("total", "redriven", "others")}
    return RedriveProgress(node=node, state=read.text(document, "state"), error=read.text(document, "error"), **counts)


def cancelled_in(document: JsonObject, node: str) -> Cancelled:
    """Return the result of /v2/topic/cancel. ServerFailed."""
    message_id, is_released, names = (document.get(name) for name in ("id", "released", "channels"))
    if not isinstance(message_id, str) or not isinstance(is_released, bool) or not isinstance(names, list):
        raise ServerFailed("the answer to a cancellation has no id, released and channels")
    channels = read.texts(document, "channels")
    return Cancelled(node=node, id=read.text(document, "id"), is_released=is_released, channels=channels)


def drain_state_in(document: JsonObject, node: str) -> DrainState:
    """Return the state of a drain, of /v2/drain. ServerFailed."""
    return DrainState(
        node=node,
        is_draining=read.boolean(document, "draining"),
        seconds=read.optional_number(document, "seconds"),
        seconds_left=read.optional_number(document, "seconds_left"),
        **{name: read.count(document, name) for name in ("depth", "in_flight", "deferred", "staying")},
    )


def reload_in(document: JsonObject, node: str) -> ReloadReport:
    """Return the report of /v2/reload. ServerFailed."""
    failed: JsonObject = read.typed(document, "failed", dict, {})
    return ReloadReport(
        node=node,
        changed=tuple(map(_change, read.objects(document, "changed"))),
        restart=tuple(map(_change, read.objects(document, "restart"))),
        files=read.texts(document, "files"),
        failed={read.unicode(name, "failed"): read.text(failed, name) for name in failed},
        unchanged=read.texts(document, "unchanged"),
    )


def with_outdated_marked(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes, with a mark at those whose version is older than the newest."""
    found = tuple(nodes)
    newest = max((version_key(node.version) for node in found), default=())
    return tuple(attrs.evolve(node, is_outdated=version_key(node.version) < newest) for node in found)


def version_key(version: str) -> tuple[Any, ...]:
    """Return the order of a semantic version; one that is none is 0.0.0."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (0, 0, 0, 1)
    numbers = tuple(int(number) for number in match.group(1, 2, 3))
    if match[4] is None:
        return (*numbers, 1)
    parts = tuple(
        (0, int(part), "") if part.isdigit() and len(part) <= _DIGITS else (1, 0, part) for part in match[4].split(".")
    )
    return (*numbers, 0, parts)


# -- parts


def _node(fields: JsonObject) -> Node:
    names = read.texts(fields, "topics")
    tombstones = [read.checked(flag, bool, "tombstones") for flag in read.array(fields, "tombstones")][: len(names)]
    tombstones += [False] * (len(names) - len(tombstones))
    return Node(
        broadcast_address=read.text(fields, "broadcast_address"),
        hostname=read.text(fields, "hostname"),
        tcp_port=read.integer(fields, "tcp_port"),
        http_port=read.integer(fields, "http_port"),
        version=read.text(fields, "version"),
        remote_address=read.text(fields, "remote_address"),
        topology_zone=read.text(fields, "topology_zone"),
        topology_region=read.text(fields, "topology_region"),
        topics=tuple(sorted(map(NodeTopic, names, tombstones), key=lambda topic: topic.topic)),
    )


def _counts(fields: JsonObject, names: CountNames) -> dict[str, Any]:
    counts: dict[str, int | None] = {name: read.count(fields, name) for name in names.always}
    return counts | {name: read.optional_count(fields, name) for name in names.optional}


def _topic(fields: JsonObject, node: Node, is_nsqtw: bool) -> TopicStats:
    name = read.name(fields, "topic_name")
    durability = read.text(fields, "durability")
    channels = tuple(_channel(channel, node, name) for channel in read.objects(fields, "channels"))
    return TopicStats(
        node=node.http_address,
        hostname=node.hostname,
        topic_name=name,
        **_counts(fields, TOPIC_COUNTS),
        channels=channels,
        is_paused=read.boolean(fields, "paused"),
        latency=_latency(fields),
        durability=(durability or _DEFAULT_DURABILITY) if is_nsqtw else None,
        retention=_retention(fields),
        policy=read.plain_values(fields, "policy"),
        own_deferred_count=read.count(fields, "deferred_count"),
        oldest_message_age=max(
            (age for channel in channels if (age := channel.oldest_message_age) is not None), default=None
        ),
    )


def _channel(fields: JsonObject, node: Node, topic: str) -> ChannelStats:
    return ChannelStats(
        node=node.http_address,
        hostname=node.hostname,
        topic_name=topic,
        channel_name=read.name(fields, "channel_name"),
        **_counts(fields, CHANNEL_COUNTS),
        clients=tuple(_client(client, node) for client in read.objects(fields, "clients")),
        is_paused=read.boolean(fields, "paused"),
        latency=_latency(fields),
        oldest_message_age=read.optional_number(fields, "oldest_message_age_seconds"),
        policy=read.plain_values(fields, "policy"),
    )


def _client(fields: JsonObject, node: Node) -> ConsumerStats:
    values: dict[str, Any] = {name: reader(fields, name) for name, reader in _CLIENT_FIELDS}
    return ConsumerStats(
        node=node.http_address,
        node_topology_region=node.topology_region,
        node_topology_zone=node.topology_zone,
        **values,
    )


def _standby(fields: JsonObject) -> StandbyStatus:
    return StandbyStatus(
        identity=read.text(fields, "identity"),
        address=read.text(fields, "address"),
        behind_transactions=read.count(fields, "behind_transactions"),
        seconds_ago=read.number(fields, "seconds_ago"),
    )


def _producers(stats: JsonObject, node: Node) -> tuple[ProducerStats, ...]:
    found = read.objects(stats, "producers")
    if len(found) + sum(len(read.array(producer, "pub_counts")) for producer in found) > MAX_PARTS:
        raise ServerFailed(f"the answer has more than {MAX_PARTS} producers and topics of them")
    return tuple(ProducerStats(client=_client(fields, node), published=_published(fields)) for fields in found)


def _published(fields: JsonObject) -> tuple[tuple[str, int], ...]:
    counts = read.objects(fields, "pub_counts")
    return tuple((read.name(count, "topic"), read.count(count, "count")) for count in counts)


def _latency(fields: JsonObject) -> Latency | None:
    found = read.typed(fields, "e2e_processing_latency", dict, None)
    if found is None:
        return None
    count = read.count(found, "count")
    percentiles = []
    for percentile in read.objects(found, "percentiles")[:_MAX_PERCENTILES]:
        value = read.number(percentile, "value")
        percentiles.append(
            Percentile(
                quantile=read.number(percentile, "quantile"),
                average=value,
                minimum=value,
                maximum=value,
                count=count,
                value=value,
            )
        )
    return Latency(count=count, percentiles=tuple(percentiles))


def _retention(fields: JsonObject) -> Retention | None:
    found = read.typed(fields, "retention", dict, None)
    if found is None:
        return None
    return Retention(
        time=read.integer(found, "time_ms") / _MILLISECONDS,
        bytes=read.count(found, "bytes"),
        earliest=read.integer(found, "earliest"),
    )


def _message(fields: JsonObject, node: str) -> Message:
    body: bytes
    text: str = read.typed(fields, "body", str, "")
    if read.text(fields, "encoding") == "base64":
        try:
            body = base64.b64decode(text, validate=True)
        except (Base64Error, ValueError) as error:
            raise ServerFailed("the body of a message is no base64") from error
    else:
        body = text.encode("utf-8", "replace")
    consumer = read.typed(fields, "consumer", dict, None)
    return Message(
        node=node,
        id=read.text(fields, "id"),
        timestamp=read.integer(fields, "timestamp"),
        attempts=read.integer(fields, "attempts"),
        body=body,
        due=read.optional_integer(fields, "due"),
        deadline=read.optional_integer(fields, "deadline"),
        consumer=None
        if consumer is None
        else MessageHolder(
            client_id=read.text(consumer, "client_id"),
            hostname=read.text(consumer, "hostname"),
            remote_address=read.text(consumer, "remote_address"),
        ),
        headers=_headers(fields),
    )


def _headers(fields: JsonObject) -> dict[str, str]:
    found: JsonObject = read.typed(fields, "headers", dict, {})
    return {
        read.unicode(name, "headers"): read.unicode(read.checked(value, str, name), name)
        for name, value in found.items()
    }


def _change(fields: JsonObject) -> OptionChange:
    old, new = (_option_value(fields.get(key), key) for key in ("old", "new"))
    return OptionChange(option=read.text(fields, "option"), old=old, new=new)


def _option_value(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return [read.plain(entry, key) for entry in value]
    return None if value is None else read.plain(value, key)


# -- documents


def _has_more(document: bytes, most: int) -> bool:
    """Return whether a document has more than so many values. Bodies of messages may have any signs in their texts."""
    if _signs(document, 0, len(document)) <= most:
        return False
    found = end = 0
    for match in _STRING.finditer(document):
        found += _signs(document, end, match.start())
        if found > most:
            return True
        end = match.end()
    return found + _signs(document, end, len(document)) > most


def _signs(document: bytes, start: int, end: int) -> int:
    """Return how many signs of a part of a document may have a value behind them."""
    return sum(document.count(sign, start, end) for sign in (b",", b"{", b"["))


def _refuse_constant(name: str) -> None:
    raise ServerFailed(f"the answer has a number out of range: {name}")


_CLIENT_FIELDS = tuple(
    (field.name, {"str": read.text, "int": read.integer, "bool": read.boolean}[str(field.type)])
    for field in attrs.fields(ConsumerStats)
    if field.name not in ("node", "node_topology_region", "node_topology_zone")
)
