"""Pipelines of ``nsqtw-spark etl`` on a real broker."""

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from pyspark_nsq.errors import ConfigError, PipelineError
from pyspark_nsq.jobs.etl import parsing
from pyspark_nsq.jobs.etl.config import load
from pyspark_nsq.jobs.etl.failures import reason_of
from pyspark_nsq.jobs.etl.pipeline import DEAD_LETTERS, ROWS, build
from pyspark_nsq.jobs.etl.source import unknown_topics

from tests.process import NsqdProcess
from tests.spark.jobs.etl_files import Sections, address, base, built, publish, published, run, topic, write

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/spark-pipelines.md"
SCHEMA = "id int NOT NULL, at timestamp, o struct<n: int>"


@pytest.mark.parametrize("format", ["json", "text"])
def test_which_bodies_are_dead_letters_and_why(spark: SparkSession, format: str) -> None:
    reasons = {
        b'{"id": 1, "at": "2026-01-01T00:00:00Z", "o": {"n": 1}, "more": []}': None,
        b'{"id": 1, "at": null}': None,
        b'{"id": "1"}': "id is not int",
        b'{"id": 1.5, "at": "soon"}': "id is not int, at is not timestamp",
        b'{"id": 99999999999}': "id is not int",
        b'{"id": 1, "o": {"n": "x"}}': "not an object of the schema",
        b'{"id": 1, "o": 5}': "o is not struct<n:int>",
        b'{"at": "2026-01-01T00:00:00Z"}': "id is missing or null",
        b'{"id": null}': "id is missing or null",
        b"5": "not an object of the schema",
        b"null": "not an object of the schema",
        b'[{"id": 1}]': "not an object of the schema",
        b'{"id": 1} {"id": 2}': "not JSON",
        b'{"id": 1} x': "not JSON",
        b'{"id": 1': "not JSON",
        b"{'id': 1}": "not JSON",
        b" ": "not JSON",
        b'{"id": "\xff"}': "not UTF-8",
        b'\n{"id": 1 }\r\n ': None,
        b"{ }": "id is missing or null",
        b'{"id": 1}}{"o": {"n": 2}': "not JSON",
        b'{"id": 1}{"id": 2}': "not JSON",
        b'{"id": 1}, "w": {"n": 2}': "not JSON",
        b'{"id": 1}, "v": {"id": 2}': "not JSON",
        b'{"id": 1,}': "not JSON",
        b'{"id": 1, "o": {"n": 2}': "not JSON",
        b'[{"id": 1}, {"id": 2}': "not JSON",
    }
    frame = spark.createDataFrame([(bytearray(body),) for body in reasons], "value binary")
    for column, kind in {"topic": "string", "nsqd": "string", "position": "long", "id": "string"}.items():
        frame = frame.selectExpr("*", f"cast(null AS {kind}) AS {column}")
    schema = StructType.fromDDL(SCHEMA)
    assert isinstance(schema, StructType)
    rows = parsing.parsed(frame, format, schema, is_failing=False).collect()
    found = {bytes(row.value): row.reason for row in rows}
    if format == "text":
        reasons = {body: "not UTF-8" if b"\xff" in body else None for body in reasons}
    assert reasons == found


