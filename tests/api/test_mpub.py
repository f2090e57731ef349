"""POST /mpub: many messages, as lines or with sizes."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.api.publish import binary_messages, text_messages
from nsqtw.http.responses import Refused
from nsqtw.options.broker import Options
from nsqtw.protocols.mpub import packed_messages
from tests.http.broker_fixture import LIMITS, OK, Log, Web, chunked

pytestmark = pytest.mark.usefixtures("heads")

SMALL = Options(**LIMITS)


def sized(*messages: bytes) -> bytes:
    """A binary body."""
    return struct.pack(">i", len(messages)) + b"".join(struct.pack(">i", len(one)) + one for one in messages)


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b"a\nb\nc", [b"a", b"b", b"c"]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"\n\na\n\n\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a\r", b"b\r"]),
        (b"one", [b"one"]),
        (b"\n\n\n", []),
        (b"", []),
        (b"0123456789\n0123456789\n", [b"0123456789", b"0123456789"]),
        (b"0123456789\n" * 3 + b"0123456", [b"0123456789"] * 3 + [b"0123456"]),
    ],
)
def test_text_is_split_at_newlines(body: bytes, messages: list[bytes]) -> None:
    web = Web(**LIMITS)
    assert web.post("/mpub?topic=t", body).outcome == OK
    assert web.bodies() == messages


@pytest.mark.parametrize(
    ("target", "body", "outcome", "creates"),
    [
        ("/mpub", b"x", (400, "MISSING_ARG_TOPIC"), False),
        ("/mpub", b"", (400, "MISSING_ARG_TOPIC"), False),
        ("/mpub?topic=", b"x", (400, "INVALID_TOPIC"), False),
        ("/mpub?topic=%", b"x", (400, "INVALID_REQUEST"), False),
        ("/mpub?topic=!", b"x" * 41, (413, "BODY_TOO_BIG"), False),
        ("/mpub?topic=!", b"x" * 11, (400, "INVALID_TOPIC"), False),
        ("/mpub?topic=t", b"ok\n" + b"x" * 11, (413, "MSG_TOO_BIG"), True),
        ("/mpub?topic=t&binary=true", b"", (413, "BAD_BODY"), True),
        ("/mpub?topic=t&binary=true", b"\0\0\0", (413, "BAD_BODY"), True),
        ("/mpub?topic=t&binary=true", sized(), (413, "BAD_BODY"), True),
        ("/mpub?topic=t&binary=true", b"\xff\xff\xff\xff", (413, "BAD_BODY"), True),
        ("/mpub?topic=t&binary=true", struct.pack(">i", 8), (413, "BAD_BODY"), True),
        ("/mpub?topic=t&binary=true", struct.pack(">i", 7), (413, "BAD_MESSAGE"), True),
        ("/mpub?topic=t&binary=true", sized(b"a", b""), (413, "BAD_MESSAGE"), True),
        ("/mpub?topic=t&binary=true", sized(b"a") + b"\0\0", OK, True),
        ("/mpub?topic=t&binary=true", b"\0\0\0\2" + sized(b"a")[4:] + b"\0\0", (413, "BAD_MESSAGE"), True),
        ("/mpub?topic=t&binary=true", sized(b"a", b"-")[:-1], (413, "BAD_MESSAGE"), True),
        ("/mpub?topic=t&binary=true", b"\0\0\0\1\xff\xff\xff\xffx", (413, "BAD_MESSAGE"), True),
        ("/mpub?topic=t&binary=true", sized(b"a", b"x" * 11), (413, "BAD_MESSAGE"), True),
        ("/mpub?topic=t&binary=true", sized(b"x" * 11), (413, "BAD_MESSAGE"), True),
        ("/mpub?topic=t&defer=nonsense", b"a", OK, True),
    ],
)
def test_what_is_checked_and_when_the_topic_is_created(
    target: str, body: bytes, outcome: tuple[int, str], creates: bool
) -> None:
    web = Web(**LIMITS)
    assert web.post(target, body).outcome == outcome
    assert list(web.broker.topics) == (["t"] if creates else [])
    assert sum(topic.message_count for topic in web.broker.topics.values()) == (outcome == OK)


@pytest.mark.parametrize(
    ("value", "messages", "warning"),
    [
        ("=true", [b"a"], []),
        ("=1", [b"a"], []),
        ("=false", [sized(b"a")], []),
        ("=0", [sized(b"a")], []),
        ("=True", [b"a"], ["warn: deprecated value 'True' used for /mpub binary param"]),
        ("=no", [b"a"], ["warn: deprecated value 'no' used for /mpub binary param"]),
        ("=", [b"a"], ["warn: deprecated value '' used for /mpub binary param"]),
        ("", [b"a"], ["warn: deprecated value '' used for /mpub binary param"]),
    ],
)
def test_the_binary_parameter(value: str, messages: list[bytes], warning: list[str]) -> None:
    web = Web()
    with Log() as lines:
        assert web.post(f"/mpub?topic=t&binary{value}", sized(b"a")).outcome == OK
    assert (web.bodies(), lines) == (messages, warning)


def test_what_follows_the_last_sized_message_is_ignored() -> None:
    web = Web()
    assert web.post("/mpub?topic=t&binary=1", sized(b"a", b"bc") + b"trailing").outcome == OK
    assert web.bodies() == [b"a", b"bc"]


@pytest.mark.parametrize(
    ("chunks", "outcome"),
    [
        ([b"012345678\n"] * 4, OK),
        ([b"012345678\n"] * 5, (413, "BODY_TOO_BIG")),
        ([b"0123456789a\n"] * 5, (413, "MSG_TOO_BIG")),
        ([b"012345678\n"] * 4 + [b"0123456789a"], (413, "BODY_TOO_BIG")),
        ([b"x" * 50], (413, "BODY_TOO_BIG")),
    ],
)
def test_a_chunked_text_is_refused_for_what_is_met_first(chunks: list[bytes], outcome: tuple[int, str]) -> None:
    web = Web(**LIMITS)
    browser = web.connect()
    browser.send(chunked("POST", "/mpub?topic=t", *chunks))
    assert [reply.outcome for reply in browser.read()] == [outcome]
    assert browser.ask("GET", "/ping").outcome == OK
    assert web.broker.topics["t"].message_count == (4 if outcome == OK else 0)


def test_a_chunked_binary_body_has_the_bound_of_any_other() -> None:
    web = Web(**LIMITS)
    browser = web.connect()
    browser.send(chunked("POST", "/mpub?topic=t&binary=1", sized(*[b"0123456789"] * 3)))
    assert [reply.outcome for reply in browser.read()] == [(413, "BODY_TOO_BIG")]


def test_what_is_behind_the_messages_of_a_chunked_body_may_be_long() -> None:
    web = Web(**LIMITS)
    browser = web.connect()
    browser.send(chunked("POST", "/mpub?topic=t&binary=1", sized(b"1"), b"x" * 100, b"y" * 100))
    assert [reply.outcome for reply in browser.read()] == [OK]
    assert web.broker.topics["t"].message_count == 1


@given(st.lists(st.binary(min_size=1, max_size=10), min_size=1, max_size=7), st.binary(max_size=8))
def test_sized_messages_come_out_as_they_went_in(messages: list[bytes], trailing: bytes) -> None:
    assert binary_messages(sized(*messages) + trailing, Options(max_msg_size=10, max_body_size=200)) == messages


MANY = Options(max_msg_size=10, max_body_size=200)


@given(st.lists(st.binary(min_size=1, max_size=10), min_size=1, max_size=7), st.binary(max_size=8), st.integers(0, 99))
def test_packed_messages_are_the_sized_ones(messages: list[bytes], trailing: bytes, cut_off: int) -> None:
    body = (sized(*messages) + trailing)[: 200 - cut_off]
    found = packed_messages(body, 200, 10)
    if found is not None:
        assert [*found] == binary_messages(body, MANY)
    elif len(body) > 8:
        with suppress(Refused):
            assert len({*map(len, binary_messages(body, MANY))}) > 1


@pytest.mark.parametrize(
    ("body", "max_body_size", "max_msg_size"),
    [
        (sized(b"abc"), 10, 3),
        (sized(b"abc"), 11, 2),
        (sized(b""), 11, 3),
        (sized(), 11, 3),
        (b"", 11, 3),
        (sized(b"abc")[:-1], 11, 3),
        (b"\xff" + sized(b"abc")[1:], 11, 3),
        (sized(b"abc", b"ab"), 99, 3),
    ],
)
def test_bodies_that_are_not_packed(body: bytes, max_body_size: int, max_msg_size: int) -> None:
    assert packed_messages(body, max_body_size, max_msg_size) is None


@pytest.mark.parametrize("sizes", [[200] * 3000, [200] * 2999 + [201], [150, 250] * 1500])
@pytest.mark.parametrize("more", ["", "&channel=c", "&ids=true"])
def test_a_body_that_arrives_in_many_parts(sizes: list[int], more: str) -> None:
    messages = [b"%*d" % (size, index) for index, size in enumerate(sizes)]
    web = Web()
    browser = web.connect()
    browser.ask("POST", "/topic/create?topic=t")
    browser.ask("POST", "/channel/create?topic=t&channel=c")
    body = sized(*messages)
    head = b"POST /mpub?topic=t&binary=true%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    request = head % (more.encode(), len(body)) + body
    parts = [1, 50, 20_000, 20_001, 300_000, 300_001, len(request)]
    for start, stop in zip([0, *parts], parts, strict=False):
        browser.send(request[start:stop])
    assert [reply.status for reply in browser.read()] == [200]
    assert web.core.reader(ready=3000).bodies() == messages


@given(st.binary(max_size=60))
def test_any_bytes_are_messages_or_refused(body: bytes) -> None:
    for parse in (binary_messages, text_messages):
        try:
            messages = parse(body, SMALL)
        except Refused as refused:
            assert refused.answer.status == 413
        else:
            assert all(0 < len(message) <= SMALL.max_msg_size for message in messages)
