"""The document about the HTTP API, and the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsqtw.api import site
from nsqtw.api.context import ApiContext
from nsqtw.api.openapi import described, words_of
from nsqtw.api.site import endpoints
from nsqtw.http.endpoints import A_TEXT, TOPIC, Parameter, Section, endpoint
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, failure, text
from nsqtw.rights import SUBSCRIBE
from tests.http.broker_fixture import Web

PAGE = Path(__file__).parent.parent.parent / "docs/reference/http.md"


class Echo(Section):
    """An endpoint that nsqtw has not got."""

    def __init__(self, context: ApiContext) -> None:
        self._options = context.broker.options

    @endpoint(
        "POST",
        "/v2/echo",
        "Return the body",
        required=(TOPIC, Parameter("times", {"type": "integer"})),
        body="any text",
        max_body="max_msg_size",
        too_big=failure(413, "MSG_TOO_BIG"),
        success=A_TEXT,
        errors={404: ["TOPIC_NOT_FOUND"]},
        needs=SUBSCRIBE,
    )
    def echo(self, request: HttpRequest) -> Answer:
        return text(request.body)


def test_one_declaration_makes_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its route, what it needs, the limit of its body and its description come from there."""
    monkeypatch.setattr(site, "SECTIONS", (*site.SECTIONS, Echo))
    web = Web(max_msg_size=3)
    assert web.post("/v2/echo?topic=t&times=1", b"abc").body == b"abc"
    assert web.post("/v2/echo?topic=t&times=1", b"abcd").status == 413
    assert web.get("/v2/echo").status == 405
    (route,) = [route for route in web.site.routes._routes.values() if route.path == b"/v2/echo"]
    assert (route.needs, route.about) == (SUBSCRIBE, ("topic",))
    operation = web.get("/v2/openapi.json").json["paths"]["/v2/echo"]["post"]
    assert [parameter["name"] for parameter in operation["parameters"]] == ["topic", "times"]
    assert operation["summary"] == "Return the body"
    assert {"200", "404", "401", "403"} <= set(operation["responses"])


def test_the_broker_serves_it() -> None:
    reply = Web().get("/v2/openapi.json")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert json.loads(reply.body) == described(endpoints())


def test_every_word_and_parameter_of_it_is_known_to_the_page_about_the_api() -> None:
    """docs/reference/http.md is for people, and says the same."""
    text = PAGE.read_text("utf-8")
    words = {word for declared in endpoints() for words in words_of(declared).values() for word in words}
    named = {one.name for declared in endpoints() for one in (*declared.required, *declared.optional)}
    assert {word for word in words | named if word not in text} == set()


def test_what_the_log_and_the_seek_answer_is_what_it_says() -> None:
    web = Web(retention_time=3600.0)
    web.post("/pub?topic=t", b"x")
    web.post("/channel/create?topic=t&channel=c&start=earliest")
    for method, target in (
        ("GET", "/v2/topic/log?topic=t"),
        ("GET", "/v2/topic/log/range?topic=t"),
        ("GET", "/v2/topic/log/lag?topic=t"),
        ("GET", "/v2/topic/messages?topic=t"),
        ("GET", "/v2/channel/messages?topic=t&channel=c"),
        ("POST", "/v2/channel/seek?topic=t&channel=c&to=earliest"),
    ):
        reply = web.ask(method, target)
        success = described(endpoints())["paths"][target.partition("?")[0]][method.lower()]["responses"]["200"]
        assert reply.status == 200, target
        assert [reply.headers["content-type"]] == list(success["content"])
        assert {name.lower() for name in success.get("headers", ())} == {
            name for name in reply.headers if name.startswith("x-nsqtw-")
        }
        for content in success["content"].values():
            if content["schema"]["type"] == "object":
                assert set(reply.json) == set(content["schema"]["required"])
