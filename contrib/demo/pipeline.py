"""The Spark job: reads the records, transforms them, and publishes them with format("nsq").

    python -m contrib.demo.pipeline JOB.json

JOB.json is a `contrib.demo.job.Job`. The ids of all messages are written to a file before the first one is
published. Lines on standard output that start with `NEWS` are for the one who watches.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark_nsq.session import local_session

from contrib.demo.feed import Feed
from contrib.demo.job import NEWS, Job
from contrib.demo.transform import messages

TASKS = 2
#: Many small requests, so that some are under way at the kill.
_REQUESTS = 40
_MOST_ROWS = 50
#: Spark keeps rows back until so many bytes have come together, which for these few would be most of them.
_BUFFER_BYTES = 1024


def run(job: Job) -> None:
    """Everything is published when this returns."""
    settings = {
        "spark.local.dir": job.scratch,
        "spark.sql.warehouse.dir": f"{job.scratch}/warehouse",
        "spark.buffer.size": str(_BUFFER_BYTES),
    }
    spark = local_session("nsqtw demo", TASKS, settings)
    print(f"{NEWS}Spark {spark.version} is up, reads and transforms", flush=True)
    rows = messages(spark, job.records()).repartition(TASKS).cache()
    ids = [row.id for row in rows.select("id").toLocalIterator()]
    _write_ids(Path(job.ids), ids)
    if ids:
        _publish(spark, rows, len(ids), job)
    spark.stop()


def _publish(spark: SparkSession, rows: DataFrame, count: int, job: Job) -> None:
    batch_rows = max(1, min(_MOST_ROWS, count // _REQUESTS))
    # Into the function that paces the rows, and from there to the sink.
    spark.conf.set("spark.sql.execution.python.udf.maxRecordsPerBatch", batch_rows)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch_rows)
    feed = Feed(rows=-(-count // TASKS), seconds=job.seconds, killed=job.killed)
    paced = f.udf(feed.pacer(), "string").asNondeterministic()
    (
        rows.select(paced("value").alias("value"))
        .write.format("nsq")
        .mode("append")
        .option("nsqdHttpAddresses", job.http_address)
        .option("topic", job.topic)
        .option("batchSize", batch_rows)
        # The broker is away for a moment: patience for a minute.
        .option("retries", 60)
        .option("maxBackoffMs", 1000)
        .save()
    )


def _write_ids(path: Path, ids: list[str]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text("".join(f"{json.dumps(one)}\n" for one in ids), "utf-8")
    draft.rename(path)


if __name__ == "__main__":
    run(Job.load(Path(sys.argv[1])))
