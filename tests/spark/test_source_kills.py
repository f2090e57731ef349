"""SIGKILL of the driver with its Java, and of the broker, mid-stream: nothing lost, nothing twice in the files."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.process import NsqdProcess, wait_until
from tests.wire import HOST

LONG = 400
#: A driver has to start, with a Java of its own; the one after it is the session of all tests.
pytestmark = pytest.mark.timeout(1800)
EACH = 2_000
#: What the killed driver had in flight comes again after this.
MSG_TIMEOUT_MS = 2_000


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    real_nsqd.create("t", "spark")
    real_nsqd.order("/v2/topic/retention?topic=t&time=1h")
    return real_nsqd


@pytest.fixture
def sources(broker: NsqdProcess, tmp_path: Path) -> dict[str, dict[str, str]]:
    """The options of each query: a channel's, a log's, and that of a pattern of topics."""
    limit = {"maxRowsPerTrigger": "300"}
    address = f"{HOST}:{broker.http_port}"
    log = {"replay": "log", "nsqdHttpAddresses": address, "startingOffsets": "earliest", "retries": "30"}
    channel = {
        "nsqdTcpAddresses": f"{HOST}:{broker.tcp_port}",
        "topic": "t",
        "channel": "spark",
        "spoolPath": str(tmp_path / "spool"),
        "msgTimeoutMs": str(MSG_TIMEOUT_MS),
        "idleTimeoutMs": str(3 * MSG_TIMEOUT_MS),
    }
    return {
        "channel": channel | limit,
        "log": log | limit | {"topic": "t"},
        "topics": log | limit | {"subscribePattern": "t|later", "topicDiscoveryMs": "500"},
    }


class Driver:
    """`stream_job` in a process group of its own."""

    def __init__(self, folder: Path, sources: dict[str, dict[str, str]]) -> None:
        self._folder = folder
        self._queries = list(sources)
        job = folder / "job.json"
        job.write_text(json.dumps({"sources": sources, "folder": str(folder)}))
        command = [sys.executable, "-m", "tests.spark.stream_job", str(job)]
        with (folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def await_batches(self, count: int) -> None:
        """Until each query has committed so many micro-batches, those of earlier drivers included."""

        def done() -> bool:
            assert self._process.poll() is None, (self._folder / "driver.log").read_text()[-3000:]
            return all(self._committed(query) >= count for query in self._queries)

        wait_until(done, f"{count} micro-batches", seconds=LONG)

    def _committed(self, query: str) -> int:
        commits = self._folder / query / "checkpoint" / "commits"
        return len([one for one in commits.glob("*") if one.name.isdigit()])

    def kill(self) -> None:
        """With its Java, and all Python workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def publish(broker: NsqdProcess, start: int) -> None:
    bodies = b"\n".join(b"%d" % number for number in range(start, start + EACH))
    answer = broker.http("POST", "/mpub?topic=t", bodies)
    assert answer.status == 200, answer


def test_each_message_is_in_the_files_once(
    spark: SparkSession, broker: NsqdProcess, sources: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    publish(broker, 0)
    driver = Driver(tmp_path, sources)
    try:
        driver.await_batches(2)
        broker.kill()
        broker.start()
        publish(broker, EACH)
        driver.await_batches(9)
    finally:
        driver.kill()
    publish(broker, 2 * EACH)
    drains = {query: drain(spark, options, tmp_path / query) for query, options in sources.items()}
    for query, drained in drains.items():
        assert drained.awaitTermination(LONG)
        files = spark.read.parquet(str(tmp_path / query / "out"))
        found = files.selectExpr("cast(cast(value AS string) AS int) AS value").collect()
        assert list(range(3 * EACH)) == sorted(row.value for row in found), query


def drain(spark: SparkSession, options: dict[str, str], folder: Path) -> StreamingQuery:
    """Go on where the drivers were, to the end."""
    stream = spark.readStream.format("nsq").options(**options | {"maxRowsPerTrigger": str(3 * EACH)}).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(folder / "out"))
