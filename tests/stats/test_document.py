"""What /stats tells: the filters, what is null and what is empty, and the order of keys."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core.client import Client
from nsqtw.errors import BackendError
from nsqtw.stats.document import document, walk
from tests.core.harness import BrokerHarness

LATENCY = {"count": 0, "percentiles": None}


def stats(harness: BrokerHarness, **filters: Any) -> dict[str, Any]:
    return document(harness.broker, "1.3.0", now=harness.now, **filters)


def producer(harness: BrokerHarness, **counts: int) -> Client:
    """A connected client that has published."""
    client = Client("10.0.0.1:2000", 77, client_id="p", hostname="host", user_agent="agent/1")
    for topic, count in counts.items():
        client.published.add(topic, count)
    harness.broker.clients[id(client)] = client
    return client


def two_topics() -> BrokerHarness:
    """Topic a with channels x and y, topic b with y, topic bare with none; a consumer on each y."""
    harness = BrokerHarness()
    harness.topic("bare")
    harness.reader("y", "b")
    harness.reader("y", "a")
    harness.channel("x", "a")
    producer(harness, a=3)
    return harness


def test_a_broker_with_nothing_in_it() -> None:
    assert stats(BrokerHarness()) == {
        "version": "1.3.0",
        "health": "OK",
        "start_time": 1,
        "topics": [],
        "producers": None,
    }


def test_the_keys_stand_in_nsqds_order() -> None:
    harness = two_topics()
    found = stats(harness, memory={"heap_objects": 1})
    assert list(found) == ["version", "health", "start_time", "topics", "memory", "producers"]
    topic = found["topics"][0]
    assert list(topic) == [
        "topic_name",
        "channels",
        "depth",
        "backend_depth",
        "message_count",
        "message_bytes",
        "paused",
        "e2e_processing_latency",
    ]
    assert list(topic["channels"][1]) == [
        "channel_name",
        "depth",
        "backend_depth",
        "in_flight_count",
        "deferred_count",
        "message_count",
        "requeue_count",
        "timeout_count",
        "client_count",
        "clients",
        "paused",
        "e2e_processing_latency",
    ]
    assert list(found["producers"][0]) == [
        "client_id",
        "hostname",
        "version",
        "remote_address",
        "state",
        "ready_count",
        "in_flight_count",
        "message_count",
        "finish_count",
        "requeue_count",
        "connect_ts",
        "sample_rate",
        "deflate",
        "snappy",
        "user_agent",
        "topology_zone",
        "topology_region",
        "pub_counts",
        "tls",
        "tls_cipher_suite",
        "tls_version",
        "tls_negotiated_protocol",
        "tls_negotiated_protocol_is_mutual",
    ]


def shape(found: dict[str, Any]) -> dict[str, list[str]] | None:
    """The names of channels by topic."""
    if found["topics"] is None:
        return None
    return {
        topic["topic_name"]: [channel["channel_name"] for channel in topic["channels"]] for topic in found["topics"]
    }


@pytest.mark.parametrize(
    ("filters", "names", "has_producers"),
    [
        ({}, {"a": ["x", "y"], "b": ["y"], "bare": []}, True),
        ({"topic": "a"}, {"a": ["x", "y"]}, True),
        ({"topic": "bare"}, {"bare": []}, True),
        ({"topic": "unknown"}, None, False),
        ({"topic": "unknown", "channel": "y"}, None, False),
        ({"topic": "a", "channel": "unknown"}, {}, True),
        ({"topic": "a", "channel": "x"}, {"a": ["x"]}, True),
        ({"channel": "x"}, {"a": ["x"]}, True),
        ({"channel": "y"}, {"a": ["y"], "b": ["y"]}, True),
        ({"include_clients": False}, {"a": ["x", "y"], "b": ["y"], "bare": []}, False),
    ],
)
def test_filters(filters: dict[str, Any], names: dict[str, list[str]] | None, has_producers: bool) -> None:
    found = stats(two_topics(), **filters)
    assert shape(found) == names
    assert bool(found["producers"]) is has_producers
    assert has_producers or found["producers"] is None


def test_clients_are_an_empty_list_when_there_are_none_and_null_when_not_asked_for() -> None:
    harness = two_topics()
    x, y = stats(harness, topic="a")["topics"][0]["channels"]
    assert (x["clients"], x["client_count"], len(y["clients"]), y["client_count"]) == ([], 0, 1, 1)
    x, y = stats(harness, topic="a", include_clients=False)["topics"][0]["channels"]
    assert (x["clients"], x["client_count"], y["clients"], y["client_count"]) == (None, 0, None, 1)


def test_names_are_sorted_as_bytes() -> None:
    harness = BrokerHarness()
    for name in ("b", "a-", "Z", "a.", "a"):
        harness.channel(name, name)
        harness.channel("B", name)
    found = shape(stats(harness))
    assert found is not None
    assert list(found) == ["Z", "a", "a-", "a.", "b"]
    assert found["b"] == ["B", "b"]
    assert found["Z"] == ["B", "Z"]


def test_the_counts_of_a_topic_and_its_channel() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=3)
    harness.put(b"one", b"two", b"three", b"four")
    message, again, _ = reader.read()
    reader.finish(message.id)
    reader.requeue(again.id, delay=60)
    harness.put(b"later", delay_ms=60_000)
    harness.channel().pause()
    harness.turn()
    (topic,) = stats(harness)["topics"]
    (channel,) = topic.pop("channels")
    assert topic == {
        "topic_name": "t",
        "depth": 0,
        "backend_depth": 0,
        "message_count": 5,
        "message_bytes": 20,
        "paused": False,
        "e2e_processing_latency": LATENCY,
    }
    (client,) = channel.pop("clients")
    assert channel == {
        "channel_name": "c",
        "depth": 1,
        "backend_depth": 0,
        "in_flight_count": 1,
        "deferred_count": 2,
        "message_count": 5,
        "global_msg_count": 3,
        "requeue_count": 1,
        "timeout_count": 0,
        "client_count": 1,
        "paused": True,
        "e2e_processing_latency": LATENCY,
    }
    shown = {name: client[name] for name in client if name.endswith("count")}
    assert shown == {
        "ready_count": 3,
        "in_flight_count": 1,
        "message_count": 3,
        "finish_count": 1,
        "requeue_count": 1,
    }


def test_a_client_is_shown_with_what_it_said_of_itself() -> None:
    harness = BrokerHarness()
    client = producer(harness, t=7)
    client.sample_rate, client.topology_zone, client.topology_region = 10, "zone", "region"
    (found,) = stats(harness)["producers"]
    assert found == {
        "client_id": "p",
        "hostname": "host",
        "version": "V2",
        "remote_address": "10.0.0.1:2000",
        "state": 0,
        "ready_count": 0,
        "in_flight_count": 0,
        "message_count": 0,
        "finish_count": 0,
        "requeue_count": 0,
        "connect_ts": 77,
        "sample_rate": 10,
        "deflate": False,
        "snappy": False,
        "user_agent": "agent/1",
        "topology_zone": "zone",
        "topology_region": "region",
        "pub_counts": [{"topic": "t", "count": 7}],
        "tls": False,
        "tls_cipher_suite": "",
        "tls_version": "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": False,
    }


def test_a_producer_shows_one_topic_under_a_filter_that_one() -> None:
    harness = BrokerHarness()
    for name in ("first", "second", "third"):
        harness.topic(name)
    producer(harness, first=1, second=2)

    def published(topic: str) -> Any:
        (found,) = stats(harness, topic=topic)["producers"]
        return found.get("pub_counts")

    assert published("") == [{"topic": "first", "count": 1}]
    assert published("second") == [{"topic": "second", "count": 2}]
    assert published("third") is None


def test_a_client_that_never_published_is_no_producer() -> None:
    harness = BrokerHarness()
    producer(harness)
    assert stats(harness)["producers"] is None


def test_a_consumer_that_publishes_stands_in_both_places() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    reader.client.published.add("t", 1)
    harness.broker.clients[1] = reader.client
    found = stats(harness)
    (channel,) = found["topics"][0]["channels"]
    assert channel["clients"] == found["producers"]


def test_health_tells_why_nothing_can_be_stored() -> None:
    harness = BrokerHarness()
    harness.save(BackendError("disk full"))
    assert stats(harness)["health"] == "NOK - disk full"


def test_a_walk_tells_the_same_one_at_a_time() -> None:
    harness = two_topics()
    topics = stats(harness, include_clients=False)["topics"]
    expected = []
    for topic in topics:
        expected.append((topic["topic_name"], None, {**topic, "channels": []}))
        expected += [(topic["topic_name"], channel["channel_name"], channel) for channel in topic["channels"]]
    assert list(walk(harness.broker, harness.now)) == expected


def test_a_walk_has_a_step_for_each_channel_whose_latencies_it_merges() -> None:
    harness = BrokerHarness(e2e_processing_latency_percentile=(1.0,))
    readers = [harness.reader(name) for name in ("a", "b")]
    harness.put(b"x")
    for reader in readers:
        reader.finish(*[message.id for message in reader.read()])
    steps = list(walk(harness.broker, harness.now))
    assert steps[:2] == [None, None]
    assert [(found.topic, found.channel) for found in steps[2:] if found] == [("t", None), ("t", "a"), ("t", "b")]
    counts = [found.numbers["e2e_processing_latency"]["count"] for found in steps[2:] if found]
    assert counts == [2, 1, 1]


def test_a_walk_passes_over_what_was_deleted_since_its_last_step() -> None:
    harness = BrokerHarness()
    for channel in ("a", "b"):
        harness.channel(channel)
    harness.topic("u")
    steps = walk(harness.broker, harness.now)
    next(steps)
    harness.topic().delete_channel("b")
    harness.broker.delete_topic("u")
    assert [(found.topic, found.channel) for found in steps if found] == [("t", "a")]


def test_channels_that_have_an_order_show_what_waits_for_it() -> None:
    harness = BrokerHarness()
    harness.channel("c").policies.set({"ordered_by": "json:key"})
    harness.channel("plain")
    harness.reader()
    harness.put(b'{"key":1}', b'{"key":1}', b'{"key":2}', b'{"key":1}')
    harness.turn()
    (topic,) = stats(harness)["topics"]
    orders = {channel["channel_name"]: channel.get("order") for channel in topic["channels"]}
    assert orders == {"c": {"waiting_keys": 1, "set_aside": 2}, "plain": None}


def depths(harness: BrokerHarness) -> tuple[int, dict[str, tuple[int, int]]]:
    """Return the depth of the topic, and depth and deferred messages of its channels."""
    (topic,) = stats(harness)["topics"]
    channels = {one["channel_name"]: (one["depth"], one["deferred_count"]) for one in topic["channels"]}
    return topic["depth"], channels


def test_the_messages_of_a_new_topic_count_in_its_channels_before_it_starts() -> None:
    """It waits for an nsqlookupd that does not answer."""
    harness = BrokerHarness()
    topic = harness.topic()
    topic.hold()
    harness.put(b"1", b"2")
    harness.turn()
    assert depths(harness) == (2, {}), "no channel can have them"
    harness.channel("c")
    harness.channel("d")
    harness.put(b"3", delay_ms=1000)
    harness.put(b"4", channel="d")
    harness.turn()
    before = depths(harness)
    assert before == (0, {"c": (2, 1), "d": (3, 1)})
    (found, *_) = stats(harness)["topics"]
    assert [one["backend_depth"] <= one["depth"] for one in (found, *found["channels"])] == [True] * 3
    topic.start(harness.now)
    harness.turn()
    assert depths(harness) == before


def test_a_paused_topic_holds_its_messages_itself() -> None:
    harness = BrokerHarness()
    harness.topic().hold()
    harness.channel("c")
    harness.topic().pause()
    harness.put(b"1")
    harness.turn()
    assert depths(harness) == (1, {"c": (0, 0)})


def test_a_topic_counts_the_deferred_messages_that_it_holds_itself() -> None:
    """Its depth counts them, too, as nsqd's does. NSQ's document stays for those who do not ask."""

    def deferred() -> int:
        (topic,) = document(harness.broker, "1.3.0", now=harness.now, include_deferred=True)["topics"]
        return int(topic["deferred_count"])

    harness = BrokerHarness()
    harness.topic()
    harness.put(b"1")
    harness.turn()
    assert deferred() == 0
    harness.put(b"2", b"3", delay_ms=1000)
    harness.turn()
    (topic,) = stats(harness)["topics"]
    assert (topic["depth"], deferred()) == (3, 2)
    assert "deferred_count" not in topic
    harness.channel("c")
    harness.turn()
    assert deferred() == 0
    assert depths(harness) == (0, {"c": (1, 2)})
    harness.topic().pause()
    harness.put(b"4", delay_ms=1000)
    harness.turn()
    assert deferred() == 1


def test_the_deferred_messages_of_a_new_topic_count_once() -> None:
    harness = BrokerHarness()
    harness.topic().hold()
    harness.channel("c")
    harness.put(b"1", delay_ms=1000)
    harness.turn()
    assert "deferred_count" not in stats(harness)["topics"][0]
    assert depths(harness) == (0, {"c": (0, 1)})
