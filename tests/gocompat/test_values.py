"""Go's ways to print a value."""

from __future__ import annotations

import math
from datetime import date, datetime

import pytest

from nsqtw.gocompat.values import quoted, shown, type_name


@pytest.mark.parametrize(
    ("value", "text", "name"),
    [
        (True, "true", "bool"),
        (7, "7", "int64"),
        (1.0, "1", "float64"),
        (0.5, "0.5", "float64"),
        (1e30, "1e+30", "float64"),
        (math.nan, "NaN", "float64"),
        (math.inf, "+Inf", "float64"),
        (-math.inf, "-Inf", "float64"),
        ("a b", "a b", "string"),
        ([], "[]", "[]interface {}"),
        (["a", 1, [True]], "[a 1 [true]]", "[]interface {}"),
        ({"b": "x", "a": 1}, "map[a:1 b:x]", "map[string]interface {}"),
        (date(1979, 5, 27), "1979-05-27", "time.Time"),
        (datetime(1979, 5, 27), "1979-05-27 00:00:00", "time.Time"),
    ],
)
def test_a_value_and_its_type_as_go_prints_them(value: object, text: str, name: str) -> None:
    assert (text, name) == (shown(value), type_name(value))


def test_a_text_in_quotes_shows_what_cannot_be_printed() -> None:
    assert quoted('a"\n\udcff€') == r'"a\"\n\xff€"'
