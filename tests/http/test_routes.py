"""Where a method and a path lead, and the rules every answer keeps."""

from __future__ import annotations

import re

import pytest
from twisted.internet.address import IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress

from nsqtw.api import site
from nsqtw.api.context import ApiContext
from nsqtw.api.openapi import words_of
from nsqtw.api.site import endpoints
from nsqtw.http.endpoints import TOPIC, Section, endpoint
from nsqtw.http.errors import DETAILS
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer
from tests.http.broker_fixture import Log, Web

JSON = "application/json; charset=utf-8"
GETS = ["/ping", "/info", "/stats"]
POSTS = [
    "/pub",
    "/mpub",
    *[f"/topic/{verb}" for verb in ("create", "delete", "empty", "pause", "unpause")],
    *[f"/channel/{verb}" for verb in ("create", "delete", "empty", "pause", "unpause")],
]
OLD = [
    "/put",
    "/mput",
    "/create_topic",
    "/delete_topic",
    "/empty_topic",
    "/pause_topic",
    "/unpause_topic",
    "/create_channel",
    "/delete_channel",
    "/empty_channel",
    "/pause_channel",
    "/unpause_channel",
    "/stats.json",
]


@pytest.mark.parametrize("path", [*OLD, "/", "/nothing", "/topic", "/topic/", "/stats/x", "/pingx", "/%FF", "/a%2Fb"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
def test_unknown_paths(method: str, path: str) -> None:
    reply = Web().ask(method, f"{path}?topic=t")
    assert reply.outcome == (404, "NOT_FOUND")
    assert (reply.headers["content-type"], reply.headers["x-nsq-content-type"]) == (JSON, "nsq; version=1.0")


@pytest.mark.parametrize(
    ("paths", "methods", "allow"),
    [
        (GETS, ["POST", "PUT", "DELETE", "PATCH", "get"], "GET, OPTIONS"),
        (POSTS, ["GET", "PUT", "DELETE", "PATCH", "post"], "OPTIONS, POST"),
    ],
)
def test_wrong_methods(paths: list[str], methods: list[str], allow: str) -> None:
    web = Web()
    for path in paths:
        for method in methods:
            reply = web.ask(method, path)
            assert reply.outcome == (405, "METHOD_NOT_ALLOWED")
            assert reply.headers["allow"] == allow
            assert reply.headers["content-type"] == JSON


@pytest.mark.parametrize("path", [*GETS, *POSTS])
def test_head_is_a_wrong_method_and_has_no_body(path: str) -> None:
    reply = Web().ask("HEAD", path)
    assert (reply.status, reply.body) == (405, b"")
    assert int(reply.headers["content-length"]) > 0


@pytest.mark.parametrize(("path", "allow"), [("/ping", "GET, OPTIONS"), ("/pub", "OPTIONS, POST")])
def test_options(path: str, allow: str) -> None:
    reply = Web().ask("OPTIONS", path)
    assert reply.outcome == (200, "")
    assert (reply.headers["allow"], reply.headers["content-length"]) == (allow, "0")
    assert "content-type" not in reply.headers


def test_options_of_the_whole_server() -> None:
    reply = Web().ask("OPTIONS", "*")
    assert (reply.outcome, reply.headers["content-length"]) == ((200, ""), "0")
    assert "allow" not in reply.headers


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_nothing_else_is_asked_of_the_whole_server(method: str) -> None:
    reply = Web().ask(method, "*")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, OPTIONS, POST, PUT")


@pytest.mark.parametrize(
    ("method", "target", "status", "location"),
    [
        ("GET", "/ping/", 301, "/ping"),
        ("GET", "/PING", 301, "/ping"),
        ("GET", "//ping", 301, "/ping"),
        ("GET", "/x/../ping", 301, "/ping"),
        ("GET", "/./stats//?format=json&topic=%zz", 301, "/stats?format=json&topic=%zz"),
        ("POST", "/pub/?topic=t", 307, "/pub?topic=t"),
        ("POST", "/Topic//Create/?topic=T", 307, "/topic/create?topic=T"),
    ],
)
def test_almost_right_paths_are_redirected(method: str, target: str, status: int, location: str) -> None:
    web = Web()
    with Log() as lines:
        reply = web.ask(method, target, b"x" if method == "POST" else b"")
    assert (reply.status, reply.headers["location"]) == (status, location)
    if method == "GET":
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        shown = location.replace("&", "&amp;")
        assert reply.body == f'<a href="{shown}">Moved Permanently</a>.\n\n'.encode()
    else:
        assert reply.body == b""
        assert "content-type" not in reply.headers
    assert lines == []


@pytest.mark.parametrize("target", ["/pub/", "/TOPIC/CREATE"])
def test_a_path_is_redirected_only_where_the_method_has_it(target: str) -> None:
    assert Web().get(target).outcome == (404, "NOT_FOUND")


@pytest.mark.parametrize("target", ["/%70ing", "http://any.host:1/ping", "http://any.host/ping?x=1", "/ping?"])
def test_other_ways_to_write_a_path(target: str) -> None:
    assert Web().get(target).outcome == (200, "OK")


@pytest.mark.parametrize("target", ["/%zz", "/ping%", "ping", "**", "1://host/ping"])
def test_what_is_no_path_is_no_http(target: str) -> None:
    browser = Web().connect()
    reply = browser.ask("GET", target)
    assert (reply.status, reply.body) == (400, b"400 Bad Request")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["connection"] == "close"
    assert browser.is_closed


def test_every_answer_has_a_date_and_a_length_and_says_nothing_of_the_server() -> None:
    web = Web()
    for reply in (web.get("/ping"), web.get("/nothing"), web.post("/topic/create?topic=t"), web.post("/pub")):
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", reply.headers["date"])
        assert int(reply.headers["content-length"]) == len(reply.body)
        assert "server" not in reply.headers
        assert "transfer-encoding" not in reply.headers


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/ping", 200),
        ("GET", "/stats?format=json&topic={x}", 200),
        ("GET", "/nothing", 404),
        ("GET", "/pub?topic=t", 405),
        ("POST", "/topic/create?topic=t", 200),
        ("POST", "/topic/create", 400),
    ],
)
def test_the_access_log(method: str, target: str, status: int) -> None:
    web = Web()
    with Log() as lines:
        web.ask(method, target)
    (line,) = lines
    assert line == f"info: {status} {method} {target} (127.0.0.1:40974) 0s"


