"""The JSON of the registrations: the documents of the original, and that pieces put together are a document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nsqtw.lookupd.json_documents import (
    channels_document,
    debug_pieces,
    lookup_document,
    lookup_pieces,
    node_pieces,
    topic_pieces,
)
from nsqtw.lookupd.model import Producer
from tests.lookupd.harness import LookupdHarness

ODD = Producer(9, "[::1]:1", 'h"\\\n', "<&>\u2028é\ud800", 1, 2, "1.3.0", "z", "r")


def steps_of(monkeypatch: pytest.MonkeyPatch, topics: int) -> None:
    for module in ("queries", "json_documents"):
        monkeypatch.setattr(f"nsqtw.lookupd.{module}.TOPICS_AT_ONCE", topics)


def shown(producer: Producer) -> dict[str, Any]:
    """A producer as a reader of JSON has it."""
    return {
        "remote_address": producer.remote_address,
        "hostname": producer.hostname,
        "broadcast_address": producer.broadcast_address,
        "tcp_port": producer.tcp_port,
        "http_port": producer.http_port,
        "version": producer.version,
        "topology_zone": producer.topology_zone,
        "topology_region": producer.topology_region,
    }


def test_a_producer_in_the_order_of_nsqlookupd_with_its_escapes() -> None:
    assert ODD.document == (
        b'{"remote_address":"[::1]:1","hostname":"h\\"\\\\\\n","broadcast_address":"\\u003c\\u0026\\u003e\\u2028'
        b'\xc3\xa9?","tcp_port":1,"http_port":2,"version":"1.3.0","topology_zone":"z","topology_region":"r"}'
    )


def test_empty_lists_are_lists() -> None:
    harness = LookupdHarness()
    assert b"".join(topic_pieces([])) == b'{"topics":[]}'
    assert channels_document([]) == b'{"channels":[]}'
    assert b"".join(node_pieces(harness.registrations.walk_nodes(harness.now))) == b'{"producers":[]}'
    assert b"".join(debug_pieces(harness.registrations.walk_debug())) == b"{}"
    harness.registrations.create_topic("t")
    found = harness.registrations.lookup("t", harness.now)
    assert found is not None
    assert lookup_document(found) == b'{"channels":[],"producers":[]}'


def test_names() -> None:
    assert b"".join(topic_pieces(["a", "b#ephemeral"])) == b'{"topics":["a","b#ephemeral"]}'
    assert channels_document(["c"]) == b'{"channels":["c"]}'


def test_a_lookup() -> None:
    harness = LookupdHarness()
    harness.nsqd("t/c", "t/d", name="a")
    harness.nsqd("t", name="b")
    found = harness.registrations.lookup("t", harness.now)
    assert found is not None
    assert json.loads(lookup_document(found)) == {
        "channels": ["c", "d"],
        "producers": [shown(producer) for producer in found.producers],
    }


def test_a_lookup_of_all_topics_and_their_names_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_of(monkeypatch, 2)
    harness = LookupdHarness()
    harness.nsqd("t/c", "t/d", "u", "v/c", "w/e", name="a")
    harness.nsqd("x", "t/c", "y", "z", name="b")
    registrations = harness.registrations
    pieces = list(lookup_pieces(registrations.walk_lookup("*", harness.now)))
    found = registrations.lookup("*", harness.now)
    assert found is not None
    assert len(found.producers) == 2
    assert len(pieces) == 6
    assert json.loads(b"".join(pieces)) == json.loads(lookup_document(found))
    names = list(topic_pieces(registrations.walk_names()))
    assert len(names) == 5
    assert json.loads(b"".join(names)) == {"topics": registrations.topics()}


def test_a_lookup_of_all_topics_without_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_of(monkeypatch, 1)
    harness = LookupdHarness()
    for name in ("t", "u", "v"):
        harness.registrations.create_topic(name)
    assert (
        b"".join(lookup_pieces(harness.registrations.walk_lookup("*", harness.now)))
        == b'{"channels":[],"producers":[]}'
    )
    harness.registrations.create_channel("u", "c")
    assert b"".join(lookup_pieces(harness.registrations.walk_lookup("*", harness.now))) == (
        b'{"channels":["c"],"producers":[]}'
    )


def test_topics_that_go_between_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_of(monkeypatch, 1)
    harness = LookupdHarness()
    harness.nsqd("t/c", "u/d", "v/e", name="a")
    registrations = harness.registrations
    lookup, names = lookup_pieces(registrations.walk_lookup("*", harness.now)), topic_pieces(registrations.walk_names())
    pieces, some = [next(lookup)], [next(names)]
    registrations.delete_topic("u")
    assert json.loads(b"".join([*pieces, *lookup]))["channels"] == ["c", "e"]
    assert json.loads(b"".join([*some, *names])) == {"topics": ["t", "v"]}


def test_nodes_a_piece_each() -> None:
    harness = LookupdHarness()
    harness.registrations.identify(ODD, harness.now)
    harness.nsqd("t", "u/c", name="a")
    harness.registrations.tombstone("u", "a:4151", harness.now)
    pieces = list(node_pieces(harness.registrations.walk_nodes(harness.now)))
    assert len(pieces) == 3
    nodes = harness.registrations.nodes(harness.now)
    document = json.loads(b"".join(pieces))
    escaped = {**shown(ODD), "broadcast_address": "<&>\u2028é?"}
    assert document == {
        "producers": [
            {**escaped, "tombstones": [], "topics": []},
            {**shown(nodes[1].producer), "tombstones": [False, True], "topics": ["t", "u"]},
        ]
    }
    assert list(document["producers"][1])[-2:] == ["tombstones", "topics"]


def test_debug_is_sorted_as_go_sorts_it() -> None:
    harness = LookupdHarness()
    harness.nsqd("a", "a-b/c", "a/d", "a/c")
    document = json.loads(b"".join(debug_pieces(harness.registrations.walk_debug())))
    assert document == harness.registrations.debug()
    assert list(document) == sorted(document)
