"""GET /ping, /info and /stats."""

from __future__ import annotations

import os
from typing import Any

import pytest

from nsqtw import __version__
from nsqtw.api.stats import stats_text
from nsqtw.core.client import Client
from nsqtw.message_headers import encode_headers
from tests.http.broker_fixture import HTTP_PORT, TCP_PORT, VERSION_LINE, Web

NOW_NS = 1_700_000_010 * 10**9 + 500_000_000
MEMORY_NAMES = [
    "heap_objects",
    "heap_idle_bytes",
    "heap_in_use_bytes",
    "heap_released_bytes",
    "gc_pause_usec_100",
    "gc_pause_usec_99",
    "gc_pause_usec_95",
    "next_gc_bytes",
    "gc_total_runs",
]


def test_ping_is_plain() -> None:
    reply = Web().get("/ping")
    assert reply.outcome == (200, "OK")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert "x-nsq-content-type" not in reply.headers


def test_ping_tells_why_nothing_can_be_stored_until_something_is() -> None:
    web = Web()
    commit = web.core.backend.commit
    web.fail_commits("no space left on device")
    web.post("/pub?topic=t", b"x")
    reply = web.get("/ping")
    assert (reply.status, reply.body) == (500, b"NOK - no space left on device")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    web.core.backend.commit = commit
    web.post("/pub?topic=t", b"x")
    assert web.get("/ping").outcome == (200, "OK")


def test_info() -> None:
    web = Web(broadcast_address="broker.example", topology_zone="zone", topology_region="region")
    reply = web.get("/info")
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert list(reply.json.items()) == [
        ("version", "1.3.0"),
        ("broadcast_address", "broker.example"),
        ("hostname", os.uname().nodename),
        ("http_port", HTTP_PORT),
        ("tcp_port", TCP_PORT),
        ("start_time", 1),
        ("max_heartbeat_interval", 60_000_000_000),
        ("max_output_buffer_size", 65536),
        ("max_output_buffer_timeout", 30_000_000_000),
        ("max_deflate_level", 6),
        ("topology_zone", "zone"),
        ("topology_region", "region"),
    ]


def test_info_and_stats_tell_both_versions() -> None:
    web = Web()
    for target in ("/stats?format=json&include_version=true", "/info?include_version=1"):
        reply = web.get(target)
        assert (reply.json["version"], reply.json["nsqtw_version"]) == ("1.3.0", __version__)
        assert reply.headers["x-nsqtw-version"] == __version__
    for target in ("/stats?format=json", "/info", "/info?%&include_version=1", "/stats"):
        reply = web.get(target)
        assert b"nsqtw_version" not in reply.body
        assert reply.headers["x-nsqtw-version"] == __version__
    assert web.get("/stats").body.startswith(VERSION_LINE.encode())


def test_places_tell_where_the_messages_of_each_channel_are() -> None:
    web = Web()
    web.core.channel("c").policies.set({"ordered_by": "header:key"})
    web.core.channel("d#ephemeral")
    key = encode_headers({"key": "a"})
    web.core.put(b"1", b"2", b"3", headers=[key] * 3)
    reader = web.core.reader("c", ready=5)
    (message,) = reader.read()
    web.core.put(b"later", delay_ms=5000)
    web.core.turn()
    found = web.get("/debug/places").json["t"]
    assert found["c"] == {
        "unread": 0,
        "in flight": 1,
        "deferred": 1,
        "requeued": 0,
        "set aside": 2,
        "ready head": 0,
    }
    assert found["d#ephemeral"] == {"unread": 3, "in flight": 0, "deferred": 1, "requeued": 0}
    assert reader.requeue(message.id, 2.0) is None
    only = web.get("/debug/places?topic=t&channel=c").json
    assert (only.keys(), only["t"].keys()) == ({"t"}, {"c"})
    assert (only["t"]["c"]["deferred"], only["t"]["c"]["in flight"]) == (2, 0)
    assert web.get("/debug/places?topic=u").json == {}


@pytest.mark.parametrize(
    ("query", "is_json"),
    [
        ("?format=json", True),
        ("?format=json&format=text", True),
        ("", False),
        ("?format=JSON", False),
        ("?format=xml", False),
        ("?format=", False),
    ],
)
def test_the_format_is_json_or_text(query: str, is_json: bool) -> None:
    reply = Web().get(f"/stats{query}")
    kind = "application/json" if is_json else "text/plain"
    assert reply.headers["content-type"] == f"{kind}; charset=utf-8"
    assert reply.headers["x-nsq-content-type"] == "nsq; version=1.0"
    assert reply.body.startswith(b'{"version"' if is_json else VERSION_LINE.encode())


