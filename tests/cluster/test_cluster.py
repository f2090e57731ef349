"""Queries and changes of a cluster of real nsqds and nsqlookupds."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import attrs
import pytest
from twisted.internet.defer import CancelledError, Deferred

from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.http import Timeouts
from nsqtw.cluster.model import MERGED
from nsqtw.errors import NoServerAnswered, UnknownObject
from tests.cluster.conftest import Nodes
from tests.cluster.reactor import run
from tests.process import ReservedPort, wait_until
from tests.wire import HOST

BOTH = pytest.mark.parametrize("through_lookupds", [True, False], ids=["lookupds", "nsqds"])


def ask(nodes: Nodes, through_lookupds: bool, method: str, *arguments: Any, **more: Any) -> Any:
    """Call a method of the cluster."""

    async def test(reactor: Any) -> Any:
        cluster = nodes.cluster(reactor, through_lookupds=through_lookupds)
        try:
            return await getattr(cluster, method)(*arguments, **more)
        finally:
            await cluster.close()

    return run(test)


def prepare(nodes: Nodes, topic: str, *channels: str, messages: int = 3) -> None:
    """Create a topic with channels on all nsqds, and publish messages to each."""
    for nsqd in nodes.nsqds:
        nsqd.create(topic, *channels)
        if messages:
            nsqd.publish(topic, [b"message %d" % number for number in range(messages)])
    nodes.registered(topic)


@BOTH
def test_topics_are_the_union_over_all_servers(nodes: Nodes, topic: str, through_lookupds: bool) -> None:
    prepare(nodes, topic, messages=0)
    nodes.nsqds[0].create(f"{topic}-one")
    wait_until(lambda: nodes.lookupds[1].producers(f"{topic}-one"), "the topic is registered")
    names = ask(nodes, through_lookupds, "topics").value
    assert {topic, f"{topic}-one"} <= set(names)
    assert list(names) == sorted(set(names))


@BOTH
def test_a_topic_is_summed_over_its_nodes(nodes: Nodes, topic: str, through_lookupds: bool) -> None:
    prepare(nodes, topic, "c", messages=3)
    found = ask(nodes, through_lookupds, "topic", topic)
    total = found.value
    assert found.warnings == ()
    assert (total.node, total.hostname, total.message_count) == (MERGED, "", 6)
    assert sorted(node.node for node in total.nodes) == sorted(nodes.nsqd_addresses)
    (channel,) = total.channels
    assert (channel.node, channel.depth, channel.message_count) == (MERGED, 6, 6)
    assert [node.depth for node in channel.nodes] == [3, 3]
    assert [entry.channels[0].depth for entry in total.nodes] == [3, 3]
    assert (total.durability, total.message_bytes) == ("os", 6 * len("message 0"))


@BOTH
def test_a_channel_of_one_node_only(nodes: Nodes, topic: str, through_lookupds: bool) -> None:
    prepare(nodes, topic, "everywhere", messages=1)
    nodes.nsqds[1].create(topic, "here")
    total = ask(nodes, through_lookupds, "topic", topic).value
    by_name = {channel.channel_name: channel for channel in total.channels}
    assert by_name["everywhere"].node == MERGED
    assert by_name["here"].node == nodes.nsqd_addresses[1]
    channel = ask(nodes, through_lookupds, "channel", topic, "here").value
    assert [node.node for node in channel.nodes] == [nodes.nsqd_addresses[1]]


@BOTH
def test_the_clients_of_a_channel(nodes: Nodes, topic: str, through_lookupds: bool) -> None:
    prepare(nodes, topic, "c", messages=1)
    with nodes.nsqds[0].client() as one, nodes.nsqds[1].client() as other:
        for consumer in (one, other):
            consumer.sub(topic, "c", ready=1)
            consumer.drain(1)
        channel = ask(nodes, through_lookupds, "channel", topic, "c").value
    assert channel.client_count == 2
    assert sorted(client.node for client in channel.clients) == sorted(nodes.nsqd_addresses)
    assert channel.latency is not None
    assert channel.latency.node == MERGED
    assert [percentile.quantile for percentile in channel.latency.percentiles] == [0.99, 0.5]
    assert all(percentile.maximum >= percentile.average > 0 for percentile in channel.latency.percentiles)


@BOTH
def test_a_paused_node_makes_the_topic_paused(nodes: Nodes, topic: str, through_lookupds: bool) -> None:
    prepare(nodes, topic, "c", messages=0)
    nodes.nsqds[1].order(f"/topic/pause?topic={topic}")
    assert ask(nodes, through_lookupds, "topic", topic).value.is_paused
    done = ask(nodes, through_lookupds, "unpause", topic)
    assert (sorted(done.value), done.warnings) == (sorted(nodes.nsqd_addresses), ())
    assert not ask(nodes, through_lookupds, "topic", topic).value.is_paused


def test_nodes_of_nsqlookupds_name_their_connections(nodes: Nodes) -> None:
    prepare(nodes, "named", messages=0)
    found = ask(nodes, True, "nodes").value
    assert sorted(node.http_address for node in found) == sorted(nodes.nsqd_addresses)
    for node in found:
        assert sorted(remote.split("/")[0] for remote in node.remote_addresses) == sorted(nodes.lookupd_addresses)
        assert "named" in [topic.topic for topic in node.topics]
        assert not node.is_outdated


def test_nodes_at_given_addresses_have_no_connections(nodes: Nodes) -> None:
    found = ask(nodes, False, "nodes").value
    assert [node.http_address for node in found] == nodes.nsqd_addresses
    assert [node.remote_addresses for node in found] == [(), ()]


@BOTH
def test_one_node_with_its_topics(nodes: Nodes, topic: str, through_lookupds: bool) -> None:
    prepare(nodes, topic, "c", messages=2)
    stats = ask(nodes, through_lookupds, "node", nodes.nsqd_addresses[0]).value
    (found,) = [found for found in stats.topics if found.topic_name == topic]
    assert (found.node, found.message_count, found.channels[0].depth) == (nodes.nsqd_addresses[0], 2, 2)
    assert stats.health == "OK"
    assert stats.nsqtw_version
    assert stats.memory["heap_in_use_bytes"] > 0


@BOTH
def test_the_counter_has_each_channel_of_each_node(nodes: Nodes, topic: str, through_lookupds: bool) -> None:
    prepare(nodes, topic, "c", messages=4)
    counts = [count for count in ask(nodes, through_lookupds, "counter").value if count.topic_name == topic]
    assert sorted((count.node, count.channel_name, count.message_count) for count in counts) == sorted(
        (address, "c", 4) for address in nodes.nsqd_addresses
    )


@BOTH
def test_statistics_of_everything_in_one_pass(nodes: Nodes, topic: str, through_lookupds: bool) -> None:
    prepare(nodes, topic, "c", messages=2)
    stats = ask(nodes, through_lookupds, "stats").value
    assert sorted(node.node.http_address for node in stats.nodes) == sorted(nodes.nsqd_addresses)
    assert stats.topics[topic].channels[0].depth == 4


def test_a_topic_without_a_node_is_inactive(nodes: Nodes) -> None:
    nodes.lookupds[0].http("POST", "/channel/create?topic=idle&channel=c")
    nodes.lookupds[1].http("POST", "/topic/create?topic=bare")
    prepare(nodes, "active", messages=0)
    inactive = ask(nodes, True, "inactive_topics").value
    assert (inactive["idle"], inactive["bare"]) == (("c",), ())
    assert "active" not in inactive
    assert ask(nodes, False, "inactive_topics").value == {}


def test_what_does_not_exist(nodes: Nodes) -> None:
    prepare(nodes, "known", messages=0)
    with pytest.raises(NoServerAnswered, match="failed to query any nsqlookupd: got response 404 Not Found"):
        ask(nodes, True, "topic", "nowhere")
    with pytest.raises(NoServerAnswered, match=r"^failed to query any nsqd: $"):
        ask(nodes, False, "topic", "nowhere")
    with pytest.raises(UnknownObject, match="there is no channel nowhere"):
        ask(nodes, True, "channel", "known", "nowhere")
    with pytest.raises(UnknownObject, match="there is no node nowhere:1"):
        ask(nodes, True, "node", "nowhere:1")


# -- changes


def test_a_bare_topic_is_created_at_nsqlookupds(nodes: Nodes) -> None:
    done = ask(nodes, True, "create", "born")
    assert sorted(done.value) == sorted(nodes.lookupd_addresses)
    assert "born" in nodes.lookupds[1].ask("/topics")["topics"]
    assert nodes.nsqds[0].stats("born") == []


def test_a_channel_is_created_at_nsqlookupds_and_on_the_nodes_of_its_topic(nodes: Nodes) -> None:
    prepare(nodes, "parent", messages=0)
    done = ask(nodes, True, "create", "parent", "child")
    assert sorted(done.value) == sorted([*nodes.lookupd_addresses, *nodes.nsqd_addresses])
    assert [channel["channel_name"] for channel in nodes.nsqds[0].stats("parent")[0]["channels"]] == ["child"]


def test_without_nsqlookupds_it_is_created_on_all_nodes(nodes: Nodes) -> None:
    ask(nodes, False, "create", "direct", "c")
    for nsqd in nodes.nsqds:
        assert nsqd.counts("direct", "c").depth == 0


@BOTH
def test_a_topic_is_emptied_and_deleted_everywhere(nodes: Nodes, through_lookupds: bool) -> None:
    topic = f"gone-{through_lookupds}"
    prepare(nodes, topic, "c", messages=2)
    ask(nodes, through_lookupds, "empty", topic, "c")
    assert [nsqd.counts(topic, "c").depth for nsqd in nodes.nsqds] == [0, 0]
    ask(nodes, through_lookupds, "delete", topic, "c")
    assert [nsqd.stats(topic)[0]["channels"] for nsqd in nodes.nsqds] == [[], []]
    done = ask(nodes, through_lookupds, "delete", topic)
    assert done.warnings == ()
    assert [nsqd.stats(topic) for nsqd in nodes.nsqds] == [[], []]


def test_a_tombstone_hides_the_node_and_deletes_its_topic(nodes: Nodes) -> None:
    prepare(nodes, "buried", messages=0)
    done = ask(nodes, True, "tombstone", "buried", nodes.nsqd_addresses[0])
    assert sorted(done.value) == sorted([*nodes.lookupd_addresses, nodes.nsqd_addresses[0]])
    assert nodes.nsqds[0].stats("buried") == []
    assert nodes.lookupds[0].producers("buried") == [f"{HOST}:{nodes.nsqds[1].tcp_port}"]


def test_a_tombstone_for_a_dead_node_is_set_and_fails(nodes: Nodes) -> None:
    prepare(nodes, "dead", messages=0)
    port = ReservedPort()
    with pytest.raises(NoServerAnswered, match="connection refused"):
        ask(nodes, True, "tombstone", "dead", f"{HOST}:{port.number}")
    port.release()


# -- what only our nsqd has


def test_messages_of_all_nodes(nodes: Nodes) -> None:
    prepare(nodes, "looked", "c", messages=3)
    found = ask(nodes, True, "messages", "looked", "c", limit=2).value
    assert sorted(entry.node for entry in found) == sorted(nodes.nsqd_addresses)
    assert [[message.body for message in entry.messages] for entry in found] == [[b"message 0", b"message 1"]] * 2
    assert [entry.has_more for entry in found] == [True, True]
    one = ask(nodes, True, "messages", "looked", "c", node=nodes.nsqd_addresses[1]).value
    assert [entry.node for entry in one] == [nodes.nsqd_addresses[1]]


def test_a_message_in_flight_has_its_consumer(nodes: Nodes) -> None:
    prepare(nodes, "flying", "c", messages=1)
    with nodes.nsqds[0].client() as consumer:
        consumer.sub("flying", "c", ready=1)
        consumer.message()
        found = ask(nodes, True, "messages", "flying", "c", state="in_flight", node=nodes.nsqd_addresses[0]).value
    ((message,),) = (entry.messages for entry in found)
    assert message.consumer is not None
    assert message.deadline is not None
    assert message.attempts == 1


def test_a_body_that_is_no_text(nodes: Nodes) -> None:
    prepare(nodes, "binary", "c", messages=0)
    node = ask(nodes, True, "publish", "binary", b"\xff\x00", node=nodes.nsqd_addresses[1])
    assert node == nodes.nsqd_addresses[1]
    (entry,) = ask(nodes, True, "messages", "binary", "c", node=node).value
    assert [message.body for message in entry.messages] == [b"\xff\x00"]


def test_a_channel_is_moved_on_all_nodes(nodes: Nodes) -> None:
    prepare(nodes, "moved", "c", messages=3)
    moves = ask(nodes, True, "seek", "moved", "c", "latest").value
    assert [(move.skipped, move.depth) for move in moves] == [(3, 0), (3, 0)]
    assert [nsqd.counts("moved", "c").depth for nsqd in nodes.nsqds] == [0, 0]


def test_a_dry_run_moves_nothing(nodes: Nodes) -> None:
    prepare(nodes, "tried", "c", messages=3)
    moves = ask(nodes, True, "seek", "tried", "c", "latest", is_dry_run=True).value
    assert [move.skipped for move in moves] == [3, 3]
    assert [nsqd.counts("tried", "c").depth for nsqd in nodes.nsqds] == [3, 3]


def test_a_seek_to_a_message_concerns_the_node_that_has_it(nodes: Nodes) -> None:
    prepare(nodes, "sought", "c", messages=3)
    entries = ask(nodes, True, "messages", "sought", "c").value
    message = entries[0].messages[1]
    found = ask(nodes, True, "seek", "sought", "c", message.id)
    assert [(move.node, move.skipped) for move in found.value] == [(message.node, 1)]
    assert found.warnings == ()


def test_durability_and_retention_of_a_topic(nodes: Nodes) -> None:
    prepare(nodes, "kept", messages=0)
    ask(nodes, True, "set_durability", "kept", "fsync")
    ask(nodes, True, "set_retention", "kept", time="1h", size="1000000")
    topic = ask(nodes, True, "topic", "kept").value
    assert topic.durability == "fsync"
    assert topic.retention is not None
    assert (topic.retention.time, topic.retention.bytes) == (3600.0, 1000000)


def test_the_policy_of_a_channel(nodes: Nodes) -> None:
    prepare(nodes, "promised", "c", messages=0)
    done = ask(nodes, True, "set_policy", "promised", "c", {"max_attempts": 5, "max_rate": 0.5})
    assert (sorted(done.value), done.warnings) == (sorted(nodes.nsqd_addresses), ())
    ask(nodes, True, "set_policy", "promised", "c", {"max_rate": None})
    found = ask(nodes, True, "policy", "promised", "c").value
    assert [(one.given, one.settings["max_rate"], one.unused) for one in found] == [
        ({"max_attempts": 5}, {"value": 0, "source": "default"}, ())
    ] * 2
    assert ask(nodes, True, "channel", "promised", "c").value.policy == {"max_attempts": 5}


def test_a_message_for_a_topic_that_no_node_has(nodes: Nodes) -> None:
    assert ask(nodes, True, "publish", "fresh", b"first") in nodes.nsqd_addresses


# -- servers that fail


def with_a_dead_server(nodes: Nodes, through_lookupds: bool, method: str, *arguments: Any) -> tuple[str, Any]:
    """Call a method of a cluster of which one server is not there; its address and the result."""
    port = ReservedPort()
    dead = f"{HOST}:{port.number}"

    async def test(reactor: Any) -> Any:
        alive = nodes.lookupd_addresses if through_lookupds else nodes.nsqd_addresses
        kind = "lookupds" if through_lookupds else "nsqds"
        cluster = Cluster(reactor, **{kind: [*alive, dead]}, timeouts=Timeouts(5.0, 10.0))
        try:
            return await getattr(cluster, method)(*arguments)
        finally:
            await cluster.close()

    try:
        return dead, run(test)
    finally:
        port.release()


@BOTH
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("topics", ()),
        ("nodes", ()),
        ("topic", ("TOPIC",)),
        ("channel", ("TOPIC", "c")),
        ("counter", ()),
        ("stats", ()),
        ("pause", ("TOPIC",)),
        ("create", ("TOPIC", "c")),
    ],
)
def test_a_dead_server_is_a_warning(
    nodes: Nodes, topic: str, through_lookupds: bool, method: str, arguments: tuple[str, ...]
) -> None:
    prepare(nodes, topic, "c", messages=0)
    named = [argument.replace("TOPIC", topic) for argument in arguments]
    dead, result = with_a_dead_server(nodes, through_lookupds, method, *named)
    assert any(f"dial tcp {dead}: connect: connection refused" in warning for warning in result.warnings)
    assert result.value


def test_no_server_at_all() -> None:
    port = ReservedPort()

    async def test(reactor: Any) -> None:
        cluster = Cluster(reactor, lookupds=[f"{HOST}:{port.number}"])
        await cluster.topics()

    with pytest.raises(NoServerAnswered, match=r'^failed to query any nsqlookupd: Get "http://'):
        run(test)
    port.release()


def test_the_time_without_any_answer(nodes: Nodes) -> None:
    port = ReservedPort()

    async def test(reactor: Any) -> list[float]:
        times = []
        seconds = reactor.seconds
        cluster = Cluster(reactor, lookupds=[f"{HOST}:{port.number}"])
        for addresses in ([f"{HOST}:{port.number}"], nodes.lookupd_addresses):
            cluster.lookupds = addresses
            with suppress(NoServerAnswered):
                await cluster.topics()
            reactor.seconds = lambda: seconds() + 100.0
            times.append(cluster.requests.silent_seconds)
            reactor.seconds = seconds
        await cluster.close()
        return times

    without, with_answers = run(test)
    assert without >= 100.0
    assert with_answers == 0.0
    port.release()


def test_a_query_can_be_cancelled(nodes: Nodes) -> None:
    async def test(reactor: Any) -> None:
        cluster = nodes.cluster(reactor)
        query = Deferred.fromCoroutine(cluster.stats())
        reactor.callLater(0, query.cancel)
        try:
            await query
        finally:
            await cluster.close()

    with pytest.raises(CancelledError):
        run(test)


# -- size


def test_a_node_with_thousands_of_topics(nodes: Nodes) -> None:
    nsqd = nodes.nsqds[0]
    names = [f"many-{number}" for number in range(2000)]
    with nsqd.client() as producer:
        for name in names:
            producer.pub(name, b"x")
    stats = ask(nodes, False, "stats").value
    assert [stats.topics[name].message_count for name in names] == [1] * 2000
    assert len(json.dumps(attrs.asdict(stats.nodes[0]))) > 256 * 1024, "it is read in a thread"
    assert set(names) <= set(ask(nodes, False, "topics").value)
