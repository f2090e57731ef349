"""
Document of /stats, as plain dicts and lists, keys in nsqd's order.

An empty list and None differ on purpose: tools of NSQ's users tell "nothing there" from "not asked for" by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.client import Client
from nsqtw.core.latency import Measure, Sketch
from nsqtw.core.oldest import Ages
from nsqtw.core.topic import Topic
from nsqtw.options.resolution import NO_CHANNEL_POLICY, NO_TOPIC_POLICY
from nsqtw.options.settings import ChannelPolicy, TopicPolicy, changed_settings
from nsqtw.replication.status import ReplicaStatus
from nsqtw.stats.metrics import CHANNEL_METRICS, TOPIC_METRICS

Named = TypeVar("Named", Topic, Channel)


def document(
    broker: Broker,
    version: str,
    *,
    now: float,
    topic: str = "",
    channel: str = "",
    include_clients: bool = True,
    memory: dict[str, int] | None = None,
    ages: Ages | None = None,
    include_deferred: bool = False,
    replica: ReplicaStatus | None = None,
) -> dict[str, Any]:
    """
    Return the document of /stats at the time `now`. `topic` and `channel` select entries of exactly that name; ""
    selects all. `memory` is inserted as it is; None leaves its key out. With `ages` each channel has the age of its
    oldest waiting message, and with `include_deferred` each topic says how many of its messages are deferred. `replica`
    is the state of a broker with a replica store; None leaves its key out.
    """
    is_known_topic = topic == "" or topic in broker.topics
    stats: dict[str, Any] = {
        "version": version,
        "health": str(broker.health),
        "start_time": broker.start_time,
        "topics": _topics(broker, topic, channel, _Shown(include_clients, ages, include_deferred), now)
        if is_known_topic
        else None,
    }
    if replica is not None:
        stats["replica"] = replica.document()
    damage = broker.damage.shown()
    if damage is not None:
        stats["damage"] = damage
    if memory is not None:
        stats["memory"] = memory
    stats["producers"] = _producers(broker, topic) if is_known_topic and include_clients else None
    return stats


class _Shown(NamedTuple):
    """The parts of a topic and its channels that are shown beside their numbers."""

    clients: bool
    ages: Ages | None = None
    deferred: bool = False


_NUMBERS_ONLY = _Shown(clients=False)


class Numbers(NamedTuple):
    """The numbers of a topic, or of one of its channels. Of a topic, without its channels."""

    topic: str
    channel: str | None
    numbers: dict[str, Any]


def walk(broker: Broker, now: float) -> Iterator[Numbers | None]:
    """
    Iterate over the same without clients, a topic and then its channels, for a caller with other work in between. No
    step is larger than one channel; None is a step without a result. Topics that are deleted meanwhile are left out.
    """
    for topic in _named(broker.topics.values(), ""):
        if topic.exiting:
            continue
        channels = _named(topic.channels.values(), "")
        merged = _empty_sketch(broker.measure, channels)
        for channel in channels:
            if merged is not None and channel.latencies is not None:
                channel.latencies.merge_into(merged, now)
                yield None
        yield Numbers(topic.name, None, _topic_numbers(topic, [], _told(broker.measure, merged)))
        for channel in channels:
            if not channel.exiting:
                yield Numbers(topic.name, channel.name, _channel(channel, _NUMBERS_ONLY, "", now))


def _topics(broker: Broker, topic: str, channel: str, shown: _Shown, now: float) -> list[dict[str, Any]]:
    chosen = _named(broker.topics.values(), topic)
    return [
        _topic(topic_, channel, shown, topic, now) for topic_ in chosen if channel == "" or channel in topic_.channels
    ]


def _topic(topic: Topic, channel: str, shown: _Shown, counted_topic: str, now: float) -> dict[str, Any]:
    channels = _named(topic.channels.values(), channel)
    documents = [_channel(channel_, shown, counted_topic, now) for channel_ in channels]
    numbers = _topic_numbers(topic, documents, _latency(topic.context.measure, topic.channels.values(), now))
    if shown.deferred:
        numbers["deferred_count"] = topic.shown_deferred_count
    return numbers


def _topic_numbers(topic: Topic, channels: list[dict[str, Any]], latency: dict[str, Any]) -> dict[str, Any]:
    numbers = {
        "topic_name": topic.name,
        "channels": channels,
        **TOPIC_METRICS.numbers_of(topic),
        "paused": topic.paused,
        "e2e_processing_latency": latency,
    }
    if topic.durability != "os":
        numbers["durability"] = topic.durability
    limits = topic.reader.retention_policy.limits
    if limits:
        numbers["retention"] = {
            "time_ms": round(limits.time * 1000),
            "bytes": limits.bytes,
            "earliest": topic.reader.kept_from,
        }
    if topic.policy is not NO_TOPIC_POLICY:
        _add_policy(numbers, topic.policy)
    return numbers


def _channel(channel: Channel, shown: _Shown, counted_topic: str, now: float) -> dict[str, Any]:
    clients = [_client(consumer.client, counted_topic) for consumer in channel.consumers] if shown.clients else None
    numbers: dict[str, Any] = {
        "channel_name": channel.name,
        **CHANNEL_METRICS.numbers_of(channel),
        "clients": clients,
        "paused": channel.paused,
        "e2e_processing_latency": _latency(channel.topic.context.measure, [channel], now),
    }
    if channel.ordered is not None:
        numbers["order"] = {
            "waiting_keys": channel.ordered.waiting_key_count,
            "set_aside": channel.ordered.set_aside_count,
        }
    if shown.ages is not None:
        numbers["oldest_message_age_seconds"] = shown.ages.age(channel, now)
    if channel.policy is not NO_CHANNEL_POLICY:
        _add_policy(numbers, channel.policy)
    return numbers


def _add_policy(numbers: dict[str, Any], policy: TopicPolicy | ChannelPolicy) -> None:
    """Add the settings that are not at their default, if there are any."""
    settings = changed_settings(policy)
    if settings:
        numbers["policy"] = settings


def _producers(broker: Broker, topic: str) -> list[dict[str, Any]] | None:
    """The clients that have published anything, whatever topic is selected."""
    return [_client(client, topic) for client in broker.clients.values() if client.pub_counts] or None


def _client(client: Client, topic: str) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "client_id": client.client_id,
        "hostname": client.hostname,
        "version": client.version,
        "remote_address": client.remote_address,
        "state": client.state,
        "ready_count": client.ready_count,
        "in_flight_count": client.in_flight_count,
        "message_count": client.message_count,
        "finish_count": client.finish_count,
        "requeue_count": client.requeue_count,
        "connect_ts": client.connect_ts,
        "sample_rate": client.sample_rate,
        "deflate": client.deflate,
        "snappy": client.snappy,
        "user_agent": client.user_agent,
        **_auth(client),
        "topology_zone": client.topology_zone,
        "topology_region": client.topology_region,
    }
    if published := _published(client, topic):
        numbers["pub_counts"] = published
    numbers |= {
        "tls": client.tls,
        "tls_cipher_suite": client.tls_cipher_suite,
        "tls_version": client.tls_version,
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": client.tls,  # Go: no protocol was negotiated
    }
    return numbers


def _auth(client: Client) -> dict[str, Any]:
    """The AUTH fields of a client, without empty ones."""
    numbers = {
        "authed": client.authed,
        "auth_identity": client.auth_identity,
        "auth_identity_url": client.auth_identity_url,
    }
    return {key: value for key, value in numbers.items() if value}


def _published(client: Client, topic: str) -> list[dict[str, Any]]:
    """One count at most: of `topic`, or for "" of the first topic the client published to."""
    for name, count in client.pub_counts.items():
        if topic in ("", name):
            return [{"topic": name, "count": count}]
    return []


def _latency(measure: Measure | None, channels: Collection[Channel], now: float) -> dict[str, Any]:
    """The end-to-end latencies of all these channels together."""
    merged = _empty_sketch(measure, channels)
    for channel in channels:
        if merged is not None and channel.latencies is not None:
            channel.latencies.merge_into(merged, now)
    return _told(measure, merged)


def _empty_sketch(measure: Measure | None, channels: Collection[Channel]) -> Sketch | None:
    """To merge the sketches of the channels into. None where there is nothing to be told."""
    return measure.new_sketch() if measure is not None and channels else None


def _told(measure: Measure | None, merged: Sketch | None) -> dict[str, Any]:
    if measure is None or merged is None:
        return {"count": 0, "percentiles": None}
    return measure.told(merged)


def _named(things: Iterable[Named], name: str) -> list[Named]:
    return sorted((thing for thing in things if name in ("", thing.name)), key=attrgetter("name"))
