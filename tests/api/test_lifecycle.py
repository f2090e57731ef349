"""Draining a broker: what it refuses, what it still delivers, and when it stops."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.errors import Draining
from nsqtw.runtime.drain import CHECK_SECONDS, REASON, REPORT_SECONDS, Drain
from tests.http.broker_fixture import DONE, OK, Log, Web

REFUSED = (503, "DRAINING")


class DrainedWeb(Web):
    """A broker with a drain whose steps are recorded."""

    def __init__(self, **options: Any) -> None:
        self.steps: list[str] = []
        super().__init__(**options)

    def make_drain(self) -> Drain:
        return Drain(self.broker, self.pump, lambda: self.steps.append("leave"), lambda: self.steps.append("stop"))

    def begin(self, query: str = "") -> dict[str, Any]:
        reply = self.post(f"/v2/drain{query}")
        assert reply.status == 200, reply.body
        state: dict[str, Any] = reply.json
        return state

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/v2/drain").json
        return found

    def wait(self, seconds: float) -> None:
        """Let time pass; a drain has looked at the end of it."""
        self.core.wait(seconds)
        self.clock.advance(CHECK_SECONDS)
        self.turn()


@pytest.fixture
def one() -> DrainedWeb:
    found = DrainedWeb(max_req_timeout=3600.0, max_msg_size=1000, max_body_size=10_000)
    assert found.post("/topic/create?topic=t").outcome == DONE
    assert found.post("/channel/create?topic=t&channel=c").outcome == DONE
    return found


def numbers(state: dict[str, Any]) -> tuple[int, int, int, int]:
    return state["depth"], state["in_flight"], state["deferred"], state["staying"]


def test_a_broker_that_does_not_drain(one: DrainedWeb) -> None:
    one.post("/pub?topic=t", b"a")
    assert one.state() == {"draining": False, "depth": 1, "in_flight": 0, "deferred": 0, "staying": 0}
    assert one.steps == []


def test_publishes_are_refused_and_all_else_goes_on(one: DrainedWeb) -> None:
    one.post("/pub?topic=t", b"a")
    one.begin()
    assert one.steps == ["leave"]
    assert one.post("/pub?topic=t", b"b").outcome == REFUSED
    assert one.post("/mpub?topic=t", b"b\nc").outcome == REFUSED
    assert one.post("/pub?topic=new", b"b").outcome == REFUSED
    assert one.post("/topic/create?topic=new").outcome == REFUSED
    assert one.post("/topic/create?topic=t").outcome == DONE
    assert one.post("/channel/create?topic=t&channel=d").outcome == DONE
    assert one.post("/channel/pause?topic=t&channel=d").outcome == DONE
    assert one.get("/ping").outcome == OK
    refused: list[Exception | None] = []
    one.broker.topics["t"].put([b"b"], 0, refused.append)
    assert [type(error) for error in refused] == [Draining]
    assert "publish to another nsqd" in one.post("/pub?topic=t", b"b").headers["x-nsqtw-detail"]


def test_it_stops_when_all_is_finished(one: DrainedWeb) -> None:
    one.post("/pub?topic=t", b"a")
    assert numbers(one.begin()) == (1, 0, 0, 0)
    one.wait(1.0)
    reader = one.core.reader(ready=1)
    (message,) = reader.read()
    assert numbers(one.state()) == (0, 1, 0, 0)
    one.wait(1.0)
    assert one.steps == ["leave"]
    reader.finish(message.id)
    with Log() as lines:
        one.wait(1.0)
    assert one.steps == ["leave", "stop"]
    assert lines[-1] == "info: NSQ: drained"
    one.wait(1.0)
    assert one.steps == ["leave", "stop"], "once"


def test_the_deadline(one: DrainedWeb) -> None:
    one.post("/pub?topic=t", b"a")
    state = one.begin("?timeout=20s")
    assert (state["seconds"], state["seconds_left"]) == (0.0, 20.0)
    with Log() as lines:
        one.wait(REPORT_SECONDS)
    assert lines[-1] == "info: NSQ: draining, depth 1, in flight 0, deferred 0"
    assert one.state()["seconds_left"] == 10.0
    with Log() as lines:
        one.wait(10.0)
    assert lines[-1] == ("warn: NSQ: the drain's time is over, depth 1, in flight 0, deferred 0 stay in the data path")
    assert one.steps == ["leave", "stop"]


def test_a_later_request_sets_another_deadline(one: DrainedWeb) -> None:
    one.post("/pub?topic=t", b"a")
    one.begin("?timeout=20s")
    one.wait(15.0)
    assert one.begin("?timeout=20s")["seconds_left"] == 20.0
    one.wait(15.0)
    assert one.steps == ["leave"], "it is left once"
    assert one.begin("?timeout=0")["seconds_left"] is None
    one.wait(3600.0)
    assert one.steps == ["leave"]


def test_without_a_timeout_the_option_says_how_long() -> None:
    one = DrainedWeb(drain_timeout=7.0)
    assert one.begin()["seconds_left"] == 7.0


def test_a_deferred_message_is_waited_for_if_it_is_due_in_time(one: DrainedWeb) -> None:
    one.post("/pub?topic=t&defer=5000", b"soon")
    one.post("/pub?topic=t&defer=60000", b"late")
    assert numbers(one.begin("?timeout=20s")) == (0, 0, 2, 0)
    one.wait(6.0)
    assert numbers(one.state()) == (1, 0, 0, 1)
    reader = one.core.reader(ready=1)
    reader.finish(*(message.id for message in reader.read()))
    with Log() as lines:
        one.wait(1.0)
    assert one.steps == ["leave", "stop"]
    assert lines[-1] == "info: NSQ: drained; messages that cannot be delivered now, and stay: 1"
    one.crash()
    assert one.core.channel().deferred_count == 1, "it stays in the data path"


def test_what_no_consumer_could_get_is_not_waited_for(one: DrainedWeb) -> None:
    one.post("/topic/create?topic=alone")
    one.post("/pub?topic=alone", b"x")
    one.post("/pub?topic=t", b"a")
    one.post("/channel/pause?topic=t&channel=c")
    assert numbers(one.begin()) == (0, 0, 0, 2)
    one.wait(1.0)
    assert one.steps == ["leave", "stop"]


def test_a_paused_channel_waits_for_what_is_in_flight(one: DrainedWeb) -> None:
    one.post("/pub?topic=t", b"a")
    reader = one.core.reader(ready=1)
    (message,) = reader.read()
    one.post("/channel/pause?topic=t&channel=c")
    one.begin()
    one.wait(1.0)
    assert one.steps == ["leave"]
    reader.finish(message.id)
    one.wait(1.0)
    assert one.steps == ["leave", "stop"]


def test_what_times_out_comes_again_and_is_waited_for(one: DrainedWeb) -> None:
    one.post("/pub?topic=t", b"a")
    reader = one.core.reader(ready=1)
    reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    one.begin("?timeout=0")
    one.wait(61.0)
    assert numbers(one.state()) == (1, 0, 0, 0)
    reader.channel.set_ready(reader.consumer, 1)
    reader.finish(*(message.id for message in reader.read()))
    one.wait(1.0)
    assert one.steps == ["leave", "stop"]


def test_what_was_taken_before_is_stored_and_waited_for(one: DrainedWeb) -> None:
    """A publish in the turn in which the drain begins."""
    topic, stored = one.broker.topics["t"], []
    topic.put([b"a"], 0, stored.append)
    one.drain.begin(30.0)
    one.clock.advance(CHECK_SECONDS)
    assert one.steps == ["leave"]
    one.turn()
    assert stored == [None]
    assert one.core.reader().bodies() == [b"a"]


def test_a_crash_while_it_drains_loses_nothing(one: DrainedWeb) -> None:
    one.post("/pub?topic=t", b"a")
    one.begin()
    one.core.crash()
    assert one.core.reader().bodies() == [b"a"]


def test_the_reason_why_no_client_should_come(one: DrainedWeb) -> None:
    assert one.drain.reason == ""
    one.begin()
    assert one.drain.reason == REASON


def test_a_broker_that_stops_meanwhile(one: DrainedWeb) -> None:
    one.post("/pub?topic=t", b"a")
    one.begin("?timeout=1s")
    one.drain.cancel()
    one.broker.begin_stop()
    one.wait(5.0)
    assert one.steps == ["leave"]
    assert one.post("/v2/drain").outcome == (503, "EXITING")
    assert one.post("/pub?topic=t", b"a").outcome == (503, "EXITING")


@pytest.mark.parametrize("timeout", ["", "soon", "-1s", "5"])
def test_refusals(one: DrainedWeb, timeout: str) -> None:
    assert one.post(f"/v2/drain?timeout={timeout}").outcome == (400, "INVALID_TIMEOUT")
    assert one.state()["draining"] is False
