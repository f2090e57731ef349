"""Polls, and what their clients say of messages."""

from __future__ import annotations

import pytest

from nsqtw.api.openapi import described
from nsqtw.api.site import endpoints
from tests.api.subscribe.harness import ABOUT, HANDSHAKE, EventSource, Message, SubscribeWeb, WebSocketClient
from tests.http.broker_fixture import DONE, Log, Web, request


def test_it_is_off_unless_enabled() -> None:
    web = Web()
    for method, name in (
        *(("POST", name) for name in ("poll", "finish", "requeue", "touch")),
        *(("GET", name) for name in ("events", "websocket")),
    ):
        reply = web.ask(method, f"/v2/subscribe/{name}?{ABOUT}", **HANDSHAKE)
        assert reply.outcome == (403, "SUBSCRIBE_DISABLED")
        assert reply.headers["x-nsqtw-detail"] == "Consuming over HTTP is off: start nsqd with --http-subscribe."
    assert not web.broker.topics


def test_messages_that_are_there_are_the_answer_at_once() -> None:
    web = SubscribeWeb()
    web.publish(b"a", b"\xff")
    first, second = web.take()
    assert (first["body"], first["encoding"], first["attempts"]) == ("a", "text", 1)
    assert (second["body"], second["encoding"]) == ("/w==", "base64")
    assert web.counts == (0, 2)
    assert web.tell("finish", first["token"], second["token"]) == {"finished": 2, "failed": []}
    assert web.counts == (0, 0)


def test_the_answers_are_those_of_the_openapi_document() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    paths = described(endpoints())["paths"]
    messages: list[Message] = []
    for name in ("poll", "touch", "requeue", "poll", "finish"):
        path = f"/v2/subscribe/{name}"
        token = messages[0]["token"] if messages and name != "poll" else ""
        reply = web.post(f"{path}?{ABOUT}", token.encode())
        success = paths[path]["post"]["responses"]["200"]["content"][reply.headers["content-type"]]["schema"]
        assert list(reply.json) == success["required"]
        if name == "poll":
            messages = reply.json["messages"]
            assert list(messages[0]) == success["properties"]["messages"]["items"]["required"]
        else:
            assert reply.json["failed"] == []


def test_headers_of_messages_are_shown() -> None:
    web = SubscribeWeb()
    assert web.ask("POST", "/pub?topic=t", b"a", X_NSQ_Tenant="acme").status == 200
    web.publish(b"b")
    assert [message.get("headers") for message in web.take()] == [{"tenant": "acme"}, None]


def test_a_poll_waits_for_a_message_or_the_end_of_its_time() -> None:
    web = SubscribeWeb()
    poll = web.poll("&wait=5s")
    web.wait(4.9)
    assert poll.reply is None
    web.publish(b"a")
    assert poll.bodies == ["a"]
    late = web.poll("&wait=5s")
    web.wait(5)
    assert late.messages == []
    usual = web.poll()
    web.wait(19.9)
    assert usual.reply is None
    web.wait(0.2)
    assert usual.messages == []


def test_a_pause_answers_the_polls_that_wait() -> None:
    web = SubscribeWeb()
    poll = web.poll("&wait=20s")
    assert web.post(f"/channel/pause?{ABOUT}").outcome == DONE
    assert (reply := poll.reply) is not None
    assert reply.json == {"messages": [], "paused": True, "draining": False}
    later = web.poll("&wait=20s")
    web.publish(b"a")
    web.wait(19)
    assert later.reply is None
    assert web.post(f"/channel/unpause?{ABOUT}").outcome == DONE
    assert (reply := later.reply) is not None
    assert (list(reply.json), later.bodies) == (["messages"], ["a"])


def test_a_drain_answers_the_polls_that_wait() -> None:
    web = SubscribeWeb()
    poll = web.poll("&wait=20s")
    web.broker.begin_drain()
    web.turn()
    assert (reply := poll.reply) is not None
    assert reply.json == {"messages": [], "paused": False, "draining": True}


def test_consumers_are_counted_by_kind() -> None:
    web = SubscribeWeb()
    counts = web.view.http_consumers
    assert (counts.subscribers, counts.delivered) == ({}, {})
    stream, socket, poll = EventSource(web), WebSocketClient(web, "&max_in_flight=0"), web.poll("&wait=20s")
    assert counts.subscribers == {"events": 1, "websocket": 1, "poll": 1}
    web.publish(b"a", b"b")
    assert len(stream.messages()) == len(poll.messages or ()) == 1
    assert counts.delivered == {"events": 1, "poll": 1}
    for client in (stream, socket):
        client.browser.lose()
    web.turn()
    text = web.get("/metrics").body.decode()
    assert 'nsq_http_subscribers{kind="events"} 0.0' in text
    assert 'nsq_http_subscribers{kind="poll"} 1.0' in text  # its subscription stays for a while
    assert 'nsq_http_delivered_total{kind="poll"} 1.0' in text


