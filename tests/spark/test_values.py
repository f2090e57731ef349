"""Messages as text, JSON and Avro: each batch decoded in one step, or message by message, with the same result."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark_nsq.errors import OptionError, ValueFormatError
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.values.decoder import Decoder, decoder
from pyspark_nsq.values.json_documents import JsonDocuments

LOG = {"replay": "log", "nsqdHttpAddresses": "x:1", "topic": "t"}


def made(**more: str) -> Decoder:
    found = decoder(LogOptions.parse(LOG | more))
    assert found is not None
    return found


def json_decoder(schema: str, **more: str) -> Decoder:
    return made(valueFormat="json", valueSchema=schema, **more)


def decode(with_: Decoder, *bodies: bytes) -> list[Any]:
    found = with_.decode(pa.array(bodies, pa.binary()), lambda row: f"row {row}").to_pylist()
    assert len(bodies) == len(found)
    return found


def test_values_stay_as_they_are_unless_the_options_say_otherwise() -> None:
    assert decoder(LogOptions.parse(LOG)) is None


def test_text() -> None:
    assert decode(made(valueFormat="string"), "ä".encode(), b"") == ["ä", ""]
    assert decode(made(valueFormat="string", onMalformed="null"), b"a", b"\xff") == ["a", None]
    with pytest.raises(ValueFormatError, match=r"^row 1: the value is no text in UTF-8 .*invalid start byte at byte 0"):
        decode(made(valueFormat="string"), b"a", b"\xff")


SCHEMA = (
    "n INT, s STRING, d DOUBLE, b BOOLEAN, tags ARRAY<STRING>, inner STRUCT<x: BIGINT, y: STRING>, "
    "at TIMESTAMP, day DATE, price DECIMAL(10, 2), raw BINARY, counts MAP<STRING, INT>"
)


def test_json_of_all_types() -> None:
    body = {
        "n": 1,
        "s": "ü",
        "d": 2,
        "b": True,
        "tags": ["x", None],
        "inner": {"x": 5, "other": 1},
        "at": "2026-01-02T03:04:05.678901+01:00",
        "day": "2026-01-02",
        "price": 0.1,
        "raw": "AP8=",
        "counts": {"a": 1},
        "unknown": [1],
    }
    expected = {
        "n": 1,
        "s": "ü",
        "d": 2.0,
        "b": True,
        "tags": ["x", None],
        "inner": {"x": 5, "y": None},
        "at": datetime(2026, 1, 2, 2, 4, 5, 678901, UTC),
        "day": date(2026, 1, 2),
        "price": Decimal("0.10"),
        "raw": b"\0\xff",
        "counts": [("a", 1)],
    }
    assert [expected, dict.fromkeys(expected)] == decode(json_decoder(SCHEMA), json.dumps(body).encode(), b"{}")


ARROWS = "n INT, s STRING, d DOUBLE, tags ARRAY<STRING>, inner STRUCT<x: BIGINT>, at TIMESTAMP, day DATE"
documents = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        "d": st.none() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False),
        "tags": st.none() | st.lists(st.none() | st.sampled_from(["", "x\ny", "}{"]), max_size=2),
        "inner": st.none() | st.fixed_dictionaries({}, optional={"x": st.integers(0, 5), "z": st.none()}),
        "at": st.none() | st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02 03:04:05.5+02:00"]),
        "day": st.none() | st.just("1999-12-31"),
        "more": st.just({"n": "?"}),
    },
)


@given(st.lists(documents, max_size=6))
def test_arrow_decodes_json_as_message_by_message(found: list[dict[str, Any]]) -> None:
    form = JsonDocuments(LogOptions.parse(LOG | {"valueFormat": "json", "valueSchema": ARROWS}).arrow_value_type())
    bodies = pa.array([json.dumps(one).encode() for one in found], pa.binary())
    in_one_step = form.decode_all(bodies)
    assert in_one_step is not None
    one_by_one, malformed = form.decode_each(bodies)
    assert malformed == {}
    assert one_by_one.to_pylist() == in_one_step.to_pylist()
    assert one_by_one.type == in_one_step.type


#: Parts of bodies, from which a publisher could make a batch whose bodies are JSON only when they are joined.
PARTS = [
    *(bytes([byte]) for byte in b'{}[],:"\\\n \t\0/0\xff\xc3'),
    *(b'{"n":', b'{"z":', b'{"n":1}', b'{"n":2}', b'{"z":{"n":3}', b'"z":"', b',"n":4', b"}\n{", b"{}", b"null"),
    *(b'{"z":NaN}', b'{"z":-Inf}', b'{"d":NaN}', b'{"d":Infinity}', b'{"d":1e999}', b'{"f":1e39}'),
    *(b'{"f":7.038531e-26}', b'{"d":%s}' % (b"7" * 400), b'{"z":%s,"n":6}' % (b"7" * 5000)),
    b'{"z":%s%s,"n":7}' % (b"[" * 3000, b"]" * 3000),
    *(b'{"day":"0000-01-01"}', b'{"at":"0000-01-01T00:00:00Z"}', b'{"at":"0001-01-01T00:00:00+01:00"}'),
    *(b'{"at":"9999-12-31T23:59:59-01:00"}', b'{"n":null,"n":8}', b'{"s":"\\ud800"}', b'{"z":"\\ud800"}'),
    '{"s":"ü"}'.encode("utf-16-le"),
]
bodies_of_parts = st.lists(st.lists(st.sampled_from(PARTS), max_size=4).map(b"".join), max_size=6)


@st.composite
def cut_documents(draw: st.DrawFn) -> list[bytes]:
    """Return documents, joined and cut at other places into as many bodies as there are documents."""
    found = [json.dumps(one).encode() for one in draw(st.lists(documents, min_size=1, max_size=4))]
    text = draw(st.sampled_from([b"", b"\n"])).join(found)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), min_size=len(found) - 1, max_size=len(found) - 1)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def is_one_object(body: bytes) -> bool:
    """Say whether the body is one JSON object, as far as its text says: of whatever fields."""
    try:
        return isinstance(json.loads(body), dict)
    except RecursionError:
        return True
    except ValueError as error:
        return "Exceeds the limit" in str(error) or "Inf" in str(body)


@given(bodies_of_parts | cut_documents())
@example([b'{"x":', b'{"n":1}}', b'{"n":2}{"n":3}'])
@example([b'{"z":[{"n":1}', b',{"n":2}]}', b'{"n":2}{"n":3}'])
@example([b'{"z":"}', b'{"}', b'{"n":2}{"n":3}{"n":4}'])
@example([b'{"n":1}null{"n":2}', b"{}"])
@example([b'{"n":1}{"n":2}\0}', b'{"n":9}'])
@example([b'{"z":NaN}', b"{"])
@example([b'{"d":' + b"7" * 400 + b"}", b"{"])
def test_a_json_body_is_decoded_as_if_it_were_alone(bodies: list[bytes]) -> None:
    schema = ARROWS + ", f FLOAT"
    tolerant, strict = json_decoder(schema, onMalformed="null"), json_decoder(schema)
    alone = [decode(tolerant, body)[0] for body in bodies]
    assert repr(alone) == repr(decode(tolerant, *bodies))
    assert all(is_one_object(body) for body, value in zip(bodies, alone, strict=True) if value is not None)
    if None in alone:
        with pytest.raises(ValueFormatError, match=f"^row {alone.index(None)}: the value is no JSON of this schema: "):
            decode(strict, *bodies)
    else:
        assert repr(alone) == repr(decode(strict, *bodies))


def test_joined_bodies_that_hide_a_malformed_one_fail() -> None:
    bodies = b'{"x":', b'{"a":1}}', b'{"a":2}{"a":3}', b'{"a":9}'
    assert decode(json_decoder("a INT", onMalformed="null"), *bodies) == [None, None, None, {"a": 9}]
    with pytest.raises(ValueFormatError, match=r"^row 0: the value is no JSON of this schema: "):
        decode(json_decoder("a INT"), *bodies)


@pytest.mark.parametrize("neighbour", [b'{"n": 1}', b"{"], ids=["well-formed", "malformed"])
@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        *(("z", word, {"d": None}) for word in (b"NaN", b"Inf", b"-Infinity", b"7" * 5000, b"[" * 3000 + b"]" * 3000)),
        *(("d", word, {"d": float(word)}) for word in (b"Infinity", b"-Inf", b"1e400", b"7" * 400, b"-" + b"7" * 5000)),
        ("f", b"7.038531e-26", {"f": pytest.approx(7.038531e-26)}),
        ("f", b"3.4028235677973366e38", {"f": float("inf")}),
        *(("at", b'"%s"' % at, None) for at in (b"0000-01-01T00:00:00Z", b"0001-01-01T00:00:00+01:00")),
        *(("at", b'"%s"' % at, None) for at in (b"9999-12-31T23:59:59-01:00", b"10000-01-01T00:00:00Z")),
        *(("local", b'"%s"' % at, None) for at in (b"0000-01-01T00:00:00", b"10000-01-01T00:00:00")),
        *(("day", b'"%s"' % day, None) for day in (b"0000-01-01", b"10000-01-01")),
        *(("ats", b'["2026-01-01T00:00:00Z", "%s"]' % at, None) for at in (b"0000-01-01T00:00:00Z",)),
    ],
)
def test_neighbours_do_not_change_an_odd_value(field: str, value: bytes, expected: Any, neighbour: bytes) -> None:
    schema = "n INT, d DOUBLE, f FLOAT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, ats ARRAY<TIMESTAMP>"
    body = b'{"%s": %s}' % (field.encode(), value)
    found = decode(json_decoder(schema, onMalformed="null"), neighbour, body)[1]
    assert expected == (found and {key: found[key] for key in expected or {}})


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"1", b"[]", b'"x"', b"null", b"{", b'{"n": 1', b'{"n": 1}}', b'{"n": 1} {"n": 2}', b'{"n": "1"}']
    + [b'{"n": 1.5}', b'{"n": true}', b'{"n": 3000000000}', b'{"s": 1}', b'{"at": "noon"}', b'{"n": NaN}']
    + [b'{"a":{"x":1}', b',"n": 2}', b'{"s": "\xff"}', b'{"tags": "x"}', b'{"inner": []}'],
)
def test_malformed_json_fails_by_name_or_is_null(body: bytes) -> None:
    before, after = b'{"n": 1}', b'{"n": 2}'
    schema = "n INT, s STRING, at TIMESTAMP, tags ARRAY<STRING>, inner STRUCT<x: INT>, a STRUCT<x: INT, n: INT>"
    with pytest.raises(ValueFormatError) as caught:
        decode(json_decoder(schema), before, body, after)
    assert str(caught.value).startswith("row 1: the value is no JSON of this schema: ")
    assert "\n" not in str(caught.value)
    found = decode(json_decoder(schema, onMalformed="null"), before, body, after)
    assert [each and each["n"] for each in found] == [1, None, 2]


def test_a_space_or_newlines_around_and_inside_of_json() -> None:
    bodies = b' \n{"n":\n1}\n', b'\t{"n": 2} '
    assert decode(json_decoder("n INT"), *bodies) == [{"n": 1}, {"n": 2}]
    form = JsonDocuments(LogOptions.parse(LOG | {"valueFormat": "json", "valueSchema": "n INT"}).arrow_value_type())
    assert form.decode_all(pa.array(bodies, pa.binary())) is not None


AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "next", "type": ["null", "Kind"]},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
RECORD = {
    "user": "ann",
    "at": datetime(2026, 1, 2, tzinfo=UTC),
    "price": Decimal("1.25"),
    "kind": "B",
    "tags": {"x": [1, 2]},
    "next": None,
    "id": "6f3c1b0e-0000-4000-8000-000000000000",
}


def avro(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), record)
    return out.getvalue()


def test_avro() -> None:
    schema = json.dumps(AVRO)
    good = avro(RECORD)
    expected = RECORD | {"tags": [("x", [1, 2])]}
    assert [expected] * 2 == decode(made(valueFormat="avro", valueSchema=schema), good, good)
    for bad in (b"", good[:-1], good + b"x"):
        tolerant = made(valueFormat="avro", valueSchema=schema, onMalformed="null")
        assert [expected, None, expected] == decode(tolerant, good, bad, good)
        with pytest.raises(ValueFormatError, match=r"^row 1: the value is no Avro of this schema: "):
            decode(made(valueFormat="avro", valueSchema=schema), good, bad)


def test_avro_without_fastavro(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(OptionError, match="pip install fastavro"):
        made(valueFormat="avro", valueSchema=json.dumps(AVRO))
