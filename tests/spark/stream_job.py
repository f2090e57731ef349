"""``python -m tests.spark.stream_job JOB.json``: a driver of its own, with a query that goes on until it is killed.

JOB.json: {"options": for the source, "folder": for the checkpoint and the files written}
"""

import json
import sys
from pathlib import Path

from pyspark_nsq.session import local_session


def run(job: dict[str, dict[str, str]], folder: str) -> None:
    spark = local_session("to be killed")
    stream = spark.readStream.format("nsq").options(**job["options"]).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    writer.start(f"{folder}/out").awaitTermination()


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    run(given, given["folder"])
