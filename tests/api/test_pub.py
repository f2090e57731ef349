"""POST /pub: one message, in the order of nsqd's checks."""

from __future__ import annotations

import pytest

from nsqtw.net.line_budget import LINES
from tests.http.broker_fixture import LIMITS, OK, Log, Web, chunked, request

pytestmark = pytest.mark.usefixtures("heads")


def test_a_message_is_answered_ok_and_delivered() -> None:
    web = Web()
    reply = web.post("/pub?topic=t", b"a\r\nb\n\x00\xff")
    assert reply.outcome == OK
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["x-nsq-content-type"] == "nsq; version=1.0"
    assert web.bodies() == [b"a\r\nb\n\x00\xff"]


def test_it_is_answered_only_when_it_is_committed() -> None:
    web = Web()
    browser = web.connect()
    browser.send(request("POST", "/pub?topic=t", b"x"))
    assert browser.transport.value() == b""
    assert [reply.outcome for reply in browser.read()] == [OK]


@pytest.mark.parametrize(
    ("target", "body", "outcome", "creates"),
    [
        ("/pub?topic=t", b"x" * 11, (413, "MSG_TOO_BIG"), False),
        ("/pub?topic=t", b"x" * 10, OK, True),
        ("/pub", b"", (400, "MSG_EMPTY"), False),
        ("/pub?topic=%zz", b"", (400, "MSG_EMPTY"), False),
        ("/pub?topic=t", b"", (400, "MSG_EMPTY"), False),
        ("/pub?topic=%zz", b"x", (400, "INVALID_REQUEST"), False),
        ("/pub?topic=t;", b"x", (400, "INVALID_REQUEST"), False),
        ("/pub", b"x", (400, "MISSING_ARG_TOPIC"), False),
        ("/pub?Topic=t", b"x", (400, "MISSING_ARG_TOPIC"), False),
        ("/pub?topic=", b"x", (400, "INVALID_TOPIC"), False),
        ("/pub?topic", b"x", (400, "INVALID_TOPIC"), False),
        ("/pub?topic=a%20b", b"x", (400, "INVALID_TOPIC"), False),
        ("/pub?topic=%FF", b"x", (400, "INVALID_TOPIC"), False),
        ("/pub?topic=t&topic=!", b"x", OK, True),
        ("/pub?topic=!&topic=t", b"x", (400, "INVALID_TOPIC"), False),
        ("/pub?topic=%74", b"x", OK, True),
        ("/pub?%74opic=t", b"x", OK, True),
        ("/pub?topic=!&defer=x", b"x", (400, "INVALID_TOPIC"), False),
        ("/pub?topic=t&defer=", b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=1.5", b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=1_0", b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=%D9%A3", b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=+5", b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=-1", b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=60001", b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=9223372036854775808", b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=" + "9" * 5000, b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=%2B5", b"x", OK, True),
        ("/pub?topic=t&defer=18446744073710", b"x", OK, True),  # 448384 ns, as 64 bits have it
        ("/pub?topic=t&defer=18446744073709", b"x", (400, "INVALID_DEFER"), True),
        ("/pub?topic=t&defer=-0", b"x", OK, True),
        ("/pub?topic=t&defer=" + "0" * 5000, b"x", OK, True),
        ("/pub?topic=t&defer=60000", b"x", OK, True),
    ],
)
def test_what_is_checked_and_when_the_topic_is_created(
    target: str, body: bytes, outcome: tuple[int, str], creates: bool
) -> None:
    web = Web(**LIMITS)
    assert web.post(target, body).outcome == outcome
    assert list(web.broker.topics) == (["t"] if creates else [])
    assert sum(topic.message_count for topic in web.broker.topics.values()) == (outcome == OK)


def test_a_form_in_the_body_is_a_message_and_no_parameters() -> None:
    web = Web()
    form = "application/x-www-form-urlencoded"
    assert web.ask("POST", "/pub", b"topic=t", Content_Type=form).outcome == (400, "MISSING_ARG_TOPIC")
    assert web.ask("POST", "/pub?topic=t", b"topic=u", Content_Type=form).outcome == OK
    assert web.ask("POST", "/pub?topic=t", b"x", Content_Type="multipart/form-data").outcome == OK
    assert web.bodies() == [b"topic=u", b"x"]


@pytest.mark.parametrize(
    ("chunks", "outcome"),
    [
        ((b"abc", b"def"), OK),
        ((b"0123456789",), OK),
        ((), (400, "MSG_EMPTY")),
        ((b"0123456789", b"a"), (413, "MSG_TOO_BIG")),
        ((b"0" * 1000,), (413, "MSG_TOO_BIG")),
    ],
)
def test_a_chunked_body_has_the_same_bounds(chunks: tuple[bytes, ...], outcome: tuple[int, str]) -> None:
    web = Web(**LIMITS)
    browser = web.connect()
    browser.send(chunked("POST", "/pub?topic=t", *chunks))
    assert [reply.outcome for reply in browser.read()] == [outcome]
    assert not browser.is_closed
    assert browser.ask("GET", "/ping").outcome == OK


def test_a_body_whose_chunks_are_none_is_refused_and_ends_the_connection() -> None:
    browser = Web().connect()
    browser.send(chunked("POST", "/pub?topic=t", b"abc")[: -len("0\r\n\r\n")] + b"no number\r\n")
    assert [reply.outcome for reply in browser.read()] == [(400, "INVALID_REQUEST")]
    assert browser.is_closed


def test_a_message_may_be_deferred_by_days() -> None:
    web = Web(max_defer_timeout=240 * 3600.0)
    assert web.post("/pub?topic=t&defer=864000000", b"x").outcome == OK
    assert web.post("/pub?topic=t&defer=864000001", b"x").outcome == (400, "INVALID_DEFER")


def test_a_deferred_message_comes_when_its_time_has_come() -> None:
    web = Web()
    reader = web.core.reader()
    assert web.post("/pub?topic=t&defer=5000", b"later").outcome == OK
    assert reader.channel.deferred_count == 1
    web.core.wait(4.9)
    assert reader.bodies() == []
    web.core.wait(0.2)
    assert reader.bodies() == [b"later"]


def test_a_publish_that_cannot_be_stored_is_answered_exiting_and_never_delivered() -> None:
    web = Web()
    web.post("/pub?topic=t", b"before")
    commit = web.core.backend.commit
    web.fail_commits()
    assert web.post("/pub?topic=t", b"lost").outcome == (503, "EXITING")
    web.core.backend.commit = commit
    assert web.post("/pub?topic=t", b"after").outcome == OK
    assert web.bodies() == [b"before", b"after"]


def test_a_broker_that_stops_takes_nothing_more() -> None:
    web = Web()
    browser = web.connect()
    assert browser.ask("POST", "/pub?topic=t", b"x").outcome == OK
    web.pump.stop()
    assert browser.ask("POST", "/pub?topic=t", b"y").outcome == (503, "EXITING")
    assert browser.ask("POST", "/pub?topic=new", b"y").outcome == (503, "EXITING")
    assert web.bodies() == [b"x"]


def test_a_topic_that_is_being_deleted_takes_nothing_until_it_is_gone() -> None:
    web = Web()
    web.post("/pub?topic=t", b"old")
    web.writer.is_held_back = True
    deleting = web.connect()
    deleting.send(request("POST", "/topic/delete?topic=t"))
    assert web.post("/pub?topic=t", b"meanwhile").outcome == (503, "EXITING")
    assert deleting.read() == []
    web.writer.is_held_back = False
    assert [reply.outcome for reply in deleting.read()] == [(200, "")]
    assert web.post("/pub?topic=t", b"new").outcome == OK
    assert web.bodies() == [b"new"]


def test_a_client_that_leaves_before_the_answer_disturbs_nobody() -> None:
    web = Web()
    browser = web.connect()
    browser.send(request("POST", "/pub?topic=t", b"x"))
    browser.lose()
    web.turn()
    assert web.bodies() == [b"x"]


def test_an_ephemeral_topic_can_be_published_to() -> None:
    web = Web()
    assert web.post("/pub?topic=t%23ephemeral", b"x").outcome == OK
    assert web.bodies("t#ephemeral") == [b"x"]


def test_a_publish_is_no_line_in_the_access_log() -> None:
    web = Web()
    with Log() as lines:
        web.post("/pub?topic=t", b"x")
        web.post("/mpub?topic=t", b"x")
    assert lines == []


def test_a_refused_publish_is_a_line_in_the_log_that_says_why() -> None:
    web = Web(**LIMITS)
    with Log() as lines:
        web.post("/pub", b"x")
        web.post("/pub?topic=t", b"x" * 11)
        web.post("/mpub?topic=!", b"x")
        web.fail_commits()
        web.post("/pub?topic=t", b"x")
    assert [line.removeprefix("info: ") for line in lines if line.startswith("info: ")] == [
        "400 POST /pub (127.0.0.1:40974) 0s - MISSING_ARG_TOPIC",
        "413 POST /pub?topic=t (127.0.0.1:40974) 0s - MSG_TOO_BIG",
        "400 POST /mpub?topic=! (127.0.0.1:40974) 0s - INVALID_TOPIC",
        "503 POST /pub?topic=t (127.0.0.1:40974) 0s - EXITING",
    ]


def test_a_flood_of_refused_publishes_does_not_fill_the_log() -> None:
    web = Web()
    with Log() as lines:
        for _ in range(LINES + 5):
            web.post("/pub", b"x")
    assert len(lines) == LINES
    web.core.now += 2
    with Log() as lines:
        web.post("/pub", b"x")
    assert lines == [
        "warn: 5 more requests were refused and left no line",
        "info: 400 POST /pub (127.0.0.1:40974) 0s - MISSING_ARG_TOPIC",
    ]