@pytest.mark.parametrize(
    ("value", "is_on"),
    [
        ("", True),
        ("=", True),
        ("=true", True),
        ("=1", True),
        ("=no", True),
        ("=False", True),
        ("=false", False),
        ("=0", False),
    ],
)
def test_clients_and_memory_are_left_out_when_asked_so(value: str, is_on: bool) -> None:
    web = Web()
    web.core.reader()
    clients = web.get(f"/stats?format=json&include_clients{value}").json["topics"][0]["channels"][0]["clients"]
    assert (clients is not None) is is_on
    memory = web.get(f"/stats?format=json&include_mem{value}").json
    assert ("memory" in memory) is is_on
    text = web.get(f"/stats?include_mem{value}").body
    assert (b"Memory:" in text) is is_on


def test_dropped_messages_are_shown_once_there_are_some() -> None:
    web = Web(mem_queue_size=1)
    web.core.reader("c#ephemeral", ready=0)
    assert "dropped" not in web.get("/stats?format=json").body.decode()
    web.core.put(b"1", b"2")
    web.core.turn()
    (topic,) = web.get("/stats?format=json").json["topics"]
    assert topic["channels"][0]["dropped_count"] == 1
    assert " msgs: 2        e2e%:  dropped: 1\n" in web.get("/stats").body.decode()


def test_the_filters_are_parameters() -> None:
    web = Web()
    web.core.channel("x", "a")
    web.core.channel("y", "a")
    web.core.channel("y", "b")

    def names(query: str) -> list[tuple[str, list[str]]] | None:
        topics = web.get(f"/stats?format=json&{query}").json["topics"]
        return topics and [(one["topic_name"], [c["channel_name"] for c in one["channels"]]) for one in topics]

    assert names("topic=b") == [("b", ["y"])]
    assert names("channel=x") == [("a", ["x"])]
    assert names("topic=&channel=") == [("a", ["x", "y"]), ("b", ["y"])]
    assert names("topic=b&channel=x") == []
    assert names("topic=unknown") is None


def test_a_query_that_cannot_be_read() -> None:
    assert Web().get("/stats?topic=%zz").outcome == (400, "INVALID_REQUEST")
    assert Web().get("/stats?format=json;topic=t").outcome == (400, "INVALID_REQUEST")


def test_memory_is_nine_numbers() -> None:
    memory = Web().get("/stats?format=json").json["memory"]
    assert list(memory) == MEMORY_NAMES
    assert all(isinstance(number, int) and number >= 0 for number in memory.values())
    assert memory["heap_in_use_bytes"] > 1_000_000
    assert memory["heap_objects"] > 1_000


def test_publishing_over_http_makes_no_producer() -> None:
    web = Web()
    web.post("/pub?topic=t", b"x")
    assert web.get("/stats?format=json").json["producers"] is None


def test_text_of_an_empty_broker() -> None:
    found = {"health": "OK", "start_time": 1_700_000_000, "topics": [], "producers": None}
    text = stats_text(found | {"memory": dict.fromkeys(MEMORY_NAMES, 7)}, VERSION_LINE, NOW_NS)
    first, start, *rest = text.split("\n")
    assert first == VERSION_LINE
    assert start.startswith("start_time 2023-11-1")
    assert rest == [
        "uptime 10.5s",
        "",
        "Health: OK",
        "",
        "Memory:",
        *[f"   {name:<25}\t7" for name in MEMORY_NAMES],
        "",
        "Topics: None",
        "",
        "Producers: None",
        "",
    ]


def counted(**counts: int) -> dict[str, Any]:
    """A channel or topic with all the counts there are, 0 unless given."""
    names = "depth backend_depth in_flight_count deferred_count requeue_count timeout_count message_count"
    return {**dict.fromkeys(names.split(), 0), **counts, "e2e_processing_latency": latency()}


def latency(*values: float) -> dict[str, Any]:
    """What is told of end-to-end latencies: the percentiles' values, in nanoseconds, or that there are none."""
    percentiles = [{"quantile": 0.5, "value": value} for value in values] or None
    return {"count": len(values), "percentiles": percentiles}


