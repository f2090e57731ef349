"""The example of ``nsqtw-spark etl``: windows, watermark, join, late clicks, dead letters; and the same by hand."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark_nsq.jobs.etl.config import load
from pyspark_nsq.jobs.etl.pipeline import ROWS, build

from contrib.demo.broker import Broker
from contrib.spark.examples.etl.__main__ import run


def test_the_pipeline_writes_what_plain_python_computes(spark: SparkSession, tmp_path: Path) -> None:
    totals = []

    def etl(config: Path) -> None:
        pipeline = build(spark.newSession(), load(config))
        pipeline.run()
        totals.append(pipeline.totals[ROWS])

    with Broker(Path(sys.executable).with_name("nsqd"), tmp_path) as broker:
        broker.start()
        result = run(tmp_path, broker, 4_000, etl)
    right = result.expected
    assert right.counts == result.counts
    assert right.dead_letters == result.dead_letters
    assert sum(right.dead_letters.values()) == sum(each.dead_letters for each in totals)
    assert [each.messages for each in totals] == [2001, 2001]
    # Spark counts late rows after it has aggregated partially.
    assert 0 == totals[0].late < totals[1].late <= right.late
    assert 10 < right.late < sum(right.counts.values())
