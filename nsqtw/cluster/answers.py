"""
Answers of nsqd and nsqlookupd as models.

Fields are read as NSQ's programs read them: a missing field or null is zero, other types are an error, and so are a
number that is not finite or beyond signed 64 bits, and a text that is no Unicode: one node must not spoil the figures
of all. What a server sends more than that is ignored.
"""

from __future__ import annotations

import base64
import json
import re
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from nsqtw.cluster.model import (
    Cancelled,
    ChannelStats,
    ConsumerStats,
    Latency,
    Message,
    MessageHolder,
    Node,
    NodeMessages,
    NodePolicy,
    NodeStats,
    NodeTopic,
    Percentile,
    RedriveProgress,
    Retention,
    Seek,
    TopicStats,
)
from nsqtw.errors import ServerFailed

JsonObject = Mapping[str, Any]
V = TypeVar("V")
N = TypeVar("N", int, float)

_MILLISECONDS = 1000.0
_AGE = "oldest_message_age_seconds"
_DEFAULT_DURABILITY = "os"
_LIMIT = 2**63
_DIGITS = 18
"""Digits of the largest number in a version. Python refuses to read one of thousands."""
_VERSION = re.compile(
    r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)


def document_in(body: bytes) -> JsonObject:
    """Return the JSON object of an answer; none for an empty one. ServerFailed."""
    try:
        document = json.loads(body or b"{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ServerFailed(f"the answer is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise ServerFailed("the answer is no JSON object")
    return document


def names_in(document: JsonObject, key: str) -> tuple[str, ...]:
    """Return a list of names. ServerFailed."""
    return _texts(document, key)


def nodes_in(document: JsonObject) -> tuple[Node, ...]:
    """Return the producers of /nodes or /lookup. ServerFailed."""
    return tuple(_node(_checked(fields, dict, "producers")) for fields in _list(document, "producers"))


def node_in(info: JsonObject, topics: Iterable[str]) -> Node:
    """Return an nsqd from its /info and the names of its topics. ServerFailed."""
    return attrs.evolve(_node(info), remote_address="", topics=tuple(NodeTopic(topic) for topic in topics))


def topic_names_in(stats: JsonObject) -> tuple[str, ...]:
    """Return the topics of /stats. ServerFailed."""
    return tuple(_text(_checked(topic, dict, "topics"), "topic_name") for topic in _list(stats, "topics"))


def node_stats_in(stats: JsonObject, node: Node, nsqtw_version: str) -> NodeStats:
    """Return a node from its /stats. ServerFailed."""
    memory, disk = _typed(stats, "memory", dict, {}), _typed(stats, "disk", dict, {})
    return NodeStats(
        node=node,
        topics=topics_in(stats, node, bool(nsqtw_version)),
        health=_text(stats, "health"),
        start_time=_integer(stats, "start_time"),
        memory={name: _in_range(value, name) for name, value in memory.items() if type(value) is int},
        nsqtw_version=nsqtw_version,
        disk_free=_optional_integer(disk, "free_bytes"),
        disk_capacity=_optional_integer(disk, "capacity_bytes"),
        disk_stored=_optional_integer(disk, "stored_bytes"),
    )


def topics_in(stats: JsonObject, node: Node, is_nsqtw: bool) -> tuple[TopicStats, ...]:
    """Return the topics of /stats of a node. ServerFailed."""
    return tuple(_topic(_checked(fields, dict, "topics"), node, is_nsqtw) for fields in _list(stats, "topics"))


def messages_in(document: JsonObject, node: str) -> NodeMessages:
    """Return the messages of /v2/channel/messages or /v2/topic/messages. ServerFailed."""
    messages = tuple(_message(_checked(fields, dict, "messages"), node) for fields in _list(document, "messages"))
    return NodeMessages(node=node, messages=messages, has_more=_boolean(document, "more"))


def seek_in(document: JsonObject, node: str) -> Seek:
    """Return the result of /v2/channel/seek. ServerFailed."""
    counts = {name: _integer(document, name) for name in ("position", "skipped", "replayed", "depth")}
    return Seek(node=node, **counts)


def policy_in(document: JsonObject, node: str) -> NodePolicy:
    """Return the policy of /v2/topic/policy or /v2/channel/policy. ServerFailed."""
    settings: dict[str, JsonObject] = _typed(document, "settings", dict, {})
    for name, setting in settings.items():
        _text(_checked(setting, dict, name), "source")
    given = _typed(document, "set", dict, {})
    return NodePolicy(node=node, settings=settings, given=given, unused=_texts(document, "unused"))


def redrive_in(document: JsonObject, node: str) -> RedriveProgress:
    """Return the progress of /v2/channel/redrive. ServerFailed."""
    counts = {name: _integer(document, name) for name in ("total", "redriven", "others")}
    return RedriveProgress(node=node, state=_text(document, "state"), error=_text(document, "error"), **counts)


def cancelled_in(document: JsonObject, node: str) -> Cancelled:
    """Return the result of /v2/topic/cancel. ServerFailed."""
    message_id, is_released, names = (document.get(name) for name in ("id", "released", "channels"))
    if not isinstance(message_id, str) or not isinstance(is_released, bool) or not isinstance(names, list):
        raise ServerFailed("the answer to a cancellation has no id, released and channels")
    return Cancelled(node=node, id=message_id, is_released=is_released, channels=tuple(map(str, names)))


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
    names = _texts(fields, "topics")
    tombstones = [_checked(flag, bool, "tombstones") for flag in _list(fields, "tombstones")]
    tombstones += [False] * (len(names) - len(tombstones))
    return Node(
        broadcast_address=_text(fields, "broadcast_address"),
        hostname=_text(fields, "hostname"),
        tcp_port=_integer(fields, "tcp_port"),
        http_port=_integer(fields, "http_port"),
        version=_text(fields, "version"),
        remote_address=_text(fields, "remote_address"),
        topology_zone=_text(fields, "topology_zone"),
        topology_region=_text(fields, "topology_region"),
        topics=tuple(sorted(map(NodeTopic, names, tombstones), key=lambda topic: topic.topic)),
    )


def _counts(fields: JsonObject) -> dict[str, Any]:
    return {
        "depth": _integer(fields, "depth"),
        "backend_depth": _integer(fields, "backend_depth"),
        "message_count": _integer(fields, "message_count"),
        "zone_local_msg_count": _integer(fields, "zone_local_msg_count"),
        "region_local_msg_count": _integer(fields, "region_local_msg_count"),
        "global_msg_count": _integer(fields, "global_msg_count"),
    }


def _topic(fields: JsonObject, node: Node, is_nsqtw: bool) -> TopicStats:
    name = _text(fields, "topic_name")
    durability = _text(fields, "durability")
    channels = tuple(_channel(_checked(channel, dict, "channels"), node, name) for channel in _list(fields, "channels"))
    return TopicStats(
        node=node.http_address,
        hostname=node.hostname,
        topic_name=name,
        **_counts(fields),
        channels=channels,
        is_paused=_boolean(fields, "paused"),
        latency=_latency(fields),
        message_bytes=_optional_integer(fields, "message_bytes"),
        durability=(durability or _DEFAULT_DURABILITY) if is_nsqtw else None,
        retention=_retention(fields),
        policy=_typed(fields, "policy", dict, {}),
        lost_count=_optional_integer(fields, "lost_count"),
        rejected_count=_optional_integer(fields, "rejected_count"),
        deduplicated_count=_optional_integer(fields, "deduplicated_count"),
        oldest_message_age=max(
            (age for channel in channels if (age := channel.oldest_message_age) is not None), default=None
        ),
    )


def _channel(fields: JsonObject, node: Node, topic: str) -> ChannelStats:
    return ChannelStats(
        node=node.http_address,
        hostname=node.hostname,
        topic_name=topic,
        channel_name=_text(fields, "channel_name"),
        **_counts(fields),
        in_flight_count=_integer(fields, "in_flight_count"),
        deferred_count=_integer(fields, "deferred_count"),
        requeue_count=_integer(fields, "requeue_count"),
        timeout_count=_integer(fields, "timeout_count"),
        client_count=_integer(fields, "client_count"),
        clients=tuple(_client(_checked(client, dict, "clients"), node) for client in _list(fields, "clients")),
        is_paused=_boolean(fields, "paused"),
        latency=_latency(fields),
        dropped_count=_optional_integer(fields, "dropped_count"),
        dead_letter_count=_optional_integer(fields, "dead_letter_count"),
        expired_count=_optional_integer(fields, "expired_count"),
        high_depth=_optional_integer(fields, "high_depth"),
        normal_depth=_optional_integer(fields, "normal_depth"),
        low_depth=_optional_integer(fields, "low_depth"),
        oldest_message_age=_number(fields, _AGE) if fields.get(_AGE) is not None else None,
        policy=_typed(fields, "policy", dict, {}),
    )


def _client(fields: JsonObject, node: Node) -> ConsumerStats:
    values: dict[str, Any] = {name: read(fields, name) for name, read in _CLIENT_FIELDS}
    return ConsumerStats(
        node=node.http_address,
        node_topology_region=node.topology_region,
        node_topology_zone=node.topology_zone,
        **values,
    )


def _latency(fields: JsonObject) -> Latency | None:
    found = _typed(fields, "e2e_processing_latency", dict, None)
    if found is None:
        return None
    count = _integer(found, "count")
    percentiles = []
    for percentile in _list(found, "percentiles"):
        _checked(percentile, dict, "percentiles")
        value = _number(percentile, "value")
        percentiles.append(
            Percentile(
                quantile=_number(percentile, "quantile"),
                average=value,
                minimum=value,
                maximum=value,
                count=count,
                value=value,
            )
        )
    return Latency(count=count, percentiles=tuple(percentiles))


def _retention(fields: JsonObject) -> Retention | None:
    found = _typed(fields, "retention", dict, None)
    if found is None:
        return None
    return Retention(
        time=_integer(found, "time_ms") / _MILLISECONDS,
        bytes=_integer(found, "bytes"),
        earliest=_integer(found, "earliest"),
    )


def _message(fields: JsonObject, node: str) -> Message:
    body: bytes
    text: str = _typed(fields, "body", str, "")
    if _text(fields, "encoding") == "base64":
        try:
            body = base64.b64decode(text, validate=True)
        except (Base64Error, ValueError) as error:
            raise ServerFailed("the body of a message is no base64") from error
    else:
        body = text.encode("utf-8", "replace")
    consumer = _typed(fields, "consumer", dict, None)
    return Message(
        node=node,
        id=_text(fields, "id"),
        timestamp=_integer(fields, "timestamp"),
        attempts=_integer(fields, "attempts"),
        body=body,
        due=_optional_integer(fields, "due"),
        deadline=_optional_integer(fields, "deadline"),
        consumer=None
        if consumer is None
        else MessageHolder(
            client_id=_text(consumer, "client_id"),
            hostname=_text(consumer, "hostname"),
            remote_address=_text(consumer, "remote_address"),
        ),
        headers=_headers(fields),
    )


def _headers(fields: JsonObject) -> dict[str, str]:
    found = _typed(fields, "headers", dict, {})
    return {name: _text(found, name) for name in found}


# -- values


def _checked(value: Any, kind: type[V] | Callable[..., V], key: str) -> V:
    if type(value) is not kind:
        raise ServerFailed(f"the answer has another type at {key!r}")
    return value


def _typed(fields: JsonObject, key: str, kind: Any, absent: Any) -> Any:
    value = fields.get(key)
    if value is None:
        return absent
    if type(value) is not kind:
        raise ServerFailed(f"the answer has another type at {key!r}")
    return value


def _text(fields: JsonObject, key: str) -> str:
    text: str = _typed(fields, key, str, "")
    return _unicode(text, key)


def _texts(fields: JsonObject, key: str) -> tuple[str, ...]:
    return tuple(_unicode(_checked(text, str, key), key) for text in _list(fields, key))


def _unicode(text: str, key: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:  # half of a pair of surrogates
            raise ServerFailed(f"the answer has a text that is no Unicode at {key!r}") from error
    return text


def _integer(fields: JsonObject, key: str) -> int:
    number: int = _typed(fields, key, int, 0)
    return _in_range(number, key)


def _optional_integer(fields: JsonObject, key: str) -> int | None:
    number: int | None = _typed(fields, key, int, None)
    return None if number is None else _in_range(number, key)


def _boolean(fields: JsonObject, key: str) -> bool:
    flag: bool = _typed(fields, key, bool, False)
    return flag


def _number(fields: JsonObject, key: str) -> float:
    value = fields.get(key)
    if value is None:
        return 0.0
    if type(value) not in (int, float):
        raise ServerFailed(f"the answer has another type at {key!r}")
    return float(_in_range(value, key))


def _in_range(number: N, key: str) -> N:
    if not -_LIMIT <= number < _LIMIT:  # neither is NaN
        raise ServerFailed(f"the answer has a number out of range at {key!r}")
    return number


def _refuse_constant(name: str) -> None:
    raise ServerFailed(f"the answer has a number out of range: {name}")


def _list(fields: JsonObject, key: str) -> list[Any]:
    found: list[Any] = _typed(fields, key, list, [])
    return found


_CLIENT_FIELDS = tuple(
    (field.name, {"str": _text, "int": _integer, "bool": _boolean}[str(field.type)])
    for field in attrs.fields(ConsumerStats)
    if field.name not in ("node", "node_topology_region", "node_topology_zone")
)
