"""The statements of a pipeline as DataFrames. Spark analyses them; nothing is read or run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pyspark_nsq.errors import ConfigError
from pyspark_nsq.jobs.etl.config import Config
from pyspark_nsq.jobs.etl.sections import Query, Table, View

_POSITION = re.compile(r"[;(]?\s*line (\d+),? pos (\d+)\)?")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\.?")
_CONDITION = re.compile(r"^\s*\[[A-Z_.0-9]+\]\s*")
#: The first word of a statement, behind comments and parentheses.
_FIRST_WORD = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]*)", re.DOTALL)
_SELECTS = ("select", "with", "from", "values", "table")
#: A statement is analysed as a subquery, so that it can only select. Its text begins in the second line.
_SUBQUERY = "SELECT * FROM (\n{}\n)"
_LINES_BEFORE = 1


def ddl(config: Config, section: str, number: int, text: str) -> StructType:
    """Return the columns of a schema. Raises ConfigError."""
    place = config.where(section, number, "schema")
    try:
        columns = StructType.fromDDL(text)
    except PySparkException as error:
        raise ConfigError(f'{place}: "schema" cannot be read: {message(error)}') from error
    if not isinstance(columns, StructType):
        raise ConfigError(
            f'{place}: "schema" must name columns with their types, for example "id string, at timestamp"'
        )
    return columns


def register_tables(spark: SparkSession, config: Config) -> None:
    """Make the tables available in SQL under their names. Raises ConfigError."""
    for number, table in enumerate(config.table):
        _table(spark, config, number, table).createOrReplaceTempView(table.name)


def _table(spark: SparkSession, config: Config, number: int, table: Table) -> DataFrame:
    path = config.path(table.path)
    reader = spark.read.format(table.format).options(**table.options)
    if table.schema is not None:
        reader = reader.schema(ddl(config, "table", number, table.schema))
    try:
        return reader.load(path)
    except PySparkException as error:
        problem = f"{path} is not there" if error.getCondition() == "PATH_NOT_FOUND" else message(error)
        raise ConfigError(f'{config.where("table", number, "path")}: [[table]] "{table.name}": {problem}') from error


def rows_of_query(spark: SparkSession, config: Config) -> DataFrame:
    """Register the views in their order, and return the rows of the query. Raises ConfigError."""
    for number, view in enumerate(config.view):
        frame = _analysed(spark, config, "view", number, f'[[view]] "{view.name}"', view)
        frame.createOrReplaceTempView(view.name)
    return _analysed(spark, config, "query", 0, "[query]", config.query)


def _analysed(
    spark: SparkSession, config: Config, section: str, number: int, title: str, statement: View | Query
) -> DataFrame:
    key = "file" if statement.sql is None else "sql"
    sql = statement.sql if statement.sql is not None else _read(config, section, number, str(statement.file))
    sql = sql.rstrip().removesuffix(";")
    place = f"{config.where(section, number, key)}: {title}"
    word = _FIRST_WORD.match(sql)
    if word is None or word[1].lower() not in _SELECTS:
        raise ConfigError(f"{place}: the statement must be a SELECT")

    def run() -> DataFrame:
        return spark.sql(_SUBQUERY.format(sql))

    return analysed(run, place, len(sql.splitlines()))


def analysed(run: Callable[[], DataFrame], place: str, line_count: int) -> DataFrame:
    """Return the result of `run`. Raises ConfigError: `place`, the position in the statement, and Spark's message."""
    try:
        return run()
    except (AnalysisException, ParseException) as error:
        found = _POSITION.search(str(error))
        if found is None:
            position = ""
        elif int(found[1]) - _LINES_BEFORE > line_count:
            position = " at the end of the statement"
        else:
            position = f" line {int(found[1]) - _LINES_BEFORE} column {int(found[2]) + 1}"
        raise ConfigError(f"{place}{position}: {message(error)}") from error


def message(error: PySparkException) -> str:
    """Return the message of an error of Spark's in one line, without plans, error classes and SQLSTATE."""
    text = str(error).strip().split("\n")[0].partition("JVM stacktrace")[0]
    return _CONDITION.sub("", _POSITION.sub("", _SQLSTATE.sub("", text))).strip().rstrip(";")


def _read(config: Config, section: str, number: int, name: str) -> str:
    path = Path(config.path(name))
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{config.where(section, number, 'file')}: cannot read {path}: {reason}") from None
