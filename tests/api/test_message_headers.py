"""Headers of messages that are published over HTTP: fields and parameters of a request, and bodies with headers."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.api.message_headers import MAGIC, messages_with_headers
from nsqtw.errors import ClientError
from nsqtw.http.responses import Refused
from nsqtw.message_headers import decode_headers, encode_headers
from nsqtw.options.broker import Options
from tests.core.harness import messages
from tests.core.test_segment_headers import NAMES, VALUES
from tests.http.broker_fixture import OK, Web

pytestmark = pytest.mark.usefixtures("heads")

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BINARY = "/mpub?topic=t&binary=true&headers=true"


def stored(web: Web) -> list[tuple[bytes, dict[str, str]]]:
    """Body and headers of each message in the topic's log."""
    return [
        (message.body, decode_headers(segment.headers_of(index)))
        for segment in web.broker.topics["t"].log.read(0, 1 << 20)
        for index, message in enumerate(messages(segment.frames))
    ]


def with_headers(*messages: tuple[bytes, Mapping[str, str] | bytes]) -> bytes:
    """A body with headers."""
    parts = [MAGIC, struct.pack(">i", len(messages))]
    for body, headers in messages:
        encoded = headers if isinstance(headers, bytes) else encode_headers(headers)
        parts += [struct.pack(">i", len(encoded)), encoded, struct.pack(">i", len(body)), body]
    return b"".join(parts)


def test_fields_become_headers_with_lower_case_names() -> None:
    web = Web()
    assert web.ask("POST", "/pub?topic=t", b"x", X_NSQ_Tenant="acme", x_nsq_order_ID="7", X_Other="no").outcome == OK
    assert stored(web) == [(b"x", {"tenant": "acme", "order-id": "7"})]
    assert web.bodies() == [b"x"], "a consumer gets the body alone"


def test_parameters_become_headers() -> None:
    web = Web()
    assert web.post("/pub?topic=t&ttl=60s&id=o-1&priority=high", b"a").outcome == OK
    assert web.post("/pub?topic=t&ttl=1500", b"b").outcome == OK
    assert web.post("/pub?topic=t&%74tl=1500&defer=1", b"c").outcome == OK
    assert stored(web) == [
        (b"a", {"ttl": "60000", "id": "o-1", "priority": "high"}),
        (b"b", {"ttl": "1500"}),
        (b"c", {"ttl": "1500"}),
    ]


def test_each_message_of_a_request_has_its_headers() -> None:
    web = Web()
    assert web.ask("POST", "/mpub?topic=t&ttl=1m", b"a\nb", X_NSQ_K="v").outcome == OK
    assert web.ask("POST", "/mpub?topic=t&binary=1", struct.pack(">ii", 1, 1) + b"c", X_NSQ_K="w").outcome == OK
    assert stored(web) == [(b"a", {"ttl": "60000", "k": "v"}), (b"b", {"ttl": "60000", "k": "v"}), (b"c", {"k": "w"})]


def test_heads_that_differ_in_values_only_are_not_taken_for_each_other() -> None:
    web = Web()
    browser = web.connect()
    for value in ("a", "b", "a", "b", "a"):
        behind = {"Content_Length": "1", "X_NSQ_Length": value}
        for fields in ({"X_NSQ_K": value}, behind, {"X_NSQ_Content_Length": value}):
            assert browser.ask("POST", "/pub?topic=t", b"x", **fields).outcome == OK
    assert [[*headers.values()] for _, headers in stored(web)] == [[value] for value in "aaabbbaaabbbaaa"]
    browser.ask("POST", "/pub?topic=t", b"x")
    assert stored(web)[-1] == (b"x", {})


def test_the_field_of_our_own_answers_is_no_header() -> None:
    web = Web()
    answer = web.post("/pub?topic=t", b"x")
    sent_back = {name.replace("-", "_"): text for name, text in answer.headers.items() if name.startswith("x-nsq")}
    assert {name.lower() for name in sent_back} == {"x_nsq_content_type", "x_nsqtw_durability"}
    assert web.ask("POST", "/pub?topic=t", b"y", **sent_back).outcome == OK
    assert web.ask("POST", "/pub?topic=t", b"z", X_NSQ_Content_Type="text/plain").outcome == OK
    assert stored(web)[1:] == [(b"y", {}), (b"z", {"content-type": "text/plain"})]


def test_trace_context_is_kept_only_when_that_is_wanted() -> None:
    off, on = Web(), Web(trace_headers=True)
    for web in (off, on):
        web.ask("POST", "/pub?topic=t", b"x", traceparent=TRACE, tracestate="a=b")
        web.ask("POST", "/pub?topic=t", b"x", X_NSQ_traceparent=TRACE)
    assert stored(off) == [(b"x", {}), (b"x", {"traceparent": TRACE})]
    assert stored(on) == [(b"x", {"traceparent": TRACE, "tracestate": "a=b"}), (b"x", {"traceparent": TRACE})]


