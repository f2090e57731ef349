"""Keys in headers and bodies."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsqtw.core.policy.message_keys import BodyKeys, message_keys
from nsqtw.core.segment import Segment, encode
from nsqtw.message_headers import encode_headers
from nsqtw.options.message_keys import read_key_place


def segment_of(bodies: list[bytes], headers: list[dict[str, str]] | None = None) -> Segment:
    encoded = None if headers is None else [*map(encode_headers, headers)]
    return encode(bodies, 10, 1, 1, headers=encoded)


def keys_of(ordered_by: str, segment: Segment) -> list[bytes | None] | None:
    keys = message_keys(read_key_place(ordered_by))
    found = keys.of_segment(segment)
    assert [keys.of_message(segment, index) for index in range(segment.count)] == [*(found or [None] * segment.count)]
    return found


def test_the_key_is_the_value_of_the_header() -> None:
    headers = [{"a": "x", "customer": "7"}, {"customers": "1"}, {"z": "\x08customer".strip("\x08")}, {"customer": ""}]
    segment = segment_of([b"m"] * 4, headers)
    assert keys_of("header:Customer", segment) == [b"7", None, None, None]
    assert keys_of("header:customer", segment_of([b"m"])) is None


def test_a_name_inside_of_a_value_is_no_header() -> None:
    """A value may have the bytes that a header begins with, but for the control character before its name."""
    segment = segment_of([b"m"], [{"b": "x!" + "c" * 33, "c" * 33: "key"}])
    assert keys_of("header:" + "c" * 33, segment) == [b"key"]


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("id", b'{"id": 7, "n": 1}', b"7"),
        ("id", b'{"n":"id","id":"a b"}', b'"a b"'),
        ("id", b'{"id": true}', b"true"),
        ("id", b'{"id": null}', None),
        ("id", b'{"id": [1]}', None),
        ("id", b'{"id": {"id": 1}}', None),
        ("id", b'{"x": {"id": 1}}', None),
        ("id", b'{"x": {"id": 1}, "id": 2}', b"2"),
        ("id", b'{"id": 1.50}', b"1.5"),
        ("id", '{"id": "é"}'.encode(), '"é"'.encode()),
        ("id", b'{"id": "\\u00e9"}', '"é"'.encode()),
        ("id", b'{"id": 1, "id": 2}', b"2"),
        ("id", b'["id"]', None),
        ("id", b"no JSON", None),
        ("id", b"[" * 100_000, None),
        ("id", b'{"id": "\xff"}', b'"\xff"'),
        ("id", b'{"id": "\xff", "id": 1.5}', None),
        ("id", '{"id": 1}'.encode("utf-16"), b"1"),
        ("id", b"[" * 100_000 + b'{"id": 1}', None),
        ("id", b'{"x": ' + b"[" * 100 + b"]" * 100 + b', "id": 1}', b"1"),
        ("customer.id", b'{"customer": {"id": "c1"}}', b'"c1"'),
        ("customer.id", b'{"customer": 1}', None),
        ("customer.id", b'{"x": {"customer": {"id": 1}}, "customer": {"x": {"id": 2}, "id": 3, "y": [4]}}', b"3"),
        ("customer.id", b'{"customer": {"id": 1}, "customer": {"id": 2}}', b"2"),
        ("customer.id", b'{"customer": {"id": 1}, "customer": 2}', None),
        ("customer.id", b'{"customer": {"id": 1}, "customer" : {}}', None),
        ("customer.id", b'{"customer": {"id": 1, "\\u0069d": 2}}', b"2"),
        ("customer.id", b'{"customer": {"\\u0069d": 2}, "id": "\\u0069d"}', b"2"),
        (".".join("x" * 1000), b'{"x": {"x": 1}}', None),
        (".".join("x" * 9), b'{"x":' * 9 + b"1" + b"}" * 9, b"1"),
        ("lines[1].article[0]", b'{"lines": [0, {"article": ["x"]}]}', b'"x"'),
        ("lines[1].article[0]", b'{"lines": [[1, 2], {"article": ["x", 1], "n": [3]}, 4], "n": {}}', b'"x"'),
        ("lines[2]", b'{"lines": ["a,]", {"b": [1, 2]}, 7]}', b"7"),
        ("lines[1]", b'{"lines": [0]}', None),
        ("lines[0]", b'{"lines": {"0": 1}}', None),
    ],
)
def test_the_key_is_the_value_at_the_path(path: str, body: bytes, key: bytes | None) -> None:
    keys = keys_of(f"json:{path}", segment_of([body, b'{"id": "other", "customer": {"id": 0}, "lines": [1, 2]}']))
    assert keys is not None or key is None
    assert (keys or [None])[0] == key


_SPACES = st.sampled_from(["", "", " ", "\n", "\t \r"])
_NAMES = st.sampled_from(["id", "id", "i", "id2", "x", '"id"', "{", ":", "\\", "é", ""])
_STRINGS = st.one_of(
    _NAMES, st.text(max_size=8), st.sampled_from(['"id":1,', 'a"id', "\\u0069d", "[{", "}", '\\"id":"'])
)
_NUMBERS = st.sampled_from(
    [
        "0",
        "-0",
        "7",
        "-12",
        "1.50",
        "1e3",
        "-1E-2",
        "9007199254740993",
        "1000000000000000000000",
        "0.0",
        "NaN",
        "-Infinity",
    ]
)
_HUGE = "1" * 5000
"""More digits than the parser takes."""


@st.composite
def _string(draw: st.DrawFn, text: str) -> str:
    """JSON text of a string: each character in one of the ways in which it may be written."""
    parts = []
    for character in text:
        ways = [f"\\u{ord(character):04x}"] if ord(character) < 1 << 16 else [json.dumps(character)[1:-1]]
        if character >= " " and character not in '"\\':
            ways = [character, character, character, *ways]
        elif character in '"\\':
            ways = ["\\" + character, "\\" + character, *ways]
        parts.append(draw(st.sampled_from(ways)) if len(ways) > 1 else ways[0])
    return '"' + "".join(parts) + '"'


@st.composite
def _json(draw: st.DrawFn, depth: int = 3) -> str:
    """Valid JSON in every form: names that are there twice, white space, escapes."""
    kind = draw(st.sampled_from(["string", "number", "literal", *(["object", "object", "array"] if depth else [])]))
    space, other = draw(_SPACES), draw(_SPACES)
    if kind == "string":
        return draw(_string(draw(_STRINGS)))
    if kind == "number":
        return draw(_NUMBERS)
    if kind == "literal":
        return draw(st.sampled_from(["true", "false", "null"]))
    if kind == "array":
        return "[" + space + f"{other},{space}".join(draw(st.lists(_json(depth - 1), max_size=3))) + other + "]"
    return draw(_object(depth - 1))


@st.composite
def _object(draw: st.DrawFn, depth: int = 2) -> str:
    space, other = draw(_SPACES), draw(_SPACES)
    members = [
        draw(_string(draw(_NAMES))) + space + ":" + other + draw(_json(depth)) for _ in range(draw(st.integers(0, 4)))
    ]
    return other + "{" + space + f"{other},{space}".join(members) + space + "}" + other


_PATHS: list[tuple[str | int, ...]] = [
    *[(name,) for name in ("id", "i", "x", ":", "é")],
    *[("id", "id"), ("x", "id"), ("id", 0), ("id", 2), ("x", 1, "id"), ("id", 0, 1)],
]


@given(st.lists(_object(), min_size=1, max_size=4), st.sampled_from(_PATHS))
@example([f'{{"id":{_HUGE}}}'], ("id",))
@example(['{"a":": 1,"}', '{"a":"}'], (":",))
@example(['{"x":{"id":1},"id":2}', '{"id":[1,{"id":2}]}'], ("id",))
@settings(max_examples=120, deadline=None)
@pytest.mark.histories
def test_the_search_finds_what_the_parser_finds(bodies: list[str], path: tuple[str | int, ...]) -> None:
    keys = BodyKeys(path)
    segment = segment_of([body.encode("utf-8", "surrogatepass") for body in bodies])
    parsed = [keys._parsed(body.encode("utf-8", "surrogatepass")) for body in bodies]
    assert keys.of_segment(segment) == (parsed if any(parsed) else None)
    assert [keys.of_message(segment, index) for index in range(segment.count)] == parsed


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4), st.data())
def test_alone_and_together_any_body_has_the_same_key(parts: list[bytes], data: st.DataObject) -> None:
    """Also one that is no JSON, as the search does not look at all of it."""
    some = st.sampled_from([b'{"id":1,', b'"id":2}', b'"id":"', b"{", b"\n", b"}", b"[1,", b"]", b"\\u", *parts])
    bodies = data.draw(st.lists(st.lists(some, max_size=4).map(b"".join), min_size=1, max_size=4))
    segment, keys = segment_of(bodies), BodyKeys(data.draw(st.sampled_from([("id",), ("id", "id"), ("id", 1)])))
    alone = [keys.of_message(segment, index) for index in range(segment.count)]
    assert keys.of_segment(segment) == (alone if any(alone) else None)


@pytest.mark.parametrize(
    ("path", "bodies", "found"),
    [
        (
            ("id",),
            [
                b'{"id": "a", "n": 1}',
                b' {"text": "a \\"quoted\\" [word]", "id": -7, "more": {"list": [1, {}]}}',
                '{"x": "é", "id": true}'.encode(),
            ],
            [b'"a"', b"-7", b"true"],
        ),
        (
            ("order", "customer", "id"),
            [
                b'{"id": 1, "order": {"id": 2, "lines": [[3], {"a": [[4]]}], "customer": {"id": "c1", "x": []}}}',
                rb'{"order": {"customer": {"name": "J\u00fcrgen \"J\" [", "id": 5}, "id": 6}}',
            ],
            [b'"c1"', b"5"],
        ),
        (("lines", 1, "id"), [b'{"lines": [{"id": "a,"}, {"n": [1, 2], "id": "b"}, 3], "id": 4}'], [b'"b"']),
    ],
)
def test_most_bodies_are_not_parsed(
    path: tuple[str | int, ...], bodies: list[bytes], found: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BodyKeys, "_parsed", lambda self, body: pytest.fail(f"{body!r} is parsed"))
    keys = BodyKeys(path)
    assert keys.of_segment(segment_of(bodies)) == found
    assert [keys.of_segment(segment_of([body])) for body in bodies] == [[key] for key in found]
