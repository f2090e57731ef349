"""Publishing for a time, the ids of published messages, and cancelling."""

from __future__ import annotations

import pytest

from nsqtw.errors import BackendError
from nsqtw.message_headers import encode_headers
from tests.core.harness import START, WALL_NS
from tests.http.broker_fixture import OK, Web


@pytest.fixture(autouse=True)
def _wall_clock_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows NOW_S in the beginning, and goes as the tests say."""
    monkeypatch.setattr("nsqtw.runtime.pump.set_clock", lambda broker, now: broker.follow_wall(WALL_NS, now))


NOW_S = WALL_NS // 10**9 + int(START)


def web(channel: str = "c") -> Web:
    found = Web(max_req_timeout=3600.0)
    found.post("/topic/create?topic=t")
    if channel:
        found.post(f"/channel/create?topic=t&channel={channel}")
    return found


def deferred(one: Web, channel: str = "c") -> int:
    return one.core.topic().channels[channel].deferred_count


def publish(one: Web, seconds: int = 60, body: bytes = b"a") -> str:
    """Publish a deferred message; returns its id."""
    reply = one.post(f"/pub?topic=t&ids=true&deliver_at={NOW_S + seconds}", body)
    assert reply.status == 200, reply.body
    (message_id,) = reply.json["ids"]
    assert isinstance(message_id, str)
    return message_id


# -- deliver_at


@pytest.mark.parametrize(
    "when",
    [
        f"{NOW_S + 60}",
        f"{NOW_S + 60}000",
        f"{NOW_S + 60}.000",
        "2023-11-14T22:31:00Z",
        "2023-11-14T23:31:00%2B01:00",
    ],
)
def test_a_message_is_delivered_at_its_time(when: str) -> None:
    one = web()
    assert one.post(f"/pub?topic=t&deliver_at={when}", b"a").outcome == OK
    reader = one.core.reader()
    one.core.wait(59.999)
    assert reader.bodies() == []
    one.core.wait(0.001)
    assert reader.bodies() == [b"a"]


@pytest.mark.parametrize("when", ["defer=60000", f"deliver_at={NOW_S + 60}"])
def test_a_batch_with_headers_is_deferred(when: str) -> None:
    one = web()
    body = b"NSQH\0\0\0\2" + b"\0\0\0\6\x02id\x00\x01a\0\0\0\1a" + b"\0\0\0\0\0\0\0\1b"
    assert one.post(f"/mpub?topic=t&binary=true&headers=true&{when}", body).outcome == OK
    reader = one.core.reader()
    one.core.wait(59.999)
    assert reader.bodies() == []
    one.core.wait(0.001)
    assert reader.bodies() == [b"a", b"b"]


def test_a_delay_of_a_batch_with_headers_has_a_limit() -> None:
    reply = web().post(
        "/mpub?topic=t&binary=true&headers=true&defer=999999999", b"NSQH\0\0\0\1" + bytes(4) + b"\0\0\0\1a"
    )
    assert reply.outcome == (400, "INVALID_DEFER")


def test_a_batch_without_headers_has_no_delay() -> None:
    one = web()
    assert one.post("/mpub?topic=t&defer=60000", b"a\nb").outcome == OK
    assert one.core.reader().bodies() == [b"a", b"b"]


def test_a_batch_with_a_time_is_refused() -> None:
    one = web()
    reply = one.post(f"/mpub?topic=t&deliver_at={NOW_S + 60}", b"a\nb")
    assert reply.outcome == (400, "INVALID_DELIVER_AT")
    assert "binary=true and headers=true" in reply.headers["x-nsqtw-detail"]
    assert one.bodies() == []


@pytest.mark.parametrize("when", ["0", f"{NOW_S - 1}", f"{NOW_S}", "1999-12-31T23:59:59Z"])
def test_one_in_the_past_is_delivered_at_once(when: str) -> None:
    one = web()
    assert one.post(f"/pub?topic=t&deliver_at={when}", b"a").outcome == OK
    assert one.bodies() == [b"a"]


@pytest.mark.parametrize(
    ("query", "remedy"),
    [
        ("deliver_at=", "must be a time: Unix seconds or milliseconds, or RFC 3339"),
        ("deliver_at=soon", "must be a time"),
        ("deliver_at=1h", "a delay is 'defer', in milliseconds"),
        ("deliver_at=2023-11-14T22:31:00", "with Z or an offset"),
        ("deliver_at=-1", "must be a time"),
        (f"deliver_at={NOW_S + 3601}", "is 1h0m1s ahead, and at most 1h0m0s is allowed: raise --max-defer-timeout"),
        ("deliver_at=" + "9" * 15, "raise --max-defer-timeout"),
        (f"deliver_at={NOW_S + 60}&defer=5", "leave one of them out"),
        ("deliver_at=soon&defer=5", "leave one of them out"),
    ],
)
def test_times_that_are_refused(query: str, remedy: str) -> None:
    one = web()
    reply = one.post(f"/pub?topic=t&{query}", b"a")
    assert reply.outcome == (400, "INVALID_DELIVER_AT")
    assert remedy in reply.headers["x-nsqtw-detail"]
    assert deferred(one) == 0


def test_the_bound_is_that_of_defer() -> None:
    one = web()
    one.core.options.max_defer_timeout = 10.0
    assert one.post(f"/pub?topic=t&deliver_at={NOW_S + 11}", b"a").outcome == (400, "INVALID_DELIVER_AT")
    assert one.post(f"/pub?topic=t&deliver_at={NOW_S + 10}", b"a").outcome == OK


# -- ids


def test_the_ids_of_messages_are_answered() -> None:
    one = web()
    first = one.post("/pub?topic=t&ids=true", b"a")
    rest = one.post("/mpub?topic=t&ids=true", b"b\nc")
    assert first.headers["x-nsqtw-durability"] == "os"
    messages = {message.body: message.id.decode() for message in one.core.reader().read()}
    assert first.json == {"ids": [messages[b"a"]]}
    assert rest.json == {"ids": [messages[b"b"], messages[b"c"]]}


@pytest.mark.parametrize("path", ["/pub", "/mpub"])
def test_without_asking_an_ok_is_what_it_was(path: str) -> None:
    one = web()
    assert one.post(f"{path}?topic=t&ids=false", b"a").outcome == OK
    assert one.post(f"{path}?topic=t&ids=maybe", b"a").outcome == (400, "INVALID_IDS")


@pytest.mark.parametrize("path", ["/pub", "/mpub"])
def test_a_publish_that_fails_has_no_ids(path: str) -> None:
    one = web()
    one.fail_commits()
    assert one.post(f"{path}?topic=t&ids=true", b"a").outcome == (503, "EXITING")


# -- cancelling


def test_a_deferred_message_is_cancelled() -> None:
    one = web()
    message_id = publish(one)
    publish(one, body=b"b")
    reply = one.post(f"/v2/topic/cancel?topic=t&id={message_id.upper()}")
    assert reply.status == 200
    assert reply.json == {"id": message_id, "released": True, "channels": ["c"]}
    assert one.post(f"/v2/topic/cancel?topic=t&id={message_id}").outcome == (404, "MESSAGE_NOT_DEFERRED")
    one.core.crash()
    one.core.wait(60)
    assert one.core.reader().bodies() == [b"b"]


def test_it_is_answered_when_it_is_saved() -> None:
    one = web()
    message_id = publish(one)
    one.core.positions.failure = BackendError("full")
    assert one.post(f"/v2/topic/cancel?topic=t&id={message_id}").outcome == (500, "INTERNAL_ERROR")
    assert deferred(one) == 1
    one.core.positions.failure = None
    assert one.post(f"/v2/topic/cancel?topic=t&id={message_id}").status == 200


def test_in_one_channel() -> None:
    one = web()
    one.post("/channel/create?topic=t&channel=d")
    message_id = publish(one)
    reply = one.post(f"/v2/topic/cancel?topic=t&channel=d&id={message_id}")
    assert reply.json == {"id": message_id, "released": True, "channels": ["d"]}
    assert (deferred(one), deferred(one, "d")) == (1, 0)
    assert one.post(f"/v2/topic/cancel?topic=t&channel=d&id={message_id}").status == 404


def test_before_its_release() -> None:
    one = web(channel="")
    message_id = publish(one)
    reply = one.post(f"/v2/topic/cancel?topic=t&id={message_id}")
    assert reply.json == {"id": message_id, "released": False, "channels": []}
    assert one.core.topic().depth == 0


def test_before_its_release_for_one_channel_alone() -> None:
    one = web()
    one.core.topic().pause()
    message_id = publish(one)
    reply = one.post(f"/v2/topic/cancel?topic=t&id={message_id}&channel=c")
    assert reply.outcome == (409, "MESSAGE_NOT_RELEASED")
    assert "cancel it without 'channel'" in reply.headers["x-nsqtw-detail"]
    for_c = one.post("/pub?topic=t&channel=c&defer=60000&ids=true", b"x").json["ids"][0]
    one.core.channel("d")
    assert one.post(f"/v2/topic/cancel?topic=t&id={for_c}&channel=d").outcome == (404, "MESSAGE_NOT_DEFERRED")
    reply = one.post(f"/v2/topic/cancel?topic=t&id={for_c}&channel=c")
    assert reply.json == {"id": for_c, "released": False, "channels": []}
    assert one.core.topic().depth == 1


def test_with_two_ids() -> None:
    reply = web().post("/v2/topic/cancel?topic=t&publisher_id=1&id=0123456789abcdef")
    assert reply.headers["x-nsqtw-detail"] == "Only one of 'id' and 'publisher_id' can be given."


def test_by_the_id_of_its_publisher_for_one_channel() -> None:
    one = web()
    one.core.topic().policies.set({"dedupe_window": 100.0})
    target = "/pub?topic=t&defer=60000&ids=true&id=7"
    for_all, for_c = (one.post(f"{target}{more}", b"x").json["ids"][0] for more in ("", "&channel=c"))
    cancel = "/v2/topic/cancel?topic=t&publisher_id=7"
    assert one.post(f"{cancel}&channel=c").json["id"] == for_c
    assert one.post(f"{cancel}&channel=c").json["id"] == for_all, "the message for all channels"
    assert one.post(cancel).outcome == (404, "MESSAGE_NOT_DEFERRED")


def test_by_the_id_of_its_publisher() -> None:
    one = web()
    topic = one.core.topic()
    topic.policies.set({"dedupe_window": 100.0})
    headers = [encode_headers({"id": "order 7 ä"})]
    topic.put([b"a"], 60_000, lambda error: None, headers)
    one.core.turn()
    reply = one.post("/v2/topic/cancel?topic=t&publisher_id=order+7+%C3%A4")
    assert (reply.status, reply.json["channels"]) == (200, ["c"])
    assert one.post("/v2/topic/cancel?topic=t&publisher_id=other").outcome == (404, "MESSAGE_NOT_DEFERRED")
    topic.put([b"a"], 60_000, lambda error: None, headers)
    one.core.turn()
    assert deferred(one) == 0  # a cancelled message is a known one


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("", (400, "MISSING_ARG_TOPIC")),
        ("topic=none&id=0123456789abcdef", (404, "TOPIC_NOT_FOUND")),
        ("topic=t", (400, "MISSING_ARG_ID")),
        ("topic=t&id=", (400, "INVALID_ID")),
        ("topic=t&id=0123456789abcde", (400, "INVALID_ID")),
        ("topic=t&id=0123456789abcdeg", (400, "INVALID_ID")),
        ("topic=t&publisher_id=1", (400, "DEDUPE_WINDOW_REQUIRED")),
        ("topic=t&publisher_id=", (400, "INVALID_ID")),
        ("topic=t&publisher_id=%FF", (400, "INVALID_ID")),
        ("topic=t&publisher_id=1&id=0123456789abcdef", (400, "INVALID_ID")),
        ("topic=t&id=0123456789abcdef&channel=!", (400, "INVALID_ARG_CHANNEL")),
        ("topic=t&id=0123456789abcdef&channel=none", (404, "CHANNEL_NOT_FOUND")),
        ("topic=t&id=0123456789abcdef", (404, "MESSAGE_NOT_DEFERRED")),
        ("topic=t&id=ffffffffffffffff", (404, "MESSAGE_NOT_DEFERRED")),
    ],
)
def test_what_is_refused(query: str, outcome: tuple[int, str]) -> None:
    assert web().post(f"/v2/topic/cancel?{query}").outcome == outcome


def test_the_same_sequence_of_another_node() -> None:
    one = web()
    message_id = publish(one)
    other = f"{int(message_id, 16) ^ 1 << 60:016x}"
    assert one.post(f"/v2/topic/cancel?topic=t&id={other}").outcome == (404, "MESSAGE_NOT_DEFERRED")
    assert deferred(one) == 1


def test_the_topic_is_deleted_meanwhile() -> None:
    one = web()
    message_id = publish(one)
    browser = one.connect()
    one.writer.is_held_back = True
    browser.send(
        f"POST /v2/topic/cancel?topic=t&id={message_id} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
    )
    one.turn()
    one.core.broker.delete_topic("t")
    one.writer.is_held_back = False
    (reply,) = browser.read()
    assert reply.outcome == (404, "TOPIC_NOT_FOUND")
