"""The JSON API of nsqadmin, with the fields of the original."""

from __future__ import annotations

import gzip
import http.client
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.admin.conftest import Nodes, StartAdmin
from tests.admin.process import AdminProcess
from tests.process import LookupdProcess, NsqdProcess, ReservedPort, wait_until
from tests.wire import ANSWER_SECONDS, HOST

JSON = "application/json; charset=utf-8"
TOPIC = [
    *("node", "hostname", "topic_name", "depth", "memory_depth", "backend_depth", "message_count"),
    *("delivery_msg_count", "nodes", "channels", "paused", "e2e_processing_latency"),
]
CHANNEL = [
    *("node", "hostname", "topic_name", "channel_name", "depth", "memory_depth", "backend_depth", "in_flight_count"),
    *("deferred_count", "requeue_count", "timeout_count", "message_count", "client_count", "nodes", "clients"),
    *("paused", "e2e_processing_latency"),
]
CLIENT = [
    *("node", "remote_address", "version", "client_id", "hostname", "user_agent", "connect_ts", "connected"),
    *("in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count", "sample_rate", "deflate"),
    *("snappy", "authed", "auth_identity", "auth_identity_url", "tls", "tls_cipher_suite", "tls_version"),
    *("tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual"),
]
NODE = [
    *("remote_addresses", "remote_address", "hostname", "broadcast_address", "tcp_port", "http_port", "version"),
    *("topics", "out_of_date"),
]
LOCALITIES = {"delivery_msg_count", "zone_local_msg_count", "region_local_msg_count", "global_msg_count"}
"""Fields that a channel without deliveries does not have."""
LATENCY = ["count", "percentiles", "topic", "channel", "host"]


def test_ping(admin: AdminProcess) -> None:
    reply = admin.get("/ping")
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"OK", "text/plain; charset=utf-8")
    assert "x-nsq-content-type" not in reply.headers


