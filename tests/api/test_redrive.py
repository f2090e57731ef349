"""Publishes for one channel, and putting dead letters back, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core.policy import redrive_preview
from nsqtw.core.policy.redrive import BATCH
from tests.http.broker_fixture import DONE, OK, Reply, Web, request

_PATH = "/v2/channel/redrive?topic=t&channel=c"


@pytest.fixture
def web() -> Web:
    web = Web()
    web.post("/topic/create?topic=t")
    for name in ("c", "other"):
        assert web.post(f"/channel/create?topic=t&channel={name}").outcome == DONE
    web.core.channel("c").policies.set({"max_attempts": 1})
    return web


def fail(web: Web, *bodies: bytes) -> None:
    """Publish messages that become dead letters."""
    for body in bodies:
        assert web.post("/pub?topic=t&channel=c", body).outcome == OK
    reader = web.core.reader()
    for message in reader.read():
        reader.requeue(message.id)
    reader.leave()
    for _ in range(5):
        web.pump.wake()
        web.turn()


def end(web: Web) -> dict[str, Any]:
    for _ in range(20):
        web.pump.wake()
        web.turn()
    progress: dict[str, Any] = web.get(_PATH).json
    return progress


def bodies(web: Web, channel: str, topic: str = "t") -> list[bytes]:
    return web.core.reader(channel, topic).bodies()


# -- publishes


@pytest.mark.parametrize("path", ["/pub?topic=t&channel=c", "/mpub?topic=t&channel=c"])
def test_a_publish_for_one_channel(web: Web, path: str) -> None:
    assert web.post(path, b"m").outcome == OK
    assert bodies(web, "c") == [b"m"]
    assert bodies(web, "other") == []


@pytest.mark.parametrize("path", ["/pub?topic=t&channel=x", "/mpub?topic=t&channel=x"])
def test_a_publish_for_a_channel_that_does_not_exist(web: Web, path: str) -> None:
    assert web.post(path, b"m").outcome == (404, "CHANNEL_NOT_FOUND")
    assert bodies(web, "c") == []


# -- redrive


def test_dead_letters_are_put_back(web: Web) -> None:
    fail(web, b"1", b"2")
    dry = web.post(f"{_PATH}&dry_run=true").json
    assert (dry["state"], dry["total"]) == ("dry run", 2)
    begun = web.post(_PATH).json
    assert (begun["state"], begun["total"], begun["redriven"]) == ("running", 2, 0)
    progress = end(web)
    assert (progress["state"], progress["redriven"], progress["others"]) == ("done", 2, 0)
    assert bodies(web, "c") == [b"1", b"2"]
    assert bodies(web, "other") == []


def test_messages_of_others_are_told_apart(web: Web) -> None:
    fail(web, b"1", b"2")
    web.post("/pub?topic=t.dead", b"no letter")
    dry = web.post(f"{_PATH}&dry_run=true").json
    assert (dry["state"], dry["total"], dry["redriven"], dry["others"]) == ("dry run", 3, 0, 1)
    web.post(_PATH)
    progress = end(web)
    assert (progress["state"], progress["redriven"], progress["others"]) == ("done", 2, 1)
    dry = web.post(f"{_PATH}&dry_run=true").json
    assert (dry["total"], dry["others"]) == (1, 1)
    assert bodies(web, "c", "t.dead") == [b"no letter"]


def test_a_dry_run_looks_at_what_is_ready_in_several_turns(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_preview, "_MESSAGES", 1)
    fail(web, b"1", b"2", b"3")
    web.core.channel("c", "t.dead").policies.set({"priority": True})
    for priority in ("low", "high"):
        web.post(f"/pub?topic=t.dead&priority={priority}", b"x")
    web.post("/channel/create?topic=t.dead&channel=other")
    web.post("/pub?topic=t.dead&channel=other", b"for another channel")
    web.post("/pub?topic=t.dead&defer=60000", b"deferred")
    reader = web.core.reader("c", "t.dead", ready=3)
    high, one, two = reader.read()
    assert (high.body, one.body, two.body) == (b"x", b"1", b"2")
    reader.channel.set_ready(reader.consumer, 0)
    reader.finish(high.id)
    reader.requeue(one.id)
    dry = web.post(f"{_PATH}&dry_run=true").json
    assert (dry["total"], dry["others"]) == (3, 1)


def test_held_messages_are_shown(web: Web) -> None:
    web.core.channel("c", "t.dead").policies.set({"max_depth": 1})
    fail(web, b"1", b"2", b"3")
    for _ in range(10):
        web.pump.wake()
        web.turn()
    (topic,) = web.get("/stats?format=json&topic=t").json["topics"]
    c = next(channel for channel in topic["channels"] if channel["channel_name"] == "c")
    assert (c["depth"], c["held_count"], c["dead_letter_count"]) == (2, 2, 1)
    peeked = web.get("/v2/channel/messages?topic=t&channel=c").json["messages"]
    assert [message["body"] for message in peeked] == ["2", "3"]


def test_its_numbers(web: Web) -> None:
    fail(web, b"1", b"2", b"3")
    begun = web.post(f"{_PATH}&rate=1000&max=2").json
    assert begun["rate"] == 1000
    web.core.now += 1
    progress = end(web)
    assert (progress["state"], progress["redriven"]) == ("done", 2)
    assert BATCH > 3


def test_it_is_stopped(web: Web) -> None:
    fail(web, b"1", b"2")
    web.post(f"{_PATH}&rate=1")
    assert web.post(_PATH).outcome == (409, "REDRIVE_RUNS")
    assert web.post(f"{_PATH}&stop=true").status == 200
    assert end(web)["state"] == "stopped"
    assert web.post(_PATH).status == 200


def test_a_consumer_of_the_dead_letters_prevents_it(web: Web) -> None:
    fail(web, b"1")
    reader = web.core.reader("c", "t.dead", ready=0)
    reply = web.post(_PATH)
    assert reply.outcome == (409, "CHANNEL_HAS_CONSUMERS")
    assert reply.headers["x-nsqtw-detail"] == (
        "The channel has consumers, or a redrive that reads it: another one cannot begin."
    )
    reader.leave()
    assert web.post(_PATH).status == 200


def test_there_is_nothing_to_put_back(web: Web) -> None:
    assert web.post(_PATH).outcome == (404, "DEAD_LETTERS_NOT_FOUND")
    assert web.get(_PATH).outcome == (404, "REDRIVE_NOT_FOUND")
    assert web.post(f"{_PATH}&stop=true").outcome == (404, "REDRIVE_NOT_FOUND")


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("channel=c", (400, "MISSING_ARG_TOPIC")),
        ("topic=t", (400, "MISSING_ARG_CHANNEL")),
        ("topic=x&channel=c", (404, "TOPIC_NOT_FOUND")),
        ("topic=t&channel=x", (404, "CHANNEL_NOT_FOUND")),
        ("topic=t&channel=c&rate=0", (400, "INVALID_RATE")),
        ("topic=t&channel=c&max=-1", (400, "INVALID_MAX")),
        ("topic=t&channel=c&dry_run=yes", (400, "INVALID_DRY_RUN")),
        ("topic=t&channel=c&stop=1", (400, "INVALID_STOP")),
    ],
)
def test_wrong_parameters(web: Web, query: str, outcome: tuple[int, str]) -> None:
    fail(web, b"1")
    assert web.post(f"/v2/channel/redrive?{query}").outcome == outcome


def test_an_ephemeral_channel_has_none(web: Web) -> None:
    web.post("/channel/create?topic=t&channel=e%23ephemeral")
    reply = web.post("/v2/channel/redrive?topic=t&channel=e%23ephemeral")
    assert reply.outcome == (400, "EPHEMERAL_CHANNEL")
    assert reply.headers["x-nsqtw-detail"].endswith("or use a durable channel.")


def test_the_statistics_have_what_was_used(web: Web) -> None:
    fail(web, b"1")
    web.core.topic().policies.set({"message_ttl": 1.0})
    web.post("/pub?topic=t", b"2")
    web.core.now += 1
    assert bodies(web, "c") == []
    (topic,) = web.get("/stats?format=json&topic=t").json["topics"]
    c, other = topic["channels"]
    assert (c["dead_letter_count"], c["expired_count"]) == (1, 1)
    assert not {"dead_letter_count", "expired_count"} & other.keys()
    metrics = web.get("/metrics").body.decode()
    assert 'nsq_channel_dead_lettered_total{channel="c",topic="t"} 1.0' in metrics.replace("', '", "','")


# -- one message


def ids(web: Web) -> dict[str, str]:
    """The ids of the dead letters by their bodies."""
    web.pump.wake()
    web.turn()
    found = web.get("/v2/channel/messages?topic=t.dead&channel=c").json["messages"]
    return {message["body"]: message["id"] for message in found}


def later(web: Web, path: str, *, seconds: int = 0) -> Reply:
    """The answer to a POST that is given some turns later, or as many seconds."""
    browser = web.connect()
    browser.send(request("POST", path))
    for _ in range(20 + seconds):
        web.core.now += 1.0 if seconds else 0.0
        web.pump.wake()
        web.turn()
    (reply,) = browser.read()
    return reply


def test_one_dead_letter_is_put_back(web: Web) -> None:
    fail(web, b"1", b"2", b"3")
    progress = later(web, f"{_PATH}&id={ids(web)['2'].upper()}").json
    assert (progress["state"], progress["total"], progress["redriven"]) == ("done", 1, 1)
    assert bodies(web, "c") == [b"2"]
    assert bodies(web, "c", "t.dead") == [b"1", b"3"]
    assert web.get(_PATH).outcome == (404, "REDRIVE_NOT_FOUND")


def test_one_message_is_finished(web: Web) -> None:
    fail(web, b"1", b"2", b"3")
    one = ids(web)["2"]
    path = f"/v2/channel/finish?topic=t.dead&channel=c&id={one}"
    assert later(web, path).json == {"id": one}
    assert later(web, path).outcome == (404, "MESSAGE_NOT_READY")
    assert bodies(web, "c", "t.dead") == [b"1", b"3"]
    assert bodies(web, "c") == []


@pytest.mark.parametrize("path", [_PATH, "/v2/channel/finish?topic=t.dead&channel=c"])
def test_one_message_is_refused_with_a_word(web: Web, path: str) -> None:
    fail(web, b"1")
    assert web.post(f"{path}&id=1").outcome == (400, "INVALID_ID")
    assert later(web, f"{path}&id=0123456789abcdef").outcome == (404, "MESSAGE_NOT_READY")
    web.core.channel("c", "t.dead").pause()
    one = ids(web)["1"]
    reply = later(web, f"{path}&id={one}", seconds=15)
    assert reply.outcome == (409, "MESSAGE_NOT_MOVED")
    assert "paused" in reply.headers["x-nsqtw-detail"]
    web.core.channel("c", "t.dead").unpause()
    web.core.reader("c", "t.dead", ready=0)
    assert web.post(f"{path}&id={one}").outcome == (409, "CHANNEL_HAS_CONSUMERS")


def test_finishing_needs_an_id(web: Web) -> None:
    assert web.post("/v2/channel/finish?topic=t&channel=c").outcome == (400, "MISSING_ARG_ID")