def test_no_message_is_in_flight_while_nobody_waits() -> None:
    web = SubscribeWeb()
    (token,) = (message["token"] for message in (web.publish(b"a"), web.take())[1])
    web.publish(b"b", b"c")
    web.tell("finish", token)
    assert web.counts == (2, 0)
    web.take("&wait=0s&max=1")
    assert web.counts == (1, 1)
    web.wait(61)  # its timeout
    assert web.counts == (2, 0)


def test_the_oldest_poll_gets_the_first_messages() -> None:
    web = SubscribeWeb()
    polls = [web.poll("&max=2"), web.poll("&max=2"), web.poll("&max=2")]
    browser = web.connect()
    browser.send(request("POST", "/mpub?topic=t", b"a\nb\nc"))
    web.turn()
    assert [poll.bodies for poll in polls] == [["a", "b"], ["c"], None]
    assert web.counts == (0, 3)


def test_a_client_that_left_gets_nothing() -> None:
    web = SubscribeWeb()
    gone, there = web.poll("&max=2"), web.poll("&max=1")
    gone.lose()
    web.publish(b"a", b"b")
    assert there.bodies == ["a"]
    assert web.counts == (1, 1)
    assert web.take()[0]["attempts"] == 1


def test_messages_of_a_client_that_leaves_in_the_same_turn_come_again_at_once() -> None:
    web = SubscribeWeb()
    gone = web.poll()
    web.turn()
    web.connect().send(request("POST", "/pub?topic=t", b"a"))
    gone._browser.connection.peer_is_done = True  # its end was read in this turn, and the connection is not closed yet
    web.turn()
    assert gone.reply is None
    assert web.counts == (1, 0)
    assert [message["attempts"] for message in web.take()] == [2]


def test_a_client_that_ends_its_side_has_left() -> None:
    web = SubscribeWeb()
    poll = web.poll()
    assert poll.reply is None
    poll._browser.connection.readConnectionLost()
    assert poll._browser.transport.disconnected


def test_a_token_of_an_earlier_delivery_finishes_nothing() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    (first,) = web.take("&wait=0s&msg_timeout=1s")
    web.wait(2)
    (again,) = web.take("&wait=0s&msg_timeout=1s")
    assert again["attempts"] == 2
    failed = [{"token": first["token"], "error": "NOT_IN_FLIGHT"}]
    with Log():
        for verb, done in (("finish", "finished"), ("requeue", "requeued"), ("touch", "touched")):
            assert web.tell(verb, first["token"]) == {done: 0, "failed": failed}
    assert web.counts == (0, 1)
    assert web.core.lines[-1][1].endswith("failed delivery 1 is not in flight")
    assert web.tell("finish", again["token"]) == {"finished": 1, "failed": []}


def test_a_token_is_good_once_and_for_its_channel_and_process() -> None:
    web = SubscribeWeb()
    web.publish(b"a", b"b")
    one, two = (message["token"] for message in web.take())
    reply = web.post("/v2/subscribe/finish?topic=t&channel=d", one.encode())
    assert reply.json["failed"] == [{"token": one, "error": "INVALID_TOKEN"}]
    assert web.tell("finish", one, one) == {"finished": 1, "failed": [{"token": one, "error": "NOT_IN_FLIGHT"}]}
    web.crash()
    assert web.tell("finish", two, "", "x.y") == {
        "finished": 0,
        "failed": [{"token": two, "error": "INVALID_TOKEN"}, {"token": "x.y", "error": "INVALID_TOKEN"}],
    }
    assert [message["body"] for message in web.take()] == ["b"]


def test_requeue_and_touch() -> None:
    web = SubscribeWeb(msg_timeout=10.0)
    web.publish(b"a", b"b")
    one, two = web.take()
    assert web.tell("requeue", one["token"], query="&delay=5s") == {"requeued": 1, "failed": []}
    web.wait(4)
    assert web.take() == []
    assert web.tell("touch", two["token"]) == {"touched": 1, "failed": []}
    web.wait(7)
    assert [(message["body"], message["attempts"]) for message in web.take()] == [("a", 2)]
    assert web.counts == (0, 2)
    web.wait(4)
    assert web.counts == (1, 1)
    assert web.tell("requeue", web.take()[0]["token"])["requeued"] == 1
    assert web.counts == (1, 1)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("topic=t", "MISSING_ARG_CHANNEL"),
        ("channel=c", "MISSING_ARG_TOPIC"),
        ("topic=t&channel=/", "INVALID_ARG_CHANNEL"),
        (f"{ABOUT}&max=0", "INVALID_MAX"),
        (f"{ABOUT}&max=1001", "INVALID_MAX"),
        (f"{ABOUT}&wait=5", "INVALID_WAIT"),
        (f"{ABOUT}&wait=61s", "INVALID_WAIT"),
        (f"{ABOUT}&wait=-1s", "INVALID_WAIT"),
        (f"{ABOUT}&msg_timeout=999ms", "INVALID_MSG_TIMEOUT"),
        (f"{ABOUT}&msg_timeout=16m", "INVALID_MSG_TIMEOUT"),
    ],
)
def test_wrong_parameters(query: str, word: str) -> None:
    web = SubscribeWeb()
    assert web.post(f"/v2/subscribe/poll?{query}").outcome == (400, word)
    assert web.core.channel().consumers == []


