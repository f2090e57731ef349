"""``python -m tests.spark.stream_job JOB.json``: a driver of its own, with queries that go on until it is killed.

JOB.json: {"sources": {query: options}, "folder": for the checkpoint and the files of each}
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark_nsq.session import local_session


def run(job: dict[str, Any]) -> None:
    spark = local_session("to be killed")
    for query, options in job["sources"].items():
        folder = f"{job['folder']}/{query}"
        stream = spark.readStream.format("nsq").options(**options).load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        writer.start(f"{folder}/out")
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text("utf-8")))
