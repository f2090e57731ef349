"""Moving a channel in its topic's log, and looking at messages without consuming them."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.core import peek as peek_module
from nsqtw.errors import BackendError
from tests.core.policy.harness import put
from tests.http.broker_fixture import DONE, Web, request


def web(**options: Any) -> Web:
    found = Web(**{"retention_time": 3600.0, **options})
    assert found.post("/topic/create?topic=t").outcome == DONE
    assert found.post("/channel/create?topic=t&channel=c").outcome == DONE
    return found


def publish(one: Web, *bodies: bytes) -> None:
    for body in bodies:
        one.post("/pub?topic=t", body)


def ids(one: Web) -> dict[str, str]:
    """The ids of what waits, by the body."""
    found = one.get("/v2/channel/messages?topic=t&channel=c&limit=1000").json["messages"]
    return {message["body"]: message["id"] for message in found}


def consume(one: Web, *, finish: bool = True) -> list[bytes]:
    reader = one.core.reader()
    messages = reader.read()
    if finish:
        reader.finish(*(message.id for message in messages))
    reader.leave()
    return [message.body for message in messages]


def seek(one: Web, to: str) -> dict[str, int]:
    """Move the channel, which a dry run says before without changing anything."""
    path = f"/v2/channel/seek?topic=t&channel=c&to={to}"
    before = counts(one)
    foretold = one.post(f"{path}&dry_run=true")
    assert (foretold.status, counts(one)) == (200, before), foretold.body
    reply = one.post(f"{path}&dry_run=false")
    assert reply.status == 200, reply.body
    moved: dict[str, int] = reply.json
    assert foretold.json == moved
    return {name: moved[name] for name in ("skipped", "replayed", "depth")}


def counts(one: Web) -> tuple[int, int]:
    """Depth and message_count of the channel."""
    (topic,) = one.get("/stats?format=json&topic=t").json["topics"]
    (channel,) = topic["channels"]
    return channel["depth"], channel["message_count"]


# -- seek


def test_what_was_finished_comes_again() -> None:
    one = web()
    publish(one, b"a", b"b", b"c")
    assert consume(one) == [b"a", b"b", b"c"]
    assert seek(one, "earliest") == {"skipped": 0, "replayed": 3, "depth": 3}
    assert counts(one) == (3, 6)
    assert consume(one) == [b"a", b"b", b"c"]


def test_what_is_skipped_is_said() -> None:
    one = web()
    publish(one, b"a", b"b", b"c")
    assert seek(one, "latest") == {"skipped": 3, "replayed": 0, "depth": 0}
    assert counts(one) == (0, 3)
    publish(one, b"d")
    assert consume(one) == [b"d"]


def test_a_channel_goes_on_at_a_message() -> None:
    one = web()
    publish(one, b"a", b"b", b"c")
    known = ids(one)
    consume(one)
    assert seek(one, known["b"]) == {"skipped": 0, "replayed": 2, "depth": 2}
    assert consume(one) == [b"b", b"c"]
    publish(one, b"d", b"e")
    assert seek(one, ids(one)["e"].upper()) == {"skipped": 1, "replayed": 0, "depth": 1}


def test_a_channel_goes_on_at_a_time() -> None:
    one = web()
    publish(one, b"a")
    one.core.wait(10.0)
    one.clock.advance(0)
    publish(one, b"b")
    times = [m["timestamp"] for m in one.get("/v2/channel/messages?topic=t&channel=c").json["messages"]]
    consume(one)
    assert seek(one, str(times[0] // 10**6 + 1))["replayed"] == 1
    assert consume(one) == [b"b"]
    assert seek(one, "2001-01-01T00:00:00Z")["replayed"] == 2
    assert seek(one, "2999-01-01T00:00:00%2B02:00")["skipped"] == 2
    assert seek(one, "0")["replayed"] == 2


def test_what_is_in_flight_beyond_the_target_comes_again_and_cannot_be_finished_before() -> None:
    one = web()
    publish(one, b"a", b"b")
    reader = one.core.reader()
    first, second = reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    assert seek(one, second.id.decode()) == {"skipped": 0, "replayed": 0, "depth": 1}
    assert reader.finish(first.id) == [], "it is before the place, and still in flight"
    assert reader.finish(second.id) == [(second.id, "ID not in flight")]
    reader.channel.set_ready(reader.consumer, 1)
    (again,) = reader.read()
    assert (again.body, again.attempts) == (b"b", 1)
    assert reader.finish(again.id) == []


def test_a_move_backwards_keeps_what_is_unfinished_before_the_target() -> None:
    one = web()
    publish(one, b"a", b"b", b"c", b"d")
    reader = one.core.reader(ready=3)
    first, second, third = reader.read()
    reader.requeue(first.id, 60.0)
    reader.channel.set_ready(reader.consumer, 0)
    reader.requeue(second.id)
    assert seek(one, third.id.decode()) == {"skipped": 0, "replayed": 0, "depth": 3}
    assert one.core.channel().deferred_count == 1
    reader.channel.set_ready(reader.consumer, 100)
    assert [(message.body, message.attempts) for message in reader.read()] == [(b"b", 2), (b"c", 1), (b"d", 1)]
    one.core.wait(61.0)
    assert b"a" in reader.bodies()


@pytest.mark.parametrize("to", ["earliest", "0", "1700000000"])
@pytest.mark.parametrize("retention_time", [0.0, 3600.0])
def test_a_place_before_the_channel_skips_nothing_whatever_the_log_still_has(to: str, retention_time: float) -> None:
    """A message waits, one is in flight, one deferred, three are finished; retention may have been set after that."""
    one = web(retention_time=0.0)
    publish(one, *[b"%d" % number for number in range(6)])
    reader = one.core.reader(ready=5)
    got = reader.read()
    reader.finish(*[message.id for message in got[:3]])
    reader.channel.set_ready(reader.consumer, 0)
    assert reader.requeue(got[3].id, 60.0) is None
    if retention_time:
        one.core.save()
        assert one.post(f"/v2/topic/retention?topic=t&time={retention_time:.0f}s").status == 200
    assert seek(one, to) == {"skipped": 0, "replayed": 0, "depth": 1}
    channel = one.core.channel()
    assert (channel.depth, channel.in_flight_count, channel.deferred_count) == (1, 1, 1)
    assert reader.finish(got[4].id) == []
    reader.channel.set_ready(reader.consumer, 100)
    assert reader.bodies() == [b"5"]
    one.core.wait(61.0)
    assert b"3" in reader.bodies()


@pytest.mark.parametrize("to", ["latest", "2999-01-01T00:00:00Z"])
def test_a_place_behind_all_messages_skips_what_is_in_flight(to: str) -> None:
    one = web()
    publish(one, b"a", b"b")
    reader = one.core.reader()
    first, second = reader.read()
    assert reader.requeue(first.id, 60.0) is None
    assert seek(one, to) == {"skipped": 2, "replayed": 0, "depth": 0}
    assert reader.finish(second.id) == [(second.id, "ID not in flight")]


def test_the_place_of_the_channel_itself_skips_nothing() -> None:
    one = web()
    publish(one, b"a", b"b")
    waiting = ids(one)["b"]
    reader = one.core.reader(ready=1)
    (first,) = reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    assert seek(one, waiting) == {"skipped": 0, "replayed": 0, "depth": 1}
    assert reader.finish(first.id) == []


def test_what_is_delivered_early_again_does_not_hide_what_is_skipped() -> None:
    """The deferred messages behind the target were finished before the channel came to their place in the log."""
    one = web(mem_queue_size=1, max_req_timeout=600.0)
    publish(one, *[b"%d" % number for number in range(6)])
    target = ids(one)["4"]
    for _ in range(2):
        one.post("/pub?topic=t&defer=1000", b"early")
    one.core.wait(2.0)
    reader, early = one.core.reader(ready=1), 0
    while early < 2:
        (message,) = reader.read()
        if message.body == b"early":
            early += 1
            reader.channel.set_ready(reader.consumer, 1 - early // 2)
        reader.finish(message.id)
    unfinished = one.core.channel().unfinished_count
    assert unfinished > 2, "some are before the target"
    assert seek(one, target) == {"skipped": unfinished - 2, "replayed": 2, "depth": 4}
    assert counts(one) == (4, 10)


@pytest.mark.parametrize("taken_meanwhile", [0, 2])
def test_what_was_delivered_ahead_by_priority_does_not_hide_what_is_skipped(
    monkeypatch: pytest.MonkeyPatch, taken_meanwhile: int
) -> None:
    """It is looked for in several turns, in which the channel goes on."""
    monkeypatch.setattr("nsqtw.core.for_others._LOOKS", 1)
    monkeypatch.setattr("nsqtw.core.unread.SEGMENT_BYTES", 10)
    monkeypatch.setattr("nsqtw.core.unread._PART_MESSAGES", 2)
    one = web()
    one.core.channel().policies.set({"priority": True})
    for number in range(5):
        put(one.core, b"low %d" % number, priority="low")
    for number in range(3):
        put(one.core, b"high %d" % number, priority="high")
    target = ids(one)["high 0"]
    reader = one.core.reader(ready=3)
    reader.finish(*[message.id for message in reader.read()])
    reader.channel.set_ready(reader.consumer, 0)
    browser = one.connect()
    browser.send(request("POST", f"/v2/channel/seek?topic=t&channel=c&to={target}"))
    assert browser.read() == []
    reader.channel.set_ready(reader.consumer, taken_meanwhile)
    got = reader.read()
    assert [message.body for message in got] == [b"low 0", b"low 1"][:taken_meanwhile]
    reader.finish(*[message.id for message in got[:1]])
    reader.channel.set_ready(reader.consumer, 0)
    for _ in range(20):
        one.core.now += 0.01
        one.clock.advance(0.01)
        one.turn()
    (reply,) = browser.read()
    finished = min(1, taken_meanwhile)
    assert {name: reply.json[name] for name in ("skipped", "replayed", "depth")} == {
        "skipped": 5 - finished,
        "replayed": 3,
        "depth": 3,
    }


def test_all_states_count_in_what_is_skipped() -> None:
    """In flight, in flight again, requeued, deferred by a publisher and by a consumer, unread; three were finished."""
    one = web(max_req_timeout=600.0)
    one.post("/pub?topic=t&defer=60000", b"late")
    publish(one, *[b"%d" % number for number in range(8)])
    known = ids(one)
    reader = one.core.reader(ready=5)
    got = {message.body: message for message in reader.read()}
    reader.channel.set_ready(reader.consumer, 0)
    reader.finish(got[b"1"].id)
    assert reader.requeue(got[b"2"].id, 60.0) is None
    assert reader.requeue(got[b"3"].id) is None
    assert seek(one, known["7"]) == {"skipped": 7, "replayed": 0, "depth": 1}


@pytest.mark.parametrize(
    ("bound", "to", "max_drops"),
    [
        ({"max_depth": 2}, "earliest", 3),
        ({"max_depth": 2}, "latest", 0),
        ({"max_depth": 9}, "earliest", 0),
        ({"max_age": 100}, "earliest", 0),
        ({"max_age": 10}, "earliest", 4),
        ({"max_bytes": 10_000}, "earliest", 0),
        ({"max_bytes": 100}, "earliest", 5),
        ({"max_depth": 2, "overflow": "reject"}, "earliest", 0),
    ],
)
def test_what_a_bound_drops_afterwards_is_said(bound: dict[str, Any], to: str, max_drops: int) -> None:
    one = web()
    publish(one, *[b"%d" % number for number in range(4)])
    one.core.wait(50.0)
    one.clock.advance(0)
    publish(one, b"4")
    consume(one)
    one.core.channel().policies.set({"overflow": "drop_oldest", **bound})
    one.core.wait(1.0)
    dry = one.post(f"/v2/channel/seek?topic=t&channel=c&to={to}&dry_run=true").json
    assert dry["max_drops"] == max_drops
    assert one.post(f"/v2/channel/seek?topic=t&channel=c&to={to}").json == dry
    for _ in range(10):
        one.core.wait(0.1)
    dropped = one.core.channel().dropped_count
    assert dropped == max_drops if "max_bytes" not in bound else dropped <= max_drops
    assert one.core.channel().depth == dry["depth"] - dropped


def test_deferred_messages_of_a_replay_are_never_early() -> None:
    one = web(max_req_timeout=600.0)
    one.post("/pub?topic=t&defer=60000", b"late")
    publish(one, b"a")
    assert seek(one, "earliest") == {"skipped": 0, "replayed": 0, "depth": 2}
    assert consume(one) == [b"a"]
    assert (one.core.channel().depth, one.core.channel().deferred_count) == (0, 1)
    one.core.wait(61.0)
    assert consume(one) == [b"late"]


def test_a_move_survives_a_crash() -> None:
    one = web()
    publish(one, b"a", b"b")
    consume(one)
    seek(one, "earliest")
    one.core.crash()
    assert one.core.reader().bodies() == [b"a", b"b"]


def test_it_is_answered_when_it_is_saved() -> None:
    one = web()
    publish(one, b"a")
    one.writer.is_held_back = True
    browser = one.connect()
    browser.send(request("POST", "/v2/channel/seek?topic=t&channel=c&to=latest"))
    assert browser.read() == []
    one.writer.is_held_back = False
    (reply,) = browser.read()
    assert reply.json["skipped"] == 1


def test_messages_for_other_channels_are_not_counted() -> None:
    one = web()
    one.core.channel("other")
    for target in ("/pub?topic=t&channel=other", "/pub?topic=t"):
        for _ in range(5):
            one.post(target, b"x")
    assert len(consume(one)) == 5
    path = "/v2/channel/seek?topic=t&channel=c&to=earliest"
    assert [one.post(f"{path}{more}").json["replayed"] for more in ("&dry_run=true", "")] == [5, 5]


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_answered_when_a_long_log_was_looked_through(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    monkeypatch.setattr("nsqtw.core.for_others._LOOKS", 1)
    monkeypatch.setattr("nsqtw.core.log.SEGMENT_BYTES", 10)
    one = web()
    one.core.channel("other")
    for _ in range(5):
        one.post("/pub?topic=t&channel=other", b"x")
        publish(one, b"x")
    consume(one)
    browser = one.connect()
    browser.send(request("POST", "/v2/channel/seek?topic=t&channel=c&to=earliest"))
    assert browser.read() == []
    publish(one, b"more")

    def fail(sequence: int) -> None:
        raise BackendError("EIO")

    if fails:
        monkeypatch.setattr(one.core.topic().log, "directed", fail)
    for _ in range(20):
        one.core.now += 0.01
        one.clock.advance(0.01)
        one.turn()
    (reply,) = browser.read()
    if fails:
        assert reply.outcome == (500, "INTERNAL_ERROR")
    else:
        assert (reply.json["replayed"], reply.json["depth"]) == (5, 6)


def test_a_channel_that_is_deleted_while_a_long_log_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.core.for_others._LOOKS", 1)
    monkeypatch.setattr("nsqtw.core.log.SEGMENT_BYTES", 10)
    one = web()
    for _ in range(5):
        publish(one, b"x")
    browser = one.connect()
    browser.send(request("POST", "/v2/channel/seek?topic=t&channel=c&to=earliest"))
    assert browser.read() == []
    one.broker.delete_topic("t")
    for _ in range(20):
        one.core.now += 0.01
        one.clock.advance(0.01)
        one.turn()
    (reply,) = browser.read()
    assert reply.outcome == (404, "CHANNEL_NOT_FOUND")


def test_a_channel_that_is_deleted_meanwhile() -> None:
    one = web()
    one.writer.is_held_back = True
    browser = one.connect()
    browser.send(request("POST", "/v2/channel/seek?topic=t&channel=c&to=latest"))
    one.broker.topics["t"].delete_channel("c")
    one.writer.is_held_back = False
    (reply,) = browser.read()
    assert reply.outcome == (404, "CHANNEL_NOT_FOUND")


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("", (400, "MISSING_ARG_TOPIC")),
        ("topic=t", (400, "MISSING_ARG_CHANNEL")),
        ("topic=no&channel=c&to=latest", (404, "TOPIC_NOT_FOUND")),
        ("topic=t&channel=no&to=latest", (404, "CHANNEL_NOT_FOUND")),
        ("topic=t&channel=e%23ephemeral&to=latest", (400, "EPHEMERAL_CHANNEL")),
        ("topic=t&channel=c", (400, "MISSING_ARG_TO")),
        ("topic=t&channel=c&to=", (400, "INVALID_TO")),
        ("topic=t&channel=c&to=yesterday", (400, "INVALID_TO")),
        ("topic=t&channel=c&to=-5", (400, "INVALID_TO")),
        ("topic=t&channel=c&to=2026-01-01T00:00:00", (400, "INVALID_TO")),
        ("topic=t&channel=c&to=2026-13-01T00:00:00Z", (400, "INVALID_TO")),
        ("topic=t&channel=c&to=latest&dry_run=1", (400, "INVALID_DRY_RUN")),
        ("topic=t&channel=c&to=0123456789abcdef&dry_run=true", (404, "MESSAGE_NOT_FOUND")),
        ("topic=t&channel=c&to=0123456789abcdef", (404, "MESSAGE_NOT_FOUND")),
    ],
)
def test_refusals(query: str, outcome: tuple[int, str]) -> None:
    one = web()
    one.post("/channel/create?topic=t&channel=e%23ephemeral")
    assert one.post(f"/v2/channel/seek?{query}").outcome == outcome


# -- where a new channel starts


def test_a_new_channel_starts_at_the_oldest_message_kept() -> None:
    one = web()
    publish(one, b"a", b"b")
    consume(one)
    assert one.post("/channel/create?topic=t&channel=d&start=earliest").outcome == DONE
    assert one.post("/channel/create?topic=t&channel=e&start=latest").outcome == DONE
    one.core.crash()
    assert one.core.reader("d").bodies() == [b"a", b"b"]
    assert one.core.reader("e").bodies() == []


def test_the_options_say_where_a_channel_starts_that_sub_makes() -> None:
    one = web(channel_start="earliest")
    publish(one, b"a")
    consume(one)
    assert one.core.reader("d").bodies() == [b"a"]
    assert one.post("/channel/create?topic=t&channel=e&start=latest").outcome == DONE
    assert one.core.reader("e").bodies() == []


@pytest.mark.parametrize(
    ("query", "word"),
    [("channel=d&start=first", "INVALID_START"), ("channel=d%23ephemeral&start=earliest", "EPHEMERAL_CHANNEL")],
)
def test_refusals_of_a_start(query: str, word: str) -> None:
    assert web().post(f"/channel/create?topic=t&{query}").outcome == (400, word)


# -- peek


def peek(one: Web, state: str, **more: object) -> list[dict[str, Any]]:
    query = "".join(f"&{name}={value}" for name, value in more.items())
    reply = one.get(f"/v2/channel/messages?topic=t&channel=c&state={state}{query}")
    assert reply.status == 200, reply.body
    found: list[dict[str, Any]] = reply.json["messages"]
    return found


def test_looking_changes_nothing() -> None:
    one = web(max_req_timeout=600.0)
    one.post("/pub?topic=t&defer=60000", b"late")
    publish(one, b"a", b"b", b"c", b"\xff")
    reader = one.core.reader(ready=2)
    first, second = reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    reader.requeue(first.id)
    before = (counts(one), one.core.channel().in_flight_count, one.core.channel().deferred_count)
    for _ in range(2):
        ready = [(found["body"], found["encoding"], found["attempts"]) for found in peek(one, "ready")]
        assert ready == [("a", "text", 1), ("c", "text", 0), ("/w==", "base64", 0)]
        (late,) = peek(one, "deferred")
        assert (late["body"], late["attempts"]) == ("late", 0)
        assert abs(late["due"] - late["timestamp"] - 60 * 10**9) < 2 * 10**9
        (flying,) = peek(one, "in_flight")
        assert (flying["id"], flying["body"], flying["attempts"]) == (second.id.decode(), "b", 1)
        assert flying["deadline"] > flying["timestamp"]
        assert flying["consumer"]["remote_address"] == "1.2.3.4:5"
    assert before == (counts(one), one.core.channel().in_flight_count, one.core.channel().deferred_count)


def test_an_answer_has_a_bound() -> None:
    one = web(max_msg_size=1 << 20)
    for _ in range(3):
        one.post("/pub?topic=t", b"x" * 700_000)
    reply = one.get("/v2/channel/messages?topic=t&channel=c&limit=1000")
    assert (len(reply.json["messages"]), reply.json["more"]) == (2, True)
    seek(one, "latest")
    publish(one, *[b"y"] * 20)
    reply = one.get("/v2/channel/messages?topic=t&channel=c")
    assert (len(reply.json["messages"]), reply.json["more"]) == (10, True)


def test_what_waits_in_a_topic() -> None:
    one = Web()
    one.post("/topic/create?topic=t")
    publish(one, b"a", b"b")
    reply = one.get("/v2/topic/messages?topic=t&limit=1").json
    assert ([found["body"] for found in reply["messages"]], reply["more"]) == (["a"], True)
    assert len(one.get("/v2/topic/messages?topic=t").json["messages"]) == 2
    one.post("/channel/create?topic=t&channel=c")
    assert one.get("/v2/topic/messages?topic=t").json == {"messages": [], "more": False}


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("topic=t", (400, "MISSING_ARG_CHANNEL")),
        ("topic=t&channel=no", (404, "CHANNEL_NOT_FOUND")),
        ("topic=t&channel=e%23ephemeral", (400, "EPHEMERAL_CHANNEL")),
        ("topic=t&channel=c&state=all", (400, "INVALID_STATE")),
        ("topic=t&channel=c&limit=0", (400, "INVALID_LIMIT")),
    ],
)
def test_refusals_of_a_look(query: str, outcome: tuple[int, str]) -> None:
    one = web()
    one.post("/channel/create?topic=t&channel=e%23ephemeral")
    assert one.get(f"/v2/channel/messages?{query}").outcome == outcome


def pages(one: Web, path: str) -> list[list[str]]:
    """The bodies of all pages of messages."""
    found, after = [], ""
    while True:
        answer = one.get(path + after).json
        found.append([message["body"] for message in answer["messages"]])
        if "next" not in answer:
            assert not answer["more"]
            return found
        after = f"&after={answer['next']}"


@pytest.mark.parametrize("page_rows", [1, 2, 1024])
def test_all_that_waits_is_shown_page_by_page(page_rows: int) -> None:
    one = web(page_rows=page_rows)
    publish(one, *[b"%d" % number for number in range(7)])
    reader = one.core.reader(ready=3)
    for message in reversed(reader.read()):
        reader.requeue(message.id)
    reader.leave()
    one.crash()
    for limit in (1, 2, 3, 7):
        shown = pages(one, f"/v2/channel/messages?topic=t&channel=c&limit={limit}")
        assert [body for page in shown for body in page] == ["0", "1", "2", "3", "4", "5", "6"]
        assert all(len(page) == limit for page in shown[:-1])


@pytest.mark.parametrize("page_rows", [1, 1024])
def test_what_is_deferred_is_shown_page_by_page_by_its_time(page_rows: int) -> None:
    one = web(max_req_timeout=600.0, page_rows=page_rows)
    for delay in (50, 20, 40, 30, 30, 10):
        one.post(f"/pub?topic=t&defer={delay}000", b"%d" % delay)
    one.crash()
    shown = pages(one, "/v2/channel/messages?topic=t&channel=c&state=deferred&limit=2")
    assert shown == [["10", "20"], ["30", "30"], ["40", "50"]]


def test_what_waits_in_a_topic_is_shown_page_by_page() -> None:
    one = Web()
    one.post("/topic/create?topic=t")
    publish(one, b"a", b"b", b"c")
    assert pages(one, "/v2/topic/messages?topic=t&limit=2") == [["a", "b"], ["c"]]


def test_messages_are_searched_by_a_text_in_their_bodies_and_headers() -> None:
    one = web(max_msg_size=1000, max_body_size=10_000)
    publish(one, b"an Apple", b"pear", b"apple pie", "\u00e4pfel".encode())
    put(one.core, b"with headers", color="Red", kind="fruit")
    put(one.core, b"without", color="blue", kind="red")
    path = "/v2/channel/messages?topic=t&channel=c&limit=1"
    assert sum(pages(one, f"{path}&contains=APPLE"), []) == ["an Apple", "apple pie"]
    assert sum(pages(one, f"{path}&contains=color:%20red"), []) == ["with headers"]
    assert sum(pages(one, f"{path}&contains=red"), []) == ["with headers", "without"]
    assert sum(pages(one, f"{path}&contains=%C3%A4pf"), []) == ["\u00e4pfel"]
    assert pages(one, f"{path}&contains=color:%20green") == [[]]
    assert sum(pages(one, f"{path}&contains={ids(one)['pear'].upper()}"), []) == ["pear"]
    reader = one.core.reader(ready=2)
    for message in reader.read():
        reader.requeue(message.id)
    reader.leave()
    assert sum(pages(one, f"{path}&contains=apple"), []) == ["an Apple", "apple pie"]
    for wrong, word in (("after=x", "INVALID_AFTER"), ("contains=", "INVALID_CONTAINS")):
        assert one.get(f"{path}&{wrong}").outcome == (400, word)
    assert one.get(f"{path}&contains={'x' * 256}").outcome == (400, "INVALID_CONTAINS")


def test_a_search_has_a_bound_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peek_module, "MAX_WALKED_BYTES", 1)
    monkeypatch.setattr(peek_module, "MAX_ROWS", 1)
    one = web()
    publish(one, *[b"%d" % number for number in range(6)])
    reader = one.core.reader(ready=2)
    for message in reader.read():
        reader.requeue(message.id)
    reader.leave()
    shown = pages(one, "/v2/channel/messages?topic=t&channel=c&contains=5")
    assert len(shown) > 2 and sum(shown, []) == ["5"]
