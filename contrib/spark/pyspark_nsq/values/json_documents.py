"""Messages that are JSON objects.

Arrow reads all messages of a batch in one step, joined by newlines. Each is read as if it were alone, because no
document goes on behind the end of its message. A message begins with "{" and ends with "}". Where a document went on,
that "}" would be the end of a value inside of it, which "{" cannot follow, or part of a string, which a newline cannot
follow. So each message has one document or more; with as many documents as messages, each message has one.

Where Arrow cannot read a batch, Python reads each message by itself, with the same result: when one is malformed or
has a value in another form than Arrow reads. TIMESTAMP (RFC 3339; UTC without a zone), DATE, DECIMAL and BINARY
(base64) are read from strings, as by Spark's ``from_json``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
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

        if self._read_as is None:
            return None
        if not len(bodies):
            return pa.array([], self._kind)
        try:
            texts = bodies.cast(pa.string())  # the reader accepts bytes that are not UTF-8 as text
            if not _are_in_braces(texts):
                texts = pc.ascii_trim(texts, " \t\r\n")
                if not _are_in_braces(texts):
                    return None
            found = self._read(texts, self._read_as)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        return None if found is None or _leaves_sparks_years(found) else found

    def _read(self, texts: pa.StringArray, read_as: pa.StructType) -> pa.StructArray | None:
        """Return the documents; None unless there is one for each text, which is in braces. Raises ArrowInvalid."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.json as pj

        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
        names = pj.ParseOptions(explicit_schema=pa.schema(read_as), unexpected_field_behavior="ignore")
        options = pj.ReadOptions(use_threads=False, block_size=joined.size + 1)
        table = pj.read_json(pa.BufferReader(joined), options, names)
        if table.num_rows != len(texts):
            return None
        columns = [each.combine_chunks() for each in table.columns]
        return pa.StructArray.from_arrays(columns, fields=list(read_as)).cast(self._kind)

    def decode_each(self, bodies: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        import pyarrow as pa

        malformed: dict[int, str] = {}
        found: list[Any] = []
        of_arrow: dict[int, pa.Array] = {}
        for row, body in enumerate(bodies.to_pylist()):
            try:
                found.append(self._document(body))
            except (ValueError, OverflowError, RecursionError) as error:
                found.append(None)
                alone = self.decode_all(bodies[row : row + 1]) if _is_a_limit_of_python(error) else None
                if alone is None:
                    malformed[row] = str(error)[:200]
                else:
                    of_arrow[row] = alone
        try:
            documents = pa.array(found, self._kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            documents = self._one_by_one(found, malformed)
        for row, alone in of_arrow.items():
            documents = pa.concat_arrays([documents[:row], alone, documents[row + 1 :]])
        return documents, malformed

    def _document(self, body: bytes) -> Any:
        document = json.loads(body, parse_float=_number)
        if document is None:
            raise ValueError("null is no object")
        return self._convert(document)

    def _one_by_one(self, found: list[Any], malformed: dict[int, str]) -> pa.Array:
        import pyarrow as pa

        for row, each in enumerate(found):
            try:
                pa.array([each], self._kind)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                found[row] = None
                malformed[row] = str(error)[:200]
        return pa.array(found, self._kind)


class _Float(float):
    """A number with a fraction, with its text, from which a decimal is exact."""

    text: str


def _number(text: str) -> _Float:
    found = _Float(text)
    found.text = text
    return found


def _are_in_braces(texts: pa.StringArray) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _is_a_limit_of_python(error: Exception) -> bool:
    """Say whether Arrow may read what Python refused: deep nesting, an integer of 4,301 digits, the word Inf."""
    if isinstance(error, json.JSONDecodeError):
        return error.doc.startswith(("Inf", "-Inf"), error.pos)
    return isinstance(error, RecursionError) or "set_int_max_str_digits" in str(error)


def _leaves_sparks_years(array: pa.Array) -> bool:
    """Say whether a time is outside of the years 1 to 9999, which Arrow reads and neither Python nor Spark can show."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(array.type):
        return any(_leaves_sparks_years(array.field(index)) for index in range(array.type.num_fields))
    if pa.types.is_list(array.type):
        return _leaves_sparks_years(array.flatten())
    if not (pa.types.is_timestamp(array.type) or pa.types.is_date(array.type)):
        return False
    years = [pc.year(each).as_py() for each in pc.min_max(array).values()]
    return any(year is not None and not 1 <= year <= 9999 for year in years)


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
        if pa.types.is_float32(each):
            return pa.float64()  # and is rounded twice, as by Python
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
        return _nullable((int, float), _double)
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
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer; with a fraction it is infinite at once
        return math.inf if value > 0 else -math.inf


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
