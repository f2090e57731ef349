"""`make bench-spark` in a form that takes seconds: every count is checked, the figures mean little."""

from pyspark.sql import SparkSession

from tests.bench.spark.__main__ import arguments, measured


def test_every_case_of_the_bench_counts_right(spark: SparkSession) -> None:
    lines = measured(spark, arguments(["--rows", "3000", "--rounds", "1", "--warm", "0"])).splitlines()
    cases = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("|")][2:]
    publishing = ["packs, apart", "publishes, apart", "packs, shared", "publishes, shared", "one each"]
    assert [*publishing, "log, counted", "log to parquet", "channel to parquet"] == cases
    assert 2 == sum(line.startswith("publishes / packs, ") for line in lines)