@pytest.mark.parametrize(
    ("target", "fields", "word", "detail"),
    [
        ("/pub?topic=t&ttl=0", {}, "INVALID_TTL", "above 0"),
        ("/pub?topic=t&ttl=0s", {}, "INVALID_TTL", "above 0"),
        ("/pub?topic=t&ttl=-5s", {}, "INVALID_TTL", "above 0"),
        ("/pub?topic=t&ttl=soon", {}, "INVALID_TTL", "above 0"),
        ("/pub?topic=t&ttl=" + "9" * 5000, {}, "INVALID_TTL", "above 0"),
        ("/pub?topic=t&ttl=%D9%A3", {}, "INVALID_TTL", "above 0"),
        ("/pub?topic=t&id=", {}, "INVALID_ID", "1 to 255 bytes"),
        ("/pub?topic=t&id=a%0Ab", {}, "INVALID_ID", "1 to 255 bytes"),
        ("/pub?topic=t&id=%FF", {}, "INVALID_ID", "1 to 255 bytes"),
        ("/pub?topic=t&id=" + "x" * 256, {}, "INVALID_ID", "1 to 255 bytes"),
        ("/pub?topic=t&priority=urgent", {}, "INVALID_PRIORITY", "high, normal or low"),
        ("/pub?topic=t&ttl=1s", {"X_NSQ_TTL": "1001"}, "INVALID_TTL", "different values"),
        ("/pub?topic=t", {"X_NSQ_TTL": "1s"}, "INVALID_HEADER", "whole number above 0"),
        ("/pub?topic=t", {"X_NSQ_Priority": "urgent"}, "INVALID_HEADER", "high, normal or low"),
        ("/pub?topic=t", {"X_NSQ_": "x"}, "INVALID_HEADER", "invalid header name"),
        ("/pub?topic=t", {"X_NSQ_a!": "x"}, "INVALID_HEADER", "invalid header name"),
        ("/pub?topic=t", {"X_NSQ_nsq_reason": "x"}, "INVALID_HEADER", "only nsqd writes"),
        ("/pub?topic=t", {"X_NSQ_a": "x\ty"}, "INVALID_HEADER", "control character"),
        ("/pub?topic=t", {"X_NSQ_a": "\xff"}, "INVALID_HEADER", "header 'a' has a value that is not UTF-8"),
        ("/pub?topic=t", {f"X_NSQ_{n}": "" for n in range(65)}, "INVALID_HEADER", "at most 64"),
        ("/pub?topic=t", {"X_NSQ_a": "x" * 17000}, "INVALID_HEADER", "at most 16384"),
        ("/mpub?topic=t&id=7", {}, "INVALID_ID", "one message"),
        ("/mpub?topic=t", {"X_NSQ_Id": "7"}, "INVALID_ID", "one message"),
        ("/mpub?topic=t&headers=true", {}, "INVALID_HEADERS", "binary=true"),
        (BINARY, {"X_NSQ_Priority": "urgent"}, "INVALID_HEADER", "high, normal or low"),
        ("/mpub?topic=t&headers=yes", {}, "INVALID_HEADERS", "binary=true"),
    ],
)
def test_a_wrong_header_is_refused_and_says_why(target: str, fields: dict[str, str], word: str, detail: str) -> None:
    web = Web()
    reply = web.ask("POST", target, b"x", **fields)
    assert reply.outcome == (400, word)
    assert detail.lower() in reply.headers["x-nsqtw-detail"].lower()
    assert sum(topic.message_count for topic in web.broker.topics.values()) == 0