def test_the_bound_of_a_wait_is_named() -> None:
    reply = SubscribeWeb().post(f"/v2/subscribe/poll?{ABOUT}&wait=10h")
    assert "at most 60s" in reply.headers["x-nsqtw-detail"]


def test_a_delay_is_shortened_as_that_of_nsqs_req() -> None:
    web = SubscribeWeb(max_req_timeout=60.0)
    web.publish(b"a")
    (message,) = web.take()
    assert web.tell("requeue", message["token"], query="&delay=10h") == {"requeued": 1, "failed": []}
    web.wait(61)
    assert [one["body"] for one in web.take()] == ["a"]


def test_what_was_delivered_can_be_answered_after_consuming_was_switched_off() -> None:
    web = SubscribeWeb()
    web.publish(b"a", b"b")
    one, two = web.take()
    web.core.options.http_subscribe = False
    assert web.post(f"/v2/subscribe/poll?{ABOUT}&wait=0s").outcome == (403, "SUBSCRIBE_DISABLED")
    assert web.tell("touch", one["token"])["touched"] == 1
    assert web.tell("finish", one["token"])["finished"] == 1
    assert web.tell("requeue", two["token"])["requeued"] == 1
    web.wait(61)
    assert web.post(f"/v2/subscribe/finish?{ABOUT}", two["token"].encode()).outcome == (403, "SUBSCRIBE_DISABLED")


def test_streams_end_after_consuming_was_switched_off() -> None:
    web = SubscribeWeb()
    stream, socket = EventSource(web), WebSocketClient(web)
    web.publish(b"a", b"b")
    assert [len(one.messages()) for one in (stream, socket)] == [1, 1]
    web.core.options.http_subscribe = False
    web.wait(30)
    assert b'event: end\ndata: {"error":"SUBSCRIBE_DISABLED"}' in stream.read()
    assert socket.close_code() == (1008, "SUBSCRIBE_DISABLED")
    assert web.core.channel().consumers == []
    assert web.counts == (2, 0), "what was in flight is requeued"


def test_a_stream_gets_no_message_after_consuming_was_switched_off() -> None:
    web = SubscribeWeb()
    stream = EventSource(web)
    web.core.options.http_subscribe = False
    web.publish(b"a")
    assert stream.read() == b'event: end\ndata: {"error":"SUBSCRIBE_DISABLED"}\n\n'
    assert web.counts == (1, 0)


def test_polls_have_one_consumer_which_leaves_after_a_while() -> None:
    web = SubscribeWeb()
    web.take()
    web.take()
    web.publish(b"a")
    (token,) = (message["token"] for message in web.take("&wait=0s&msg_timeout=5m"))
    channel = web.core.channel()
    assert [consumer.client.version for consumer in channel.consumers] == ["HTTP", "HTTP"]
    web.wait(61)
    assert len(channel.consumers) == 1, "what has something in flight stays"
    assert web.tell("finish", token)["finished"] == 1
    web.wait(61)
    assert channel.consumers == []
    assert not web.broker.clients


def test_an_ephemeral_channel_stays_between_polls() -> None:
    web = SubscribeWeb()
    about = "topic=t&channel=e%23ephemeral&wait=0s"
    assert web.post(f"/v2/subscribe/poll?{about}").json == {"messages": []}
    web.publish(b"a")
    web.wait(50)
    (message,) = web.post(f"/v2/subscribe/poll?{about}").json["messages"]
    assert message["body"] == "a"
    web.wait(61)  # its timeout
    web.wait(61)
    assert list(web.core.topic().channels) == ["c"]


def test_a_new_channel_is_durable_before_messages_are_delivered() -> None:
    web = SubscribeWeb()
    web.writer.is_held_back = True
    browser = web.connect()
    browser.send(request("POST", "/v2/subscribe/poll?topic=new&channel=c&wait=0s"))
    assert browser.read() == []
    web.writer.is_held_back = False
    (reply,) = browser.read()
    assert reply.json == {"messages": []}


