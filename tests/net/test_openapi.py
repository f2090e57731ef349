"""The document about the HTTP API, and the API."""

from __future__ import annotations

import json
import re
from pathlib import Path

from nsqtw.net.openapi import OPERATIONS, described
from tests.net.broker_fixture import Web

PAGE = Path(__file__).parent.parent.parent / "docs/http.md"


def test_it_has_every_route_and_no_other() -> None:
    routes = {
        (method.decode(), re.sub("/:([a-z]+)$", r"/{\1}", path.decode())) for method, path in Web().site.routes._routes
    }
    assert {(operation.method, operation.path) for operation in OPERATIONS} == routes
    assert len(OPERATIONS) == len(routes)


def test_the_broker_serves_it() -> None:
    reply = Web().get("/v2/openapi.json")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert json.loads(reply.body) == described()


def test_every_word_and_parameter_of_it_is_known_to_the_page_about_the_api() -> None:
    """docs/http.md is for people, and says the same."""
    text = PAGE.read_text("utf-8")
    words = {word for operation in OPERATIONS for words in operation.errors.values() for word in words}
    named = {name for operation in OPERATIONS for name in (*operation.required, *operation.optional)}
    assert {word for word in words | named if word not in text} == set()
