"""Merges over nodes."""

from __future__ import annotations

import attrs
import pytest

from nsqtw.cluster import answers, merge
from nsqtw.cluster.merge import (
    merged_channel,
    merged_latency,
    merged_topic,
    node_order,
    setting_values,
    topology_order,
)
from nsqtw.cluster.model import (
    CHANNEL_COUNTS,
    MERGED,
    TOPIC_COUNTS,
    ChannelStats,
    ConsumerStats,
    CountNames,
    Latency,
    Node,
    NodePolicy,
    Percentile,
    Retention,
    TopicStats,
)
from nsqtw.stats.metrics import CHANNEL_METRICS, TOPIC_METRICS


def channel(
    node: str, name: str = "c", hostname: str = "", of: type[ChannelStats] = ChannelStats, **more: object
) -> ChannelStats:
    return of(node=node, hostname=hostname or node, topic_name="t", channel_name=name, **more)


def topic(node: str, *channels: ChannelStats, **more: object) -> TopicStats:
    return TopicStats(node=node, hostname=node, topic_name="t", channels=channels, **more)


def latency(count: int, **values: float) -> Latency:
    percentiles = tuple(
        Percentile(
            quantile=float(name[1:]) / 100, average=value, minimum=value, maximum=value, count=count, value=value
        )
        for name, value in values.items()
    )
    return Latency(count=count, percentiles=percentiles)


def test_counts_are_summed_and_memory_is_the_rest() -> None:
    one = topic("a", depth=5, backend_depth=2, message_count=7, zone_local_msg_count=1)
    other = topic("b", depth=1, backend_depth=1, message_count=1, global_msg_count=2)
    total = merged_topic("t", [one, other])
    assert (total.node, total.hostname, total.depth, total.backend_depth, total.memory_depth) == (MERGED, "", 6, 3, 3)
    assert (total.message_count, total.delivery_msg_count) == (8, 3)


def test_nodes_are_sorted_by_host_name() -> None:
    total = merged_channel([channel("1", hostname="z"), channel("2", hostname="a")])
    assert [node.hostname for node in total.nodes] == ["a", "z"]


def test_any_pause_pauses() -> None:
    assert merged_channel([channel("a"), channel("b", is_paused=True)]).is_paused
    assert not merged_channel([channel("a"), channel("b")]).is_paused


def test_a_topic_without_a_node() -> None:
    assert merged_topic("t", []) == TopicStats(node="", topic_name="t")


def test_channels_of_a_node_stay_its_own() -> None:
    total = merged_topic("t", [topic("a", channel("a", depth=1)), topic("b", channel("b", depth=2))])
    assert total.channels[0].depth == 3
    assert [entry.channels[0].depth for entry in total.nodes] == [1, 2]


def test_latencies_of_a_channel_name_it_only_outside_of_its_topic() -> None:
    nodes = [channel(node, latency=latency(1, q99=1.0)) for node in "ab"]
    alone = merged_channel(nodes).latency
    (inside,) = merged_topic("t", [topic("a", nodes[0]), topic("b", nodes[1])]).channels
    assert alone is not None and inside.latency is not None
    assert (alone.topic, alone.channel, alone.node) == ("t", "c", MERGED)
    assert (inside.latency.topic, inside.latency.channel, inside.latency.node) == ("", "", MERGED)
    assert inside.latency.percentiles == alone.percentiles


def test_averages_are_weighted_by_counts() -> None:
    total = merged_latency([latency(1, q99=100.0), latency(3, q99=200.0), None], "t", "c")
    assert total == Latency(
        count=4,
        percentiles=(Percentile(quantile=0.99, average=175.0, minimum=100.0, maximum=200.0, count=4),),
        topic="t",
        channel="c",
        node=MERGED,
    )


def test_latencies_of_nothing() -> None:
    assert merged_latency([latency(0, q99=0.0)], "t").percentiles[0].average == 0.0
    assert merged_latency([], "t") == Latency(topic="t", node=MERGED)


def test_quantiles_that_only_one_node_has() -> None:
    total = merged_latency([latency(2, q50=10.0), latency(2, q99=20.0)], "t")
    assert [(found.quantile, found.average) for found in total.percentiles] == [(0.5, 10.0), (0.99, 20.0)]


def test_durability_and_retention_where_all_nodes_agree() -> None:
    kept = Retention(time=60.0, bytes=0, earliest=5)
    same = merged_topic("t", [topic("a", durability="os", retention=kept), topic("b", durability="os", retention=kept)])
    assert (same.durability, same.retention) == ("os", Retention(time=60.0, bytes=0, earliest=0))
    other = merged_topic("t", [topic("a", durability="os", retention=kept), topic("b", durability="fsync")])
    assert (other.durability, other.retention) == (None, None)


