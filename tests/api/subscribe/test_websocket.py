"""Messages and their answers on a WebSocket."""

from __future__ import annotations

from typing import Any

import pytest
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from nsqtw.api.subscribe.client_message import MAX_TEXT
from nsqtw.api.subscribe.websocket import CLOSE_SECONDS, STEP_EVENTS
from tests.api.subscribe.harness import ABOUT, HANDSHAKE, SubscribeWeb, WebSocketClient
from tests.http.broker_fixture import DONE, Log, request


def test_a_dialogue() -> None:
    web = SubscribeWeb()
    web.publish(b"a", b"b", b"c")
    client = WebSocketClient(web, "&max_in_flight=2")
    assert client.head == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    )
    one, two = client.messages()
    assert (one["body"], two["body"]) == ("a", "b")
    client.say({"finish": [one["token"]]})
    (three,) = client.messages()
    client.say({"requeue": [two["token"]], "delay": 5000, "touch": [three["token"]]})
    assert client.messages() == []
    assert web.counts == (0, 1)
    web.wait(5)
    assert [(message["body"], message["attempts"]) for message in client.messages()] == [("b", 2)]
    client.say({"finish": [one["token"], "x"], "max_in_flight": 0})
    assert client.read() == [
        {"failed": [{"token": one["token"], "error": "NOT_IN_FLIGHT"}, {"token": "x", "error": "INVALID_TOKEN"}]}
    ]
    client.say({"finish": [three["token"]]})
    web.publish(b"d")
    assert client.messages() == []
    client.say({"max_in_flight": 2})
    assert [message["body"] for message in client.messages()] == ["d"]


def test_what_comes_behind_the_handshake_is_read() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    client = WebSocketClient(web)
    (message,) = client.messages()
    client.browser.lose()
    again = WebSocketClient(web)
    said = bytes(again._frames.send(TextMessage('{"finish": ["x"]}')))
    browser = web.connect()
    browser.send(request("GET", f"/v2/subscribe/websocket?{ABOUT}", **HANDSHAKE) + said)
    web.turn()
    assert b'{"failed":[{"token":"x","error":"INVALID_TOKEN"}]}' in browser.transport.value()
    assert message["body"] == "a"


def test_frames_byte_by_byte_and_in_parts() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    client = WebSocketClient(web)
    (message,) = client.messages()
    text = f'{{"finish": ["{message["token"]}"]}}'
    frames = client._frames
    data = bytes(frames.send(TextMessage(text[:7], message_finished=False)) + frames.send(Ping(b"p")))
    data += bytes(frames.send(TextMessage(text[7:])))
    for at in range(len(data)):
        client.browser.send(data[at : at + 1])
    assert client.events() == [Pong(b"p")]
    assert web.counts == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"Upgrade": "h2c"},
        {"Connection": "keep-alive"},
        {"Sec_WebSocket_Version": "8"},
        {"Sec_WebSocket_Key": "short"},
        {"Sec_WebSocket_Key": ""},
    ],
)
def test_what_is_no_handshake(fields: dict[str, str]) -> None:
    web = SubscribeWeb()
    reply = web.ask("GET", f"/v2/subscribe/websocket?{ABOUT}", **{**HANDSHAKE, **fields})
    assert reply.outcome == (426, "UPGRADE_REQUIRED")
    assert (reply.headers["upgrade"], reply.headers["sec-websocket-version"]) == ("websocket", "13")
    assert web.core.channel().consumers == []


def test_old_http_has_no_websocket() -> None:
    web = SubscribeWeb()
    browser = web.connect()
    browser.send(request("GET", f"/v2/subscribe/websocket?{ABOUT}", version="HTTP/1.0", **HANDSHAKE))
    (reply,) = browser.read()
    assert reply.outcome == (426, "UPGRADE_REQUIRED")


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        (TextMessage("{"), 1007, "a message must be JSON"),
        (TextMessage("[" * 30_000), 1007, "a message must be JSON"),
        (TextMessage("[]"), 1008, "a message must be a JSON object"),
        (TextMessage('{"fin": []}'), 1008, "unknown: 'fin'"),
        (TextMessage('{"finish": "x"}'), 1008, "'finish' must be a list of tokens"),
        (TextMessage('{"touch": [1]}'), 1008, "'touch' must be a list of tokens"),
        (TextMessage('{"max_in_flight": -1}'), 1008, "'max_in_flight' must be a whole number of at least 0"),
        (TextMessage('{"max_in_flight": true}'), 1008, "'max_in_flight' must be a whole number of at least 0"),
        (
            TextMessage('{"max_in_flight": 2501}'),
            1008,
            "'max_in_flight' must be at most 2500, which is --max-rdy-count",
        ),
        (TextMessage('{"delay": 1e300}'), 1008, "'delay' must be a whole number of at least 0"),
        (BytesMessage(b"x"), 1003, "a message must be text"),
        (TextMessage("x" * (MAX_TEXT + 1)), 1009, f"a message has at most {MAX_TEXT} characters"),
    ],
)
def test_what_breaks_the_rules_ends_the_connection(said: Any, code: int, reason: str) -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    client = WebSocketClient(web)
    assert len(client.messages()) == 1
    client.send(said)
    assert web.counts == (1, 0), "what was in flight is requeued at once"
    assert client.close_code() == (code, reason)
    assert not client.browser.is_closed
    client.send(CloseConnection(code))
    assert client.browser.is_closed


