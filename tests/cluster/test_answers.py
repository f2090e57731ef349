"""Answers of servers, and what is made of wrong ones."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from nsqtw.cluster import answers
from nsqtw.cluster.answers import (
    cancelled_in,
    document_in,
    messages_in,
    names_in,
    node_in,
    node_stats_in,
    nodes_in,
    version_key,
    with_outdated_marked,
)
from nsqtw.cluster.fields import MAX_TEXT
from nsqtw.cluster.model import Node, NodeStats, NodeTopic
from nsqtw.errors import ServerFailed
from nsqtw.replication.status import ReplicaStatus
from tests.replica_control import A_STANDBY, AN_OWNER, RUNNING, SILENT

NODE = Node(broadcast_address="a", hostname="h", tcp_port=4150, http_port=4151, version="1.3.0")
GO_TOPIC = {
    "topic_name": "t",
    "channels": [
        {
            "channel_name": "c",
            "depth": 3,
            "backend_depth": 1,
            "clients": [{"client_id": "x", "hostname": "y", "remote_address": "z:1", "connect_ts": 5, "tls": True}],
            "paused": True,
            "e2e_processing_latency": {"count": 2, "percentiles": [{"quantile": 0.99, "value": 7}]},
        }
    ],
    "depth": 4,
    "message_count": 9,
    "e2e_processing_latency": {"count": 0, "percentiles": None},
}


def test_a_node_of_the_original() -> None:
    stats = node_stats_in({"health": "OK", "start_time": 7, "topics": [GO_TOPIC]}, NODE, "")
    (topic,) = stats.topics
    (channel,) = topic.channels
    assert (topic.node, topic.hostname, topic.depth, topic.durability) == ("a:4151", "h", 4, None)
    assert (channel.memory_depth, channel.is_paused, channel.clients[0].tls) == (2, True, True)
    assert channel.latency is not None
    assert channel.latency.percentiles[0].average == 7.0
    assert (stats.client_count, stats.message_count, stats.nsqtw_version) == (1, 9, "")


REFUSED = {"rejected_count": 5, "deduplicated_count": 6}


def test_a_node_of_ours() -> None:
    channels = [
        {"channel_name": "a", "oldest_message_age_seconds": 2.5, "dead_letter_count": 3, "expired_count": 4},
        {"channel_name": "b", "high_depth": 1, "normal_depth": 2, "low_depth": 0},
    ]
    document = {
        "topics": [{"topic_name": "t", "channels": channels, "durability": "fsync", "lost_count": 1, **REFUSED}],
        "disk": {"free_bytes": 5, "capacity_bytes": None, "stored_bytes": 2},
    }
    stats = node_stats_in(document, NODE, "0.1.0")
    (topic,) = stats.topics
    assert (topic.durability, topic.lost_count, topic.oldest_message_age) == ("fsync", 1, 2.5)
    assert (topic.rejected_count, topic.deduplicated_count) == (5, 6)
    assert [channel.oldest_message_age for channel in topic.channels] == [2.5, None]
    assert [(channel.dead_letter_count, channel.expired_count) for channel in topic.channels] == [(3, 4), (None, None)]
    depths = [(channel.high_depth, channel.normal_depth, channel.low_depth) for channel in topic.channels]
    assert depths == [(None, None, None), (1, 2, 0)]
    assert (stats.disk_free, stats.disk_capacity, stats.disk_stored) == (5, None, 2)


@pytest.mark.parametrize("state", [AN_OWNER, A_STANDBY])
def test_a_node_with_a_replica_store(state: ReplicaStatus) -> None:
    document = json.loads(json.dumps({"replica": state.document()}))
    stats = node_stats_in(document, NODE, "0.1.0")
    assert (stats.replica, stats.role) == (state, state.role)


def test_a_node_without_a_replica_store() -> None:
    stats = node_stats_in({}, NODE, "0.1.0")
    assert (stats.replica, stats.role, stats.is_unprotected, stats.is_releasable) == (None, "", False, False)


@pytest.mark.parametrize(
    ("state", "is_unprotected", "is_releasable"),
    [
        (AN_OWNER, False, True),
        (attrs.evolve(AN_OWNER, standbys=(SILENT,)), True, False),
        (attrs.evolve(A_STANDBY, standbys=(RUNNING,)), False, False),
    ],
)
def test_an_owner_with_and_without_a_standby_that_runs(
    state: ReplicaStatus, is_unprotected: bool, is_releasable: bool
) -> None:
    stats = NodeStats(node=NODE, replica=state)
    assert (stats.is_unprotected, stats.is_releasable) == (is_unprotected, is_releasable)


def test_a_standby_is_well_although_it_serves_nobody() -> None:
    text = "NOK - suspended"
    found = [NodeStats(node=NODE, replica=state, health=text).error for state in (None, AN_OWNER, A_STANDBY)]
    assert found == [text, text, ""]


def test_missing_fields_and_null_are_zero() -> None:
    (topic,) = node_stats_in({"topics": [{"topic_name": "t", "channels": None}]}, NODE, "1").topics
    assert (topic.channels, topic.message_count, topic.durability, topic.policy) == ((), 0, "os", {})
    assert node_stats_in({"topics": None}, NODE, "").topics == ()


def test_tombstones_are_parallel_to_topics() -> None:
    (node,) = nodes_in({"producers": [{"topics": ["b", "a"], "tombstones": [True, False], "http_port": 1}]})
    assert node.topics == (NodeTopic("a"), NodeTopic("b", True))


def test_an_old_version_is_outdated() -> None:
    nodes = [NODE, Node(broadcast_address="b", hostname="", tcp_port=1, http_port=1, version="1.2.9")]
    assert [node.is_outdated for node in with_outdated_marked(nodes)] == [False, True]
    assert with_outdated_marked([]) == ()


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("1.2.0", "1.10.0"),
        ("1.3.0-alpha", "1.3.0"),
        ("1.3.0-alpha.2", "1.3.0-alpha.10"),
        ("v9", "0.0.1"),
        ("", "1.0.0"),
    ],
)
def test_versions_are_semantic(lower: str, higher: str) -> None:
    assert version_key(lower) < version_key(higher)


@pytest.mark.parametrize(
    "document",
    [
        {"topics": {}},
        {"replica": []},
        {"replica": {"role": 1}},
        {"replica": {"lease_left": "1"}},
        {"replica": {"standbys": [{"behind_transactions": 0.5}]}},
        {"topics": ["t"]},
        {"topics": [{"topic_name": 5}]},
        {"topics": [{"topic_name": "t", "depth": "1"}]},
        {"topics": [{"topic_name": "t", "depth": 1.5}]},
        {"topics": [{"topic_name": "t", "depth": True}]},
        {"topics": [{"topic_name": "t", "paused": 1}]},
        {"topics": [{"topic_name": "t", "channels": [{"channel_name": "c", "clients": [5]}]}]},
        {"topics": [{"topic_name": "t", "channels": [{"channel_name": "c", "policy": {"dead_letter_topic": []}}]}]},
        {"topics": [{"topic_name": "t", "policy": {"message_ttl": None}}]},
        {"topics": [{"topic_name": "t", "policy": []}]},
        {"topics": [{"topic_name": "t", "e2e_processing_latency": []}]},
        {"topics": [{"topic_name": "t", "e2e_processing_latency": {"percentiles": [{"quantile": "x"}]}}]},
        {"health": 5},
    ],
)
def test_an_answer_with_another_type(document: dict[str, object]) -> None:
    with pytest.raises(ServerFailed, match="the answer has another type at"):
        node_stats_in(document, NODE, "")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 65, "\x1b[2J"])
def test_a_name_that_no_topic_or_channel_can_have(name: str) -> None:
    for topic in ({"topic_name": name}, {"topic_name": "t", "channels": [{"channel_name": name}]}):
        with pytest.raises(ServerFailed, match="the answer has no valid name at"):
            node_stats_in({"topics": [topic]}, NODE, "")


@pytest.mark.parametrize("number", [-1, -(2**62)])
def test_a_count_below_zero(number: int) -> None:
    for document in ({"topics": [{"topic_name": "t", "depth": number}]}, {"disk": {"free_bytes": number}}):
        with pytest.raises(ServerFailed, match="the answer has a number out of range at"):
            node_stats_in(document, NODE, "1")


def test_the_end_of_a_long_text_is_cut() -> None:
    assert node_stats_in({"health": "x" * 5000}, NODE, "").health == "x" * MAX_TEXT


def test_topics_in_info_are_none_of_the_node() -> None:
    assert node_in({"version": "1.3.0", "topics": [{}]}, ["t"]).topics == (NodeTopic("t"),)


def test_the_values_of_a_document_are_counted_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = json.dumps({"messages": [{"body": ',{["' * 1000 + "\\"}] * 5}).encode()
    assert document_in(bodies, 20) == document_in(bodies), "signs in texts are none"
    monkeypatch.setattr(answers, "json", None)
    for document in (b'{"a": [%s0]}' % (b"0," * 20), b"[" * 21, b'{"a": [%s]}' % (b"{}" * 20), b'{"a": ["", ' * 11):
        with pytest.raises(ServerFailed, match="the answer has more than 20 values"):
            document_in(document, 20)


def test_topics_channels_and_clients_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    channels = [{"channel_name": f"c{number}", "clients": [{}, {}]} for number in range(3)]
    document = {"topics": [{"topic_name": "t", "channels": channels}]}
    monkeypatch.setattr(answers, "MAX_PARTS", 10)
    assert node_stats_in(document, NODE, "").part_count == 4
    monkeypatch.setattr(answers, "MAX_PARTS", 9)
    with pytest.raises(ServerFailed, match="the answer has more than 9 topics, channels and clients"):
        node_stats_in(document, NODE, "")


TOO_LARGE = [2**63, -(2**63) - 1, 10**400]


@pytest.mark.parametrize("number", TOO_LARGE)
@pytest.mark.parametrize(
    "document",
    [
        '{"topics": [{"topic_name": "t", "depth": %s}]}',
        '{"topics": [{"topic_name": "t", "message_bytes": %s}]}',
        '{"topics": [{"topic_name": "t", "channels": [{"channel_name": "c", "client_count": %s}]}]}',
        '{"topics": [{"topic_name": "t", "channels": [{"channel_name": "c", "clients": [{"connect_ts": %s}]}]}]}',
        '{"topics": [{"topic_name": "t", "channels": [{"channel_name": "c", "oldest_message_age_seconds": %s}]}]}',
        '{"topics": [{"topic_name": "t", "policy": {"message_ttl": %s}}]}',
        '{"topics": [{"topic_name": "t", "e2e_processing_latency": {"count": %s}}]}',
        '{"topics": [{"topic_name": "t", "e2e_processing_latency": {"percentiles": [{"value": %s}]}}]}',
        '{"start_time": %s}',
        '{"memory": {"heap_in_use_bytes": %s}}',
        '{"disk": {"free_bytes": %s}}',
    ],
)
def test_a_number_that_64_bits_cannot_hold(document: str, number: int) -> None:
    with pytest.raises(ServerFailed, match="the answer has a number out of range at"):
        node_stats_in(document_in((document % number).encode()), NODE, "1")


@pytest.mark.parametrize("field", ["timestamp", "due", "deadline", "attempts"])
@pytest.mark.parametrize("number", TOO_LARGE)
def test_a_time_of_a_message_that_64_bits_cannot_hold(field: str, number: int) -> None:
    with pytest.raises(ServerFailed, match="the answer has a number out of range at"):
        messages_in({"messages": [{"id": "0", field: number}]}, "a:1")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1e30"])
def test_a_number_that_is_not_finite_or_too_large(number: str) -> None:
    document = (
        b'{"topics": [{"topic_name": "t", "channels": [{"channel_name": "c", "oldest_message_age_seconds": %s}]}]}'
    )
    with pytest.raises(ServerFailed, match="the answer has a number out of range"):
        node_stats_in(document_in(document % number.encode()), NODE, "1")


def test_a_text_that_is_no_unicode() -> None:
    for document in (b'{"health": "\\ud800"}', b'{"topics": [{"topic_name": "t", "durability": "\\udfff"}]}'):
        with pytest.raises(ServerFailed, match="the answer has a text that is no Unicode at"):
            node_stats_in(document_in(document), NODE, "1")
    with pytest.raises(ServerFailed, match="no Unicode"):
        names_in(document_in(b'{"topics": ["\\ud800"]}'), "topics")
    with pytest.raises(ServerFailed, match="no Unicode"):
        nodes_in(document_in(b'{"producers": [{"topics": ["\\ud800"]}]}'))


@pytest.mark.parametrize("version", ["1" * 5000 + ".0.0", "1.0.0-" + "1" * 5000])
def test_a_version_with_a_number_of_thousands_of_digits(version: str) -> None:
    assert version_key(version) < version_key("99.0.0")


@pytest.mark.parametrize("body", [b"{", b"[]", b"5", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_object(body: bytes) -> None:
    with pytest.raises(ServerFailed, match="the answer is no JSON"):
        document_in(body)


def test_a_list_of_names() -> None:
    assert names_in({"topics": ["a"]}, "topics") == ("a",)
    assert names_in({}, "topics") == ()
    with pytest.raises(ServerFailed):
        names_in({"topics": [5]}, "topics")


def test_a_body_in_base64_that_is_none() -> None:
    with pytest.raises(ServerFailed, match="base64"):
        messages_in({"messages": [{"body": "?", "encoding": "base64"}]}, "a:1")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"id": 7, "released": True, "channels": []},
        {"id": "a", "released": 1, "channels": []},
        {"id": "a", "released": True, "channels": "c"},
    ],
)
def test_an_odd_answer_to_a_cancellation(document: dict[str, Any]) -> None:
    with pytest.raises(ServerFailed, match="no id, released and channels"):
        cancelled_in(document, "n")


def test_producers_and_what_they_published() -> None:
    producer = {"client_id": "p", "remote_address": "z:2", "pub_counts": [{"topic": "t", "count": 3}]}
    stats = node_stats_in({"topics": [], "producers": [producer, {"client_id": "q"}]}, NODE, "")
    assert [(each.client.client_id, each.client.node, each.published) for each in stats.producers] == [
        ("p", "a:4151", (("t", 3),)),
        ("q", "a:4151", ()),
    ]
    with pytest.raises(ServerFailed):
        node_stats_in({"topics": [], "producers": [{"pub_counts": [{}] * (answers.MAX_PARTS + 1)}]}, NODE, "")
