"""Texts of numbers, sizes, durations and bodies."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.admin.history import Points
from nsqtw.admin.pages import formats
from nsqtw.admin.pages.messages import body_text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7, "7"), (999, "999"), (1000, "1.00k"), (12_345, "12.3k"), (999_999, "1.00M"), (2.5e9, "2.50G")],
)
def test_a_short_number_has_three_digits(value: float, text: str) -> None:
    assert formats.short(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.25, "0.25"), (12.34, "12.3"), (1234.5, "1,234")])
def test_a_rate_has_as_many_digits_as_one_can_read(value: float, text: str) -> None:
    assert formats.rate(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.5 KB"), (79_100_000_000, "73.7 GB")])
def test_a_size_has_a_unit(value: float, text: str) -> None:
    assert formats.size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text", "brief"),
    [
        (0, "0 ms", "0 ms"),
        (0.0004, "0.40 ms", "0.40 ms"),
        (0.35, "350 ms", "350 ms"),
        (9.4, "9.4 s", "9.4 s"),
        (59.9, "1 min", "1 min"),
        (75, "1 min 15 s", "1.2 min"),
        (3600, "1 h", "1.0 h"),
        (90_000, "1 d 1 h", "1.0 d"),
        (2_000_000, "23 d 3 h", "23 d"),
    ],
)
def test_a_duration_has_its_largest_units(seconds: float, text: str, brief: str) -> None:
    assert formats.duration(seconds) == text
    assert formats.brief(seconds) == brief


@pytest.mark.parametrize("form", [formats.count, formats.short, formats.rate, formats.size, formats.duration])
def test_what_is_not_known_is_a_dash(form: object) -> None:
    assert form(None) == form(math.nan) == "–"  # type: ignore[operator]


def test_a_line_of_values_is_drawn_by_time() -> None:
    assert formats.polylines(Points([0, 50, 100], [0, 5, 10]), 100, 100, 10) == ["0.0,10.0 50.0,5.0 100.0,0.0"]
    # A page that was closed for a while has fewer samples of that time, not another slope.
    assert formats.polylines(Points([0, 90, 100], [0, 9, 10]), 100, 100, 10) == ["0.0,10.0 90.0,1.0 100.0,0.0"]
    assert formats.polylines(Points([0, 300], [1, 1]), 600, 100, 10) == ["0.0,0.0 100.0,0.0"]
    assert formats.polylines(Points([0, 30], [1, 1]), 600, 100, 10) == ["75.0,0.0 100.0,0.0"]
    assert formats.polylines(Points([0, 90, 100], [5, 10, 10]), 10, 100, 10) == ["0.0,0.0 100.0,0.0"]
    assert formats.polylines(Points([100], [1]), 100, 100, 10) == formats.polylines(Points([], []), 100, 100, 10) == []
    assert formats.polylines(Points([0, 100], [0, 0]), 100, 100, 10) == ["0.0,10.0 100.0,10.0"]
    assert formats.area("0.0,5.0 100.0,0.0", 10) == "0.0,10 0.0,5.0 100.0,0.0 100.0,10"


def test_unknown_values_are_gaps_in_a_line() -> None:
    values = [math.nan, 1, 2, math.nan, 2, 1]
    points = Points([0, 20, 40, 60, 80, 100], values)
    assert formats.polylines(points, 100, 100, 10) == ["20.0,5.0 40.0,0.0", "80.0,0.0 100.0,5.0"]


# -- bodies


def test_json_keeps_its_numbers_strings_and_order() -> None:
    text = '{"b": 1.10, "a": 1e400, "b": 2, "s": "\\u00e9 , : { ["}'
    pretty = formats.pretty_json(text)
    assert pretty == '{\n  "b": 1.10,\n  "a": 1e400,\n  "b": 2,\n  "s": "\\u00e9 , : { ["\n}'


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_with_indentation_is_the_same_document(document: object) -> None:
    text = json.dumps([document])
    pretty = formats.pretty_json(text)
    assert pretty is not None and json.loads(pretty) == [document]
    assert pretty == json.dumps([document], indent=2)


@pytest.mark.parametrize("text", ["7", '"word"', "true", "{", "{]", "[1,]", "", "plain", "[" * 100_000])
def test_what_is_no_document_is_no_json(text: str) -> None:
    assert formats.pretty_json(text) is None


def test_colours_escape_everything() -> None:
    html = str(formats.coloured('{"<b>": "<script>", "n": -1.5, "t": true}'))
    assert html == (
        '{<span class="key">&#34;&lt;b&gt;&#34;</span>: <span class="string">&#34;&lt;script&gt;&#34;</span>, '
        '<span class="key">&#34;n&#34;</span>: <span class="literal">-1.5</span>, '
        '<span class="key">&#34;t&#34;</span>: <span class="literal">true</span>}'
    )


@pytest.mark.parametrize(
    ("body", "wanted", "text", "form"),
    [
        (b"hello", "auto", "hello", "text"),
        (b"[1]", "auto", "[\n  1\n]", "json"),
        (b"[1]", "text", "[1]", "text"),
        (b"hi\x00", "auto", "00000000  68 69 00                                          hi.", "hex"),
        (b"\xff", "auto", "00000000  ff                                                .", "hex"),
        (b"\xff", "text", "\ufffd", "text"),
        (b"hi", "hex", "00000000  68 69                                             hi", "hex"),
        (b"", "auto", "", "text"),
    ],
)
def test_a_body_has_the_form_that_fits_or_is_wanted(body: bytes, wanted: str, text: str, form: str) -> None:
    assert body_text(body, wanted) == (text, form)
