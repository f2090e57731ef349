"""``spark-submit cluster_job.py JOB.json``: a driver on a cluster, with the sources and the sinks all at work at once.

JOB.json: {"sources": {query: options}, "sinks": {query: options}, "lines": folder of texts, "folder": for the rest}

The sources go to FOLDER/QUERY/out as parquet, the lines to the sink "stream", numbers to the sink "batch". Each task of
each query lets `FREE_ROWS` rows through, and then waits for as long as FOLDER/hold is there. It says so in a file in
FOLDER/held: {"query": name, "worker": the worker's folder, "package": where the connector came from}.
"""

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pyspark_nsq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

ROWS = 6_000
TASKS = 2
FREE_ROWS = 1_000
#: Spark hands rows on by the buffer: so wide that many of the free ones have left a task that waits.
WIDTH = 200


def held(frame: DataFrame, query: str, folder: Path) -> DataFrame:
    """The column `value`, from tasks that wait."""
    seen = 0

    def hold(value: str) -> str:
        nonlocal seen
        seen += 1
        connection_limiter = folder / "hold"
        if seen == FREE_ROWS and connection_limiter.exists():
            told = {"query": query, "worker": str(Path.cwd().parents[1]), "package": pyspark_nsq.__file__}
            draft = folder / uuid.uuid4().hex
            draft.write_text(json.dumps(told))
            draft.rename(folder / "held" / draft.name)
            while connection_limiter.exists():
                time.sleep(0.05)  # nothing else tells a task to go on
        return value

    return frame.selectExpr("cast(value AS string) AS value").select(udf(hold, useArrow=False)("value").alias("value"))


def run(spark: SparkSession, job: dict[str, Any]) -> None:
    folder = Path(job["folder"])
    writers = {}
    for query, options in job["sources"].items():
        rows = spark.readStream.format("nsq").options(**options).load()
        writers[query] = held(rows, query, folder).writeStream.format("parquet").option("path", f"{folder}/{query}/out")
    lines = spark.readStream.text(job["lines"])
    writers["stream"] = held(lines, "stream", folder).writeStream.format("nsq").options(**job["sinks"]["stream"])
    queries = [
        writer.option("checkpointLocation", f"{folder}/{query}/checkpoint").trigger(availableNow=True).start()
        for query, writer in writers.items()
    ]
    numbers = spark.range(0, ROWS, numPartitions=TASKS).selectExpr(f"rpad(id, {WIDTH}, ' ') AS value")
    held(numbers, "batch", folder).write.format("nsq").mode("append").options(**job["sinks"]["batch"]).save()
    for one in queries:
        one.awaitTermination()


if __name__ == "__main__":
    run(SparkSession.builder.getOrCreate(), json.loads(Path(sys.argv[1]).read_text("utf-8")))
