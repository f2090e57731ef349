"""A publish to a topic whose channel has reached a bound, over HTTP."""

from __future__ import annotations

import pytest

from tests.http.broker_fixture import OK, Web

pytestmark = pytest.mark.usefixtures("heads")


def bounded(**policy: object) -> Web:
    web = Web()
    web.core.channel().policies.set(policy)
    web.core.turn()
    return web


@pytest.mark.parametrize(
    "target",
    [
        "/pub?topic=t",
        "/pub?topic=t&defer=1000",
        "/pub?topic=t&ids=true",
        "/pub?topic=t&channel=c&ttl=1h",
        "/mpub?topic=t",
        "/mpub?topic=t&ids=true",
    ],
)
def test_it_is_refused_until_there_is_room(target: str) -> None:
    web = bounded(max_depth=1)
    assert web.post("/pub?topic=t", b"first").outcome == OK
    reply = web.post(target, b"second")
    assert reply.outcome == (429, "CHANNEL_FULL")
    assert reply.headers["retry-after"] == "1"
    assert reply.headers["x-nsqtw-detail"] == "channel c has reached its max_depth: repeat the request later"
    assert web.bodies() == [b"first"]
    assert web.post(target, b"second").status == 200


def test_mpub_is_accepted_as_a_whole_or_not_at_all() -> None:
    web = bounded(max_bytes=140)
    assert web.post("/mpub?topic=t", b"1\n2").outcome == OK
    assert web.post("/mpub?topic=t", b"1\n2\n3").outcome == (429, "CHANNEL_FULL")
    assert web.post("/mpub?topic=t", b"1\n2").outcome == OK
    assert web.core.topic().put_total == 4


@pytest.mark.parametrize(
    ("policy", "target", "body", "detail"),
    [
        ({"max_depth": 3}, "/mpub?topic=t", b"1\n2\n3\n4", "4 messages exceed the max_depth of channel c, which is 3"),
        ({"max_depth": 1}, "/mpub?topic=t&ids=true&channel=c", b"1\n2", "2 messages exceed the max_depth of channel c"),
        ({"max_bytes": 100}, "/pub?topic=t", b"x" * 67, "101 bytes exceed the max_bytes of channel c, which is 100"),
        ({"max_bytes": 100}, "/pub?topic=t&id=" + "x" * 80, b"x", "120 bytes exceed the max_bytes of channel c"),
    ],
)
def test_a_publish_that_never_fits_is_not_to_be_repeated(
    policy: dict[str, int], target: str, body: bytes, detail: str
) -> None:
    web = bounded(**policy)
    for _ in range(2):
        reply = web.post(target, body)
        assert reply.outcome == (413, "PUBLISH_TOO_BIG")
        assert "retry-after" not in reply.headers
        assert reply.headers["x-nsqtw-detail"].startswith(detail)
        web.post("/pub?topic=t", b"1")
    assert web.core.topic().rejected_count >= 2


def test_the_connection_goes_on() -> None:
    web = bounded(max_depth=1)
    browser = web.connect()
    outcomes = [browser.ask("POST", f"/pub?topic={topic}", b"x").outcome for topic in ("t", "t", "other")]
    assert outcomes == [OK, (429, "CHANNEL_FULL"), OK]


def test_what_was_refused_is_counted_in_stats_and_metrics() -> None:
    web = bounded(max_depth=1)
    web.post("/pub?topic=t", b"1")
    web.post("/pub?topic=t", b"2")
    (topic,) = web.get("/stats?format=json").json["topics"]
    assert topic["rejected_count"] == 1
    assert b'nsq_topic_rejected_total{topic="t"} 1' in web.get("/metrics").body


def test_a_publish_that_wants_ids_is_refused_in_the_same_words() -> None:
    web = bounded(max_depth=1)
    assert web.post("/pub?topic=t&ids=true", b"first").status == 200
    assert web.post("/pub?topic=t&ids=true", b"second").outcome == (429, "CHANNEL_FULL")


@pytest.mark.parametrize("target", ["/pub?topic=t&ttl=9", "/pub?topic=t&ttl=9&ids=true", "/pub?topic=t&channel=c"])
def test_a_backend_that_stores_no_headers_is_named(target: str) -> None:
    web = bounded()
    web.core.topic().log.stores_headers = False
    reply = web.post(target, b"x")
    assert reply.outcome == (501, "HEADERS_NOT_STORED")
    assert "publish without" in reply.headers["x-nsqtw-detail"]
    assert web.post("/pub?topic=t", b"x").outcome == OK
