"""The document about the HTTP API, and the API."""

from __future__ import annotations

import json
import re
from pathlib import Path

from nsqtw.api.openapi import OPERATIONS, described
from nsqtw.http.routes import FREE
from tests.http.broker_fixture import Web

PAGE = Path(__file__).parent.parent.parent / "docs/http.md"


def test_it_has_every_route_and_no_other() -> None:
    routes = {
        (method.decode(), re.sub("/:([a-z]+)$", r"/{\1}", path.decode())) for method, path in Web().site.routes._routes
    }
    assert {(operation.method, operation.path) for operation in OPERATIONS} == routes
    assert len(OPERATIONS) == len(routes)


def test_it_says_which_need_no_credential() -> None:
    free = {route.path.decode() for route in Web().site.routes._routes.values() if route.needs == FREE}
    assert {operation.path for operation in OPERATIONS if operation.is_free} == free


def test_the_broker_serves_it() -> None:
    reply = Web().get("/v2/openapi.json")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert json.loads(reply.body) == described()


def test_every_word_and_parameter_of_it_is_known_to_the_page_about_the_api() -> None:
    """docs/http.md is for people, and says the same."""
    text = PAGE.read_text("utf-8")
    words = {word for operation in OPERATIONS for words in operation.words().values() for word in words}
    named = {name for operation in OPERATIONS for name in (*operation.required, *operation.optional)}
    assert {word for word in words | named if word not in text} == set()


def test_what_the_log_and_the_seek_answer_is_what_it_says() -> None:
    web = Web(retention_time=3600.0)
    web.post("/pub?topic=t", b"x")
    web.post("/channel/create?topic=t&channel=c&start=earliest")
    for method, target in (
        ("GET", "/v2/topic/log?topic=t"),
        ("GET", "/v2/topic/log/range?topic=t"),
        ("GET", "/v2/topic/messages?topic=t"),
        ("GET", "/v2/channel/messages?topic=t&channel=c"),
        ("POST", "/v2/channel/seek?topic=t&channel=c&to=earliest"),
    ):
        reply = web.ask(method, target)
        success = described()["paths"][target.partition("?")[0]][method.lower()]["responses"]["200"]
        assert reply.status == 200, target
        assert [reply.headers["content-type"]] == list(success["content"])
        assert {name.lower() for name in success.get("headers", ())} == {
            name for name in reply.headers if name.startswith("x-nsqtw-")
        }
        for content in success["content"].values():
            if content["schema"]["type"] == "object":
                assert set(reply.json) == set(content["schema"]["required"])
