"""The type of Spark for a schema of Avro, as Spark's own ``from_avro`` maps them."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_nsq.errors import OptionError

_SIMPLE: dict[str, type[DataType]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "bytes": BinaryType,
    "fixed": BinaryType,
    "string": StringType,
    "enum": StringType,
}
_LOGICAL: dict[tuple[str, str], type[DataType]] = {
    ("int", "date"): DateType,
    ("long", "timestamp-millis"): TimestampType,
    ("long", "timestamp-micros"): TimestampType,
    ("long", "local-timestamp-millis"): TimestampNTZType,
    ("long", "local-timestamp-micros"): TimestampNTZType,
}
_EXAMPLE = '{"type": "record", "name": "Click", "fields": [{"name": "user", "type": "string"}]}'


def avro_type(name: str, text: str) -> StructType:
    """Return the type of the record that the option `name` declares. Raises OptionError."""
    try:
        found = _type(json.loads(text), {})
        if not isinstance(found, StructType):
            raise ValueError("it is not a record")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = str(error) if type(error) is ValueError else f"it is not JSON of Avro ({type(error).__name__})"
        raise OptionError(f'option "{name}" is no schema of Avro: {said}; for example {_EXAMPLE}') from None
    return found


def _type(schema: Any, named: dict[str, DataType | None]) -> DataType:
    if isinstance(schema, list):
        return _union(schema, named)
    if isinstance(schema, str):
        if schema in named:
            known = named[schema]
            if known is None:
                raise ValueError(f'"{schema}" contains itself, which no column can')
            return known
        schema = {"type": schema}
    kind = schema["type"]
    if not isinstance(kind, str) or kind in named:
        return _type(kind, named)
    if "name" in schema:
        named[schema["name"]] = None
    found = _of_kind(kind, schema, named)
    if "name" in schema:
        named[schema["name"]] = found
        if "namespace" in schema:
            named[f"{schema['namespace']}.{schema['name']}"] = found
    return found


def _of_kind(kind: str, schema: dict[str, Any], named: dict[str, DataType | None]) -> DataType:
    logical = schema.get("logicalType", "")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
    if (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical]()
    if kind in _SIMPLE:
        return _SIMPLE[kind]()
    if kind == "array":
        return ArrayType(_type(schema["items"], named))
    if kind == "map":
        return MapType(StringType(), _type(schema["values"], named))
    if kind == "record":
        fields = [StructField(each["name"], _type(each["type"], named)) for each in schema["fields"]]
        if not fields:
            raise ValueError("a record has no field")
        return StructType(fields)
    raise ValueError(f'there is no type "{kind}"')


def _union(branches: list[Any], named: dict[str, DataType | None]) -> DataType:
    others = [each for each in branches if each != "null"]
    if len(others) != 1:
        raise ValueError("a union of several types is not supported, except with null")
    return _type(others[0], named)
