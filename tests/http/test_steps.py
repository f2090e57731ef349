"""What one HTTP connection sends at once is read in steps, in turn with other connections."""

from __future__ import annotations

from functools import wraps
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent

from nsqtw.api.stats import Inspection
from nsqtw.http.connection import STEP_EVENTS, HttpConnection
from nsqtw.http.parser import PIECE_BYTES
from nsqtw.http.request_timeouts import Stage
from tests.http.broker_fixture import DONE, OK, PEER, Browser, Web, chunked, replies, request

PING = request("GET", "/ping")
MANY = 10 * STEP_EVENTS


class Tiring(Web):
    """A Web whose turns have time for one step, and whose transports know whether they are read from."""

    def turns(self, browser: Browser) -> list[int]:
        """Turn after turn, how many answers have come, until nothing more does."""
        seen = list(replies(browser.transport.value()))
        counts = [len(seen)]
        for _ in range(100_000):
            due = [call for call in self.clock.getDelayedCalls() if call.getTime() <= self.clock.seconds()]
            if not due:
                break
            for call in due:
                self.clock.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)
            self.writer.work()
            seen = list(replies(browser.transport.value()))
            counts.append(len(seen))
        self.seen = seen
        return counts

    def open(self) -> Browser:
        return Browser(self, Transport(peerAddress=PEER))


class Transport(StringTransport):
    """Knows whether it is read from."""

    reading = True

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Tiring:
    monkeypatch.setattr("nsqtw.runtime.long_work.SLICE_SECONDS", -1.0)
    return Tiring()


def outcomes(web: Tiring) -> list[tuple[int, str]]:
    return [reply.outcome for reply in web.seen]


def is_read_from(browser: Browser) -> bool:
    assert isinstance(browser.transport, Transport)
    return browser.transport.reading


def test_pipelined_requests_take_turns_in_which_nothing_is_received(web: Tiring) -> None:
    browser = web.open()
    browser.send(PING * MANY)
    assert not is_read_from(browser)
    counts = web.turns(browser)
    assert outcomes(web) == [OK] * MANY
    assert max(after - before for before, after in pairwise(counts)) <= STEP_EVENTS
    assert is_read_from(browser)
    assert browser.connection.stage[0] is Stage.IDLE
    browser.transport.clear()
    assert browser.ask("GET", "/ping").outcome == OK


