"""Policies of topics and channels over HTTP: set, shown with their sources, refused in one line, and kept."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from nsqtw.options.channels import ChannelRule
from nsqtw.options.topics import TopicRule
from nsqtw.rights import ADMIN
from tests.http.broker_fixture import Reply, Web

TOPIC, CHANNEL = "/v2/topic/policy?topic=t", "/v2/channel/policy?topic=t&channel=c"
FILE = '[channel."t*/*"]'


@pytest.fixture
def web() -> Web:
    web = Web(max_body_size=200, channel_rules=(ChannelRule("t*/*", {"max_attempts": 7, "requeue_delay": 2.0}),))
    web.post("/topic/create?topic=t")
    web.post("/channel/create?topic=t&channel=c")
    return web


def put(web: Web, target: str, settings: Any) -> Reply:
    return web.ask("PUT", target, json.dumps(settings).encode())


def detail(reply: Reply) -> str:
    assert reply.outcome == (400, "INVALID_POLICY")
    return reply.headers["x-nsqtw-detail"]


def in_stats(web: Web) -> tuple[Any, Any]:
    (topic,) = web.get("/stats?format=json").json["topics"]
    return topic.get("policy"), topic["channels"][0].get("policy")


def test_each_setting_has_its_value_and_where_that_comes_from(web: Web) -> None:
    shown = put(web, CHANNEL, {"max_attempts": 5, "max_rate": 0.5}).json
    assert shown == web.get(CHANNEL).json
    assert {name: shown[name] for name in ("topic", "channel", "set", "unused")} == {
        "topic": "t",
        "channel": "c",
        "set": {"max_attempts": 5, "max_rate": 0.5},
        "unused": [],
    }
    assert shown["settings"]["max_attempts"] == {"value": 5, "source": "set"}
    assert shown["settings"]["requeue_delay"] == {"value": "2s", "source": FILE}
    assert shown["settings"]["overflow"] == {"value": "reject", "source": "default"}


def test_null_goes_back_to_the_file_and_the_default(web: Web) -> None:
    put(web, CHANNEL, {"max_attempts": 5, "max_depth": 9, "max_age": "1h"})
    shown = put(web, CHANNEL, {"max_attempts": None, "max_depth": None, "priority": None}).json
    assert shown["settings"]["max_attempts"] == {"value": 7, "source": FILE}
    assert shown["settings"]["max_depth"] == {"value": 0, "source": "default"}
    assert shown["set"] == {"max_age": "1h0m0s"}


def test_what_is_set_is_in_stats_and_outlives_a_crash(web: Web) -> None:
    assert put(web, TOPIC, {"message_ttl": "1h30m"}).json["settings"]["message_ttl"]["source"] == "set"
    put(web, CHANNEL, {"dead_letter_topic": "late", "overflow": "DROP_OLDEST", "max_rate": 2, "max_bytes": "1KB"})
    before = (
        {"message_ttl": "1h30m0s"},
        {
            "max_attempts": 7,
            "dead_letter_topic": "late",
            "requeue_delay": "2s",
            "max_bytes": 1024,
            "overflow": "drop_oldest",
            "max_rate": 2.0,
        },
    )
    assert in_stats(web) == before
    web.crash()
    assert in_stats(web) == before
    put(web, TOPIC, {"message_ttl": None})
    web.crash()
    assert in_stats(web)[0] is None


def test_where_nothing_is_set_stats_is_what_it_was() -> None:
    web = Web(topic_rules=(TopicRule("t", policy={"message_ttl": 0.0}),))
    web.post("/topic/create?topic=t")
    web.post("/channel/create?topic=t&channel=c")
    assert in_stats(web) == (None, None)


def test_a_channel_that_is_made_again_has_forgotten_it(web: Web) -> None:
    put(web, CHANNEL, {"max_depth": 5})
    web.core.save()
    web.post("/channel/delete?topic=t&channel=c")
    web.post("/channel/create?topic=t&channel=c")
    assert web.get(CHANNEL).json["set"] == {}
    web.crash()
    assert web.get(CHANNEL).json["set"] == {}


def test_an_ephemeral_channel_is_answered_at_once(web: Web) -> None:
    web.writer.is_held_back = True
    web.broker.topics["t"].channel("e#ephemeral", web.core.now)
    target = "/v2/channel/policy?topic=t&channel=e%23ephemeral"
    assert put(web, target, {"max_rate": 3}).json["set"] == {"max_rate": 3}
    assert web.get(target).json["settings"]["max_rate"] == {"value": 3, "source": "set"}


def test_it_is_answered_when_it_is_saved(web: Web) -> None:
    web.writer.is_held_back = True
    waiting = web.connect()
    body = b'{"max_depth": 5}'
    waiting.send(b"PUT %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (CHANNEL.encode(), len(body), body))
    assert waiting.read() == []
    web.writer.is_held_back = False
    web.pump.wake()
    (reply,) = waiting.read()
    assert reply.json["set"] == {"max_depth": 5}


def test_a_dry_run_changes_nothing(web: Web) -> None:
    shown = put(web, f"{CHANNEL}&dry_run=true", {"max_depth": 5}).json
    assert shown["settings"]["max_depth"] == {"value": 5, "source": "set"}
    assert web.get(CHANNEL).json["set"] == {}
    assert put(web, f"{CHANNEL}&dry_run=maybe", {}).outcome == (400, "INVALID_DRY_RUN")


def test_a_dry_run_says_what_the_bounds_drop(web: Web) -> None:
    for number in range(5):
        web.post("/pub?topic=t", b"%d" % number)

    def drops(**settings: Any) -> int | None:
        foretold: int | None = put(web, f"{CHANNEL}&dry_run=true", {"overflow": "drop_oldest", **settings}).json[
            "drops"
        ]
        return foretold

    assert drops(max_depth=3) == 2
    assert drops(max_depth=3, overflow="reject") == drops(max_depth=5) == drops() == drops(max_age="1h") == 0
    assert drops(max_bytes=1000) is None, "not known before"
    web.core.wait(60.0)
    assert drops(max_age="30s") == drops(max_age="30s", max_depth=3) == 5
    put(web, CHANNEL, {"overflow": "drop_oldest", "max_depth": 3})
    web.core.save()
    web.core.wait(0.1)
    assert (web.core.channel().depth, web.core.channel().dropped_count) == (3, 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_atempts": 5}, "unknown setting 'max_atempts', did you mean 'max_attempts'?"),
        ({"max_atempts": None}, "unknown setting 'max_atempts', did you mean 'max_attempts'?"),
        ({"\n\x00\u20ac": 5}, "unknown setting '\\n\\x00\\u20ac'"),
        ({"message_ttl": "1h"}, "message_ttl is a setting of topics, not of channels"),
        ({"max_attempts": "many"}, "max_attempts must be a whole number"),
        ({"max_attempts": True}, "max_attempts must be a whole number"),
        ({"max_attempts": 2.5}, "max_attempts must be a whole number"),
        ({"max_attempts": 65536}, "max_attempts must be 0 to 65535"),
        ({"requeue_delay": "soon"}, "requeue_delay must be a number with a unit, such as 250ms or 1h30m"),
        ({"requeue_delay": "-1s"}, "requeue_delay must be 0s to 87600h0m0s"),
        ({"max_rate": -0.5}, "max_rate must be 0 to 9007199254740992"),
        ({"max_rate": float("nan")}, "max_rate must be 0 to 9007199254740992"),
        ({"max_bytes": "1XB"}, "max_bytes must be a number of bytes, such as 1048576 or 1MB"),
        ({"priority": 1}, "priority must be true or false"),
        ({"overflow": "drop"}, "overflow must be reject or drop_oldest"),
        ({"dead_letter_topic": 5}, "dead_letter_topic must be a text in quotes"),
        ({"dead_letter_topic": "a b"}, "dead_letter_topic 'a b' is not a valid name of a topic"),
        (
            {"priority": True, "ordered_by": "header:key"},
            "priority and ordered_by cannot be used together: a priority changes the order",
        ),
        (["max_depth"], 'the body must be a JSON object of settings, such as {"max_attempts": 5}'),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_changed(web: Web, settings: Any, said: str) -> None:
    if isinstance(settings, dict):
        settings = {"max_depth": 5, **settings}
    assert detail(put(web, CHANNEL, settings)) == said
    assert web.get(CHANNEL).json["set"] == {}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 190, b"null"])
def test_a_body_that_is_no_json_object(web: Web, body: bytes) -> None:
    assert detail(web.ask("PUT", TOPIC, body)).startswith("the body must be a JSON object")


def test_the_other_refusals(web: Web) -> None:
    assert put(web, CHANNEL, {"ordered_by": "x" * 300}).outcome == (413, "BODY_TOO_BIG")
    assert web.get("/v2/topic/policy").outcome == (400, "MISSING_ARG_TOPIC")
    assert web.get("/v2/topic/policy?topic=u").outcome == (404, "TOPIC_NOT_FOUND")
    assert web.get("/v2/channel/policy?topic=t").outcome == (400, "MISSING_ARG_CHANNEL")
    assert put(web, "/v2/topic/policy?topic=a%40b", {"message_ttl": "1h"}).outcome == (400, "INVALID_TOPIC")
    assert put(web, "/v2/channel/policy?topic=t&channel=d", {}).outcome == (404, "CHANNEL_NOT_FOUND")
    assert web.post(CHANNEL).outcome == (405, "METHOD_NOT_ALLOWED")


def test_tables_that_contradict_each_other_are_named() -> None:
    rules = (ChannelRule("t/*", {"priority": True, "max_depth": 5}), ChannelRule("*/c", {"ordered_by": "header:k"}))
    web = Web(channel_rules=rules)
    web.post("/topic/create?topic=t")
    web.post("/channel/create?topic=t&channel=c")
    (line,) = web.get(CHANNEL).json["unused"]
    assert line.startswith(
        '[channel."*/c"] is not used, because it contradicts [channel."t/*"]: priority and ordered_by'
    )
    assert web.get(CHANNEL).json["settings"]["max_depth"] == {"value": 5, "source": '[channel."t/*"]'}
    assert ("error", f"CHANNEL(c): {line}") in web.core.lines
    said = detail(put(web, CHANNEL, {"ordered_by": "header:k"}))
    assert said == (
        "priority and ordered_by cannot be used together: a priority changes the order (with the settings of "
        '[channel."t/*"])'
    )


def test_a_reload_changes_what_was_not_set(web: Web) -> None:
    put(web, CHANNEL, {"max_attempts": 5, "priority": True})
    web.broker.options.channel_rules = (ChannelRule("*/*", {"max_attempts": 1, "max_depth": 2}),)
    web.broker.follow_options(web.core.now)
    settings = web.get(CHANNEL).json["settings"]
    assert [settings[name]["value"] for name in ("max_attempts", "max_depth", "requeue_delay")] == [5, 2, "0s"]


def test_a_reload_that_contradicts_what_was_set(web: Web) -> None:
    put(web, CHANNEL, {"priority": True})
    web.broker.options.channel_rules = (ChannelRule("*/*", {"ordered_by": "header:k"}),)
    web.broker.follow_options(web.core.now)
    shown = web.get(CHANNEL).json
    assert (shown["set"], shown["settings"]["priority"]["value"]) == ({"priority": True}, False)
    (line,) = shown["unused"]
    assert "the config file contradicts them: priority and ordered_by" in line
    assert ("error", f"CHANNEL(c): {line}") in web.core.lines
    web.crash()
    assert web.get(CHANNEL).json == shown, "it is kept, and used again when the file allows it"
    web.broker.options.channel_rules = ()
    web.broker.follow_options(web.core.now)
    assert web.get(CHANNEL).json["settings"]["priority"] == {"value": True, "source": "set"}


def test_a_topic_that_is_deleted_has_forgotten_it(web: Web) -> None:
    put(web, TOPIC, {"message_ttl": "1h"})
    web.post("/topic/delete?topic=t")
    web.core.save()
    web.post("/topic/create?topic=t")
    web.crash()
    assert web.get(TOPIC).json["set"] == {}


def test_it_needs_what_administration_needs(web: Web) -> None:
    routes = [route for route in web.site.routes._routes.values() if route.path.endswith(b"/policy")]  # type: ignore[union-attr]
    assert {(route.method, route.path, route.needs, route.about) for route in routes} == {
        (method, path, ADMIN, about)
        for method in (b"GET", b"PUT")
        for path, about in ((b"/v2/topic/policy", ("topic",)), (b"/v2/channel/policy", ("topic", "channel")))
    }
    assert web.ask("PUT", CHANNEL, b"{}", Origin="http://elsewhere").outcome == (403, "CROSS_ORIGIN")


def test_the_description_names_every_setting(web: Web) -> None:
    paths = web.get("/v2/openapi.json").json["paths"]
    schema = paths["/v2/channel/policy"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    shown = web.get(CHANNEL).json
    assert set(schema["properties"]) == set(shown["settings"])
    success = paths["/v2/channel/policy"]["get"]["responses"]["200"]["content"]
    (described,) = success.values()
    assert set(described["schema"]["required"]) == set(shown)
    assert schema["properties"]["overflow"]["enum"] == ["reject", "drop_oldest"]
    assert schema["properties"]["max_rate"]["type"] == "number"


@pytest.mark.parametrize(
    ("channel", "settings"),
    [
        ("c", {"max_attempts": 5, "dead_letter_topic": "t"}),
        ("e#ephemeral", {"ordered_by": "header:k"}),
        ("e#ephemeral", {"max_depth": 5}),
    ],
)
def test_a_dry_run_refuses_what_a_change_does(web: Web, channel: str, settings: dict[str, Any]) -> None:
    web.broker.topics["t"].channel(channel, web.core.now)
    target = f"/v2/channel/policy?topic=t&channel={quote(channel)}"
    refused = detail(put(web, target, settings))
    assert detail(put(web, f"{target}&dry_run=true", settings)) == refused


def test_a_number_without_a_unit_is_shown_with_it() -> None:
    """It is milliseconds, which not everybody expects."""
    one = Web()
    one.post("/topic/create?topic=t")
    for reply in (
        one.ask("PUT", "/v2/topic/policy?topic=t", b'{"dedupe_window": 60}'),
        one.get("/v2/topic/policy?topic=t"),
    ):
        assert reply.json["settings"]["dedupe_window"] == {"value": "60ms", "source": "set"}
        assert reply.json["set"] == {"dedupe_window": "60ms"}


def test_a_put_creates_what_is_missing_and_survives_a_crash() -> None:
    web = Web()
    assert put(web, CHANNEL, {"max_attempts": 5}).json["set"] == {"max_attempts": 5}
    assert put(web, "/v2/topic/policy?topic=u", {"message_ttl": "1h"}).json["set"] == {"message_ttl": "1h0m0s"}
    web.crash()
    assert web.get(CHANNEL).json["set"] == {"max_attempts": 5}
    assert {topic["topic_name"] for topic in web.get("/stats?format=json").json["topics"]} == {"t", "u"}


@pytest.mark.parametrize(
    ("target", "settings", "outcome"),
    [
        (TOPIC, {"message_ttl": None}, (404, "TOPIC_NOT_FOUND")),
        (CHANNEL, {"max_attempts": None}, (404, "TOPIC_NOT_FOUND")),
        (CHANNEL, {"max_attempts": -1}, (400, "INVALID_POLICY")),
        ("/v2/channel/policy?topic=t&channel=e%23ephemeral", {"max_depth": 5}, (400, "INVALID_POLICY")),
        (CHANNEL, {"max_attempts": 5, "dead_letter_topic": "t"}, (400, "INVALID_POLICY")),
    ],
)
def test_a_put_that_sets_nothing_creates_nothing(
    target: str, settings: dict[str, Any], outcome: tuple[int, str]
) -> None:
    web = Web()
    assert put(web, target, settings).outcome == outcome
    assert web.broker.topics == {}


def test_a_dry_run_for_a_channel_that_does_not_exist_creates_nothing() -> None:
    web = Web(channel_rules=(ChannelRule("t/*", {"requeue_delay": 2.0}),))
    shown = put(web, f"{CHANNEL}&dry_run=true", {"max_attempts": 5}).json
    assert web.broker.topics == {}
    assert put(web, CHANNEL, {"max_attempts": 5}).json == shown


@pytest.mark.parametrize("limit", ["topics", "channels"])
def test_the_limits_of_creation_hold_for_a_put(limit: str) -> None:
    web = Web(**{f"max_{limit}": 1})
    web.post("/topic/create?topic=u")
    web.post("/channel/create?topic=u&channel=c")
    target = CHANNEL if limit == "topics" else "/v2/channel/policy?topic=u&channel=d"
    assert put(web, target, {"max_attempts": 5}).outcome == (503, f"TOO_MANY_{limit.upper()}")
    assert list(web.broker.topics) == ["u"]
    assert list(web.broker.topics["u"].channels) == ["c"]


def test_a_draining_broker_changes_policies_and_creates_nothing() -> None:
    web = Web()
    put(web, CHANNEL, {"max_attempts": 5})
    web.post("/v2/drain?timeout=5m")
    assert put(web, CHANNEL, {"max_attempts": 6}).json["set"] == {"max_attempts": 6}
    assert put(web, "/v2/topic/policy?topic=u", {"message_ttl": "1h"}).outcome == (503, "DRAINING")
