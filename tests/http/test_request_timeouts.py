"""Slow HTTP clients: honest ones are waited for, others are not. The test owns the time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.broker_fixture import OK, Browser, Web, chunked, request

pytestmark = pytest.mark.usefixtures("heads")

TIMED_OUT = (408, "REQUEST_TIMEOUT")
LATE = 3.0
"""Rounds may notice a deadline so much later."""


class SlowWeb(Web):
    """Time passes for the reactor and for the broker's clock."""

    def wait(self, seconds: float) -> None:
        while seconds > 0:
            step = min(seconds, 0.5)
            self.core.now += step
            self.clock.advance(step)
            seconds -= step


def ended(browser: Browser) -> bool:
    return bool(browser.is_closed or browser.transport.disconnected)


def test_a_silent_connection_is_closed_without_a_word() -> None:
    web = SlowWeb()
    browser = web.connect()
    web.wait(9)
    assert not ended(browser)
    web.wait(1 + LATE)
    assert ended(browser)
    assert browser.read() == []
    assert web.site.limits.rejections.counts == {"http-header-timeout": 1}


@pytest.mark.parametrize("pieces", [1, 100])
def test_a_head_must_be_there_in_time_however_it_comes(pieces: int) -> None:
    web = SlowWeb()
    browser = web.connect()
    head = request("GET", "/ping")[:-2] + b"X: y\r\n" * 100
    size = len(head) // pieces
    for start in range(0, len(head), size):
        if ended(browser):
            break
        browser.send(head[start : start + size])
        web.wait((10 + LATE) / pieces)
    assert [reply.outcome for reply in browser.read()] == [TIMED_OUT]
    assert ended(browser)


def test_the_head_of_a_later_request_has_its_own_time() -> None:
    web = SlowWeb()
    browser = web.connect()
    for _ in range(3):
        browser.send(request("GET", "/ping")[:-2])
        web.wait(6)
        browser.send(b"\r\n")
        assert [reply.outcome for reply in browser.read()] == [OK]
        web.wait(100)
    browser.send(b"GET /ping HT")
    web.wait(10 + 2 * LATE)
    assert [reply.outcome for reply in browser.read()] == [TIMED_OUT]


def test_a_connection_may_be_idle_for_long_but_not_for_ever() -> None:
    web = SlowWeb()
    browser = web.connect()
    for _ in range(2):
        assert browser.ask("GET", "/ping").outcome == OK
        web.wait(590)
    assert browser.ask("GET", "/ping").outcome == OK
    web.wait(600 + 2 * LATE)
    assert ended(browser)
    assert browser.read() == []
    assert web.site.limits.rejections.counts == {}


def test_half_a_body_is_not_waited_for() -> None:
    web = SlowWeb()
    browser = web.connect()
    browser.send(request("POST", "/pub?topic=t", b"x" * 1000)[:-500])
    web.wait(30)
    assert not ended(browser)
    web.wait(2 * LATE + 30)
    assert [reply.outcome for reply in browser.read()] == [TIMED_OUT]
    assert ended(browser)
    assert web.broker.topics == {}


def test_a_body_that_drips_is_not_waited_for() -> None:
    web = SlowWeb()
    browser = web.connect()
    browser.send(request("POST", "/pub?topic=t", Content_Length="100000"))
    for _ in range(40):
        if ended(browser):
            break
        browser.send(b"x")
        web.wait(1)
    assert [reply.outcome for reply in browser.read()] == [TIMED_OUT]


def test_chunks_that_say_nothing_are_not_waited_for() -> None:
    web = SlowWeb()
    browser = web.connect()
    browser.send(chunked("POST", "/pub?topic=t")[:-5])
    for _ in range(80):
        if ended(browser):
            break
        browser.send(b"1;" + b"x" * 1000 + b"\r\nx\r\n")
        web.wait(0.5)
    assert [reply.outcome for reply in browser.read()] == [TIMED_OUT]


def test_a_slow_link_has_all_the_time_it_needs() -> None:
    web = SlowWeb()
    browser = web.connect()
    body = b"x" * 100_000
    head = request("POST", "/pub?topic=t", Content_Length=str(len(body)))
    browser.send(head)
    for start in range(0, len(body), 1000):
        browser.send(body[start : start + 1000])
        web.wait(3)
    assert [reply.outcome for reply in browser.read()] == [OK]
    assert web.bodies() == [body]


def test_a_body_that_nobody_wants_is_not_read_for_ever() -> None:
    web = SlowWeb(max_msg_size=10)
    browser = web.connect()
    browser.send(request("POST", "/pub?topic=t", Content_Length="1000000000"))
    assert [reply.outcome for reply in browser.read()] == [(413, "MSG_TOO_BIG")]
    for _ in range(50):
        if ended(browser):
            break
        browser.send(b"x" * 10_000)
        web.wait(1)
    assert ended(browser)


def test_an_answer_may_take_any_time() -> None:
    web = SlowWeb()
    web.writer.is_held_back = True
    browser = web.connect()
    browser.send(request("POST", "/topic/create?topic=t"))
    web.wait(700)
    assert not ended(browser)
    web.writer.is_held_back = False
    assert [reply.status for reply in browser.read()] == [200]


