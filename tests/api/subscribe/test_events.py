"""Messages as server-sent events."""

from __future__ import annotations

import json

import pytest

from tests.api.subscribe.harness import ABOUT, EventSource, SubscribeWeb
from tests.http.broker_fixture import DONE, chunked


def test_a_message_is_an_event() -> None:
    web = SubscribeWeb()
    stream = EventSource(web)
    assert stream.is_stream
    assert stream.read() == b""
    web.publish(b"a\nb")
    lines = stream.read().decode().split("\n")
    (consumer,) = web.core.channel().consumers
    assert lines[0] == f"id: {next(iter(consumer.in_flight.items()))[0].decode()}"
    message = json.loads(lines[1].removeprefix("data: "))
    assert (message["body"], message["attempts"]) == ("a\nb", 1)
    assert lines[2:] == ["", ""]


def test_credit_is_given_back_by_finish_and_requeue() -> None:
    web = SubscribeWeb()
    web.publish(b"a", b"b", b"c")
    stream = EventSource(web, "&max_in_flight=2")
    one, two = stream.messages()
    assert stream.messages() == []
    web.tell("finish", one["token"])
    (three,) = stream.messages()
    web.tell("requeue", two["token"])
    assert [(message["body"], message["attempts"]) for message in stream.messages()] == [("b", 2)]
    web.tell("touch", three["token"])
    assert stream.messages() == []
    assert web.counts == (0, 2)


def test_credit_comes_back_with_a_timeout() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    stream = EventSource(web, "&msg_timeout=5s")
    assert [message["attempts"] for message in stream.messages()] == [1]
    web.wait(6)
    assert [message["attempts"] for message in stream.messages()] == [2]


def test_a_client_that_leaves_gives_back_its_messages_at_once() -> None:
    for leave in ("lose", "end"):
        web = SubscribeWeb()
        web.publish(b"a", b"b")
        stream = EventSource(web, "&max_in_flight=5")
        (token, _) = (message["token"] for message in stream.messages())
        if leave == "lose":
            stream.browser.lose()
        else:
            stream.browser.connection.readConnectionLost()
            assert stream.browser.transport.disconnected
            stream.browser.lose()
        web.turn()
        assert web.counts == (2, 0)
        assert web.tell("finish", token)["failed"] == [{"token": token, "error": "NOT_IN_FLIGHT"}]
        assert not web.broker.clients


def test_a_slow_reader_gets_no_more() -> None:
    web = SubscribeWeb()
    stream = EventSource(web, "&max_in_flight=5")
    stream.browser.connection.pauseProducing()
    web.publish(b"a")
    assert stream.messages() == []
    stream.browser.connection.resumeProducing()
    assert [message["body"] for message in stream.messages()] == ["a"]


def test_heartbeats() -> None:
    web = SubscribeWeb()
    stream = EventSource(web)
    for _ in range(14):
        web.wait(1)
    assert stream.read() == b""
    web.wait(1)
    assert stream.read() == b":\n\n"


def state(*, paused: bool = False, draining: bool = False) -> bytes:
    """Return the event of a state."""
    text = json.dumps({"paused": paused, "draining": draining}, separators=(",", ":"))
    return b"event: state\ndata: %b\n\n" % text.encode()


@pytest.mark.parametrize("paused", [f"/channel/%s?{ABOUT}", "/topic/%s?topic=t"])
def test_a_pause_and_a_drain_are_told_at_once(paused: str) -> None:
    web = SubscribeWeb()
    stream = EventSource(web)
    assert web.post(paused % "pause").outcome == DONE
    assert stream.read() == state(paused=True)
    assert web.post(paused % "unpause").outcome == DONE
    assert stream.read() == state()
    web.broker.begin_drain()
    web.turn()
    assert stream.read() == state(draining=True)


def test_a_stream_of_a_paused_channel_begins_with_its_state() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    assert web.post(f"/channel/pause?{ABOUT}").outcome == DONE
    stream = EventSource(web)
    assert stream.read() == state(paused=True)
    assert web.post(f"/channel/unpause?{ABOUT}").outcome == DONE
    unpaused, _, message = stream.read().partition(b"id: ")
    assert unpaused == state()
    assert b'"body":"a"' in message


def test_who_has_left_is_told_nothing() -> None:
    web = SubscribeWeb()
    EventSource(web).browser.lose()
    web.turn()
    assert not web.broker.drain_listeners
    web.broker.begin_drain()


def test_a_stream_ends_with_its_channel() -> None:
    web = SubscribeWeb()
    stream = EventSource(web)
    assert web.post(f"/channel/delete?{ABOUT}").outcome == DONE
    assert stream.read() == b'event: end\ndata: {"error":"CHANNEL_NOT_FOUND"}\n\n'
    assert stream.browser.is_closed


def test_a_stop_ends_it() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    stream = EventSource(web)
    assert len(stream.messages()) == 1
    web.site.disconnect_all()
    assert stream.read() == b'event: end\ndata: {"error":"EXITING"}\n\n'
    assert stream.browser.is_closed
    assert web.counts == (1, 0)


def test_wrong_parameters() -> None:
    web = SubscribeWeb()
    path = f"/v2/subscribe/events?{ABOUT}"
    assert web.get(f"{path}&max_in_flight=2501").outcome == (400, "INVALID_MAX_IN_FLIGHT")
    assert web.get(f"{path}&max_in_flight=x").outcome == (400, "INVALID_MAX_IN_FLIGHT")
    assert web.get(f"{path}&msg_timeout=1").outcome == (400, "INVALID_MSG_TIMEOUT")
    assert web.core.channel().consumers == []


def test_a_body_of_the_request_is_ignored() -> None:
    web = SubscribeWeb()
    browser = web.connect()
    browser.send(chunked("GET", f"/v2/subscribe/events?{ABOUT}", b"x", b"y"))
    web.turn()
    assert b"text/event-stream" in browser.transport.value()
