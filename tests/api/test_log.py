"""A topic's log over HTTP: what its body is, where a reader goes on, and waiting for more."""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

import pytest

from nsqtw.api.log import CRC, HEADERS, LOST, MAGIC, MAX_BYTES, MESSAGES, SECTION
from nsqtw.client.log_sections import messages_of
from nsqtw.message_headers import encode_headers
from tests.core.harness import Message, messages
from tests.http.broker_fixture import DONE, Log, Reply, Web, request


class Section(NamedTuple):
    """One section of a body, read as its module says."""

    kind: int
    first: int
    count: int
    delay_ms: int
    due_ms: int
    messages: list[Message]


def sections(body: bytes) -> list[Section]:
    found, offset = [], 0
    while offset < len(body):
        magic, kind, first, count, length, delay_ms, due_ms, crc = SECTION.unpack_from(body, offset)
        head_end = offset + SECTION.size
        assert magic == MAGIC
        assert CRC.unpack_from(body, head_end) == (crc32(body[offset:head_end]),)
        frames = body[head_end + CRC.size : head_end + CRC.size + length]
        assert crc32(frames) == crc
        found.append(Section(kind, first, count, delay_ms, due_ms, messages(frames) if kind != HEADERS else []))
        offset = head_end + CRC.size + length
    return found


def numbers(reply: Reply) -> dict[str, int]:
    """Next, End, Earliest, Messages and Lost."""
    prefix = "x-nsqtw-"
    return {name.removeprefix(prefix): int(text) for name, text in reply.headers.items() if name.startswith(prefix)}


def bodies(reply: Reply) -> list[bytes]:
    assert reply.status == 200, reply.body
    found = [message.body for section in sections(reply.body) for message in section.messages]
    assert numbers(reply)["messages"] == len(found)
    return found


def web(**options: Any) -> Web:
    found = Web(retention_time=3600.0, **options)
    assert found.post("/topic/create?topic=t").outcome == DONE
    return found


def test_a_reader_goes_from_next_to_next() -> None:
    one = web()
    one.post("/mpub?topic=t", b"a\nb\nc")
    first = one.get("/v2/topic/log?topic=t&from=earliest&limit=1")
    assert bodies(first) == [b"a", b"b", b"c"], "a segment at the least"
    assert first.headers["content-type"] == "application/vnd.nsqtw.log; version=1"
    found = numbers(first)
    assert found["next"] == found["end"] == found["earliest"] + 3
    one.post("/pub?topic=t", b"d")
    second = one.get(f"/v2/topic/log?topic=t&from={found['next']}")
    assert bodies(second) == [b"d"]
    third = one.get(f"/v2/topic/log?topic=t&from={numbers(second)['next']}")
    assert bodies(third) == []
    assert numbers(third)["next"] == numbers(third)["end"] == numbers(second)["next"]
    assert bodies(one.get(f"/v2/topic/log?topic=t&from={found['earliest'] + 1}")) == [b"b", b"c", b"d"]
    assert bodies(one.get("/v2/topic/log?topic=t&from=latest")) == []
    assert bodies(one.get("/v2/topic/log?topic=t")) == [b"a", b"b", b"c", b"d"], "all when nothing is said"


def test_messages_are_as_a_consumer_gets_them() -> None:
    one = web()
    one.post("/pub?topic=t", b"a")
    ((_, first, _, _, _, (message,)),) = sections(one.get("/v2/topic/log?topic=t").body)
    (given,) = one.core.reader().read()
    assert (message.id, message.attempts, message.timestamp_ns) == (given.id, 1, given.timestamp_ns)
    assert int(message.id, 16) & ((1 << 53) - 1) == first, "its position is a part of its id"


def test_deferred_messages_say_when_they_are_due() -> None:
    one = web(max_req_timeout=60.0)
    one.post("/pub?topic=t&defer=5000", b"a")
    one.post("/pub?topic=t", b"b")
    found = sections(one.get("/v2/topic/log?topic=t").body)
    published_ms = found[0].messages[0].timestamp_ns // 10**6
    assert [(section.delay_ms, section.due_ms) for section in found] == [(5000, published_ms + 5000), (0, 0)]


def test_lost_messages_have_a_section_of_their_own() -> None:
    one = web()
    for body in (b"a", b"b", b"c"):
        one.post("/pub?topic=t", body)
    one.crash()
    del one.core.backend.queue("t")._segments[1]
    reply = one.get("/v2/topic/log?topic=t")
    found = sections(reply.body)
    assert [(section.kind, section.count) for section in found] == [(MESSAGES, 1), (LOST, 1), (MESSAGES, 1)]
    assert found[1].first == found[0].first + 1
    assert numbers(reply)["lost"] == 1


