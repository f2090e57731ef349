"""Encoding of message headers, and headers in segments."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.core.segment import Segment, encode, merge, only
from nsqtw.errors import InvalidHeaders
from nsqtw.message_headers import (
    MAX_BYTES,
    MAX_COUNT,
    are_plain,
    check_encoded,
    check_known,
    decode_headers,
    encode_headers,
    header,
)
from tests.core.harness import BrokerHarness

NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True).filter(
    lambda name: not name.startswith("nsq-") and name not in ("id", "ttl", "priority")
)
VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=50)


@given(st.dictionaries(NAMES, VALUES, max_size=10))
def test_decoding_gives_what_was_encoded(headers: dict[str, str]) -> None:
    encoded = encode_headers(headers)
    assert decode_headers(encoded) == headers
    assert check_encoded(encoded) == encoded
    assert (encoded == b"") == (not headers)


def test_names_become_lower_case_and_are_sorted() -> None:
    assert encode_headers({"B": "2", "a": "1"}) == b"\x01a\x00\x011\x01b\x00\x012"


def test_one_header_is_found() -> None:
    encoded = encode_headers({"id": "7", "ttl": "100"})
    assert header(encoded, "ttl") == "100"
    assert header(encoded, "priority") is None


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"": "x"}, "invalid header name"),
        ({"a b": "x"}, "invalid header name"),
        ({"-a": "x"}, "invalid header name"),
        ({"ä": "x"}, "invalid header name"),
        ({"a" * 129: "x"}, "invalid header name"),
        ({"a": "x", "A": "y"}, "same name"),
        ({"a": "x\ny"}, "control character"),
        ({"a": "\x7f"}, "control character"),
        ({"a": "\ud800"}, "not UTF-8"),
        ({"a": "x" * (MAX_BYTES + 1)}, "at most"),
        ({"a": "x" * MAX_BYTES}, "at most"),
        ({str(number): "" for number in range(MAX_COUNT + 1)}, "at most"),
        ({"nsq-reason": "x"}, "only nsqd"),
    ],
)
def test_invalid_headers_are_refused(headers: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidHeaders, match=why):
        encode_headers(headers)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"ttl": "0"}, "whole number above 0"),
        ({"ttl": "1s"}, "whole number above 0"),
        ({"id": ""}, "1 to 255 bytes"),
        ({"id": "ä" * 128}, "1 to 255 bytes"),
        ({"priority": "High"}, "high, normal or low"),
    ],
)
def test_headers_that_the_broker_reads_are_checked(headers: dict[str, str], why: str) -> None:
    check_known({"ttl": "1", "id": "x" * 255, "priority": "low", "other": ""})
    with pytest.raises(InvalidHeaders, match=why):
        check_known(headers)


def test_the_broker_may_write_reserved_headers() -> None:
    assert decode_headers(encode_headers({"nsq-reason": "x"}, may_be_reserved=True)) == {"nsq-reason": "x"}


@pytest.mark.parametrize("data", [b"\x00", b"\x01", b"\x01a", b"\x01a\x00", b"\x01a\x00\x02x", b"\x01a\x00\x01\xff"])
def test_damaged_headers_are_recognized(data: bytes) -> None:
    with pytest.raises(InvalidHeaders):
        decode_headers(data)


@pytest.mark.parametrize("data", [b"\x01b\x00\x00\x01a\x00\x00", b"\x01a\x00\x00\x01a\x00\x00", b"\x01A\x00\x00"])
def test_only_the_one_encoding_of_headers_is_accepted(data: bytes) -> None:
    with pytest.raises(InvalidHeaders):
        check_encoded(data)


FIELDS = st.tuples(
    st.sampled_from([b"a", b"b", b"id", b"ttl", b"priority", b"nsq-a", b"A", b"", b"-", b"a" * 129]),
    st.sampled_from([b"", b"1", b"low", b"x y", b"\xc3\xa4", b"\xff", b"\n", b"\x7f", b"\xc2\x85", b"x" * 256]),
)


@given(st.lists(FIELDS, max_size=4), st.booleans(), st.integers(0, 3))
def test_what_is_read_once_is_judged_as_what_is_decoded(
    fields: list[tuple[bytes, bytes]], are_sorted: bool, missing: int
) -> None:
    fields = sorted(dict(fields).items()) if are_sorted else fields
    parts = [bytes((len(name),)) + name + len(value).to_bytes(2, "big") + value for name, value in fields]
    encoded = b"".join(parts)[: -missing or None]
    try:
        headers = decode_headers(encoded)
        assert header(encoded, "ttl") == headers.get("ttl") or not are_sorted
        check_known(headers)
        is_right = encode_headers(headers) == encoded
    except InvalidHeaders:
        is_right = False
    try:
        check_encoded(encoded)
    except InvalidHeaders:
        assert not is_right
    else:
        assert is_right


ALIKE = st.fixed_dictionaries(
    {},
    optional={
        b"a": st.sampled_from([b"", b"1", b"2", b"\xc3\xa4", b"\xc3", b"x\n", b"\x7f"]),
        b"b": st.sampled_from([b"", b"1", b"12", b"\xa4", b"\xc2\x85"]),
        b"id": st.sampled_from([b"", b"1", b"2"]),
        b"ttl": st.sampled_from([b"10", b"20", b"01", b"1s"]),
        b"priority": st.sampled_from([b"low", b"hig", b"high"]),
        b"nsq-a": st.just(b""),
    },
)


@given(st.lists(ALIKE, min_size=1, max_size=6), st.integers(1, 12))
def test_many_headers_are_judged_as_each_of_them(fields: list[dict[bytes, bytes]], times: int) -> None:
    many = [_encoded(one) for one in fields] * times
    assert are_plain(many) == all(are_plain([encoded]) for encoded in many)


def test_another_byte_among_many_headers_is_judged_as_alone() -> None:
    many = [_encoded({b"a": b"%d" % number, b"ttl": b"%d" % number}) for number in range(10, 30)]
    for place in range(len(many[0])):
        for byte in (0, 1, 2, 3, 4, ord("A"), ord("z"), 0x7F, 0x80):
            other = bytearray(many[0])
            other[place] = byte
            assert are_plain([*many, bytes(other)]) == are_plain([bytes(other)])


@given(st.lists(FIELDS, max_size=4))
def test_headers_that_are_right_for_certain_are_right(fields: list[tuple[bytes, bytes]]) -> None:
    encoded = _encoded(dict(fields))
    if are_plain([encoded]):
        assert check_encoded(encoded) == encoded


def _encoded(fields: dict[bytes, bytes]) -> bytes:
    parts = [bytes((len(name),)) + name + len(value).to_bytes(2, "big") + value for name, value in fields.items()]
    return b"".join(parts)


@pytest.mark.parametrize("wrong", [{"k": "7\n"}, {"ttl": "x5"}, {"nsq-k": "5"}])
def test_one_wrong_message_among_many_is_noticed(wrong: dict[str, str]) -> None:
    [(name, value)] = wrong.items()
    many = [_encoded({b"k": b"%d" % number}) for number in range(10, 99)]
    many += [_encoded({b"ttl": b"%d" % number}) for number in range(10, 99)]
    assert are_plain(many)
    assert not are_plain([*many, _encoded({name.encode(): value.encode()})])


@pytest.mark.parametrize("value", [b"\n", b"\x7f", b"\xff", b"\xed\xa0\x80"])
def test_a_value_that_is_no_line_of_text_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidHeaders):
        check_encoded(b"\x01a" + len(value).to_bytes(2, "big") + value)


@pytest.mark.parametrize("value", ["", " ", "ä", "\x85", "\u200b"])
def test_a_line_of_text_is_accepted(value: str) -> None:
    encoded = encode_headers({"a": value})
    assert check_encoded(encoded) == encoded


@pytest.mark.parametrize("count", [MAX_COUNT, MAX_COUNT + 1])
def test_as_many_headers_as_are_allowed(count: int) -> None:
    encoded = b"".join(b"\x02%02d\x00\x01x" % number for number in range(count))
    if count == MAX_COUNT:
        assert check_encoded(encoded) == encoded
    else:
        with pytest.raises(InvalidHeaders, match="65 headers, at most 64"):
            check_encoded(encoded)


@pytest.mark.parametrize("size", [MAX_BYTES, MAX_BYTES + 1])
def test_as_many_bytes_as_are_allowed(size: int) -> None:
    value = b"x" * (size - 4)
    encoded = b"\x01a" + len(value).to_bytes(2, "big") + value
    if size == MAX_BYTES:
        assert check_encoded(encoded) == encoded
    else:
        with pytest.raises(InvalidHeaders, match="16385 bytes, at most 16384"):
            check_encoded(encoded)


def _segment(first: int, *headers: bytes, channel: str = "") -> Segment:
    bodies = [b"body %d" % number for number in range(len(headers))]
    return encode(bodies, first, 1, 10, headers=headers if any(headers) else None, channel=channel)


def test_a_part_has_the_headers_of_its_messages() -> None:
    segment = _segment(100, b"a", b"", b"c", channel="one")
    assert segment.part(0, 1).headers == (b"a",)
    assert segment.part(1, 2).headers is None
    assert segment.part(1, 3).headers == (b"", b"c")
    assert segment.part(1, 3).channel == "one"
    assert [part.headers for part in only(segment, [100, 102])] == [(b"a",), (b"c",)]
    assert [segment.headers_of(index) for index in range(3)] == [b"a", b"", b"c"]


def test_merged_segments_keep_headers() -> None:
    [merged] = merge([_segment(1, b"", b""), _segment(3, b"x"), _segment(4, b"")])
    assert merged.headers == [b"", b"", b"x", b""]
    assert merge([_segment(1, b""), _segment(2, b"")])[0].headers is None


def test_segments_for_one_channel_are_not_merged_with_others() -> None:
    assert len(merge([_segment(1, b""), _segment(2, b"", channel="a"), _segment(3, b"", channel="a")])) == 2


def test_a_consumer_that_asks_gets_headers_with_first_and_later_deliveries() -> None:
    core = BrokerHarness()
    plain, asking = core.reader("plain"), core.reader("asking")
    taken: list[list[bytes]] = []
    asking.consumer.deliver_with_headers = lambda frames, headers: taken.append([*headers])
    core.topic().put([b"1", b"2"], 0, lambda error: None, headers=[b"", encode_headers({"a": "b"})])
    core.topic().put([b"3"], 0, lambda error: None)
    core.turn()
    [first, second, _] = plain.read()
    assert [first.body, second.body] == [b"1", b"2"]
    assert taken == [[b"", encode_headers({"a": "b"})]]
    assert asking.bodies() == [b"3"]
    assert asking.requeue(second.id) is None
    core.turn()
    assert taken[1:] == [[encode_headers({"a": "b"})]]


def test_large_headers_are_not_remembered() -> None:
    """A client could hold 64 MB with them, after its topic is gone."""
    large = encode_headers({"id": "7", "note": "x" * 10_000})
    count = sys.getrefcount(large)
    assert header(large, "id") == "7"
    assert sys.getrefcount(large) == count