def test_a_client_that_does_not_close_is_disconnected() -> None:
    web = SubscribeWeb()
    client = WebSocketClient(web)
    client.say({"fin": []})
    client.say({"max_in_flight": 5})
    assert client.close_code()[0] == 1008
    web.wait(CLOSE_SECONDS)
    assert client.browser.is_closed


def test_bytes_that_are_no_frames() -> None:
    for data in (b"\xff\xff\xff", b"\x81\x01x", b"GET / HTTP/1.1\r\n\r\n", b"\x89\xff" + b"x" * 12):
        web = SubscribeWeb()
        client = WebSocketClient(web)
        client.browser.send(data)
        assert client.close_code()[0] == 1002, data
        assert client.browser.is_closed
        assert not web.broker.clients


def test_text_that_is_not_utf8() -> None:
    web = SubscribeWeb()
    client = WebSocketClient(web)
    client.browser.send(b"\x81\x81\0\0\0\0\xff")
    assert client.close_code()[0] == 1007


def test_the_client_closes() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    client = WebSocketClient(web)
    assert len(client.messages()) == 1
    client.send(CloseConnection(1000, "enough"))
    assert client.close_code() == (1000, "enough")
    assert client.browser.is_closed
    assert web.counts == (1, 0)


def test_a_client_that_vanishes_gives_back_its_messages_at_once() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    client = WebSocketClient(web)
    assert len(client.messages()) == 1
    client.browser.lose()
    web.turn()
    assert web.counts == (1, 0)
    assert not web.broker.clients


def test_a_silent_client_is_pinged_and_then_disconnected() -> None:
    web = SubscribeWeb()
    client = WebSocketClient(web)
    for _ in range(3):
        for _ in range(30):
            assert client.heartbeats() == 0
            web.wait(1)
        assert client.heartbeats() == 1
    for _ in range(60):
        web.wait(1)
    assert client.browser.transport.disconnected


def test_a_flood_of_frames_is_read_in_steps() -> None:
    web = SubscribeWeb()
    client = WebSocketClient(web)
    flood = b"".join(bytes(client._frames.send(Ping())) for _ in range(3 * STEP_EVENTS))
    client.browser.send(flood)
    assert client.browser.transport.producerState == "paused"
    assert len(client.browser.transport.value()) < 3 * STEP_EVENTS
    while client.browser.transport.producerState == "paused":
        web.clock.advance(0.01)
    assert client.events() == [Pong(b"")] * (3 * STEP_EVENTS)


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    web = SubscribeWeb()
    client = WebSocketClient(web)
    client.browser.connection.pauseProducing()
    assert client.browser.transport.producerState == "paused"
    web.publish(b"a")
    assert client.events() == []
    client.browser.connection.resumeProducing()
    assert client.browser.transport.producerState == "producing"
    assert [message["body"] for message in client.messages()] == ["a"]


def test_a_pause_is_told_and_a_deleted_channel_ends_it() -> None:
    web = SubscribeWeb()
    client = WebSocketClient(web)
    assert web.post(f"/channel/pause?{ABOUT}").outcome == DONE
    assert client.read() == [{"paused": True, "draining": False}]
    assert web.post(f"/channel/delete?{ABOUT}").outcome == DONE
    assert client.close_code() == (1001, "CHANNEL_NOT_FOUND")


def test_a_stop_closes_it() -> None:
    web = SubscribeWeb()
    client = WebSocketClient(web)
    web.site.disconnect_all()
    assert client.close_code() == (1001, "EXITING")


def test_the_log_has_its_beginning() -> None:
    web = SubscribeWeb()
    with Log() as lines:
        WebSocketClient(web)
    assert lines == [f"info: 101 GET /v2/subscribe/websocket?{ABOUT} (127.0.0.1:40974) 0s"]


def test_a_credit_above_that_of_the_broker_is_refused() -> None:
    web = SubscribeWeb(max_rdy_count=3)
    client = WebSocketClient(web)
    client.say({"max_in_flight": 3})
    (consumer,) = web.core.channel().consumers
    assert consumer.ready_count == 3
    client.say({"max_in_flight": 4})
    assert client.close_code() == (1008, "'max_in_flight' must be at most 3, which is --max-rdy-count")