def test_topics(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    reply = admin.get("/api/topics")
    assert (reply.status, reply.headers["content-type"]) == (200, JSON)
    assert reply.headers["x-nsq-content-type"] == "nsq; version=1.0"
    assert list(reply.document) == ["topics", "message"]
    assert topic in reply.document["topics"]
    assert reply.message == ""


def test_inactive_topics(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.lookupd.http("POST", f"/channel/create?topic={topic}-a&channel=c")
    nodes.lookupd.http("POST", f"/topic/create?topic={topic}-b")
    found = admin.get("/api/topics?inactive=true").document
    assert (found["topics"][f"{topic}-a"], found["topics"][f"{topic}-b"]) == (["c"], None)
    assert found["message"] == ""


def test_a_topic(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c", messages=2)
    found = admin.get(f"/api/topics/{topic}").document
    assert list(found) == [*TOPIC, "message"]
    assert (found["node"], found["hostname"], found["message_count"], found["message"]) == ("*", "", 4, "")
    assert list(found["e2e_processing_latency"]) == LATENCY
    assert found["e2e_processing_latency"]["host"] == "*"
    assert [list(node) for node in found["nodes"]] == [TOPIC, TOPIC]
    for node in found["nodes"]:
        assert node["nodes"] is None
        (channel,) = node["channels"]
        assert list(channel) == CHANNEL
        assert (channel["depth"], channel["nodes"], channel["clients"]) == (2, None, None)
    (channel,) = found["channels"]
    assert (channel["node"], channel["depth"], len(channel["nodes"]), channel["clients"]) == ("*", 4, 2, None)


def test_a_topic_without_a_channel(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    found = admin.get(f"/api/topics/{topic}").document
    assert found["channels"] is None
    assert [node["channels"] for node in found["nodes"]] == [[], []]


def test_a_channel_with_a_client(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c", messages=1)
    with nodes.nsqds[0].client() as consumer:
        consumer.sub(topic, "c", ready=1)
        consumer.drain(1)
        found = admin.get(f"/api/topics/{topic}/c").document
    assert [name for name in found if name not in LOCALITIES] == [*CHANNEL, "message"]
    assert found["delivery_msg_count"] == 1
    (client,) = found["clients"]
    assert list(client) == CLIENT
    assert (client["node"], client["ready_count"]) == (nodes.addresses[0], 1)
    assert client["connected"] % 1_000_000_000 == 0
    assert sorted(len(node["clients"]) for node in found["nodes"]) == [0, 1]


def test_nodes(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    found = admin.get("/api/nodes").document
    assert list(found) == ["nodes", "message"]
    for node in found["nodes"]:
        assert list(node) == NODE
        assert {"topic": topic, "tombstoned": False} in node["topics"]
        (remote,) = node["remote_addresses"]
        assert remote == f"{HOST}:{nodes.lookupd.http_port}/{node['remote_address']}"


def test_one_node(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c", messages=3)
    found = admin.get(f"/api/nodes/{nodes.addresses[0]}").document
    assert list(found) == ["node", "topics", "total_messages", "total_clients", "message"]
    assert found["node"] == nodes.addresses[0]
    assert found["total_messages"] >= 3
    (entry,) = [entry for entry in found["topics"] if entry["topic_name"] == topic]
    assert (list(entry), entry["channels"][0]["clients"]) == (TOPIC, [])
    missing = admin.get("/api/nodes/nowhere:1")
    assert (missing.status, missing.document) == (404, {"message": "NODE_NOT_FOUND"})


def test_the_counter(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c", messages=2)
    found = admin.get("/api/counter").document
    address = nodes.addresses[0]
    assert found["stats"][f"{topic}:c:{address}"] == {
        "node": address,
        "topic_name": topic,
        "channel_name": "c",
        "message_count": 2,
    }
    assert list(found["stats"]) == sorted(found["stats"])


def test_what_does_not_exist(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    missing = admin.get("/api/topics/nowhere")
    assert missing.status == 502
    assert missing.message.startswith("UPSTREAM_ERROR: failed to query any nsqlookupd: got response 404 Not Found ")
    assert "TOPIC_NOT_FOUND" in missing.message
    nodes.lookupd.http("POST", f"/topic/create?topic={topic}-idle")
    idle = admin.get(f"/api/topics/{topic}-idle")
    assert (idle.status, idle.message) == (502, "UPSTREAM_ERROR: failed to query any nsqd: ")
    channel = admin.get(f"/api/topics/{topic}/nowhere")
    assert (channel.status, channel.message) == (404, "CHANNEL_NOT_FOUND")


# -- actions


def test_create_and_delete(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    assert admin.ask("POST", "/api/topics", {"topic": topic}).document == {"message": ""}
    nodes.prepare(topic)
    assert admin.ask("POST", "/api/topics", {"topic": topic, "channel": "c"}).document == {"message": ""}
    assert nodes.nsqds[1].counts(topic, "c").depth == 0
    assert admin.ask("DELETE", f"/api/topics/{topic}/c").document == {"message": ""}
    assert nodes.nsqds[1].stats(topic)[0]["channels"] == []
    assert admin.ask("DELETE", f"/api/topics/{topic}").document == {"message": ""}
    assert nodes.nsqds[0].stats(topic) == []
    assert topic not in (admin.get("/api/topics").document["topics"] or [])


def test_pause_and_empty(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c", messages=2)
    assert admin.ask("POST", f"/api/topics/{topic}", {"action": "pause"}).document == {"message": ""}
    assert admin.get(f"/api/topics/{topic}").document["paused"] is True
    admin.ask("POST", f"/api/topics/{topic}", {"action": "unpause"})
    assert admin.get(f"/api/topics/{topic}").document["paused"] is False
    admin.ask("POST", f"/api/topics/{topic}/c", {"action": "pause"})
    assert admin.get(f"/api/topics/{topic}/c").document["paused"] is True
    admin.ask("POST", f"/api/topics/{topic}/c", {"action": "unpause"})
    admin.ask("POST", f"/api/topics/{topic}/c", {"action": "empty"})
    assert admin.get(f"/api/topics/{topic}/c").document["depth"] == 0


def test_an_ephemeral_channel(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    assert admin.ask("POST", "/api/topics", {"topic": topic, "channel": "c#ephemeral"}).message == ""
    assert admin.get(f"/api/topics/{topic}/c%23ephemeral").document["channel_name"] == "c#ephemeral"


def test_a_tombstone(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    assert admin.ask("DELETE", f"/api/nodes/{nodes.addresses[0]}", {"topic": topic}).document == {"message": ""}
    assert nodes.nsqds[0].stats(topic) == []
    assert nodes.lookupd.producers(topic) == [f"{HOST}:{nodes.nsqds[1].tcp_port}"]
    port = ReservedPort()
    dead = admin.ask("DELETE", f"/api/nodes/{HOST}:{port.number}", {"topic": topic})
    assert dead.status == 502
    assert dead.message.startswith("UPSTREAM_ERROR: failed to query any nsqd: ")
    port.release()


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("POST", "/api/topics", b"", "EOF"),
        ("POST", "/api/topics", b"{", "unexpected EOF"),
        ("POST", "/api/topics", b"x", "invalid character 'x' looking for beginning of value"),
        ("POST", "/api/topics", b'{"topic":5}', "json: cannot unmarshal the body: topic"),
        ("POST", "/api/topics", b'{"topic":"a b"}', "INVALID_TOPIC"),
        ("POST", "/api/topics", b"{}", "INVALID_TOPIC"),
        ("POST", "/api/topics", b'{"topic":"t","channel":"!"}', "INVALID_CHANNEL"),
        ("POST", "/api/topics/t", b'{"action":"burn"}', "INVALID_ACTION"),
        ("POST", "/api/topics/t", b"{}", "INVALID_ACTION"),
        ("POST", "/api/topics/t/c", b"", "EOF"),
        ("DELETE", "/api/nodes/a:1", b"{", "INVALID_BODY"),
        ("DELETE", "/api/nodes/a:1", b'{"topic":"a b"}', "INVALID_TOPIC"),
        ("GET", "/api/topics?inactive=%zz", b"", "INVALID_REQUEST"),
        ("GET", "/api/graphite", b"", "INVALID_ARG_METRIC"),
        ("GET", "/api/graphite?metric=rate", b"", "INVALID_ARG_TARGET"),
    ],
)
def test_wrong_input(admin: AdminProcess, method: str, path: str, body: bytes, message: str) -> None:
    reply = admin.ask(method, path, body)
    assert (reply.status, reply.message, reply.headers["content-type"]) == (400, message, JSON)


def test_an_action_that_no_node_can_do_is_a_warning(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    reply = admin.ask("POST", f"/api/topics/{topic}/nowhere", {"action": "pause"})
    assert reply.status == 200
    first, second = reply.message.splitlines()
    assert first.startswith("WARNING: got response 404 Not Found ")
    assert second.startswith("got response 404 Not Found ")
    missing = admin.ask("POST", "/api/topics/nowhere", {"action": "pause"})
    assert missing.status == 502


# -- paths and methods


def test_paths_that_are_none(admin: AdminProcess) -> None:
    for path in ("/nowhere", "/api", "/api/topics/a/b/c", "/api/topics/%ff", "/../api/topics"):
        reply = admin.get(path)
        assert (reply.status, reply.document) == (404, {"message": "NOT_FOUND"}), path


def test_the_canonical_path(admin: AdminProcess) -> None:
    for path, canonical in (
        ("/api/topics/", "/api/topics"),
        ("/API/Topics?inactive=true", "/api/topics?inactive=true"),
        ("//api//nodes", "/api/nodes"),
    ):
        reply = admin.get(path)
        assert (reply.status, reply.headers["location"]) == (301, canonical)
    assert admin.ask("POST", "/api/topics/").status == 307


def test_methods(admin: AdminProcess) -> None:
    reply = admin.ask("PUT", "/api/topics", b"{}")
    assert (reply.status, reply.headers["allow"], reply.message) == (405, "GET, OPTIONS, POST", "METHOD_NOT_ALLOWED")
    options = admin.ask("OPTIONS", "/api/nodes/n")
    assert (options.status, options.headers["allow"], options.body) == (200, "DELETE, GET, OPTIONS, POST", b"")


def test_compression(admin: AdminProcess) -> None:
    reply = admin.get("/api/topics", Accept_Encoding="deflate, gzip")
    assert (reply.headers["content-encoding"], reply.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert gzip.decompress(reply.body).startswith(b'{"topics":')


def test_a_body_without_an_end(admin: AdminProcess) -> None:
    connection = http.client.HTTPConnection(HOST, admin.http_port, timeout=ANSWER_SECONDS)
    connection.putrequest("POST", "/api/topics")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert admin.get("/ping").status == 200


# -- other set-ups


def test_without_nsqlookupd(nodes: Nodes, start: StartAdmin, topic: str) -> None:
    admin = start(*nodes.nsqd_flags)
    nodes.prepare(topic, "c", messages=1)
    assert admin.get("/api/topics?inactive=true").document == {"topics": {}, "message": ""}
    assert admin.get(f"/api/topics/{topic}/c").document["depth"] == 2
    found = admin.get("/api/nodes").document["nodes"]
    assert [node["remote_addresses"] for node in found] == [None, None]
    assert admin.ask("POST", f"/api/topics/{topic}", {"action": "pause"}).message == ""
    assert nodes.nsqds[0].stats(topic)[0]["paused"] is True


def test_an_empty_cluster(tmp_path_factory: pytest.TempPathFactory, start: StartAdmin) -> None:
    lookupd = LookupdProcess(tmp_path_factory.mktemp("empty"))
    lookupd.start()
    admin = start(f"--lookupd-http-address={HOST}:{lookupd.http_port}")
    assert admin.get("/api/topics").document == {"topics": None, "message": ""}
    assert admin.get("/api/nodes").document == {"nodes": None, "message": ""}
    assert admin.get("/api/topics?inactive=true").document == {"topics": {}, "message": ""}
    assert admin.get("/api/counter").status == 502
    lookupd.close()


def test_a_dead_node_is_a_warning(nodes: Nodes, start: StartAdmin, topic: str) -> None:
    nodes.prepare(topic, "c", messages=1)
    port = ReservedPort()
    dead = f"{HOST}:{port.number}"
    admin = start(*nodes.nsqd_flags, f"--nsqd-http-address={dead}")
    for path in ("/api/topics", f"/api/topics/{topic}", f"/api/topics/{topic}/c", "/api/nodes", "/api/counter"):
        reply = admin.get(path)
        assert reply.status == 200
        assert reply.message.startswith('WARNING: Get "http://'), path
        assert f"dial tcp {dead}: connect: connection refused" in reply.message
    changed = admin.ask("POST", f"/api/topics/{topic}/c", {"action": "pause"})
    assert changed.status == 200
    assert changed.message.startswith("WARNING: ")
    assert admin.get(f"/api/topics/{topic}/c").document["paused"] is True
    port.release()


def test_a_base_path(start: StartAdmin) -> None:
    admin = start("--base-path=ops/nsq/")
    assert admin.get("/ops/nsq/ping").body == b"OK"
    assert admin.get("/ops/nsq/api/topics").status == 200
    assert admin.get("/ops/nsq/").status == 200
    assert admin.get("/ops/nsq/config/base_path").body == b"/ops/nsq"
    for path in ("/ping", "/api/topics", "/", "/ops/nsqping"):
        assert admin.get(path).status == 404, path


def test_thousands_of_topics(tmp_path: Path, start: StartAdmin) -> None:
    nsqd = NsqdProcess(tmp_path / "nsqd", f"--broadcast-address={HOST}")
    nsqd.start()
    names = sorted(f"topic-{number}" for number in range(2000))
    with nsqd.client() as client:
        for name in names:
            client.pub(name, b"x")
    for name in names[:600]:
        nsqd.order(f"/channel/create?topic={name}&channel=c")
    address = f"{HOST}:{nsqd.http_port}"
    admin = start(f"--nsqd-http-address={address}")
    assert admin.get("/api/topics").document["topics"] == names
    node = admin.get(f"/api/nodes/{address}").document
    assert list(node) == ["node", "topics", "total_messages", "total_clients", "message"]
    assert [list(topic) for topic in node["topics"]] == [TOPIC] * 2000
    assert (node["total_messages"], node["total_clients"], node["message"]) == (2000, 0, "")
    counts = admin.get("/api/counter").document["stats"]
    assert list(counts) == sorted(f"{name}:c:{address}" for name in names[:600])
    nsqd.close()


def test_clients_that_do_not_wait(start: StartAdmin) -> None:
    """The queries for a client end with it. The history asks by itself, and one of its queries may be on its way."""
    asked: list[socket.socket] = []
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server((HOST, 0), backlog=100))
        silent.settimeout(ANSWER_SECONDS)
        admin = start(f"--nsqd-http-address={HOST}:{silent.getsockname()[1]}", "--http-client-request-timeout=1m")
        for path in ("/api/topics", "/api/counter", "/api/topics/t") * 5:
            with socket.create_connection((HOST, admin.http_port), ANSWER_SECONDS) as client:
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                asked.append(stack.enter_context(silent.accept()[0]))
        wait_until(lambda: sum(not has_ended(one) for one in asked) <= 1, "the queries end")
        assert admin.get("/ping").status == 200


def has_ended(connection: socket.socket) -> bool:
    """Return whether the peer has closed a connection."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_an_action_is_carried_out_for_a_client_that_does_not_wait(start: StartAdmin, nodes: Nodes, topic: str) -> None:
    admin = start()
    nodes.prepare(topic, *(f"c{number}" for number in range(10)))
    for number in range(10):
        with socket.create_connection((HOST, admin.http_port), ANSWER_SECONDS) as client:
            client.sendall(f"DELETE /api/topics/{topic}/c{number} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    for number in range(10):
        assert admin.await_audit(f"channel=c{number}:").endswith(": done")
    assert [nsqd.stats(topic)[0]["channels"] for nsqd in nodes.nsqds] == [[], []]
