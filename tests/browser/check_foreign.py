"""An nsqd and an nsqlookupd of NSQ, here as servers that answer as they do: what they lack is absent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser

from tests.admin.process import AdminProcess
from tests.browser.browser import Window, window
from tests.wire import HOST

VERSION = "1.3.0"
_COUNTS = {"depth": 5, "backend_depth": 2, "message_count": 9, "paused": False}
_LATENCY = {"count": 0, "percentiles": None}
_CHANNEL = {
    **_COUNTS,
    "channel_name": "worker",
    "in_flight_count": 1,
    "deferred_count": 0,
    "requeue_count": 0,
    "timeout_count": 0,
    "client_count": 0,
    "clients": [],
    "e2e_processing_latency": _LATENCY,
}
_TOPIC = {**_COUNTS, "topic_name": "orders", "channels": [_CHANNEL], "e2e_processing_latency": _LATENCY}


def documents(nsqd_port: int) -> dict[str, Any]:
    """Return the answers by path, those of nsqd and of nsqlookupd."""
    node = {"broadcast_address": HOST, "hostname": "foreign", "http_port": nsqd_port, "tcp_port": 4150}
    producer = {**node, "remote_address": f"{HOST}:50000", "version": VERSION}
    return {
        "/info": {**node, "version": VERSION, "start_time": 1},
        "/stats": {"version": VERSION, "health": "OK", "start_time": 1, "topics": [_TOPIC], "producers": None},
        "/topics": {"topics": ["orders"]},
        "/channels": {"channels": ["worker"]},
        "/nodes": {"producers": [{**producer, "topics": ["orders"], "tombstones": [False]}]},
        "/lookup": {"channels": ["worker"], "producers": [producer]},
    }


@contextmanager
def server() -> Iterator[ThreadingHTTPServer]:
    """A server that answers for both programs; anything that NSQ does not have is 404."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            document = documents(self.server.server_address[1]).get(parts.path)
            if parts.path == "/stats" and parse_qs(parts.query).get("topic", ["orders"]) != ["orders"]:
                document = {**documents(0)["/stats"], "topics": []}
            status, found = (404, {"message": "NOT_FOUND"}) if document is None else (200, document)
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("X-NSQ-Content-Type", "nsq; version=1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET

        def log_message(self, format: str, *values: object) -> None:
            """Say nothing."""

    found = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        thread.join()
        found.server_close()


@pytest.fixture
def foreign(browser: Browser, tmp_path: Path) -> Iterator[Window]:
    with server() as found:
        admin = AdminProcess(tmp_path / "admin", f"--lookupd-http-address={HOST}:{found.server_address[1]}")
        try:
            admin.start()
            with window(browser, f"http://{HOST}:{admin.http_port}") as opened:
                yield opened
        finally:
            admin.close()
        admin.assert_no_traceback()


def test_what_nsqd_lacks_is_absent_and_nothing_is_broken(foreign: Window) -> None:
    for path in ("/", "/topics", "/topics/orders", "/topics/orders/worker", "/nodes", "/lookup", "/counter"):
        foreign.go(path)
        foreign.await_live()
        text = foreign.text("main")
        for absent in ("Oldest", "Disk left", "Durability", "Replay", "Settings", "Messages of", "From publish"):
            assert absent not in text, (path, absent)
        assert foreign.page.locator("#warnings").count() == 0
        assert foreign.page.locator(".tabs").count() == 0
    foreign.go("/topics/orders")
    assert foreign.page.locator(".actions .button").all_inner_texts() == ["Publish", "Pause", "Empty", "Delete"]


def test_a_node_without_policies_says_so(foreign: Window) -> None:
    foreign.go("/topics/orders/worker")
    assert foreign.page.locator("#policy").count() == 0
    foreign.go("/actions/set_policy_channel?topic=orders&channel=worker&set.max_attempts=5")
    assert foreign.text("#error") == "No node of this topic has policies: only nsqd of nsqtw has them."
    assert foreign.page.locator("#settings, #preview").count() == 0


def test_messages_that_cannot_be_shown_are_no_error(foreign: Window) -> None:
    foreign.go("/topics/orders/worker?view=messages")
    assert "cannot be shown" in foreign.text("#messages")
