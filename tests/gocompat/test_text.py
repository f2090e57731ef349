"""Texts as Go writes them: quoted names and JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.gocompat.text import json_text, quoted


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", '""'),
        (b"plain name-1.2_3", '"plain name-1.2_3"'),
        (b"it's `so` #ephemeral", '"it\'s `so` #ephemeral"'),
        (b'a"b', r'"a\"b"'),
        (b"a\\b", r'"a\\b"'),
        (b"\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        (b"\x00\x01\x1b\x1f", r'"\x00\x01\x1b\x1f"'),
        (b"\x7f", r'"\x7f"'),
        (b"\xff", r'"\xff"'),
        (b"\x80\xbf", r'"\x80\xbf"'),
        (b"a\xe4\xb8", r'"a\xe4\xb8"'),
        (b"\xed\xa0\x80", r'"\xed\xa0\x80"'),
        (b"\xc0\x80", r'"\xc0\x80"'),
        ("中文 äöü ß é".encode(), '"中文 äöü ß é"'),
        ("😀".encode(), '"😀"'),
        ("\ufffd".encode(), '"\ufffd"'),
        ("a\u00a0b".encode(), r'"a\u00a0b"'),
        ("\u0085".encode(), r'"\u0085"'),
        ("\u200b\u2028\u2029\ufeff".encode(), r'"\u200b\u2028\u2029\ufeff"'),
        ("\ue000".encode(), r'"\ue000"'),
        ("\U000e0001\U0010ffff".encode(), r'"\U000e0001\U0010ffff"'),
    ],
)
def test_quoted(raw: bytes, text: str) -> None:
    assert quoted(raw) == text


@given(st.binary())
def test_a_quoted_name_is_printable_and_can_be_sent(raw: bytes) -> None:
    text = quoted(raw)
    assert text.encode().decode() == text
    assert text.isprintable()
    assert text[0] == text[-1] == '"'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, False, None]}, '{"b":1,"a":[true,false,null]}'),
        ({}, "{}"),
        ([1.5, -1, 0], "[1.5,-1,0]"),
        ("<script>&", r'"\u003cscript\u003e\u0026"'),
        ("\u2028\u2029", r'"\u2028\u2029"'),
        ({"<": ">"}, r'{"\u003c":"\u003e"}'),
        ('"\\\n\r\t', r'"\"\\\n\r\t"'),
        ("\x01\x1f", r'"\u0001\u001f"'),
        ("中 é 😀", '"中 é 😀"'),
        ("/", '"/"'),
    ],
)
def test_json_is_compact_and_escaped(value: object, text: str) -> None:
    assert json_text(value) == text.encode()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=10))
def test_json_is_read_as_what_was_written(value: object) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text.decode())


def test_half_a_surrogate_pair_is_no_reason_to_fail() -> None:
    assert len(json.loads(json_text({"name": "a\ud800b"}))["name"]) == 3
