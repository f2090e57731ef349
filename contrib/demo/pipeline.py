"""The Spark job: reads the records, transforms them, and publishes them with format("nsq").

    python -m contrib.demo.pipeline JOB.json

JOB.json is a `contrib.demo.job.Job`. The ids of all messages are written to a file before the first one is published.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import functions as f

from contrib.demo.feed import Feed
from contrib.demo.job import Job
from contrib.demo.transform import messages
from pyspark_nsq.session import local_session

TASKS = 2
#: For a job of a few thousand messages: small batches, so that there are many requests for the kill to hit.
BATCH_ROWS = 50
#: Spark keeps rows back until so many bytes have come together, which for these few would be most of them.
_BUFFER_BYTES = 1024


def run(job: Job) -> None:
    """Everything is published when this returns."""
    settings = {
        "spark.local.dir": job.scratch,
        "spark.sql.warehouse.dir": f"{job.scratch}/warehouse",
        "spark.buffer.size": str(_BUFFER_BYTES),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    }
    spark = local_session("nsqtw demo", TASKS, settings)
    rows = messages(spark, job.records()).repartition(TASKS).cache()
    ids = [row.id for row in rows.select("id").toLocalIterator()]
    _write_ids(Path(job.ids), ids)
    if ids:
        feed = Feed(rows=-(-len(ids) // TASKS), seconds=job.seconds, killed=job.killed)
        paced = f.udf(feed.pacer(), "string").asNondeterministic()
        (
            rows.select(paced("value").alias("value"))
            .write.format("nsq")
            .mode("append")
            .option("nsqdHttpAddresses", job.http_address)
            .option("topic", job.topic)
            .option("batchSize", BATCH_ROWS)
            # The broker is away for a moment: patience for a minute.
            .option("retries", 60)
            .option("maxBackoffMs", 1000)
            .save()
        )
    spark.stop()


def _write_ids(path: Path, ids: list[str]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text("".join(f"{json.dumps(one)}\n" for one in ids), "utf-8")
    draft.rename(path)


if __name__ == "__main__":
    run(Job.load(Path(sys.argv[1])))