MISTAKES = [
    ("query", {"sql": "SELECT id,\n  x FROM messages"}, "[query] line 2 column 3: A column, variable, or function"),
    ("query", {"sql": "SELECT id FORM messages"}, "[query] line 1 column 16: Syntax error at or near 'messages'"),
    ("query", {"sql": "SELECT id FROM messages WHERE id >"}, "[query] at the end of the statement: Syntax error"),
    ("query", {"sql": "SELECT id FROM nothing"}, "[query] line 1 column 16: The table or view `nothing` cannot be"),
    ("query", {"sql": "DROP VIEW messages"}, "[query]: the statement must be a SELECT"),
    ("query", {"file": "none.sql"}, "none.sql: No such file or directory"),
    ("query", {"sql": "SELECT 1 AS one"}, "[query] does not read the messages"),
    (
        "query",
        {"sql": "SELECT id, count(*) AS n FROM messages GROUP BY id"},
        "Add [watermark] and group by a window",
    ),
    ("view", [{"name": "v", "sql": "SELECT y FROM messages"}], '[[view]] "v" line 1 column 8: A column'),
    ("table", [{"name": "users", "path": "users"}], '[[table]] "users": '),
    (
        "table",
        [{"name": "u", "path": "u", "format": "csv", "schema": "id blah"}],
        '"schema" cannot be read: Unsupported',
    ),
    ("source", {"topic": "t", "schema": "id"}, '"schema" cannot be read: Syntax error'),
    ("source", {"topic": "t", "schema": "id int, ID int"}, 'line 5: the name "id" is there twice'),
    ("source", {"topic": "t", "schema": "_id int"}, 'line 5: the name "_id" is a column of every message'),
    ("source", {"topic": "t", "schema": "id int", "options": {"fetchByte": 5}}, 'did you mean "fetchBytes"?'),
    (
        "source",
        {"topic": "t", "schema": "id int", "options": {"subscribe": "x"}},
        '"subscribe" is set by a key of its own',
    ),
    (
        "source",
        {"topic": "t", "schema": "id int", "options": {"COLUMNS": "value"}},
        '"columns" is of no use in a pipeline; use the keys "format" and "schema"',
    ),
    (
        "source",
        {"topic": "t", "schema": "id int", "options": {"endingOffsets": "latest"}},
        'option "endingOffsets" is for a batch, because a stream has no end; leave it out',
    ),
    ("sink", {"topic": "out", "options": {"Topic": "x"}}, '"topic" is set by a key of its own, leave it out'),
    ("watermark", {"column": "id", "delay": "1 hour"}, '"id" is int; columns of type timestamp are: at, _timestamp'),
    ("watermark", {"column": "ta", "delay": "1 hour"}, '"ta" is not a column; columns of type timestamp are: at'),
    ("sink", {"path": "out", "partition_by": "day"}, '"partition_by" names "day"; columns of the query are: id'),
    ("sink", {"path": "out", "format": "delta"}, 'format = "delta" needs the jars of Delta Lake'),
    ("sink", {"topic": "out", "value": "column"}, 'column "id" is int, but must be string'),
    ("sink", {"topic": "out", "options": {"batchSise": 1}}, 'did you mean "batchSize"?'),
]


@pytest.mark.parametrize(("section", "keys", "problem"), MISTAKES)
def test_a_mistake_is_one_line_before_anything_is_read(
    spark: SparkSession, tmp_path: Path, section: str, keys: Sections, problem: str
) -> None:
    sections = base("127.0.0.1:1") | {section: keys}
    with pytest.raises(ConfigError) as error:
        built(spark, tmp_path, sections)
    text = str(error.value)
    assert problem in text
    assert str(tmp_path / "pipeline.toml") in text
    assert "\n" not in text and "SQLSTATE" not in text and "Exception" not in text


