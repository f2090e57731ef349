"""``spark-submit scaling_job.py ADDRESSES PIDS ROWS``: publishes rows to several nsqds and replays them, in rounds.

Prints a line of JSON for each work of each round, with the seconds of ROWS rows and the CPU of the brokers, whose
process ids are PIDS: {"work": "sink", "round": 1, "seconds": 1.2, "broker_seconds": 0.3}. The first round warms up.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

ROUNDS = 4
TOPIC = "scaling"
_BODY = "substring(repeat(md5(cast(id AS string)), 7), 1, 200) AS value"


def run(spark: SparkSession, addresses: str, pids: list[str], rows: int) -> None:
    tasks = int(spark.conf.get("spark.cores.max", "1") or 1) * 2
    frame = spark.range(0, rows, numPartitions=tasks).selectExpr(_BODY).cache()
    frame.count()
    options = {"nsqdHttpAddresses": addresses, "topic": TOPIC}
    log = options | {"replay": "log", "numPartitions": str(tasks)}
    for number in range(ROUNDS):
        sink = frame.write.format("nsq").mode("append").options(**options)
        measure("sink", number, pids, sink.save, scale=1)
        # A round reads what all rounds so far have published: the rate is of these rows.
        source = spark.read.format("nsq").options(**log).load().write.format("noop").mode("overwrite")
        measure("replay", number, pids, source.save, scale=number + 1)


def measure(work: str, number: int, pids: list[str], do: Callable[[], object], scale: int) -> None:
    """Print the figures of ROWS rows, of which `do` moves `scale` times as many."""
    before, start = cpu_seconds(pids), time.perf_counter()
    do()
    seconds, broker_seconds = time.perf_counter() - start, cpu_seconds(pids) - before
    figures = {"seconds": seconds / scale, "broker_seconds": broker_seconds / scale}
    print(json.dumps({"work": work, "round": number} | figures), flush=True)


def cpu_seconds(pids: list[str]) -> float:
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    run(SparkSession.builder.getOrCreate(), sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]))
