"""IDENTIFY: how its JSON is read, the bounds of every value, and the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.protocols.dialogue import (
    END,
    OK,
    RESPONSE,
    Frame,
    Peer,
    V2Harness,
    error,
    identify,
    response,
    sized,
)

NO_JSON = b"E_BAD_BODY IDENTIFY failed to decode JSON body"
FIELDS: dict[str, Any] = {
    "client_id": "",
    "hostname": "",
    "user_agent": "",
    "feature_negotiation": False,
    "heartbeat_interval": 0,
    "output_buffer_size": 0,
    "output_buffer_timeout": 0,
    "tls_v1": False,
    "snappy": False,
    "deflate": False,
    "deflate_level": 0,
    "sample_rate": 0,
    "msg_timeout": 0,
    "topology_region": "",
    "topology_zone": "",
}
INTEGERS = [name for name, default in FIELDS.items() if type(default) is int]
TEXTS = [name for name, default in FIELDS.items() if type(default) is str]
BOOLEANS = [name for name, default in FIELDS.items() if type(default) is bool]


def says(document: bytes) -> list[Frame]:
    """What a new client reads that identifies itself with this."""
    client = V2Harness().connect()
    client.send(b"IDENTIFY\n" + sized(document))
    return client.read()


def negotiated(client: Peer, **fields: Any) -> dict[str, Any]:
    """The answer to an IDENTIFY with feature negotiation."""
    client.send(identify(feature_negotiation=True, **fields))
    (frame,) = client.read()
    assert frame.kind == RESPONSE
    answer: dict[str, Any] = json.loads(frame.data)
    return answer


# -- JSON


@pytest.mark.parametrize(
    "document",
    [
        b"{}",
        b"null",
        b" \t\r\n{ } \n",
        b" null ",
        b'{"unknown":1}',
        b'{"unknown":1.5e3,"another":[1,{"x":[]}],"third":{"client_id":5},"":null,"fourth":[]}',
        b'{"client_id":"\xff"}',
        b'{"client_id":"\\ud83d\\ude00 \\u0041 \\/"}',
        b'{"heartbeat_interval":-0}',
        b'{"unknown":%s,"another":1e999,"third":-%s}' % (b"9" * 10_000, b"9" * 30),
        b'{"tls_v1":true,"snappy":true,"deflate":true,"deflate_level":99}',
    ]
    + [json.dumps({name: None}).encode() for name in FIELDS]
    + [json.dumps({name: default}).encode() for name, default in FIELDS.items()],
)
def test_json_that_is_read(document: bytes) -> None:
    assert says(document) == [OK]


@pytest.mark.parametrize(
    "document",
    [b"[]", b"[{}]", b'[["client_id","x"]]', b'"text"', b"5", b"0", b"true", b"false", b"-1.5"]
    + [b" ", b"x", b"{", b"}", b"nul", b"None", b"NULL", b"{}x", b"{}{}", b"null null", b"{},", b"\x00", b"{}\x00"]
    + [b'{"a"}', b'{"a":}', b'{"a":1,}', b"{'a':1}", b"{a:1}", b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":1.}']
    + [b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"client_id":"\n"}', b'{"client_id":"\\x41"}']
    + [b'\xef\xbb\xbf{"client_id":"x"}', b"\xff{}", b"\x0b{}", b"\xc2\xa0{}", b'{"client_id":"\\ud8"}', b"[" * 50_000],
)
def test_json_that_is_not_read(document: bytes) -> None:
    assert says(document) == [error(NO_JSON), END]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", ["1.0", "1.5", "1e3", "1E0", '"1"', '""', "true", "false", "[]", "{}", "[1]"])
def test_integers_are_integer_literals(name: str, value: str) -> None:
    assert says(b'{"%s":%s}' % (name.encode(), value.encode())) == [error(NO_JSON), END]


@pytest.mark.parametrize("name", BOOLEANS)
@pytest.mark.parametrize("value", ["0", "1", '"true"', '""', "[]", "{}"])
def test_booleans_are_booleans(name: str, value: str) -> None:
    assert says(b'{"%s":%s}' % (name.encode(), value.encode())) == [error(NO_JSON), END]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", ["0", "1.5", "true", "[]", "{}", '["x"]'])
def test_texts_are_strings(name: str, value: str) -> None:
    assert says(b'{"%s":%s}' % (name.encode(), value.encode())) == [error(NO_JSON), END]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_fit_their_type(name: str) -> None:
    bits = 32 if name == "sample_rate" else 64
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for number in (lowest - 1, highest + 1, 10**30, -(10**30)):
        assert says(json.dumps({name: number}).encode()) == [error(NO_JSON), END]
    for number in (lowest, highest):
        (first, *_) = says(json.dumps({name: number}).encode())
        assert first != error(NO_JSON)


def test_keys_match_in_any_case_and_the_last_one_wins() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(b"IDENTIFY\n" + sized(b'{"CLIENT_ID":"a","Client_Id":"b","HostName":"h","hostname":null}'))
    client.expect(OK)
    assert (stage.seen.client_id, stage.seen.hostname) == ("b", "h")


def test_the_long_s_is_an_s_in_a_key() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(
        b"IDENTIFY\n" + sized('{"ho\u017ftname":"h","client_\u0131d":"dotless","ho\ufb06name":"ligature"}'.encode())
    )
    client.expect(OK)
    assert (stage.seen.client_id, stage.seen.hostname) == ("", "h")


def test_a_wrong_type_is_an_error_also_when_a_later_key_is_right() -> None:
    assert says(b'{"client_id":1,"client_id":"x"}') == [error(NO_JSON), END]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xe4\xb8", "\ufffd\ufffd"),
        (b"\xf0\x9f\x98A", "\ufffd\ufffd\ufffdA"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"a\\ud800b", "a\ufffdb"),
        (b"a\\udc00\\ud800", "a\ufffd\ufffd"),
        (b"\\ud83d\\ude00", "\U0001f600"),
        ("é中".encode(), "é中"),
        (b"<&>", "<&>"),
    ],
)
def test_what_is_no_text_in_a_string_is_replaced(raw: bytes, text: str) -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(b"IDENTIFY\n" + sized(b'{"client_id":"%s","user_agent":"%s"}' % (raw, raw)))
    client.expect(OK)
    assert (stage.seen.client_id, stage.seen.user_agent) == (text, text)


# -- bounds

BOUNDS = {
    "heartbeat_interval": ("heartbeat interval", 1000, 60_000, True),
    "output_buffer_timeout": ("output buffer timeout", 25, 30_000, True),
    "output_buffer_size": ("output buffer size", 64, 65_536, True),
    "sample_rate": ("sample rate", 0, 99, False),
    "msg_timeout": ("msg timeout", 1000, 900_000, False),
}


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("negotiate", [True, False])
def test_bounds(name: str, negotiate: bool) -> None:
    what, low, high, may_be_off = BOUNDS[name]
    allowed = {0, low, low + 1, high - 1, high} | ({-1} if may_be_off else set())
    for value in {-(2**31), -2, -1, 0, 1, low - 1, low, low + 1, high - 1, high, high + 1, 2**31 - 1}:
        client = V2Harness().connect()
        client.send(identify(feature_negotiation=negotiate, **{name: value}))
        first, *then = client.read()
        if value in allowed or low <= value <= high:
            assert (first.kind, then) == (RESPONSE, []), f"{name} {value}"
        else:
            assert [first, *then] == [error(b"E_BAD_BODY IDENTIFY %s (%d) is invalid" % (what.encode(), value)), END]


@pytest.mark.parametrize(
    ("name", "options", "good", "bad"),
    [
        ("heartbeat_interval", {"max_heartbeat_interval": 5.0}, (1000, 5000), (999, 5001)),
        ("output_buffer_timeout", {"min_output_buffer_timeout": 0.1}, (100,), (99,)),
        ("output_buffer_timeout", {"max_output_buffer_timeout": 1.0}, (1000,), (1001,)),
        ("output_buffer_size", {"max_output_buffer_size": 100}, (64, 100), (63, 101)),
        ("msg_timeout", {"max_msg_timeout": 2.5}, (1000, 2500), (999, 2501)),
        ("msg_timeout", {"max_msg_timeout": 2.0019}, (2001,), (2002,)),
        ("output_buffer_timeout", {"min_output_buffer_timeout": 0.0259}, (25,), (24,)),
    ],
)
def test_bounds_are_options(name: str, options: dict[str, Any], good: tuple[int, ...], bad: tuple[int, ...]) -> None:
    for value in good:
        client = V2Harness(**options).connect()
        client.send(identify(**{name: value}))
        client.expect(OK)
    for value in bad:
        client = V2Harness(**options).connect()
        client.send(identify(**{name: value}))
        client.expect(error(b"E_BAD_BODY IDENTIFY %s (%d) is invalid" % (BOUNDS[name][0].encode(), value)), END)


def test_values_are_checked_in_their_order() -> None:
    bad = {name: -5 for name in reversed(BOUNDS)}
    for name, (what, *_) in BOUNDS.items():
        client = V2Harness().connect()
        client.send(identify(**bad))
        client.expect(error(b"E_BAD_BODY IDENTIFY %s (-5) is invalid" % what.encode()), END)
        del bad[name]


# -- the answer


def test_without_feature_negotiation_the_answer_is_ok_and_nothing_is_negotiated() -> None:
    for fields in ({}, {"feature_negotiation": False}, {"tls_v1": True, "snappy": True, "deflate": True}):
        assert says(json.dumps(fields).encode()) == [OK]


def test_the_answer_byte_for_byte() -> None:
    client = V2Harness().connect()
    client.send(identify(feature_negotiation=True))
    client.expect(
        response(
            b'{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000,"tls_v1":false,'
            b'"deflate":false,"deflate_level":6,"max_deflate_level":6,"snappy":false,"sample_rate":0,'
            b'"auth_required":false,"output_buffer_size":16384,"output_buffer_timeout":250,'
            b'"topology_region":"","topology_zone":""}'
        )
    )


def test_the_answer_tells_the_brokers_limits_and_place() -> None:
    stage = V2Harness(
        max_rdy_count=7,
        max_msg_timeout=20.5,
        msg_timeout=1.5,
        max_deflate_level=3,
        output_buffer_timeout=0.1,
        topology_region="<r&\u2028>",
        topology_zone='z"é\u2029',
    )
    client = stage.connect()
    client.send(identify(feature_negotiation=True, topology_region="mine", topology_zone="mine"))
    client.expect(
        response(
            b'{"max_rdy_count":7,"version":"1.3.0","max_msg_timeout":20500,"msg_timeout":1500,"tls_v1":false,'
            b'"deflate":false,"deflate_level":3,"max_deflate_level":3,"snappy":false,"sample_rate":0,'
            b'"auth_required":false,"output_buffer_size":16384,"output_buffer_timeout":100,'
            b'"topology_region":"\\u003cr\\u0026\\u2028\\u003e","topology_zone":"z\\"\xc3\xa9\\u2029"}'
        )
    )


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"msg_timeout": 1234}, {"msg_timeout": 1234}),
        ({"sample_rate": 99}, {"sample_rate": 99}),
        ({"output_buffer_size": 64}, {"output_buffer_size": 64, "output_buffer_timeout": 250}),
        ({"output_buffer_size": -1}, {"output_buffer_size": 1, "output_buffer_timeout": 0}),
        ({"output_buffer_timeout": 25}, {"output_buffer_size": 16384, "output_buffer_timeout": 25}),
        ({"output_buffer_timeout": -1}, {"output_buffer_size": 16384, "output_buffer_timeout": 0}),
        (
            {"output_buffer_size": -1, "output_buffer_timeout": 100},
            {"output_buffer_size": 1, "output_buffer_timeout": 0},
        ),
        (
            {"msg_timeout": 0, "output_buffer_size": 0, "output_buffer_timeout": 0},
            {"msg_timeout": 60000, "output_buffer_size": 16384, "output_buffer_timeout": 250},
        ),
        # what is not there to be had
        ({"tls_v1": True}, {"tls_v1": False}),
        ({"deflate_level": 2}, {"deflate": False, "deflate_level": 6}),
    ],
)
def test_the_answer_tells_what_is_in_force(asked: dict[str, Any], given: dict[str, Any]) -> None:
    answer = negotiated(V2Harness().connect(), **asked)
    assert {name: answer[name] for name in given} == given


def test_the_answer_cuts_off_parts_of_a_millisecond() -> None:
    answer = negotiated(V2Harness(max_msg_timeout=2.0019, msg_timeout=1.5007, output_buffer_timeout=1.001).connect())
    timeouts = answer["max_msg_timeout"], answer["msg_timeout"], answer["output_buffer_timeout"]
    assert timeouts == (2001, 1500, 1001)