def test_a_check_asks_no_broker(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = built(spark, tmp_path, base("127.0.0.1:1"))
    assert pipeline.columns() == "id int"
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.toml"]


def test_topics_that_no_nsqd_has_are_found(real_nsqd: NsqdProcess, tmp_path: Path) -> None:
    real_nsqd.create("t")
    sections = base(address(real_nsqd)) | {"source": {"topic": ["t", "tt"], "format": "text"}}
    assert unknown_topics(load(write(tmp_path, sections))) == ["tt"]


def test_the_pipeline_of_the_page(spark: SparkSession, tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "pipeline.toml").write_text(text)
    (tmp_path / "users.csv").write_text("user,country\n")
    pipeline = build(spark.newSession(), load(tmp_path / "pipeline.toml"))
    assert pipeline.columns() == "start timestamp, event string, country string, count bigint"
    assert [each.name for each in pipeline.destinations] == [ROWS, DEAD_LETTERS]


def test_topics_views_tables_and_dead_letters(spark: SparkSession, real_nsqd: NsqdProcess, tmp_path: Path) -> None:
    topic(real_nsqd, "t", "u", "out", "dead")
    (tmp_path / "names.csv").write_text("id,name\n1,one\n2,two\n")
    (tmp_path / "query.sql").write_text("-- by name\nSELECT name, count(*) AS n FROM named GROUP BY name;\n")
    publish(real_nsqd, "t", b'{"id": 1}', b'{"id": 2}', b"broken \xff", b'{"id": 3}')
    publish(real_nsqd, "u", b'{"id": 1}', b"[]", b'{"id": "' + 300_000 * b"\x01" + b'"}')
    sections = base(address(real_nsqd)) | {
        "source": {"topic": ["t", "u"], "schema": "id int NOT NULL"},
        "table": [
            {
                "name": "names",
                "path": "names.csv",
                "format": "csv",
                "schema": "id int, name string",
                "options": {"header": True},
            }
        ],
        "view": [{"name": "named", "sql": "SELECT name, _topic FROM messages JOIN names USING (id)"}],
        "query": {"file": "query.sql"},
        "sink": {"topic": "out", "output_mode": "update"},
        "dead_letters": {"topic": "dead"},
    }
    pipeline = run(spark, tmp_path, sections)
    counts = {row["name"]: row["n"] for row in published(spark, real_nsqd, "out")}
    assert counts == {"one": 2, "two": 1}
    assert (pipeline.totals[ROWS].messages, pipeline.totals[ROWS].dead_letters) == (7, 3)
    assert (pipeline.totals[DEAD_LETTERS].messages, pipeline.totals[DEAD_LETTERS].dead_letters) == (7, 3)
    dead = {(one["topic"], one["reason"]): one for one in published(spark, real_nsqd, "dead")}
    assert {("t", "not UTF-8"), ("u", "not an object of the schema"), ("u", "not JSON")} == set(dead)
    assert dead["t", "not UTF-8"]["value"] == "broken \ufffd"
    assert {"reason", "value", "topic", "nsqd", "position", "id", "timestamp"} == set(dead["t", "not UTF-8"])
    assert dead["u", "not JSON"]["is_shortened"] is True
    publish(real_nsqd, "t", b'{"id": 2}')
    pipeline = run(spark, tmp_path, sections)
    assert pipeline.totals[ROWS].messages == 1, "it goes on where it was"
    assert published(spark, real_nsqd, "out")[-1] == {"name": "two", "n": 2}


def test_without_dead_letters_the_first_one_ends_the_pipeline(
    spark: SparkSession, real_nsqd: NsqdProcess, tmp_path: Path
) -> None:
    topic(real_nsqd, "t")
    publish(real_nsqd, "t", b'{"id": 1}', b'{"id": "x"}')
    # The filter would leave the broken message out, if Spark ran it first.
    sections = base(address(real_nsqd)) | {"query": {"sql": "SELECT at FROM messages WHERE id > 0"}}
    with pytest.raises(PipelineError) as error:
        run(spark, tmp_path, sections)
    text = str(error.value)
    assert text.startswith("a message of topic t cannot be used: id is not int; position ")
    assert text.endswith("add [dead_letters] to the configuration to go on without such messages")
    assert "\n" not in text
    sections["dead_letters"] = {"path": "dead", "format": "json"}
    pipeline = run(spark, tmp_path, sections)
    assert (pipeline.totals[ROWS].messages, pipeline.totals[ROWS].dead_letters) == (2, 1)
    [letter] = [
        json.loads(line) for file in (tmp_path / "dead").glob("*.json") for line in file.read_text().splitlines()
    ]
    assert (letter["value"], letter["reason"]) == ('{"id": "x"}', "id is not int")


def test_a_channel_has_a_channel_of_its_own_for_dead_letters(
    spark: SparkSession, real_nsqd: NsqdProcess, tmp_path: Path
) -> None:
    real_nsqd.create("t", "c")
    real_nsqd.create("t", "c-dead")
    publish(real_nsqd, "t", b"one", b"two \xff", b"three")
    sections = base("") | {
        "nsq": {"nsqd_tcp_addresses": f"127.0.0.1:{real_nsqd.tcp_port}"},
        "source": {"topic": "t", "kind": "channel", "channel": "c", "spool": ".", "format": "text"},
        "query": {"sql": "SELECT value, _topic, _position FROM messages"},
        "dead_letters": {"path": "dead"},
    }
    rows: list[dict[str, Any]] = []
    dead: list[dict[str, Any]] = []
    while len(rows) < 2 or not dead:
        # On a busy machine the first message comes after the silence that ends a run.
        run(spark, tmp_path, sections)
        rows, dead = found(tmp_path / "out"), found(tmp_path / "dead")
    assert sorted(tuple(row.values()) for row in rows) == [("one", "t", None), ("three", "t", None)]
    assert [row["value"] for row in dead] == [b"two \xff"]


def found(table: Path) -> list[dict[str, Any]]:
    """Return the rows of a table, none when it has no file yet."""
    files = [str(file) for file in table.glob("*.parquet")]
    return list(ds.dataset(files).to_table().to_pylist()) if files else []


def test_a_value_column_and_an_error_of_the_statement(
    spark: SparkSession, real_nsqd: NsqdProcess, tmp_path: Path
) -> None:
    topic(real_nsqd, "t", "out")
    publish(real_nsqd, "t", b'{"id": 6}')
    sections = base(address(real_nsqd)) | {
        "query": {"sql": "SELECT to_json(struct(id + 1 AS id)) AS value, 0 AS defer FROM messages"},
        "sink": {"topic": "out", "value": "column"},
    }
    run(spark, tmp_path, sections)
    assert published(spark, real_nsqd, "out") == [{"id": 7}]
    publish(real_nsqd, "t", b'{"id": 0}')
    sections["query"] = {"sql": "SELECT to_json(struct(1 / id AS id)) AS value FROM messages"}
    with pytest.raises(PipelineError, match=r"^Division by zero"):
        run(spark, tmp_path, sections)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "terminated with exception: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012 SQLSTATE: XXKST",
            "Division by zero.",
        ),
        (
            "terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided "
            "function in foreach batch sink. Reason: Traceback\npyspark.errors.SparkRuntimeException: "
            "[TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030\nCaused by: org.apache.spark.SparkRuntimeException: "
            "[USER_RAISED_EXCEPTION] no SQLSTATE: P0001\n",
            "no",
        ),
        ("terminated with exception: Job aborted.", "Job aborted."),
        (
            "terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided "
            "function in foreach batch sink. Reason: Traceback\npy4j.protocol.Py4JJavaError: An error occurred while "
            "calling o1.save.\n: org.apache.spark.SparkException: Job aborted.\n\tat a.b\n"
            "Caused by: java.io.IOException: Mkdirs failed to create file:/x\n\tat c.d",
            "IOException: Mkdirs failed to create file:/x; name a folder that Spark can write to",
        ),
        (
            "terminated with exception: [X] An error\npyspark_nsq.errors.RowError: a row is wrong\n  at",
            "a row is wrong",
        ),
    ],
)
def test_the_reason_for_the_end_of_a_query_is_one_line(text: str, reason: str) -> None:
    query = "[STREAM_FAILED] Query [id = 1, runId = 2] "
    assert reason == reason_of(StreamingQueryException(query + text + "\n=== Streaming Query ===\n[id]"))
