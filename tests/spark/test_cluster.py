"""
A standalone cluster: SIGKILL of one worker and of the other's executor, while each has a task of each source and sink.

Every task waits halfway (`cluster_job`) until the test has done its worst, and then runs again.
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.process import NOTHING, NsqdProcess, wait_until
from tests.spark import cluster_job
from tests.spark.cluster import LONG, Cluster, Program, standalone
from tests.spark.cluster_job import ROWS, TASKS, WIDTH
from tests.wire import HOST

#: The master, two workers, the driver and three executors have to start, each with a Java of its own.
pytestmark = pytest.mark.timeout(1200)
SOURCES = {"channel", "log"}
SINKS = {"stream", "batch"}
BODIES = [b"%d" % number for number in range(ROWS)]


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    real_nsqd.create("t", "spark")
    real_nsqd.order("/v2/topic/retention?topic=t&time=1h")
    answer = real_nsqd.http("POST", "/mpub?topic=t", b"\n".join(body.ljust(WIDTH) for body in BODIES))
    assert answer.status == 200, answer
    for topic in SINKS:
        real_nsqd.create(topic, "all")
    return real_nsqd


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone(tmp_path / "cluster") as running:
        yield running


class Job:
    """`cluster_job`, whose tasks wait."""

    def __init__(self, cluster: Cluster, broker: NsqdProcess, folder: Path) -> None:
        self.folder = folder
        (folder / "held").mkdir(parents=True)
        (folder / "hold").touch()
        (folder / "lines").mkdir()
        lines = [f"{body.decode():{WIDTH}}\n" for body in BODIES]
        for task in range(TASKS):
            (folder / "lines" / str(task)).write_text("".join(lines[task::TASKS]))
        file = folder / "job.json"
        file.write_text(json.dumps(self._given(broker)))
        self.driver: Program = cluster.submit(cluster_job.__file__, str(file))

    def _given(self, broker: NsqdProcess) -> dict[str, object]:
        http = {"nsqdHttpAddresses": f"{HOST}:{broker.http_port}"}
        limit = {"topic": "t", "maxRowsPerTrigger": str(ROWS // 2), "numPartitions": str(TASKS)}
        log = http | limit | {"replay": "log", "startingOffsets": "earliest"}
        channel = limit | {
            "nsqdTcpAddresses": f"{HOST}:{broker.tcp_port}",
            "channel": "spark",
            "spoolPath": str(self.folder / "spool"),
            "idleTimeoutMs": "3000",
        }
        return {
            "folder": str(self.folder),
            "lines": str(self.folder / "lines"),
            "sources": {"channel": channel, "log": log},
            "sinks": {topic: http | {"topic": topic, "batchSize": "100"} for topic in SINKS},
        }

    def await_held(self, workers: list[Path]) -> None:
        """Until each query has a task that waits at each worker."""
        wanted = set(product(SOURCES | SINKS, map(str, workers)))

        def are_held() -> bool:
            self.driver.must_run()
            assert "terminated with error" not in self.driver.said(), self.driver.said()[-5000:]
            held = [json.loads(file.read_text()) for file in (self.folder / "held").iterdir()]
            assert all("pyspark_nsq.zip" in one["package"] for one in held), "the connector comes with the job"
            return {(one["query"], one["worker"]) for one in held} == wanted

        wait_until(are_held, "each query has a task that waits at each worker", seconds=LONG)

    def go_on(self) -> None:
        (self.folder / "hold").unlink()


def published(broker: NsqdProcess, topic: str) -> int:
    (found,) = broker.stats(topic)
    return int(found["message_count"])


def test_a_worker_dies_and_so_does_the_executor_of_the_other(
    spark: SparkSession, broker: NsqdProcess, cluster: Cluster, tmp_path: Path
) -> None:
    job = Job(cluster, broker, tmp_path / "job")
    job.await_held(cluster.work)
    wait_until(lambda: all(published(broker, topic) for topic in SINKS), "both sinks have published")
    first, second = cluster.workers
    first.kill()
    second.kill_started()
    before = {topic: published(broker, topic) for topic in SINKS}
    job.go_on()
    job.driver.finish()
    for query in SOURCES:
        rows = spark.read.parquet(str(tmp_path / "job" / query / "out")).collect()
        assert sorted(BODIES) == sorted(row.value.strip().encode() for row in rows), query
    broker.await_counts("t", "spark", NOTHING)
    for topic in SINKS:
        count = published(broker, topic)
        found = Counter(message.body.strip() for message in broker.drain(topic, "all", count))
        assert set(BODIES) == set(found), topic
        assert 0 < before[topic] <= count - ROWS, "what the killed tasks had published is there twice"
