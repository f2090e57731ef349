"""``python -m tests.spark.stream_job JOB.json``: a driver of its own, with queries that go on until it is killed.

JOB.json: {"sources": {query: options}, "folder": for the checkpoint and the files of each}
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark_nsq.session import local_session
from pyspark_nsq.slow_start import Starts


def run(job: dict[str, Any]) -> None:
    spark = local_session("to be killed")
    starts = Starts(partial(print, file=sys.stderr))

    def start(query: str) -> StreamingQuery:
        folder = f"{job['folder']}/{query}"
        stream = spark.readStream.format("nsq").options(**job["sources"][query]).load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        return writer.start(f"{folder}/out")

    running = {query: start(query) for query in job["sources"]}
    while True:
        try:
            spark.streams.awaitAnyTermination()
        except StreamingQueryException as failure:
            if not starts.again(failure):
                raise
            spark.streams.resetTerminated()
            running = {query: stream if stream.isActive else start(query) for query, stream in running.items()}
        else:
            return


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text("utf-8")))