def test_a_limit_of_subscribers() -> None:
    web = SubscribeWeb(max_http_subscribers=1)
    assert web.take() == []
    waiting = web.poll()
    assert waiting.reply is None
    assert web.post(f"/v2/subscribe/poll?{ABOUT}&wait=0s").outcome == (503, "TOO_MANY_SUBSCRIBERS")
    assert web.get(f"/v2/subscribe/events?{ABOUT}").outcome == (503, "TOO_MANY_SUBSCRIBERS")
    waiting.lose()
    assert web.take() == []
    assert web.get(f"/v2/subscribe/events?{ABOUT}").outcome == (503, "TOO_MANY_SUBSCRIBERS")
    web.wait(60)
    stream = EventSource(web)
    assert stream.is_stream
    stream.browser.lose()
    assert web.take() == []
    assert web.get("/stats?format=json").json["limits"]["over"] == {"max-http-subscribers": 3}


def test_a_channel_without_room_for_consumers() -> None:
    web = SubscribeWeb(max_channel_consumers=1)
    reader = web.core.reader()
    reply = web.post(f"/v2/subscribe/poll?{ABOUT}&wait=0s")
    assert reply.outcome == (503, "SUBSCRIBE_FAILED")
    assert reply.headers["x-nsqtw-detail"] == "SUB failed consumers for t:c exceeds limit of 1"
    assert web.core.lines[-1][1].endswith("E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1")
    reader.leave()
    assert web.take() == []


def test_a_client_that_ended_its_side_before_gets_nothing() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    browser = web.connect()
    browser.connection.peer_is_done = True
    browser.send(request("POST", f"/v2/subscribe/poll?{ABOUT}"))
    assert browser.read() == []
    assert browser.transport.disconnected
    browser = web.connect()
    browser.connection.peer_is_done = True
    browser.send(request("GET", f"/v2/subscribe/events?{ABOUT}"))
    web.turn()
    assert browser.transport.disconnected
    assert web.counts == (1, 0)


def test_a_drain_delivers() -> None:
    web = SubscribeWeb()
    web.publish(b"a")
    web.broker.begin_drain()
    (message,) = web.take()
    assert web.tell("finish", message["token"])["finished"] == 1


def test_deleting_the_channel_answers_its_polls() -> None:
    web = SubscribeWeb(max_http_subscribers=1)
    poll = web.poll()
    assert poll.reply is None
    assert web.post(f"/channel/delete?{ABOUT}").outcome == DONE
    assert poll.reply is not None and poll.reply.outcome == (404, "CHANNEL_NOT_FOUND")
    assert not web.broker.clients
    assert web.take() == [], "a poll makes the channel anew"


def test_deleting_the_topic_answers_its_polls() -> None:
    web = SubscribeWeb()
    poll = web.poll()
    assert poll.reply is None
    assert web.post("/topic/delete?topic=t").outcome == DONE
    assert poll.reply is not None and poll.reply.outcome == (404, "CHANNEL_NOT_FOUND")


def test_a_paused_channel_delivers_nothing() -> None:
    web = SubscribeWeb()
    assert web.post(f"/channel/pause?{ABOUT}").outcome == DONE
    web.publish(b"a")
    poll = web.poll()
    assert poll.reply is None
    assert web.post(f"/channel/unpause?{ABOUT}").outcome == DONE
    assert poll.bodies == ["a"]


def test_a_stop_answers_polls() -> None:
    web = SubscribeWeb()
    poll = web.poll()
    assert poll.reply is None
    web.site.disconnect_all()
    assert poll.reply is not None and poll.reply.outcome == (503, "EXITING")
    web.pump.stop()
    assert web.post(f"/v2/subscribe/poll?{ABOUT}").outcome == (503, "EXITING")


def test_what_is_emptied_or_moved_is_not_in_flight() -> None:
    web = SubscribeWeb(retention_time=3600.0)
    web.publish(b"a", b"b")
    one, _ = web.take()
    assert web.post(f"/channel/empty?{ABOUT}").outcome == DONE
    assert web.tell("finish", one["token"])["finished"] == 0
    assert web.post(f"/v2/channel/seek?{ABOUT}&to=earliest").status == 200
    assert [message["body"] for message in web.take()] == ["a", "b"]


def test_too_many_tokens() -> None:
    web = SubscribeWeb()
    reply = web.post(f"/v2/subscribe/finish?{ABOUT}", b"x" * (64 * 1024 + 1))
    assert reply.outcome == (413, "TOO_MANY_TOKENS")


def test_a_page_of_another_site_may_do_nothing() -> None:
    web = SubscribeWeb()
    for method, name in (("POST", "poll"), ("POST", "finish"), ("GET", "events"), ("GET", "websocket")):
        for fields in ({"Origin": "http://elsewhere.example"}, {"Sec_Fetch_Site": "cross-site"}):
            reply = web.ask(method, f"/v2/subscribe/{name}?{ABOUT}", **HANDSHAKE, **fields)
            assert reply.outcome == (403, "CROSS_ORIGIN")