def test_a_policy_where_all_nodes_agree() -> None:
    same = merged_topic("t", [topic("a", policy={"message_ttl": "1h"}), topic("b", policy={"message_ttl": "1h"})])
    assert same.policy == {"message_ttl": "1h"}
    assert merged_topic("t", [topic("a"), topic("b")]).policy == {}
    assert merged_topic("t", [topic("a", policy={"message_ttl": "1h"}), topic("b")]).policy is None


def test_the_values_of_settings_have_the_nodes_that_differ() -> None:
    def node(name: str, rate: object, source: str) -> NodePolicy:
        settings = {"priority": {"value": True, "source": "set"}, "max_rate": {"value": rate, "source": source}}
        return NodePolicy(node=name, settings=settings, given={}, unused=())

    found = setting_values([node("a", 0, "default"), node("b", 5, "set"), node("c", 5, "set")])
    assert [(one.name, one.value, one.source, one.nodes) for one in found] == [
        ("priority", "true", "set", ("a", "b", "c")),
        ("max_rate", "0", "default", ("a",)),
        ("max_rate", "5", "set", ("b", "c")),
    ]


def test_what_only_some_nodes_know() -> None:
    total = merged_topic("t", [topic("a", message_bytes=5, oldest_message_age=3.0), topic("b")])
    assert (total.message_bytes, total.oldest_message_age, total.lost_count) == (5, 3.0, None)


def test_counts_that_only_our_nsqd_has_are_added() -> None:
    found = merged_topic("t", [topic("a", rejected_count=1, deduplicated_count=2), topic("b", rejected_count=3)])
    assert (found.rejected_count, found.deduplicated_count) == (4, 2)
    one, other = (channel(name, dead_letter_count=1, expired_count=2) for name in ("a", "b"))
    merged = merged_channel([one, other])
    assert (merged.dead_letter_count, merged.expired_count) == (2, 4)
    depths = {"high_depth": 1, "normal_depth": 2, "low_depth": 3}
    merged = merged_channel([channel("a", **depths), channel("b", **depths), channel("c")])
    assert (merged.high_depth, merged.normal_depth, merged.low_depth) == (2, 4, 6)


@attrs.frozen(kw_only=True)
class WithLength(ChannelStats):
    """A channel with one more count, which is declared in the model only."""

    name_length: int | None = None


def test_a_count_of_the_model_is_read_and_merged_by_its_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (answers, merge):
        monkeypatch.setattr(module, "ChannelStats", WithLength)
        monkeypatch.setattr(module, "CHANNEL_COUNTS", CountNames.of(WithLength))
    fields = {"channel_name": "c", "name_length": 3}
    stats = {"topics": [{"topic_name": "t", "channels": [fields]}]}
    node = Node(broadcast_address="n", hostname="n", tcp_port=1, http_port=2, version="1.3.0")
    ((one,),) = (found.channels for found in answers.topics_in(stats, node, is_nsqtw=True))
    merged = merged_channel([one, one, channel("b", of=WithLength)])
    assert isinstance(merged, WithLength)
    assert merged.name_length == 6


def test_the_counts_of_the_model_are_metrics_of_stats() -> None:
    known = {metric.name for table in (TOPIC_METRICS, CHANNEL_METRICS) for metric in table.all}
    for names in (TOPIC_COUNTS, CHANNEL_COUNTS):
        assert {*names.always, *names.optional} <= known


def client(node: str, zone: str = "", region: str = "", name: str = "") -> ConsumerStats:
    return ConsumerStats(
        node=node,
        client_id=name,
        topology_zone=zone,
        topology_region=region,
        node_topology_zone="z",
        node_topology_region="r",
    )


def test_clients_of_the_same_zone_come_first() -> None:
    clients = [client("b", "z", "r"), client("a", "x", "far"), client("a", "y", "r"), client("a", "z", "r")]
    ordered = sorted(clients, key=topology_order)
    assert [(found.node, found.topology_zone) for found in ordered] == [("a", "z"), ("a", "y"), ("a", "x"), ("b", "z")]


def test_nodes_have_one_order_by_host_name_and_address() -> None:
    nodes = [channel("b:10000", hostname="h"), channel("b:9000", hostname="h"), channel("c:1", hostname="a")]
    expected = ["c:1", "b:9000", "b:10000"]
    assert [node.node for node in merged_channel(nodes).nodes] == expected
    assert [node.node for node in merged_channel(nodes[::-1]).nodes] == expected
    assert sorted(["[::1]:2", "[::1]:x", "b"], key=lambda address: node_order("h", address)) == [
        "b",
        "[::1]:x",
        "[::1]:2",
    ]
