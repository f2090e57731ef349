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
_DECIMAL = "decimal"
_KINDS = {*_SIMPLE, "array", "map", "record"}
_EXAMPLE = '{"type": "record", "name": "Click", "fields": [{"name": "user", "type": "string"}]}'


def avro_type(name: str, text: str) -> StructType:
    """Return the type of the record that the option `name` declares. Raises OptionError."""
    try:
        found = _Reader().type_of(json.loads(text), "")
        if not isinstance(found, StructType):
            raise ValueError("it is not a record")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = str(error) if type(error) is ValueError else f"it is not JSON of Avro ({type(error).__name__})"
        raise OptionError(f'option "{name}" is no schema of Avro: {said}; for example {_EXAMPLE}') from None
    return found


def without_unknown_logical_types(schema: Any) -> Any:
    """Return a schema in which values of logical types that Spark does not map are those of their plain types."""
    if isinstance(schema, list):
        return [without_unknown_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    logical = schema.get("logicalType")
    is_known = logical == _DECIMAL or [schema.get("type"), logical] in [list(pair) for pair in _LOGICAL]
    return {
        key: without_unknown_logical_types(each) for key, each in schema.items() if is_known or key != "logicalType"
    }


class _Reader:
    """Reads one schema, with the names that it declares. Raises ValueError, KeyError, TypeError or AttributeError."""

    def __init__(self) -> None:
        self._named: dict[str, DataType | None] = {}

    def type_of(self, schema: Any, namespace: str) -> DataType:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
            return self.type_of(schema["type"], namespace)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if kind not in _KINDS:
            return self._known(kind, namespace)
        if "name" not in schema:
            return self._of_kind(kind, schema, namespace)
        full = _full_name(schema["name"], schema.get("namespace", namespace))
        self._named[full] = None
        self._named[full] = found = self._of_kind(kind, schema, full.rpartition(".")[0])
        return found

    def _known(self, name: str, namespace: str) -> DataType:
        full = _full_name(name, namespace)
        if full not in self._named:
            raise ValueError(f'there is no type "{name}"')
        found = self._named[full]
        if found is None:
            raise ValueError(f'"{name}" contains itself, which no column can')
        return found

    def _of_kind(self, kind: str, schema: dict[str, Any], namespace: str) -> DataType:
        logical = schema.get("logicalType", "")
        if logical == _DECIMAL and kind in ("bytes", "fixed"):
            return DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]()
        if kind in _SIMPLE:
            return _SIMPLE[kind]()
        if kind == "array":
            return ArrayType(self.type_of(schema["items"], namespace))
        if kind == "map":
            return MapType(StringType(), self.type_of(schema["values"], namespace))
        fields = [StructField(each["name"], self.type_of(each["type"], namespace)) for each in schema["fields"]]
        if not fields:
            raise ValueError("a record has no field")
        return StructType(fields)

    def _union(self, branches: list[Any], namespace: str) -> DataType:
        others = [each for each in branches if each != "null"]
        if len(others) != 1:
            raise ValueError("a union of several types is not supported, except with null")
        return self.type_of(others[0], namespace)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
