"""Schemas of Spark as text, ``user STRING, amount DECIMAL(10, 2), tags ARRAY<STRING>``, read without Java.

Spark itself reads such text only in a process with a session. The options of a stream are checked in another process.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_nsq.errors import OptionError

_SIMPLE: dict[str, type[DataType]] = {
    "BOOLEAN": BooleanType,
    "TINYINT": ByteType,
    "BYTE": ByteType,
    "SMALLINT": ShortType,
    "SHORT": ShortType,
    "INT": IntegerType,
    "INTEGER": IntegerType,
    "BIGINT": LongType,
    "LONG": LongType,
    "FLOAT": FloatType,
    "REAL": FloatType,
    "DOUBLE": DoubleType,
    "STRING": StringType,
    "BINARY": BinaryType,
    "DATE": DateType,
    "TIMESTAMP": TimestampType,
    "TIMESTAMP_LTZ": TimestampType,
    "TIMESTAMP_NTZ": TimestampNTZType,
}
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")
_MAX_PRECISION = 38
_TOKEN = re.compile(r"""\s*(?:(`[^`]+`)|(\w+)|('(?:[^'\\]|\\.|'')*')|([<>(),:]))""")
_SUPPORTED = (*_SIMPLE.values(), DecimalType, ArrayType, MapType, StructType)


class _Reader:
    """Reads one text from left to right. Raises ValueError with the mistake."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f'"{text[at:].strip()[:20]}" is not understood')
            self._tokens.append(found[0].strip())
            at = found.end()
        self._at = 0

    def whole(self) -> StructType:
        fields = self._fields(":")
        if self._peek():
            raise ValueError(f'"{self._peek()}" is one too many')
        return fields

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, what: str = "") -> str:
        token = self._peek()
        if not token or (what and token != what):
            raise ValueError(f'{what or "a word"} is missing before "{token or "the end"}"')
        self._at += 1
        return token

    def _skip(self, *words: str) -> bool:
        if [token.upper() for token in self._tokens[self._at : self._at + len(words)]] != list(words):
            return False
        self._at += len(words)
        return True

    def _fields(self, colon: str) -> StructType:
        fields = [self._field(colon)]
        while self._skip(","):
            fields.append(self._field(colon))
        names = [each.name for each in fields]
        if len(set(names)) < len(names):
            raise ValueError("a field is there twice")
        return StructType(fields)

    def _field(self, colon: str) -> StructField:
        name = self._take()
        if not (name.startswith("`") or name.isidentifier()):
            raise ValueError(f'"{name}" is no name of a field')
        self._skip(colon)
        kind = self._type()
        self._skip("NOT", "NULL")  # a message may lack the field nevertheless
        if self._skip("COMMENT"):
            self._take()
        return StructField(name.strip("`"), kind)

    def _type(self) -> DataType:
        name = self._take().upper()
        if name in _DECIMAL:
            return self._decimal()
        if name == "ARRAY":
            self._take("<")
            element = self._type()
            self._take(">")
            return ArrayType(element)
        if name == "MAP":
            self._take("<")
            key = self._type()
            self._take(",")
            value = self._type()
            self._take(">")
            if not isinstance(key, StringType):
                raise ValueError("the key of a map must be STRING")
            return MapType(key, value)
        if name == "STRUCT":
            self._take("<")
            fields = self._fields(":")
            self._take(">")
            return fields
        if name not in _SIMPLE:
            raise ValueError(f'"{name}" is no type; there are {", ".join(sorted({*_SIMPLE, *_COMPLEX}))}')
        return _SIMPLE[name]()

    def _decimal(self) -> DecimalType:
        if not self._skip("("):
            return DecimalType(10, 0)
        precision, scale = self._number(), 0
        if self._skip(","):
            scale = self._number()
        self._take(")")
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise ValueError(f"DECIMAL({precision}, {scale}) is not possible")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not token.isdigit():
            raise ValueError(f'"{token}" is no number')
        return int(token)


_COMPLEX = ("DECIMAL", "ARRAY", "MAP", "STRUCT")


def struct_of(name: str, text: str) -> StructType:
    """Return the schema that the option `name` gives as DDL, or in Spark's JSON form. Raises OptionError."""
    try:
        found = _from_json(text) if text.lstrip().startswith("{") else _Reader(text).whole()
        _check(found)
    except ValueError as error:
        raise OptionError(f'option "{name}" is no schema: {error}; for example "user STRING, amount DOUBLE"') from None
    return found


def _from_json(text: str) -> StructType:
    try:
        document: Any = json.loads(text)
        return StructType.fromJson(document)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise ValueError(f"it is not a struct in Spark's JSON form ({type(error).__name__})") from None
    except Exception as error:  # errors of Spark's own for types it does not know
        raise ValueError(str(error).splitlines()[0]) from None


def _check(found: DataType) -> None:
    """Raise ValueError for a type that no message can be read as. Fields become nullable."""
    if not isinstance(found, _SUPPORTED):
        raise ValueError(f"{found.simpleString()} cannot be read from a message")
    if isinstance(found, StructType):
        if not found.fields:
            raise ValueError("there is no field")
        for each in found.fields:
            each.nullable = True
            _check(each.dataType)
    elif isinstance(found, ArrayType):
        found.containsNull = True
        _check(found.elementType)
    elif isinstance(found, MapType):
        if not isinstance(found.keyType, StringType):
            raise ValueError("the key of a map must be STRING")
        found.valueContainsNull = True
        _check(found.valueType)
