"""An archive on a standalone cluster, under SIGKILL of its driver, of executors and of the broker at random moments.

`make crash-spark MINUTES=60` goes on for so long; in `make test-spark` each is killed once. The number that starts the
random moments is in the output, and CRASH_SEED sets it. The short form, for `make test`, is in test_archive_process.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession
from pyspark_nsq.archive.compaction import compact, recover
from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.parquet import configure
from pyspark_nsq.archive.verify import verify

from tests.process import NsqdProcess, wait_until
from tests.spark.cluster import LONG, Cluster, Program, standalone
from tests.wire import HOST

MINUTES = float(os.environ.get("CRASH_SPARK_MINUTES", "0"))
SEED = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(1 << 32))
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800 + 120 * MINUTES)]
KILLS = ("driver", "executor", "broker")
EACH = 200
#: A pause of the publisher, and the longest one before a kill.
PACE_SECONDS, MOST_SECONDS = 0.02, 2.0


class Publisher(threading.Thread):
    """Publishes until it is stopped, whatever happens to the broker."""

    def __init__(self, broker: NsqdProcess) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self._broker = broker
        self._is_done = threading.Event()

    def run(self) -> None:
        while not self._is_done.wait(PACE_SECONDS):
            try:
                answer = self._broker.http("POST", "/mpub?topic=t", b"\n".join(b"%d" % n for n in range(EACH)))
            except (OSError, HTTPException):
                continue
            self.acknowledged += EACH * (answer.status == 200)

    def stop(self) -> None:
        self._is_done.set()
        self.join()


class Archive:
    """The job on the cluster, which is started again after each of its deaths."""

    def __init__(self, cluster: Cluster, broker: NsqdProcess, folder: Path) -> None:
        self.folder = folder
        self._cluster = cluster
        self._broker = broker
        self.driver = self._start()

    def _start(self) -> Program:
        words = [f"--nsqd-http-address={HOST}:{self._broker.http_port}", "--topic=t", f"--output={self.folder}"]
        return self._cluster.submit_job("archive", *words, "--trigger=0.5", "--max-rows=3000")

    def committed(self) -> int:
        """The number of the last micro-batch, those of earlier drivers included."""
        commits = (self.folder / "_archive/checkpoint/commits").glob("[0-9]*")
        return max((int(file.name) for file in commits), default=-1)

    def await_batch(self, number: int) -> None:
        def is_committed() -> bool:
            self.driver.must_run()
            return self.committed() >= number

        wait_until(is_committed, f"micro-batch {number}", seconds=LONG)

    def kill_driver(self) -> None:
        self.driver.kill()
        self.driver = self._start()

    def kill_executor(self, rng: random.Random) -> None:
        rng.choice(self._cluster.workers).kill_started()


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    real_nsqd.create("t")
    real_nsqd.order("/v2/topic/retention?topic=t&time=24h")
    return real_nsqd


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone(tmp_path / "cluster") as running:
        yield running


def test_each_message_is_archived_once(
    spark: SparkSession, broker: NsqdProcess, cluster: Cluster, tmp_path: Path
) -> None:
    print(f"CRASH_SEED={SEED}")
    rng = random.Random(SEED)
    session = spark.newSession()
    configure(session)
    publisher = Publisher(broker)
    publisher.start()
    archive = Archive(cluster, broker, tmp_path / "lake")
    files = Files(session, str(archive.folder))
    deadline = time.monotonic() + 60 * MINUTES
    archive.await_batch(1)
    kills = list(KILLS)
    rng.shuffle(kills)
    while kills or time.monotonic() < deadline:
        # A random pause, as the kill is to hit any moment of a micro-batch: nothing to wait for announces it.
        time.sleep(rng.uniform(0, MOST_SECONDS))
        kind = kills.pop() if kills else rng.choice(KILLS)
        before = archive.committed()
        if kind == "driver":
            archive.kill_driver()
        elif kind == "executor":
            archive.kill_executor(rng)
        else:
            broker.kill()
            broker.start()
        if kind == "driver" or rng.random() < 0.3:
            list(compact(session, files, "zstd", timedelta(hours=-1), 1 << 28))
        archive.await_batch(before + 2)
    publisher.stop()
    archive.driver.kill()
    recover(files)
    verdict = verify(session, {"nsqdHttpAddresses": f"{HOST}:{broker.http_port}"}, str(archive.folder))
    assert (verdict.missing, verdict.twice, verdict.only_archived) == (0, 0, 0), verdict
    assert 0 < verdict.archived <= verdict.logged
    assert publisher.acknowledged <= verdict.logged
    positions = pyarrow.dataset.dataset(archive.folder, partitioning="hive").to_table(["position"])["position"]
    assert verdict.archived == len(positions) == len(positions.unique()), "for a reader of folders, too"
