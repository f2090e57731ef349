"""GET and PUT /config/:opt, and graphite."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import pytest

from tests.admin.conftest import Nodes, StartAdmin
from tests.admin.endpoint import Endpoint, endpoint, stalled_endpoint
from tests.admin.process import AdminProcess
from tests.wire import HOST


@pytest.fixture
def graphite() -> Iterator[Endpoint]:
    with endpoint() as found:
        yield found


@pytest.mark.parametrize(
    ("key", "body", "content_type"),
    [
        ("log_level", b"2", "application/json; charset=utf-8"),
        ("statsd_interval", b"60000000000", "application/json; charset=utf-8"),
        ("http_client_connect_timeout", b"2000000000", "application/json; charset=utf-8"),
        ("proxy_graphite", b"false", "application/json; charset=utf-8"),
        ("admin_users", b"[]", "application/json; charset=utf-8"),
        ("nsqd_http_addresses", b"[]", "application/json; charset=utf-8"),
        ("statsd_prefix", b"nsq.%s", "text/plain; charset=utf-8"),
        ("base_path", b"/", "text/plain; charset=utf-8"),
    ],
)
def test_options_by_their_keys(admin: AdminProcess, key: str, body: bytes, content_type: str) -> None:
    reply = admin.get(f"/config/{key}")
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, body, content_type)


def test_the_addresses(admin: AdminProcess, nodes: Nodes) -> None:
    assert admin.get("/config/nsqlookupd_http_addresses").document == [f"{HOST}:{nodes.lookupd.http_port}"]
    unknown = admin.get("/config/lookupd_http_address")
    assert (unknown.status, unknown.message) == (400, "INVALID_OPTION")


@pytest.mark.parametrize(
    ("key", "body", "status", "message"),
    [
        ("log_level", b"", 413, "INVALID_VALUE"),
        ("log_level", b"x" * (1024 * 1024 + 1), 413, "INVALID_VALUE"),
        ("log_level", b'"debug"', 400, "INVALID_VALUE"),
        ("nsqlookupd_http_addresses", b"127.0.0.1:1", 400, "INVALID_VALUE"),
        ("nsqlookupd_http_addresses", b"[5]", 400, "INVALID_VALUE"),
        ("nsqlookupd_http_addresses", b'["no port"]', 400, "INVALID_VALUE"),
        ("http_address", b"127.0.0.1:1", 400, "INVALID_OPTION"),
        ("nowhere", b"x", 400, "INVALID_OPTION"),
    ],
)
def test_values_that_are_none(admin: AdminProcess, key: str, body: bytes, status: int, message: str) -> None:
    reply = admin.ask("PUT", f"/config/{key}", body)
    assert (reply.status, reply.message) == (status, message)


def test_a_change_has_effect_at_once(start: StartAdmin, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    admin = start(f"--lookupd-http-address={HOST}:1")
    assert admin.get("/api/topics").status == 502
    address = f"{HOST}:{nodes.lookupd.http_port}"
    changed = admin.ask("PUT", "/config/nsqlookupd_http_addresses", f'["{address}"]'.encode())
    assert changed.document == [address]
    assert topic in admin.get("/api/topics").document["topics"]
    assert admin.ask("PUT", "/config/log_level", b"Debug").body == b"1"
    admin.get("/api/topics")
    assert f"DEBUG: CI: querying nsqlookupd http://{address}/topics" in admin.said()
    assert "set_log_level: done, 1" in admin.await_audit("set_log_level")


def test_addresses_that_may_not(start: StartAdmin) -> None:
    admin = start("--allow-config-from-cidr=192.0.2.0/24")
    for method, body in (("GET", b""), ("PUT", b"info")):
        reply = admin.ask(method, "/config/log_level", body)
        assert (reply.status, reply.message) == (403, "FORBIDDEN")
    everyone = start("--allow-config-from-cidr=")
    assert everyone.get("/config/log_level").status == 200


@pytest.mark.parametrize("flags", [("--admin-user=boss",), ("--publish-user=bob",), ("--read-user=bob",)])
def test_a_change_needs_the_role_admin_where_there_are_users(start: StartAdmin, flags: tuple[str, ...]) -> None:
    admin = start(*flags)
    headers = {"X-Forwarded-User": "bob"}
    for key, body in (("log_level", b"debug"), ("nsqlookupd_http_addresses", b'["192.0.2.2:1"]'), ("nowhere", b"x")):
        reply = admin.ask("PUT", f"/config/{key}", body, headers)
        assert (reply.status, reply.message) == (403, "FORBIDDEN"), key
    assert admin.await_audit("set_log_level").startswith(f"bob@{HOST} set_log_level: FORBIDDEN")
    assert admin.ask("GET", "/config/log_level", headers=headers).body == b"2"


def test_an_admin_that_a_proxy_names_changes_an_option(start: StartAdmin) -> None:
    admin = start("--admin-user=boss", "--read-user=bob")
    changed = admin.ask("PUT", "/config/log_level", b"debug", {"X-Forwarded-User": "boss"})
    assert (changed.status, changed.body) == (200, b"1")


def test_the_rate_of_a_metric(start: StartAdmin, graphite: Endpoint) -> None:
    admin = start(f"--graphite-url=http://user:word@{graphite.address}/sub", "--statsd-interval=20s")
    graphite.body = b'[{"target":"x","datapoints":[[41,1]]}]'
    assert admin.get("/api/graphite?metric=rate&target=sum%28x%29").document == {"rate": "2.05"}
    path, headers, _ = graphite.requests[0]
    assert path == "/sub/render?format=json&from=-40sec&target=sum%28x%29&until=-20sec"
    assert headers["authorization"] == f"Basic {b64encode(b'user:word').decode()}"
    graphite.body = b'[{"target":"x","datapoints":[[-1,1]]}]'
    assert admin.get("/api/graphite?metric=rate&target=x").document == {"rate": "N/A"}
    for graphite.body in (b"[]", b'[{"datapoints":[[null,1]]}]', b"<html>"):
        reply = admin.get("/api/graphite?metric=rate&target=x")
        assert (reply.status, reply.message) == (500, "INTERNAL_ERROR")
    assert admin.get("/render?target=x").status == 404
    assert "word" not in admin.said()


def test_graphite_behind_nsqadmin(start: StartAdmin, graphite: Endpoint) -> None:
    admin = start(f"--graphite-url=http://{graphite.address}/sub", "--proxy-graphite")
    graphite.body = b"picture"
    reply = admin.get("/render?target=a&target=b")
    assert (reply.status, reply.body) == (200, b"picture")
    assert graphite.requests[0][0] == "/render?target=a&target=b"
    graphite.status = 404
    assert admin.get("/render?target=a").status == 404


def test_a_graphite_that_does_not_end_its_answer(start: StartAdmin) -> None:
    with stalled_endpoint() as stalled:
        url = f"http://{stalled.address}"
        admin = start(f"--graphite-url={url}", "--proxy-graphite", "--http-client-request-timeout=200ms")
        assert admin.get("/render?target=a").status == 502
        assert admin.get("/api/graphite?metric=rate&target=a").status == 500