@pytest.mark.parametrize("option", ["http_header_timeout", "body_timeout", "http_idle_timeout"])
def test_every_deadline_can_be_turned_off(option: str) -> None:
    given: dict[str, Any] = {option: 0.0}
    web = SlowWeb(**given)
    browser = web.connect()
    if option == "http_idle_timeout":
        browser.ask("GET", "/ping")
    else:
        browser.send(request("POST", "/pub?topic=t", b"xy")[: -1 if option == "body_timeout" else 10])
    web.wait(700)
    assert not ended(browser)


def test_the_next_request_waits_for_a_client_that_does_not_read() -> None:
    """Or its answers would fill the memory: a request is so much smaller."""
    web = Web()
    browser = web.connect()
    browser.connection.pauseProducing()
    browser.send(request("GET", "/ping") * 100)
    assert [reply.outcome for reply in browser.read()] == [OK]
    browser.connection.resumeProducing()
    assert [reply.outcome for reply in browser.read()] == [OK] * 99


def test_a_client_that_reads_again_is_read_from_again() -> None:
    browser = Web().connect()
    browser.send(request("POST", "/pub?topic=t", b"x"))
    browser.connection.pauseProducing()
    assert [reply.outcome for reply in browser.read()] == [OK]
    assert browser.transport.producerState == "paused"
    browser.connection.resumeProducing()
    assert browser.transport.producerState == "producing"
    assert browser.ask("POST", "/pub?topic=t", b"x").outcome == OK


def test_half_bodies_have_a_common_bound() -> None:
    web = Web(max_unfinished_size=100_000)
    half = request("POST", "/mpub?topic=t", b"x" * 60_000)[:-20_000]
    first, second, third = (web.connect() for _ in range(3))
    first.send(half)
    second.send(half)
    assert web.site.limits.partial_input.total >= 80_000
    third.send(half)
    assert [reply.outcome for reply in first.read()] == [(503, "TOO_MANY_UNFINISHED_REQUESTS")]
    assert ended(first)
    assert web.site.limits.partial_input.total < 100_000
    for browser in (second, third):
        browser.send(b"x" * 20_000)
        assert [reply.outcome for reply in browser.read()] == [OK]
    assert web.site.limits.partial_input.total == 0


def test_a_half_head_is_counted_too_and_forgotten_with_its_connection() -> None:
    web = Web()
    browser = web.connect()
    browser.send(b"GET /" + b"x" * 40_000)
    browser.send(b" HTTP/1.1\r\nHost: x\r\nLong: " + b"y" * 60_000)
    assert 100_000 <= web.site.limits.partial_input.total <= 101_000
    browser.lose()
    assert (web.site.limits.partial_input.total, web.site.limits.connection_limiter.count) == (0, 0)


def test_a_body_in_tiny_chunks_weighs_what_its_bytes_weigh() -> None:
    web = Web(max_msg_size=100_000)
    browser = web.connect()
    browser.send(chunked("POST", "/pub?topic=t", *[b"x"] * 50_000)[:-5])
    assert 50_000 <= web.site.limits.partial_input.total < 100_000
    web.turn()
    pending = browser.connection._request
    assert pending is not None
    assert pending.kept_bytes == 50_000
    browser.send(b"0\r\n\r\n")
    assert [reply.outcome for reply in browser.read()] == [OK]
    assert web.bodies() == [b"x" * 50_000]


def test_too_many_header_fields_are_refused() -> None:
    web = Web()
    browser = web.connect()
    browser.send(b"GET /ping HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 5001)
    assert [reply.status for reply in browser.read()] == [431]
    assert ended(browser)


def test_stats_tell_what_the_limits_did() -> None:
    web = SlowWeb(max_topics=3)
    web.connect()
    found = web.get("/stats?format=json&include_limits=true").json["limits"]
    assert found == {
        "connections": 2,
        "addresses": 0,
        "unfinished_bytes": 0,
        "topics": 0,
        "channels": 0,
        "over": {},
    }
    assert "limits" not in web.get("/stats?format=json").json
    web.wait(10 + LATE)
    assert web.get("/stats?format=json").json["limits"]["over"]["http-header-timeout"] >= 1


def test_more_topics_and_channels_than_there_may_be() -> None:
    web = Web(max_topics=1, max_channels=1)
    assert web.post("/topic/create?topic=a").status == 200
    assert web.post("/topic/create?topic=b").outcome == (503, "TOO_MANY_TOPICS")
    assert web.post("/pub?topic=b", b"x").outcome == (503, "TOO_MANY_TOPICS")
    assert web.post("/mpub?topic=b", b"x").outcome == (503, "TOO_MANY_TOPICS")
    assert web.post("/channel/create?topic=a&channel=c").status == 200
    assert web.post("/channel/create?topic=a&channel=d").outcome == (503, "TOO_MANY_CHANNELS")
    assert web.post("/pub?topic=a", b"x").outcome == OK
    assert web.post("/topic/delete?topic=a").status == 200
    assert web.post("/pub?topic=b", b"x").outcome == OK
    assert web.post("/channel/create?topic=b&channel=c").status == 200
