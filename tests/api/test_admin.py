"""POST /topic/... and /channel/..., and that what is answered survives a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nsqtw.errors import BackendError
from tests.http.broker_fixture import DONE, Web, request

TOPIC_VERBS = ["create", "delete", "empty", "pause", "unpause"]
CHANNEL_VERBS = ["create", "delete", "empty", "pause", "unpause"]
NO_TOPIC = (400, "MISSING_ARG_TOPIC")
UNKNOWN_TOPIC = (404, "TOPIC_NOT_FOUND")
UNKNOWN_CHANNEL = (404, "CHANNEL_NOT_FOUND")
BAD_TOPIC = (400, "INVALID_TOPIC")
EXITING = (503, "EXITING")


def with_channel() -> Web:
    """Topic t with channel c."""
    web = Web()
    web.core.channel()
    web.turn()
    return web


@pytest.mark.parametrize(
    ("verb", "bad_name", "unknown"),
    [
        ("create", BAD_TOPIC, DONE),
        ("delete", UNKNOWN_TOPIC, UNKNOWN_TOPIC),
        ("empty", BAD_TOPIC, UNKNOWN_TOPIC),
        ("pause", UNKNOWN_TOPIC, UNKNOWN_TOPIC),
        ("unpause", UNKNOWN_TOPIC, UNKNOWN_TOPIC),
    ],
)
def test_topic_refusals(verb: str, bad_name: tuple[int, str], unknown: tuple[int, str]) -> None:
    web = with_channel()
    assert web.post(f"/topic/{verb}").outcome == NO_TOPIC
    assert web.post(f"/topic/{verb}?topic=").outcome == bad_name
    assert web.post(f"/topic/{verb}?topic=a!b").outcome == bad_name
    assert web.post(f"/topic/{verb}?topic={'x' * 65}").outcome == bad_name
    assert web.post(f"/topic/{verb}?topic=unknown").outcome == unknown
    assert web.post(f"/topic/{verb}?topic=%zz").outcome == (400, "INVALID_REQUEST")
    assert web.post(f"/topic/{verb}?topic=t;").outcome == (400, "INVALID_REQUEST")
    assert web.post(f"/topic/{verb}?topic=t").outcome == DONE


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("channel=%zz", (400, "INVALID_REQUEST")),
        ("", NO_TOPIC),
        ("channel=c", NO_TOPIC),
        ("topic=", (400, "INVALID_ARG_TOPIC")),
        ("topic=!&channel=!", (400, "INVALID_ARG_TOPIC")),
        ("topic=t", (400, "MISSING_ARG_CHANNEL")),
        ("topic=unknown", (400, "MISSING_ARG_CHANNEL")),
        ("topic=t&channel=", (400, "INVALID_ARG_CHANNEL")),
        ("topic=unknown&channel=!", (400, "INVALID_ARG_CHANNEL")),
        ("topic=unknown&channel=c", UNKNOWN_TOPIC),
        ("topic=t&channel=unknown", UNKNOWN_CHANNEL),
        ("topic=t&channel=c", DONE),
    ],
)
@pytest.mark.parametrize("verb", CHANNEL_VERBS)
def test_channel_refusals(verb: str, query: str, outcome: tuple[int, str]) -> None:
    if verb == "create" and outcome == UNKNOWN_CHANNEL:
        outcome = DONE
    assert with_channel().post(f"/channel/{verb}?{query}").outcome == outcome


def test_success_has_no_body_and_no_type() -> None:
    reply = Web().post("/topic/create?topic=t")
    assert reply.body == b""
    assert reply.headers["content-length"] == "0"
    assert reply.headers["x-nsq-content-type"] == "nsq; version=1.0"
    assert "content-type" not in reply.headers


def test_creating_twice_changes_nothing() -> None:
    web = Web()
    for _ in range(2):
        assert web.post("/topic/create?topic=t").outcome == DONE
        assert web.post("/channel/create?topic=t&channel=c").outcome == DONE
    assert list(web.broker.topics["t"].channels) == ["c"]


def test_a_body_is_read_and_ignored() -> None:
    web = Web()
    assert web.post("/topic/create?topic=t", b"topic=other").outcome == DONE
    assert list(web.broker.topics) == ["t"]


def test_deleting_a_topic_disconnects_its_consumers() -> None:
    web = Web()
    reader = web.core.reader()
    assert web.post("/topic/delete?topic=t").outcome == DONE
    assert reader.disconnected
    assert web.broker.topics == {}
    assert web.post("/topic/delete?topic=t").outcome == UNKNOWN_TOPIC


def test_deleting_a_channel_disconnects_its_consumers() -> None:
    web = Web()
    reader = web.core.reader()
    assert web.post("/channel/delete?topic=t&channel=c").outcome == DONE
    assert reader.disconnected
    assert web.post("/channel/delete?topic=t&channel=c").outcome == UNKNOWN_CHANNEL


def test_emptying_a_topic_leaves_its_channels_what_they_have() -> None:
    web = with_channel()
    web.post("/pub?topic=t", b"given")
    web.post("/topic/pause?topic=t")
    web.post("/pub?topic=t", b"kept back")
    assert web.post("/topic/empty?topic=t").outcome == DONE
    web.post("/topic/unpause?topic=t")
    assert web.bodies() == [b"given"]


def test_emptying_a_channel_forgets_what_is_in_flight() -> None:
    web = Web()
    reader = web.core.reader(ready=1)
    web.post("/mpub?topic=t", b"1\n2\n3")
    (first,) = reader.read()
    assert web.post("/channel/empty?topic=t&channel=c").outcome == DONE
    assert reader.finish(first.id) == [(first.id, "ID not in flight")]
    web.post("/pub?topic=t", b"4")
    assert reader.bodies() == [b"4"]


def test_a_paused_channel_delivers_again_when_it_is_unpaused() -> None:
    web = Web()
    reader = web.core.reader()
    web.post("/channel/pause?topic=t&channel=c")
    web.post("/pub?topic=t", b"x")
    assert reader.bodies() == []
    web.post("/channel/unpause?topic=t&channel=c")
    assert reader.bodies() == [b"x"]


def topic_is_paused(web: Web) -> bool:
    return web.broker.topics["t"].paused


def channel_is_paused(web: Web) -> bool:
    return web.broker.topics["t"].channels["c"].paused


def topics(web: Web) -> list[str]:
    return list(web.broker.topics)


def channels(web: Web) -> list[str]:
    return list(web.broker.topics["t"].channels)


def depth(web: Web) -> int:
    return web.broker.topics["t"].depth


def channel_depth(web: Web) -> int:
    return web.broker.topics["t"].channels["c"].depth


@pytest.mark.parametrize(
    ("before", "target", "look", "found"),
    [
        ([], "/topic/create?topic=t", topics, ["t"]),
        (["/topic/create?topic=t"], "/topic/delete?topic=t", topics, []),
        (["/pub?topic=t"], "/topic/empty?topic=t", depth, 0),
        (["/topic/create?topic=t"], "/topic/pause?topic=t", topic_is_paused, True),
        (["/topic/create?topic=t", "/topic/pause?topic=t"], "/topic/unpause?topic=t", topic_is_paused, False),
        (["/topic/create?topic=t"], "/channel/create?topic=t&channel=c", channels, ["c"]),
        (
            ["/topic/create?topic=t", "/channel/create?topic=t&channel=c"],
            "/channel/delete?topic=t&channel=c",
            channels,
            [],
        ),
        (
            ["/topic/create?topic=t", "/channel/create?topic=t&channel=c", "/pub?topic=t"],
            "/channel/empty?topic=t&channel=c",
            channel_depth,
            0,
        ),
        (
            ["/topic/create?topic=t", "/channel/create?topic=t&channel=c"],
            "/channel/pause?topic=t&channel=c",
            channel_is_paused,
            True,
        ),
        (
            ["/topic/create?topic=t", "/channel/create?topic=t&channel=c", "/channel/pause?topic=t&channel=c"],
            "/channel/unpause?topic=t&channel=c",
            channel_is_paused,
            False,
        ),
    ],
)
def test_what_is_answered_survives_a_crash(
    before: list[str], target: str, look: Callable[[Web], Any], found: Any
) -> None:
    web = Web()
    for earlier in before:
        assert web.post(earlier, b"x").status == 200
    web.writer.is_held_back = True
    browser = web.connect()
    browser.send(request("POST", target))
    assert browser.read() == []
    web.writer.is_held_back = False
    assert [reply.outcome for reply in browser.read()] == [DONE]
    web.core.crash()
    assert look(web) == found


@pytest.mark.parametrize("verb", TOPIC_VERBS)
def test_what_cannot_be_saved_is_no_success_for_topics(verb: str) -> None:
    web = with_channel()
    web.core.positions.failure = BackendError("disk full")
    assert web.post(f"/topic/{verb}?topic=t").outcome == (500, "INTERNAL_ERROR")
    assert web.get("/ping").body == b"NOK - disk full"


@pytest.mark.parametrize("verb", CHANNEL_VERBS)
def test_what_cannot_be_saved_is_no_success_for_channels(verb: str) -> None:
    web = with_channel()
    web.core.positions.failure = BackendError("disk full")
    assert web.post(f"/channel/{verb}?topic=t&channel=c").outcome == (500, "INTERNAL_ERROR")


def test_a_topic_whose_storage_cannot_be_made() -> None:
    web = Web()

    def queue(topic: str) -> None:
        raise BackendError("read-only file system")

    web.core.backend.queue = queue
    assert web.post("/topic/create?topic=t").outcome == (500, "INTERNAL_ERROR")
    assert web.post("/pub?topic=t", b"x").outcome == EXITING


@pytest.mark.parametrize(
    "target",
    [
        "/topic/create?topic=e%23ephemeral",
        "/topic/pause?topic=e%23ephemeral",
        "/channel/create?topic=e%23ephemeral&channel=c",
        "/channel/pause?topic=e%23ephemeral&channel=c",
        "/channel/create?topic=t&channel=c%23ephemeral",
        "/channel/delete?topic=t&channel=c%23ephemeral",
        "/topic/delete?topic=e%23ephemeral",
    ],
)
def test_what_is_ephemeral_is_answered_at_once(target: str) -> None:
    web = Web()
    web.core.channel("c", "e#ephemeral")
    web.core.channel("c#ephemeral", "t")
    web.turn()
    web.writer.is_held_back = True
    web.core.channel("unsaved", "t")
    assert web.post(target).outcome == DONE


def test_a_topic_cannot_be_created_while_an_older_one_is_being_deleted() -> None:
    web = with_channel()
    web.writer.is_held_back = True
    web.connect().send(request("POST", "/topic/delete?topic=t"))
    assert web.post("/topic/create?topic=t").outcome == EXITING


def test_a_broker_that_stops_changes_nothing_more() -> None:
    web = with_channel()
    web.pump.stop()
    for verb in TOPIC_VERBS:
        assert web.post(f"/topic/{verb}?topic=t").outcome == EXITING
    for verb in CHANNEL_VERBS:
        assert web.post(f"/channel/{verb}?topic=t&channel=c").outcome == EXITING
    assert not topic_is_paused(web)
