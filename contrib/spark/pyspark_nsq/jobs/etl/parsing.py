"""The bodies of messages as columns, and the reason for each body that cannot be parsed or does not match the schema.

A body is JSON of the schema when it is UTF-8, one JSON object and nothing else, each field of the schema that is there
has a value of the field's type, and each field that is ``NOT NULL`` is there. Fields that the schema does not have are
ignored. ``NOT NULL`` counts on the top level alone.
"""

from __future__ import annotations

import uuid
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from pyspark_nsq.jobs.etl.sections import TEXT

PARSED, REASON = "parsed", "reason"
#: The counts of Spark in each micro-batch, and their names.
OBSERVATION, MESSAGES, DEAD_LETTERS = "etl", "messages", "dead_letters"

_WHITESPACE = " \t\r\n"
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_TEXT_SCHEMA = StructType([StructField("value", StringType())])


def value_schema(format: str, schema: StructType | None) -> StructType:
    """Return the columns that a body becomes."""
    return _TEXT_SCHEMA if format == TEXT or schema is None else schema


def parsed(messages: DataFrame, format: str, schema: StructType | None, *, is_failing: bool) -> DataFrame:
    """Add the columns `parsed`, a struct, and `reason`, null for a good message. Count both kinds.

    With `is_failing` the first bad message ends the query with its reason.
    """
    text = f.col("value").cast("string")
    if format == TEXT or schema is None:
        rows = messages.withColumn(PARSED, f.struct(text.alias("value")))
        rows = rows.withColumn(REASON, f.when(~f.is_valid_utf8(text), "not UTF-8"))
    else:
        rows = _parsed_json(messages, text, schema)
    is_bad = f.col(REASON).isNotNull()
    counted = f.when(is_bad, _failure() if is_failing else f.lit(1))
    # Spark moves no filter below this step, so it counts all rows, and each body is parsed once.
    return rows.observe(OBSERVATION, f.count(f.lit(1)).alias(MESSAGES), f.count(counted).alias(DEAD_LETTERS))


def _parsed_json(messages: DataFrame, text: Column, schema: StructType) -> DataFrame:
    # Spark ignores text after a complete value, and would accept `{"a": 1} {"a": 2}`. So a member with a name that no
    # publisher knows is added before the last brace: it is in the first object only if nothing comes after that object.
    unknown = uuid.uuid4().hex
    is_whole, corrupt = f"is_whole_{unknown}", f"corrupt_{unknown}"
    body = f.btrim(text, f.lit(_WHITESPACE))
    members = f.rtrim(body.substr(f.lit(1), f.length(body) - 1), f.lit(_WHITESPACE))
    probe = f.concat(members, f.when(members == "{", "").otherwise(","), f.lit(f'"{is_whole}":true}}'))
    checked = f.when(body.startswith("{") & body.endswith("}"), probe)
    fields = [*schema.fields, StructField(is_whole, BooleanType()), StructField(corrupt, StringType())]
    parsed = f.from_json(checked, StructType(fields), _STRICT | {"columnNameOfCorruptRecord": corrupt})
    rows = messages.withColumn(PARSED, parsed)
    found = f.col(PARSED)
    is_broken = found.getField(corrupt).isNotNull() | found.getField(is_whole).isNull()
    wrapped = f.concat(f.lit('{"v":'), text, f.lit("}"))
    place = f.when(checked.isNull(), "$.v").otherwise(f"$.{is_whole}")
    whole = f.try_variant_get(f.try_parse_json(f.coalesce(checked, wrapped)), place, "variant")
    reason = (
        f.when(~f.is_valid_utf8(text), "not UTF-8")
        .when(is_broken & whole.isNull(), "not JSON")
        .when(is_broken, _mismatch(text, schema))
    )
    for field in schema.fields:
        if not field.nullable:
            reason = reason.when(_field(field).isNull(), f"{field.name} is missing or null")
    return rows.withColumn(REASON, reason)


def _mismatch(text: Column, schema: StructType) -> Column:
    """Return the fields with a value that is not of their type."""
    wrong = [
        f.when(
            f.get_json_object(text, f"$['{field.name}']").isNotNull() & _field(field).isNull(),
            f"{field.name} is not {field.dataType.simpleString()}",
        )
        for field in schema.fields
    ]
    named = f.concat_ws(", ", *wrong)
    return f.when(named != "", named).otherwise("not an object of the schema")


def _field(field: StructField) -> Column:
    return f.col(PARSED).getField(field.name)


def _failure() -> Column:
    place = f.concat(
        f.lit("a message of topic "),
        f.col("topic"),
        f.lit(" cannot be used: "),
        f.col(REASON),
        f.lit("; position "),
        f.coalesce(f.col("position").cast("string"), f.lit("unknown")),
        f.lit(", id "),
        f.col("id"),
        f.lit("; add [dead_letters] to the configuration to go on without such messages"),
    )
    return f.raise_error(place)


def good(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return the good messages: the columns of the schema, and those of NSQ under names that begin with `_`."""
    names = [f.col(PARSED).getField(field.name).alias(field.name) for field in schema.fields]
    return rows.where(f.col(REASON).isNull()).select(*names, *(f.col(name).alias(f"_{name}") for name in NSQ_COLUMNS))


def dead_letters(rows: DataFrame) -> DataFrame:
    """Return the bad messages."""
    return rows.where(f.col(REASON).isNotNull()).select(REASON, "value", *NSQ_COLUMNS)


#: Columns of every message; `position` is null for a channel.
NSQ_COLUMNS = ("topic", "nsqd", "position", "id", "timestamp")


def union(frames: list[DataFrame]) -> DataFrame:
    """Return the rows of all frames, with the columns that `parsed` needs."""
    return reduce(DataFrame.unionAll, [_with_nsq_columns(frame) for frame in frames])


def _with_nsq_columns(frame: DataFrame) -> DataFrame:
    if "position" not in frame.columns:
        frame = frame.withColumn("position", f.lit(None).cast("bigint"))
    return frame.select("value", *NSQ_COLUMNS)