def test_the_messages_of_a_body_have_headers_each() -> None:
    web = Web()
    body = with_headers((b"a", {"id": "1"}), (b"b", {}), (b"c", {"id": "3", "k": "own"}))
    assert web.ask("POST", BINARY, body, X_NSQ_K="common").outcome == OK
    assert web.post(BINARY, with_headers((b"d", {}), (b"e", {"ttl": "5"}))).outcome == OK
    assert web.post(BINARY, with_headers((b"f", {}))).outcome == OK
    assert stored(web) == [
        (b"a", {"id": "1", "k": "common"}),
        (b"b", {"k": "common"}),
        (b"c", {"id": "3", "k": "own"}),
        (b"d", {}),
        (b"e", {"ttl": "5"}),
        (b"f", {}),
    ]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (b"", (413, "BAD_BODY")),
        (struct.pack(">ii", 1, 1) + b"x", (413, "BAD_BODY")),
        (MAGIC, (413, "BAD_BODY")),
        (MAGIC + struct.pack(">i", 0), (413, "BAD_BODY")),
        (MAGIC + struct.pack(">i", 1), (413, "BAD_MESSAGE")),
        (with_headers((b"a", {}))[:-1], (413, "BAD_MESSAGE")),
        (with_headers((b"", {})), (413, "BAD_MESSAGE")),
        (with_headers((b"x" * 11, {})), (413, "BAD_MESSAGE")),
        (MAGIC + struct.pack(">ii", 1, -1), (413, "BAD_MESSAGE")),
        (with_headers((b"a", b"\x01")), (400, "INVALID_HEADER")),
        (with_headers((b"a", b"\x01b\x00\x00\x01a\x00\x00")), (400, "INVALID_HEADER")),
        (with_headers((b"a", {"ttl": "1s"})), (400, "INVALID_HEADER")),
        (with_headers((b"a", {"k": "x" * 1000})), (413, "BODY_TOO_BIG")),
    ],
)
def test_a_body_that_has_another_form_is_refused(body: bytes, outcome: tuple[int, str]) -> None:
    web = Web(max_msg_size=10, max_body_size=200)
    assert web.post(BINARY, body).outcome == outcome
    assert sum(topic.message_count for topic in web.broker.topics.values()) == 0


def test_the_headers_of_all_messages_together_are_no_larger_than_a_body() -> None:
    web = Web(max_body_size=3000)
    for target, body in (
        ("/mpub?topic=t", b"a\n" * 3),
        ("/mpub?topic=t&binary=1", struct.pack(">i", 3) + (struct.pack(">i", 1) + b"a") * 3),
        (BINARY, with_headers(*[(b"a", {"k2": "v" * number}) for number in range(3)])),
    ):
        assert web.ask("POST", target, body, X_NSQ_K="x" * 980).outcome == OK
        reply = web.ask("POST", target, body, X_NSQ_K="x" * 1000)
        assert reply.outcome == (413, "BODY_TOO_BIG")
        assert "headers of all messages" in reply.headers["x-nsqtw-detail"].lower()
    assert web.ask("POST", "/mpub?topic=t", b"a", X_NSQ_K="x" * 5000).outcome == OK, "there is nothing to multiply"


def test_many_messages_with_headers_of_their_own_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [(b"%d" % number, {"number": str(number)}) for number in range(40)]
    with monkeypatch.context() as patch:
        patch.delattr("nsqtw.api.message_headers.check_encoded")
        bodies, headers = messages_with_headers(with_headers(*given), Options(), {})
    assert [*zip(bodies, map(decode_headers, headers), strict=True)] == given


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ((b"x", {"ttl": "5s"}), "Message 40: header 'ttl' must be milliseconds, as a whole number above 0."),
        ((b"x", b"\x01b\x00\x01\n"), "Message 40: header 'b' has a control character in its value."),
        ((b"x", b"\x01"), "Message 40: the headers of a message are damaged."),
    ],
)
def test_the_first_message_that_is_wrong_is_named(wrong: tuple[bytes, dict[str, str] | bytes], text: str) -> None:
    before = [(b"%d" % number, {"number": str(number)}) for number in range(40)]
    web = Web()
    reply = web.post(BINARY, with_headers(*before, wrong, (b"y", {"ttl": "0"}), *before, (b"", {})))
    assert (reply.outcome, reply.headers["x-nsqtw-detail"]) == ((400, "INVALID_HEADER"), text)


def test_an_nsqd_without_headers_refuses_such_a_body() -> None:
    assert Web().post("/mpub?topic=t&binary=true", with_headers((b"a", {"id": "1"}))).outcome == (413, "BAD_BODY")


def test_a_body_without_its_beginning_is_told_of_it() -> None:
    reply = Web().post(BINARY, struct.pack(">ii", 1, 1) + b"x")
    assert "must begin with NSQH" in reply.headers["x-nsqtw-detail"]


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.dictionaries(NAMES, VALUES, max_size=3)), min_size=1))
def test_a_body_with_headers_comes_out_as_it_went_in(given: list[tuple[bytes, dict[str, str]]]) -> None:
    bodies, headers = messages_with_headers(with_headers(*given), Options(), {})
    assert [*zip(bodies, map(decode_headers, headers), strict=True)] == given


@given(st.binary(max_size=60))
def test_any_bytes_are_messages_with_headers_or_refused(body: bytes) -> None:
    try:
        bodies, headers = messages_with_headers(MAGIC + body, Options(), {})
    except (Refused, ClientError):
        return
    assert len(bodies) == len(headers) > 0