def test_headers_are_shown_to_a_reader_who_asks() -> None:
    one = web()
    one.post("/mpub?topic=t", b"a\nb")
    one.ask("POST", "/pub?topic=t", b"c", X_NSQ_K="v")
    one.post("/pub?topic=t", b"d")
    plain = one.get("/v2/topic/log?topic=t")
    asked = one.get("/v2/topic/log?topic=t&headers=true")
    assert [section.kind for section in sections(plain.body)] == [MESSAGES] * 3
    assert [section.kind for section in sections(asked.body)] == [MESSAGES, HEADERS, MESSAGES, MESSAGES]
    of_headers, of_messages = sections(asked.body)[1:3]
    assert of_headers[1:5] == of_messages[1:5], "it has the place of the section behind it"
    assert numbers(plain) == numbers(asked)
    assert messages_of(asked.body) == ([b"a", b"b", b"c", b"d"], [{}, {}, {"k": "v"}, {}])
    assert messages_of(plain.body) == ([b"a", b"b", b"c", b"d"], [{}] * 4)


def test_messages_for_one_channel_are_left_out() -> None:
    one = web()
    one.post("/pub?topic=t", b"a")
    one.core.channel("c")
    one.core.topic().put([b"again"], 0, lambda error: None, [encode_headers({"k": "v"})], channel="c")
    one.core.turn()
    first = one.get("/v2/topic/log?topic=t&headers=true")
    assert (bodies(first), numbers(first)["messages"]) == ([b"a"], 1)
    assert numbers(first)["next"] == numbers(first)["end"], "the reader goes on behind them"
    assert bodies(one.get(f"/v2/topic/log?topic=t&from={numbers(first)['next'] - 1}")) == []


def test_positions_of_a_time() -> None:
    one = web()
    times = []
    for body in (b"a", b"b", b"c"):
        one.post("/pub?topic=t", body)
        one.core.wait(10.0)
    for section in sections(one.get("/v2/topic/log?topic=t").body):
        times += [message.timestamp_ns // 10**6 for message in section.messages]
    earliest = numbers(one.get("/v2/topic/log?topic=t"))["earliest"]

    def found(query: str) -> tuple[int, int]:
        answer = one.get(f"/v2/topic/log/range?topic=t{query}").json
        assert (answer["earliest"], answer["latest"]) == (earliest, earliest + 3)
        return answer["first"] - earliest, answer["end"] - earliest

    assert found("") == (0, 3)
    assert found(f"&start={times[0] + 1}") == (1, 3)
    assert found(f"&start={times[0]}&end={times[1]}") == (0, 1), "the end is not part of it"
    assert found(f"&start={times[1] + 1}&end={times[0]}") == (2, 2), "never less than nothing"
    assert found(f"&start={times[2] + 1}&end={times[2] + 70_000}") == (3, 3)


def test_the_lag_of_a_reader_counts_messages_and_not_positions() -> None:
    one = web()
    for body in (b"a", b"b"):
        one.post("/pub?topic=t", body)
        one.core.wait(10.0)
    one.crash()  # the positions of the next messages begin behind a gap
    one.post("/pub?topic=t", b"c")
    one.core.wait(5.0)
    found = sections(one.get("/v2/topic/log?topic=t").body)
    positions = [section.first + index for section in found for index in range(section.count)]
    assert positions[2] > positions[1] + 1

    def lag(position: int | str) -> tuple[int, float]:
        answer = one.get(f"/v2/topic/log/lag?topic=t&from={position}").json
        assert (answer["earliest"], answer["latest"]) == (positions[0], positions[2] + 1)
        return answer["messages"], answer["age_ms"]

    ages = [lag(position)[1] for position in positions]
    assert [lag(position)[0] for position in positions] == [3, 2, 1]
    # A part of a millisecond is cut off.
    assert abs(ages[0] - ages[1] - 10_000) <= 1
    assert abs(ages[2] - 5_000) <= 1
    assert lag(positions[1] + 1) == (1, ages[2]), "a position in the gap"
    assert lag(0) == lag("earliest") == (3, ages[0])
    assert lag(positions[2] + 1) == lag("latest") == lag(positions[2] + 99) == (0, 0)


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("", (400, "MISSING_ARG_TOPIC")),
        ("topic=unknown", (404, "TOPIC_NOT_FOUND")),
        ("topic=t&from=x", (400, "INVALID_FROM")),
    ],
)
def test_refusals_of_a_lag(query: str, outcome: tuple[int, str]) -> None:
    assert web().get(f"/v2/topic/log/lag?{query}").outcome == outcome


