"""Options for the rows of a read: the columns, and the form of the messages.

| option         | for  | default | meaning                                                                     |
|----------------|------|---------|-----------------------------------------------------------------------------|
| columns        | both | all     | the columns of the rows: ``value,timestamp``. Others are not made           |
| valueFormat    | both | binary  | ``binary``; ``string``: UTF-8; ``json``, ``avro``: structs of `valueSchema` |
| valueSchema    | both | none    | for json ``a INT, b STRING``, or a schema of Spark as JSON; for avro a      |
|                |      |         | record as JSON                                                              |
| onMalformed    | both | fail    | ``fail``, or ``null`` for a value that is not of that form                  |
| includeHeaders | log  | false   | a column ``headers`` of maps; null for messages without headers             |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql.types import DataType, StringType, StructField, StructType

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.avro_schema import avro_type
from pyspark_nsq.options.ddl import struct_of
from pyspark_nsq.options.kinds import Choice, YesNo, option

BINARY, STRING, JSON, AVRO = "binary", "string", "json", "avro"
VALUE = "value"
HEADERS_COLUMN = "headers"


class _ColumnNames:
    """Comma-separated names of columns; a tuple of them without repeats, at least one."""

    def read(self, name: str, text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
        if not names:
            raise OptionError(f'option "{name}" names no column, for example "value,timestamp"')
        return names


class _SchemaText:
    def read(self, name: str, text: str) -> str:
        if not text.strip():
            raise OptionError(f'option "{name}" is empty, for example "user STRING, amount DOUBLE"')
        return text


@dataclass(frozen=True, kw_only=True)
class Values:
    """The options of the rows of a read."""

    columns: tuple[str, ...] = option("columns", _ColumnNames(), ())
    value_format: str = option("valueFormat", Choice((BINARY, STRING, JSON, AVRO)), BINARY)
    value_schema: str | None = option("valueSchema", _SchemaText(), None)
    on_malformed: str = option("onMalformed", Choice(("fail", "null")), "fail")
    include_headers: bool = option("includeHeaders", YesNo(), False)

    @cached_property
    def value_type(self) -> DataType | None:
        """The type of the column `value`; None when the messages are not decoded. Raises OptionError."""
        if self.value_format == STRING:
            return StringType()
        if self.value_format == JSON:
            return struct_of("valueSchema", str(self.value_schema))
        if self.value_format == AVRO:
            return avro_type("valueSchema", str(self.value_schema))
        return None

    @property
    def is_shaped(self) -> bool:
        """Whether these options change the rows."""
        return bool(self.columns) or self.value_format != BINARY

    def arrow_value_type(self) -> Any:
        """Return `value_type` as Arrow's."""
        from pyspark.sql.pandas.types import to_arrow_type

        assert self.value_type is not None
        return to_arrow_type(self.value_type, timezone="UTC")

    def shaped(self, schema: StructType) -> StructType:
        """Return the schema of a read whose columns otherwise are `schema`."""
        fields = {each.name: each for each in schema.fields}
        if self.value_type is not None:
            fields[VALUE] = StructField(VALUE, self.value_type)
        return StructType([fields[name] for name in self.columns or fields])

    def check_values(self, schema: StructType) -> None:
        """Raise OptionError for options that contradict each other, or columns that `schema` does not have."""
        known = schema.fieldNames()
        if self.include_headers and self.columns and HEADERS_COLUMN not in self.columns:
            raise OptionError('"includeHeaders" is set, but the column "headers" is not among "columns"; name it there')
        for name in self.columns:
            if name not in known:
                raise OptionError(f'option "columns": there is no column "{name}"; there are {", ".join(known)}')
        has_schema = self.value_format in (JSON, AVRO)
        if has_schema and self.value_schema is None:
            raise OptionError(f'"valueFormat" is "{self.value_format}", which needs the option "valueSchema"')
        if not has_schema and self.value_schema is not None:
            raise OptionError('"valueSchema" is set, which needs the option "valueFormat" to be "json" or "avro"')
        if self.value_format == BINARY and self.on_malformed != "fail":
            raise OptionError(
                '"onMalformed" is set, but with the "valueFormat" binary no value is malformed; leave it out'
            )
        if self.value_type is not None and self.columns and VALUE not in self.columns:
            raise OptionError('"valueFormat" is set, but the column "value" is not among "columns"; name it there')
