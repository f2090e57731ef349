"""``spark-submit scaling_job.py ADDRESSES PIDS ROWS``: publishes rows to several nsqds and replays them, in rounds.

Prints a line of JSON for each work of each round, with the seconds of ROWS rows, and the CPU of the executors and of
each of the brokers, whose process ids are PIDS:
{"work": "sink", "round": 1, "seconds": 1.2, "spark_seconds": 0.7, "broker_seconds": [0.1, 0.1]}.
The first round warms up. The driver's CPU is left out: it does not grow with the rows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

ROUNDS = 4
TOPIC = "scaling"
_BODY = "substring(repeat(md5(cast(id AS string)), 7), 1, 200) AS value"


def run(spark: SparkSession, addresses: str, brokers: list[int], rows: int) -> None:
    tasks = int(spark.conf.get("spark.cores.max", "1") or 1) * 2
    frame = spark.range(0, rows, numPartitions=tasks).selectExpr(_BODY).cache()
    frame.count()
    options = {"nsqdHttpAddresses": addresses, "topic": TOPIC}
    log = options | {"replay": "log", "numPartitions": str(tasks)}
    executors = executors_of(spark.sparkContext.applicationId)
    for number in range(ROUNDS):
        sink = frame.write.format("nsq").mode("append").options(**options)
        measure("sink", number, executors, brokers, sink.save, scale=1)
        # A round reads what all rounds so far have published: the rate is of these rows.
        source = spark.read.format("nsq").options(**log).load().write.format("noop").mode("overwrite")
        measure("replay", number, executors, brokers, source.save, scale=number + 1)


def measure(
    work: str, number: int, executors: list[int], brokers: list[int], do: Callable[[], object], scale: int
) -> None:
    """Print the figures of ROWS rows, of which `do` moves `scale` times as many."""
    before, start = _cpu(executors, brokers), time.perf_counter()
    do()
    seconds, after = time.perf_counter() - start, _cpu(executors, brokers)
    spark, *each = ((there - here) / scale for here, there in zip(before, after, strict=True))
    figures = {"seconds": seconds / scale, "spark_seconds": spark, "broker_seconds": each}
    print(json.dumps({"work": work, "round": number} | figures), flush=True)


def _cpu(executors: list[int], brokers: list[int]) -> list[float]:
    """Return the CPU of all executors with what they have started, and that of each broker."""
    # tests.bench.spark.cpus: spark-submit puts only the folder of this file on the path.
    cpus: Any = import_module("cpus")
    started = {pid for executor in executors for pid in cpus.processes(executor)}
    return [cpus.cpu_seconds(list(started)), *(cpus.cpu_seconds([pid]) for pid in brokers)]


def executors_of(application: str) -> list[int]:
    """Return the processes of the executors, which a worker starts with the id of the application."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # ended since it was listed
            words = line.read_bytes().split(b"\0")
            if application.encode() in words and any(word.endswith(b"ExecutorBackend") for word in words):
                found.append(int(line.parent.name))
    return found


if __name__ == "__main__":
    run(SparkSession.builder.getOrCreate(), sys.argv[1], [int(pid) for pid in sys.argv[2].split(",")], int(sys.argv[3]))
