"""Messages that are JSON objects.

Arrow reads all messages of a batch in one step. Where it cannot, each is read by itself: when one is malformed, has a
newline at its start or a value in another form than Arrow reads. TIMESTAMP (RFC 3339; UTC without a zone), DATE,
DECIMAL and BINARY (base64) are read from strings, as by Spark's ``from_json``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Convert = Callable[[Any], Any]


class JsonDocuments:
    """Structs of an Arrow type."""

    name = "JSON"

    def __init__(self, kind: pa.StructType) -> None:
        self._kind = kind
        self._convert = _converter(kind)
        self._read_as = _as_arrow_reads(kind)

    def decode_all(self, bodies: pa.Array) -> pa.Array | None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.json as pj

        count = len(bodies)
        # Each message then has one document at least, so that `count` documents are one each.
        if self._read_as is None or not pc.all(pc.starts_with(bodies, "{"), min_count=0).as_py():
            return None
        if not count:
            return pa.array([], self._kind)
        joined = pc.binary_join(pa.ListArray.from_arrays([0, count], bodies), b"\n")
        names = pj.ParseOptions(explicit_schema=pa.schema(self._read_as), unexpected_field_behavior="ignore")
        try:
            text = joined.cast(pa.string())[0].as_buffer()  # the reader accepts bytes that are not UTF-8 as text
            table = pj.read_json(
                pa.BufferReader(text), pj.ReadOptions(use_threads=False, block_size=text.size + 1), names
            )
            if table.num_rows != count:
                return None
            columns = [each.combine_chunks() for each in table.columns]
            return pa.StructArray.from_arrays(columns, fields=list(self._read_as)).cast(self._kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    def decode_each(self, bodies: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        import pyarrow as pa

        malformed: dict[int, str] = {}
        found: list[Any] = []
        for row, body in enumerate(bodies.to_pylist()):
            try:
                document = json.loads(body, parse_constant=_refuse, parse_float=_number)
                if document is None:
                    raise ValueError("null is no object")
                found.append(self._convert(document))
            except (ValueError, RecursionError) as error:
                found.append(None)
                malformed[row] = str(error)[:200]
        try:
            return pa.array(found, self._kind), malformed
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return self._one_by_one(found, malformed)

    def _one_by_one(self, found: list[Any], malformed: dict[int, str]) -> tuple[pa.Array, dict[int, str]]:
        import pyarrow as pa

        for row, each in enumerate(found):
            try:
                pa.array([each], self._kind)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                found[row] = None
                malformed[row] = str(error)[:200]
        return pa.array(found, self._kind), malformed


class _Float(float):
    """A number with a fraction, with its text, from which a decimal is exact."""

    text: str


def _number(text: str) -> _Float:
    found = _Float(text)
    found.text = text
    return found


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")


def _as_arrow_reads(kind: pa.StructType) -> pa.StructType | None:
    """Return the type with strings for types that are cast from strings; None if Arrow cannot read it from JSON."""
    import pyarrow as pa

    def read_as(each: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(each):
            return pa.struct([pa.field(part.name, read_as(part.type)) for part in each])
        if pa.types.is_list(each):
            return pa.list_(read_as(each.value_type))
        if pa.types.is_timestamp(each) or pa.types.is_date(each):
            return pa.string()
        if pa.types.is_map(each) or pa.types.is_decimal(each) or pa.types.is_binary(each):
            raise NotImplementedError
        return each

    try:
        return read_as(kind)
    except NotImplementedError:
        return None


def _converter(kind: pa.DataType) -> Convert:
    """Return a function that converts a JSON value for Arrow, and raises ValueError for a malformed one."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return _nullable(dict, _struct({each.name: _converter(each.type) for each in kind}))
    if pa.types.is_map(kind):
        of_value = _converter(kind.item_type)
        return _nullable(dict, lambda value: [(key, of_value(each)) for key, each in value.items()])
    if pa.types.is_list(kind):
        of_element = _converter(kind.value_type)
        return _nullable(list, lambda value: [of_element(each) for each in value])
    if pa.types.is_timestamp(kind):
        return _nullable(str, _moment if kind.tz else lambda text: datetime.fromisoformat(text).replace(tzinfo=None))
    if pa.types.is_date(kind):
        return _nullable(str, date.fromisoformat)
    if pa.types.is_decimal(kind):
        return _nullable((str, int, float), _decimal)
    if pa.types.is_binary(kind):
        return _nullable(str, _base64)
    if pa.types.is_boolean(kind):
        return _nullable(bool, lambda value: value)
    if pa.types.is_integer(kind):
        return _nullable(int, lambda value: value)
    if pa.types.is_floating(kind):
        return _nullable((int, float), float)
    return _nullable(str, lambda value: value)


def _nullable(wanted: type | tuple[type, ...], convert: Convert) -> Convert:
    takes_bool = wanted is bool

    def converted(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, wanted) or (isinstance(value, bool) and not takes_bool):
            raise ValueError(f"{json.dumps(value)[:50]} is of another type")
        return convert(value)

    return converted


def _struct(fields: dict[str, Convert]) -> Convert:
    return lambda value: {name: convert(value.get(name)) for name, convert in fields.items()}


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _decimal(value: Any) -> Decimal:
    try:
        return Decimal(value.text if isinstance(value, _Float) else value)
    except InvalidOperation:
        raise ValueError(f'"{value}" is no number') from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None
