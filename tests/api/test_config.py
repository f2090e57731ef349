"""GET and PUT /config/:opt."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from twisted.logger import FileLogObserver, Logger

from nsqtw.daemon.logs import log_format
from nsqtw.options.broker import BY_KEY
from tests.http.broker_fixture import LIMITS, Web, chunked

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
NSQ = "nsq; version=1.0"
INVALID_OPTION = (400, "INVALID_OPTION")
INVALID_VALUE = (400, "INVALID_VALUE")
INVALID_SIZE = (413, "INVALID_VALUE")
ADDRESSES = "/config/nsqlookupd_tcp_addresses"
LEVEL = "/config/log_level"


@pytest.mark.parametrize(
    ("key", "options", "body"),
    [
        ("log_prefix", {}, b"[nsqd] "),
        ("tcp_address", {"tcp_address": "[::1]:4150"}, b"[::1]:4150"),
        ("data_path", {"data_path": "/a\udcff<b>"}, b"/a\xff<b>"),
    ],
)
def test_a_text_is_sent_as_it_is(key: str, options: dict[str, Any], body: bytes) -> None:
    reply = Web(**options).get(f"/config/{key}")
    assert (reply.status, reply.body) == (200, body)
    assert (reply.headers["content-type"], reply.headers["x-nsq-content-type"]) == (TEXT, NSQ)


def test_an_empty_text_has_no_type() -> None:
    reply = Web().get("/config/tls_cert")
    assert (reply.status, reply.body) == (200, b"")
    assert "content-type" not in reply.headers
    assert reply.headers["x-nsq-content-type"] == NSQ


@pytest.mark.parametrize(
    ("key", "options", "body"),
    [
        ("id", {"node_id": 7}, b"7"),
        ("mem_queue_size", {}, b"10000"),
        ("msg_timeout", {"msg_timeout": 1.5}, b"1500000000"),
        ("log_level", {}, b"2"),
        ("tls_required", {}, b"0"),
        ("tls_min_version", {}, b"771"),
        ("deflate", {}, b"true"),
        ("nsqlookupd_tcp_addresses", {"lookupd_tcp_address": ("a:1", "b:2")}, b'["a:1","b:2"]'),
        ("auth_http_addresses", {}, b"[]"),
        ("e2e_processing_latency_percentiles", {"e2e_processing_latency_percentile": (1.0, 0.99)}, b"[1,0.99]"),
    ],
)
def test_all_else_is_json(key: str, options: dict[str, Any], body: bytes) -> None:
    reply = Web(**options).get(f"/config/{key}")
    assert (reply.status, reply.body) == (200, body)
    assert (reply.headers["content-type"], reply.headers["x-nsq-content-type"]) == (JSON, NSQ)


def test_every_option_can_be_read() -> None:
    web = Web()
    assert [key for key in BY_KEY if web.get(f"/config/{key}").status != 200] == []


@pytest.mark.parametrize(
    "key", ["node_id", "lookupd_tcp_address", "version", "config", "verbose", "ID", "x", ":opt", "%FF", "log-level"]
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_only_config_keys_are_names(method: str, key: str) -> None:
    assert Web().ask(method, f"/config/{key}", b"x" if method == "PUT" else b"").outcome == INVALID_OPTION


@pytest.mark.parametrize("key", ["id", "max_msg_size", "auth_http_addresses", "data_path"])
def test_other_options_cannot_be_changed(key: str) -> None:
    web = Web()
    before = web.get(f"/config/{key}").body
    assert web.ask("PUT", f"/config/{key}", b"1").outcome == INVALID_OPTION
    assert web.get(f"/config/{key}").body == before


@pytest.mark.parametrize(
    ("word", "number"),
    [("debug", 1), ("info", 2), ("warn", 3), ("error", 4), ("fatal", 5), ("DEBUG", 1), ("Warn", 3)],
)
def test_a_level_is_given_as_a_word_and_told_as_a_number(word: str, number: int) -> None:
    web = Web()
    reply = web.ask("PUT", LEVEL, word.encode())
    assert (reply.status, reply.json, reply.headers["content-type"]) == (200, number, JSON)
    assert web.get(LEVEL).json == number


@pytest.mark.parametrize("body", [b"3", b'"warn"', b"warn\n", b" warn", b"warning", b"\xff"])
def test_what_is_no_level(body: bytes) -> None:
    web = Web()
    assert web.ask("PUT", LEVEL, body).outcome == INVALID_VALUE
    assert web.get(LEVEL).json == 2


def test_a_level_counts_from_the_next_line_on() -> None:
    web = Web()
    out = io.StringIO()
    log = Logger(observer=FileLogObserver(out, log_format(web.broker.options)))
    log.debug("before")
    web.ask("PUT", LEVEL, b"debug")
    log.debug("after")
    assert [line.rpartition(" ")[2] for line in out.getvalue().splitlines()] == ["after"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'["a:1","b:2"]', b'["a:1","b:2"]'),
        (b' [ "a:1" ]\n', b'["a:1"]'),
        (b'["a","a"]', b'["a","a"]'),
        (b'["\\u0061",null]', b'["a",""]'),
        (b'["\\ud800"]', '["\ufffd"]'.encode()),
        (b'["<\xff>"]', '["\\u003c\ufffd\\u003e"]'.encode()),
        (b"[]", b"[]"),
        (b"null", b"null"),
    ],
)
def test_lookup_addresses_are_a_json_list(body: bytes, said: bytes) -> None:
    web = Web(lookupd_tcp_address=("old:1",))
    reply = web.ask("PUT", ADDRESSES, body)
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, said, JSON)
    assert web.get(ADDRESSES).body == said
    assert web.broker.options.lookupd_tcp_address == tuple(json.loads(said) or ())


def test_a_list_that_was_null_can_be_one_again() -> None:
    web = Web()
    for body in (b"null", b"[]", b"null", b'["a:1"]'):
        web.ask("PUT", ADDRESSES, body)
        assert web.get(ADDRESSES).body == body


@pytest.mark.parametrize(
    "body", [b"a:1", b'"a:1"', b"[1]", b'[["a"]]', b"{}", b"false", b'["a"] b', b'["a"', b"[" * 100_000]
)
def test_what_is_no_list_of_addresses(body: bytes) -> None:
    web = Web(lookupd_tcp_address=("old:1",))
    assert web.ask("PUT", ADDRESSES, body).outcome == INVALID_VALUE
    assert web.broker.options.lookupd_tcp_address == ("old:1",)


@pytest.mark.parametrize("key", ["log_level", "nsqlookupd_tcp_addresses", "id", "unknown"])
def test_the_size_of_the_value_is_checked_before_the_name(key: str) -> None:
    web = Web(**LIMITS)
    assert web.ask("PUT", f"/config/{key}").outcome == INVALID_SIZE
    assert web.ask("PUT", f"/config/{key}", b"x" * 11).outcome == INVALID_SIZE
    browser = web.connect()
    browser.send(chunked("PUT", f"/config/{key}", b"x" * 6, b"x" * 5))
    assert [reply.outcome for reply in browser.read()] == [INVALID_SIZE]
    assert web.ask("PUT", f"/config/{key}", b"x" * 10).outcome in (INVALID_VALUE, INVALID_OPTION)


def test_chunks_that_are_none() -> None:
    browser = Web().connect()
    browser.send(b"PUT /config/log_level HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n")
    assert [reply.outcome for reply in browser.read()] == [(400, "INVALID_REQUEST")]
    assert browser.is_closed


@pytest.mark.parametrize("method", ["POST", "DELETE", "HEAD"])
def test_other_methods(method: str) -> None:
    reply = Web().ask(method, "/config/id")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, OPTIONS, PUT")


@pytest.mark.parametrize(
    ("method", "target", "status", "location"),
    [
        ("GET", "/config/id/", 301, "/config/id"),
        ("GET", "/CONFIG/Log_Level", 301, "/config/Log_Level"),
        ("PUT", "//config/a%20b", 307, "/config/a%20b"),
    ],
)
def test_almost_right_paths_keep_the_name(method: str, target: str, status: int, location: str) -> None:
    reply = Web().ask(method, target)
    assert (reply.status, reply.headers["location"]) == (status, location)


@pytest.mark.parametrize("target", ["/config", "/config/", "/config/id/more", "/config/a%2Fb"])
def test_a_path_has_one_name(target: str) -> None:
    assert Web().get(target).outcome == (404, "NOT_FOUND")
