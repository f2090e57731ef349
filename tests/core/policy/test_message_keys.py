"""Keys in headers and bodies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
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
        ("id", b'{"id": "\xff", "x": []}', None),
        ("customer.id", b'{"customer": {"id": "c1"}}', b'"c1"'),
        ("customer.id", b'{"customer": 1}', None),
        ("lines[1].article[0]", b'{"lines": [0, {"article": ["x"]}]}', b'"x"'),
        ("lines[1]", b'{"lines": [0]}', None),
        ("lines[0]", b'{"lines": {"0": 1}}', None),
    ],
)
def test_the_key_is_the_value_at_the_path(path: str, body: bytes, key: bytes | None) -> None:
    keys = keys_of(f"json:{path}", segment_of([body, b'{"id": "other", "customer": {"id": 0}, "lines": [1, 2]}']))
    assert keys is not None or key is None
    assert (keys or [None])[0] == key


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False))
_NAMES = st.sampled_from(["id", "i", "id2", "x", '"id"', "{", ":"])


@given(
    st.dictionaries(_NAMES, st.one_of(_SCALARS, st.lists(_SCALARS), st.dictionaries(_NAMES, _SCALARS))), st.booleans()
)
def test_the_quick_search_finds_what_the_parser_finds(document: dict[str, object], is_ascii: bool) -> None:
    body = json.dumps(document, ensure_ascii=is_ascii, indent=1 if len(document) % 2 else None).encode(
        "utf-8", "surrogatepass"
    )
    keys = BodyKeys(("id",))
    segment = segment_of([body])
    assert keys.of_message(segment, 0) == keys._parsed(body)