def test_a_step_ends_when_its_time_is_over(web: Tiring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that take long are fewer in a step."""
    answer = Inspection.ping

    @wraps(answer)
    def slow(inspection: Inspection, given: Any) -> Any:
        web.core.now += 0.01
        return answer(inspection, given)

    monkeypatch.setattr(Inspection, "ping", slow)
    web = Tiring()
    browser = web.open()
    browser.send(PING * 20)
    counts = web.turns(browser)
    assert outcomes(web) == [OK] * 20
    assert max(after - before for before, after in pairwise(counts)) == 1


def test_connections_take_turns(web: Tiring) -> None:
    flood, other = web.open(), web.open()
    flood.send(PING * MANY)
    other.send(PING * 2 * STEP_EVENTS)
    counts = web.turns(other)
    turns = next(index for index, count in enumerate(counts) if count == 2 * STEP_EVENTS)
    assert turns < 8 < len(counts)


def test_publishes_among_them_are_answered_in_order(web: Tiring) -> None:
    browser = web.open()
    browser.send((PING + request("POST", "/pub?topic=t", b"x") + chunked("POST", "/mpub?topic=t", b"a\n", b"b")) * 50)
    web.turns(browser)
    assert outcomes(web) == [OK] * 150
    assert web.core.topic("t").message_count == 150


def test_requests_that_wait_for_a_save_are_answered_in_order(web: Tiring) -> None:
    browser = web.open()
    browser.send(request("POST", "/topic/create?topic=t") * 3 + PING * 200 + request("POST", "/pub?topic=t", b"x"))
    web.turns(browser)
    web.turn()
    web.turns(browser)
    found = [reply.outcome for reply in replies(browser.transport.value())]
    assert found == [DONE] * 3 + [OK] * 201


@pytest.mark.parametrize("size", [1, 7, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 10**6])
def test_however_it_is_cut_it_means_the_same(web: Tiring, size: int) -> None:
    data = (
        PING * 30
        + request("POST", "/pub?topic=t", b"y" * 3 * PIECE_BYTES)
        + chunked("POST", "/pub?topic=t", b"x" * 5000, b"z")
        + b"\r\n"
        + request("GET", "/nothing")
        + request("GET", "/ping?" + "q" * 6000)
        + chunked("POST", "/mpub?topic=t", *[b"m\n"] * 50)
        + PING
    )
    browser = web.open()
    for start in range(0, len(data), size):
        browser.send(data[start : start + size])
        web.turns(browser)
    web.turn()
    found = [reply.outcome for reply in replies(browser.transport.value())]
    assert found == [OK] * 32 + [(404, "NOT_FOUND")] + [OK] * 3
    assert web.bodies() == [b"y" * 3 * PIECE_BYTES, b"x" * 5000 + b"z", *[b"m"] * 50]


def test_a_body_of_known_length_is_taken_at_once(web: Tiring) -> None:
    browser = web.open()
    browser.send(request("POST", "/pub?topic=t", b"x" * 262_144))
    assert is_read_from(browser)
    assert [reply.outcome for reply in browser.read()] == [OK]


def test_tiny_chunks_take_turns(web: Tiring) -> None:
    browser = web.open()
    browser.send(chunked("POST", "/pub?topic=t", *[b"x"] * 100_000))
    assert not is_read_from(browser)
    assert len(web.turns(browser)) > 2
    assert outcomes(web) == [OK]
    assert is_read_from(browser)


def test_the_end_of_input_comes_after_the_requests(web: Tiring) -> None:
    browser = web.open()
    browser.send(PING * MANY + request("POST", "/pub?topic=t", b"half")[:-1])
    browser.connection.readConnectionLost()
    web.turns(browser)
    assert outcomes(web) == [OK] * MANY + [(400, "INVALID_REQUEST")]
    assert browser.is_closed


def test_all_is_answered_when_the_client_sends_no_more(web: Tiring) -> None:
    browser = web.open()
    browser.send(PING * MANY)
    browser.connection.readConnectionLost()
    web.turns(browser)
    assert outcomes(web) == [OK] * MANY
    assert browser.is_closed


def test_a_request_that_ends_the_connection_is_the_last_one(web: Tiring) -> None:
    browser = web.open()
    browser.send(PING * 100 + request("GET", "/ping", Connection="close") + PING * 100)
    web.turns(browser)
    assert outcomes(web) == [OK] * 101
    assert browser.is_closed


def test_nothing_follows_what_is_no_request(web: Tiring) -> None:
    browser = web.open()
    browser.send(PING * 100 + b"NONSENSE\r\n\r\n" + request("POST", "/pub?topic=t", b"x") * 100)
    web.turns(browser)
    web.turn()
    assert [reply.status for reply in replies(browser.transport.value())] == [200] * 100 + [400]
    assert "t" not in web.broker.topics


def test_a_connection_that_is_lost_is_read_no_further(web: Tiring) -> None:
    browser = web.open()
    browser.send(PING * MANY + request("POST", "/pub?topic=t", b"x"))
    browser.lose()
    web.turns(browser)
    web.turn()
    assert "t" not in web.broker.topics
    assert web.site.limits.partial_input.total == 0


def test_a_broker_that_stops_reads_no_further(web: Tiring) -> None:
    browser = web.open()
    browser.send(PING * MANY + request("POST", "/pub?topic=t", b"x"))
    web.site.disconnect_all()
    assert browser.is_closed
    web.turns(browser)
    web.turn()
    assert "t" not in web.broker.topics


def test_what_waits_is_counted_as_unfinished(web: Tiring) -> None:
    browser = web.open()
    browser.send(PING * MANY)
    assert web.site.limits.partial_input.total > 10_000
    web.turns(browser)
    assert web.site.limits.partial_input.total == 0


def test_no_deadline_holds_for_what_the_broker_has_not_read(web: Tiring) -> None:
    browser = web.open()
    browser.send(PING * MANY + b"GET /ping")
    web.core.now += 1000
    browser.connection.check(web.core.now)
    assert not browser.is_closed
    web.turns(browser)
    assert outcomes(web) == [OK] * MANY


def test_a_failure_in_a_step_costs_its_connection(
    web: Tiring, monkeypatch: pytest.MonkeyPatch, logged_failures: list[LogEvent]
) -> None:
    browser = web.open()
    browser.send(PING * MANY)

    def fail(connection: HttpConnection) -> None:
        raise ValueError("this is a bug")

    monkeypatch.setattr(HttpConnection, "_read_step", fail)
    web.turns(browser)
    assert browser.transport.disconnected or browser.transport.disconnecting
    assert [event["log_failure"].type for event in logged_failures] == [ValueError]
    logged_failures.clear()
