"""`make bench-spark` in a form that takes seconds: every count is checked, the figures mean little."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark_nsq.sink.packing import Request

from tests.bench.errors import WrongCount
from tests.bench.spark import growth, least
from tests.bench.spark.__main__ import arguments, measured
from tests.bench.spark.bare import BareClient
from tests.spark.fake_nsqd import FakeNsqd


def test_every_case_of_the_bench_counts_right(spark: SparkSession) -> None:
    lines = measured(spark, arguments(["--rows", "3000", "--rounds", "1", "--warm", "0"])).splitlines()
    cases = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("|")][2:]
    publishing = [f"{work}, {way}" for way in ("apart", "shared") for work in ("packs", "bare", "publishes")]
    logs = ["log, counted", "log to noop", "log to parquet", "parquet to noop", "parquet to parquet"]
    others = ["gnsq, shared", "http.client, shared", "one each"]
    assert [*publishing, *others, *logs, "channel to parquet", "archive"] == cases
    goals = [line.partition(":")[0] for line in lines if line.endswith((": met", ": below"))]
    assert goals == [
        "publishes, apart / packs, apart",
        "publishes, shared / packs, shared",
        "log to noop / parquet to noop",
        "log to parquet / parquet to parquet",
        "channel to parquet",
        "archive",
    ]


def test_figures_of_other_sizes_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "growth.json"
    file.write_text(json.dumps({"figures": [{"work": "sink", "rows": 1}, {"work": "sink", "rows": 3, "seconds": 9}]}))
    new = [{"work": "sink", "rows": 3, "seconds": 1}, {"work": "partitions", "partitions": 2}]
    merged = [{"work": "partitions", "partitions": 2}, {"work": "sink", "rows": 1}, new[0]]
    assert merged == growth.merged(file, new)


def test_growth_measures_each_size_and_draws_it(spark: SparkSession, tmp_path: Path) -> None:
    figures = growth.measured(spark, growth.arguments(["--rows", "300,600", "--partitions", "1,2"]))
    found = [(one["work"], one.get("rows", one.get("partitions"))) for one in figures]
    works = ("sink", "replay", "channel")
    assert found == [*((work, rows) for rows in (300, 600) for work in works), ("partitions", 1), ("partitions", 2)]
    assert all(one["java_mb"] > one["java_live_mb"] > 10 for one in figures)
    growth.draw(figures, "a test", tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000


def test_the_least_that_requests_cost() -> None:
    lines = least.measured(rows=10, rounds=1, requests=2).splitlines()
    assert [line.split(":")[0] for line in lines] == ["bare, apart", "treq, apart", "bare, shared", "treq, shared"]


def test_a_bare_client_counts_only_what_is_accepted(nsqd: FakeNsqd) -> None:
    nsqd.script.append((400, b"INVALID_TOPIC"))
    port = int(nsqd.address.rpartition(":")[2])
    with pytest.raises(WrongCount, match="400"), BareClient(port) as client:
        client.publish(Request("/pub?topic=t", (b"x",), "t", 1))