def test_who_waits_is_answered_when_there_is_something() -> None:
    one = web()
    reader = one.connect()
    reader.send(request("GET", "/v2/topic/log?topic=t&wait=30000"))
    assert reader.read() == []
    one.post("/pub?topic=t", b"a")
    (reply,) = reader.read()
    assert bodies(reply) == [b"a"]
    assert all(call.getTime() < 30 for call in one.clock.getDelayedCalls())
    assert bodies(reader.ask("GET", "/v2/topic/log?topic=t&wait=30000")) == [b"a"], "at once when there is something"


def test_it_leaves_a_line_in_the_access_log_as_others() -> None:
    one = web()
    targets = ("/v2/topic/log?topic=t", "/v2/topic/log/range?topic=t", "/v2/topic/log?topic=t&wait=10", "/v2/topic/log")
    with Log() as lines:
        for target in targets:
            reader = one.connect()
            reader.send(request("GET", target))
            one.clock.advance(1)
            reader.read()
    assert [line.partition(" (")[0] for line in lines] == [
        *(f"info: 200 GET {target}" for target in targets[:3]),
        f"info: 400 GET {targets[3]}",
    ]


def test_who_waits_in_vain_is_answered_too() -> None:
    one = web()
    reader = one.connect()
    reader.send(request("GET", "/v2/topic/log?topic=t&from=latest&wait=2000"))
    assert reader.read() == []
    one.clock.advance(2.0)
    (reply,) = reader.read()
    assert bodies(reply) == []


def test_nobody_waits_for_a_client_that_is_gone_or_a_topic_that_is_deleted() -> None:
    one = web()
    gone, waiting = one.connect(), one.connect()
    for reader in (gone, waiting):
        reader.send(request("GET", "/v2/topic/log?topic=t&wait=60000"))
    gone.lose()
    one.post("/topic/delete?topic=t")
    (reply,) = waiting.read()
    assert reply.outcome == (404, "TOPIC_NOT_FOUND")
    assert all(call.getTime() < 60 for call in one.clock.getDelayedCalls())


def test_who_waits_for_class_memory_is_answered_when_it_is_stored() -> None:
    one = web(durability="memory")
    reader = one.connect()
    reader.send(request("GET", "/v2/topic/log?topic=t&wait=60000"))
    one.post("/pub?topic=t", b"a")
    assert reader.read() == []
    one.core.wait(2.0)
    (reply,) = reader.read()
    assert bodies(reply) == [b"a"]


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("", (400, "MISSING_ARG_TOPIC")),
        ("topic=unknown", (404, "TOPIC_NOT_FOUND")),
        ("topic=e%23ephemeral", (400, "EPHEMERAL_TOPIC")),
        ("topic=t&from=-1", (400, "INVALID_FROM")),
        ("topic=t&from=first", (400, "INVALID_FROM")),
        ("topic=t&from=" + "9" * 5000, (400, "INVALID_FROM")),
        ("topic=t&limit=0", (400, "INVALID_LIMIT")),
        ("topic=t&limit=x", (400, "INVALID_LIMIT")),
        ("topic=t&wait=-5", (400, "INVALID_WAIT")),
        ("topic=t&headers=1", (400, "INVALID_HEADERS")),
    ],
)
def test_refusals(query: str, outcome: tuple[int, str]) -> None:
    one = web()
    one.post("/topic/create?topic=e%23ephemeral")
    assert one.get(f"/v2/topic/log?{query}").outcome == outcome


@pytest.mark.parametrize(("query", "word"), [("start=x", "INVALID_START"), ("end=2026-01-01", "INVALID_END")])
def test_refusals_of_a_range(query: str, word: str) -> None:
    assert web().get(f"/v2/topic/log/range?topic=t&{query}").outcome == (400, word)


def test_an_answer_has_a_bound() -> None:
    one = web(max_msg_size=1 << 20, max_body_size=1 << 23)
    for _ in range(6):
        one.post("/pub?topic=t", b"x" * (1 << 20))
    reply = one.get(f"/v2/topic/log?topic=t&limit={1 << 40}")
    assert MAX_BYTES <= len(reply.body) < MAX_BYTES + (1 << 21)
