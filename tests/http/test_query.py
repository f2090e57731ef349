"""Query strings: what is read from them, and what is refused."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.http.query import parameters
from nsqtw.http.responses import Refused
from tests.http.broker_fixture import Log


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (b"", {}),
        (b"&&", {}),
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"a=1&a=2", {"a": "1"}),
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"=1", {"": "1"}),
        (b"a=b=c", {"a": "b=c"}),
        (b"a=1+2%2B3%20", {"a": "1 2+3 "}),
        (b"%61=%C3%a9", {"a": "é"}),
        (b"a=t%23ephemeral", {"a": "t#ephemeral"}),
        (b"a=t#ephemeral", {"a": "t#ephemeral"}),
        (b"a=%FF", {"a": "\udcff"}),
    ],
)
def test_parameters(query: bytes, found: dict[str, str]) -> None:
    assert dict(parameters(query)) == found


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (b"a=1;b=2", "invalid semicolon separator in query"),
        (b";", "invalid semicolon separator in query"),
        (b"a=%", 'invalid URL escape "%"'),
        (b"a=%4", 'invalid URL escape "%4"'),
        (b"a=%zz1", 'invalid URL escape "%zz"'),
        (b"%g1=a", 'invalid URL escape "%g1"'),
        (b"a=%41&b=%4x", 'invalid URL escape "%4x"'),
    ],
)
def test_what_is_no_query_is_refused_and_logged(query: bytes, why: str) -> None:
    with Log() as lines, pytest.raises(Refused) as refused:
        parameters(query)
    assert refused.value.answer.status == 400
    assert lines == [f"error: failed to parse request params - {why}"]


@given(st.dictionaries(st.text(), st.text()))
def test_what_was_escaped_is_found_again(given_parameters: dict[str, str]) -> None:
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in given_parameters.items())
    expected = {name: value for name, value in given_parameters.items() if name or value}
    assert {name: value for name, value in parameters(query.encode()).items() if name or value} == expected


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(query: bytes) -> None:
    try:
        found = parameters(query)
    except Refused:
        return
    assert all(isinstance(text, str) for pair in found.items() for text in pair)