def test_text_of_topics_channels_and_clients() -> None:
    consumer = {
        "version": "V2",
        "hostname": "127.0.0.1",
        "remote_address": "127.0.0.1:40974",
        "user_agent": "",
        "state": 4,
        "ready_count": 0,
        "in_flight_count": 0,
        "finish_count": 4,
        "requeue_count": 2,
        "message_count": 9,
        "connect_ts": 1_700_000_000,
    }
    producer = consumer | {"user_agent": "agent/1", "pub_counts": [{"topic": "a", "count": 12}]}
    unix = consumer | {"remote_address": "@", "hostname": "", "connect_ts": 1_699_996_405}
    c1 = counted(depth=1, requeue_count=2, timeout_count=2, message_count=10)
    c1 |= {"channel_name": "c1", "paused": True, "clients": [consumer, producer]}
    c2 = counted(in_flight_count=123456) | {"channel_name": "c2", "paused": False, "clients": None}
    found = {
        "health": "NOK - disk full",
        "start_time": 1_700_000_000,
        "topics": [
            counted(message_count=10) | {"topic_name": "a", "paused": True, "channels": [c1, c2]},
            counted() | {"topic_name": "a_name_of_more_than_fifteen", "paused": False, "channels": []},
        ],
        "producers": [producer, unix],
    }
    # The ends of lines are shown by what stands behind them: some have a space there.
    shown = stats_text(found, VERSION_LINE, NOW_NS).replace("\n", "$\n")
    assert shown.partition("uptime 10.5s$\n$\n")[2] == (
        "Health: NOK - disk full$\n"
        "$\n"
        "Topics:$\n"
        "*P [a              ] depth: 0     be-depth: 0     msgs: 10       e2e%: $\n"
        "   *P [c1                       ] depth: 1     be-depth: 0     inflt: 0    def: 0    re-q: 2     "
        "timeout: 2     msgs: 10       e2e%: $\n"
        "        [V2 127.0.0.1:40974      ] state: 4 inflt: 0    rdy: 0    fin: 4        re-q: 2        "
        "msgs: 9        connected: 10s$\n"
        "        [V2 127.0.0.1:40974 agent/1] msgs: 12       topics: a=12 connected: 10s$\n"
        "      [c2                       ] depth: 0     be-depth: 0     inflt: 123456 def: 0    re-q: 0     "
        "timeout: 0     msgs: 0        e2e%: $\n"
        "$\n"
        "   [a_name_of_more_than_fifteen] depth: 0     be-depth: 0     msgs: 0        e2e%: $\n"
        "$\n"
        "Producers:$\n"
        "   [V2 127.0.0.1:40974 agent/1] msgs: 12       topics: a=12 connected: 10s$\n"
        "   [V2 :                    ] state: 4 inflt: 0    rdy: 0    fin: 4        re-q: 2        "
        "msgs: 9        connected: 1h0m5s$\n"
    )


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([], ""),
        ([0], "0.0ns"),
        ([999.94, 1000], "999.9ns, 1000.0ns"),
        ([1001, 1_000_000], "1.0us, 1000.0us"),
        ([1_000_001, 1_250_000_000.0, 3_600e9], "1.0ms, 1.2s, 3600.0s"),
    ],
)
def test_latencies_have_a_unit_each(values: list[float], shown: str) -> None:
    e2e = {"e2e_processing_latency": latency(*values)}
    channel = counted() | {"channel_name": "c", "paused": False, "clients": None} | e2e
    topic = counted() | {"topic_name": "t", "paused": False, "channels": [channel]} | e2e
    found = {"health": "OK", "start_time": 1_700_000_000, "topics": [topic], "producers": None}
    text = stats_text(found, VERSION_LINE, NOW_NS)
    assert [line.partition(" e2e%: ")[2] for line in text.splitlines() if " e2e%: " in line] == [shown, shown]


def test_what_a_client_calls_itself_may_be_anything() -> None:
    web = Web()
    client = Client("127.0.0.1:1", 1, hostname="<\ud800&>\u2028")
    client.published.add("t", 1)
    web.broker.clients[1] = client
    assert b"   [V2 <?&>\xe2\x80\xa8:1 " in web.get("/stats").body
    assert rb'"hostname":"\u003c?\u0026\u003e\u2028"' in web.get("/stats?format=json").body


# -- what is told only to those that ask


def test_the_age_of_the_oldest_waiting_message_is_told_on_request() -> None:
    web = Web()
    web.core.channel()
    web.post("/pub?topic=t", b"x")
    web.core.now += 2.5
    (channel,) = web.get("/stats?format=json&include_ages=true").json["topics"][0]["channels"]
    assert channel["oldest_message_age_seconds"] == pytest.approx(2.5)
    assert b"oldest_message_age" not in web.get("/stats?format=json").body


def test_a_channel_without_waiting_messages_has_no_age() -> None:
    web = Web()
    web.core.channel()
    (channel,) = web.get("/stats?format=json&include_ages=1").json["topics"][0]["channels"]
    assert channel["oldest_message_age_seconds"] is None


def test_the_space_of_the_data_path_is_told_on_request() -> None:
    web = Web()
    web.post("/pub?topic=t", b"x")
    disk = web.get("/stats?format=json&include_disk=true").json["disk"]
    assert 0 < disk["free_bytes"] <= disk["capacity_bytes"]
    assert disk["stored_bytes"] == web.core.topic().log.queue.size > 0
    assert "disk" not in web.get("/stats?format=json").json