@pytest.mark.parametrize(("method", "target"), [("GET", "/nothing"), ("POST", "/pub?topic=!"), ("GET", "/pub")])
def test_an_error_has_a_sentence_beside_its_word(method: str, target: str) -> None:
    """The body is what NSQ's clients know, to the byte."""
    reply = Web().ask(method, target, b"x" if method == "POST" else b"")
    assert reply.body == b'{"message":"%s"}' % reply.message.encode()
    assert reply.headers["x-nsqtw-detail"] == DETAILS[reply.message]


def test_every_error_of_the_api_has_a_sentence() -> None:
    words = {word for declared in endpoints() for words in words_of(declared).values() for word in words}
    assert words <= set(DETAILS)
    for sentence in DETAILS.values():
        assert sentence.isascii()
        assert sentence.isprintable()
        assert sentence[0].isupper() or sentence[0] == "'"
        assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        (UNIXAddress(None), "@"),
        (IPv6Address("TCP", "::1", 40974), "[::1]:40974"),
        (IPv6Address("TCP", "::ffff:10.0.0.1", 40974), "10.0.0.1:40974"),
    ],
)
def test_who_asked_is_in_the_access_log(peer: IAddress, shown: str) -> None:
    browser = Web().connect(peer)
    with Log() as lines:
        browser.ask("GET", "/ping")
    assert lines == [f"info: 200 GET /ping ({shown}) 0s"]


def test_options_are_not_logged() -> None:
    with Log() as lines:
        Web().ask("OPTIONS", "/ping")
    assert lines == []


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/debug%2Fpprof/cmdline", "/debug/pprof/cmdline"),
        ("/%64ebug%2fpprof%2Fcmdline", "/debug/pprof/cmdline"),
        ("/config%2fid", "/config/id"),
        ("%2fping", None),
        ("/ping%2F", "/ping"),
    ],
)
def test_a_proxy_sees_the_path_that_is_served(path: str, plain: str | None) -> None:
    reply = Web().get(f"{path}?a=b")
    assert (reply.status, reply.headers.get("location")) == ((301, f"{plain}?a=b") if plain else (400, None))


def test_one_declaration_makes_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its route, its checks and its part of the OpenAPI document come from there."""

    class Echoing(Section):
        def __init__(self, context: ApiContext) -> None:
            pass

        @endpoint("POST", "/v2/echo", "Answer with the body", required=(TOPIC,), body="a text", max_body=10)
        def echo(self, request: HttpRequest) -> Answer:
            """POST /v2/echo"""
            return Answer(200, request.body)

    monkeypatch.setattr(site, "SECTIONS", (*site.SECTIONS, Echoing))
    web = Web()
    reply = web.ask("POST", "/v2/echo?topic=t", b"hello")
    assert (reply.status, reply.body) == (200, b"hello")
    assert web.ask("GET", "/v2/echo?topic=t").outcome == (405, "METHOD_NOT_ALLOWED")
    assert "/v2/echo" in {one.path for one in site.endpoints()}
