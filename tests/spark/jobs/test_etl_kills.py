"""SIGKILL of a pipeline with its Java, and of the broker: windows and dead letters are as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark_nsq.jobs.etl.pipeline import DEAD_LETTERS, ROWS

from tests.process import NsqdProcess, wait_until
from tests.spark.jobs.conftest import Job
from tests.spark.jobs.etl_files import address, base, publish, topic, write

LONG = 400
#: A driver has to start, with a Java of its own; the one after it is the session of all tests.
pytestmark = pytest.mark.timeout(1200)
EACH = 1_500
START = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW, DELAY = timedelta(seconds=100), timedelta(seconds=10)
BROKEN_ONE_IN = 50


def bodies(first: int) -> list[bytes]:
    """Return numbered messages, a second apart, some of them broken."""
    numbers = range(first, first + EACH)
    return [
        b"broken %d" % one
        if one % BROKEN_ONE_IN == 0
        else json.dumps({"id": one, "at": (START + timedelta(seconds=one)).isoformat()}).encode()
        for one in numbers
    ]


def committed(folder: Path, query: str) -> int:
    commits = folder / "checkpoint" / query / "commits"
    return len([one for one in commits.glob("*") if one.name.isdigit()])


def kill_after(folder: Path, config: Path, batches: int) -> None:
    """Run the pipeline until each query has committed so many micro-batches, and kill it with its Java."""
    with (folder / "driver.log").open("ab") as log:
        command = [sys.executable, "-m", "pyspark_nsq.jobs", "etl", str(config)]
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def done() -> bool:
        assert driver.poll() is None, (folder / "driver.log").read_text()[-3000:]
        return all(committed(folder, query) >= batches for query in (ROWS, DEAD_LETTERS))

    try:
        wait_until(done, f"{batches} micro-batches", seconds=LONG)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def test_windows_and_dead_letters_are_there_once(job: Job, real_nsqd: NsqdProcess, tmp_path: Path) -> None:
    topic(real_nsqd, "t")
    config = write(
        tmp_path,
        base(address(real_nsqd))
        | {
            "source": {
                "topic": "t",
                "schema": "id long NOT NULL, at timestamp NOT NULL",
                "max_rows_per_trigger": 300,
                "options": {"retries": 30},
            },
            "watermark": {"column": "at", "delay": "10 seconds"},
            "query": {
                "sql": "SELECT window.start AS start, count(*) AS n, sum(id) AS total FROM messages "
                "GROUP BY window(at, '100 seconds')"
            },
            "dead_letters": {"path": "dead"},
            "run": {"checkpoint": "checkpoint", "trigger": "100 milliseconds"},
        },
    )
    publish(real_nsqd, "t", *bodies(0))
    kill_after(tmp_path, config, 2)
    real_nsqd.kill()
    real_nsqd.start()
    publish(real_nsqd, "t", *bodies(EACH))
    done = job("etl", str(config), "--once")
    assert done.code == 0, done

    broken = [number for number in range(2 * EACH) if number % BROKEN_ONE_IN == 0]
    found = ds.dataset(tmp_path / "dead", format="parquet").to_table().column("value").to_pylist()
    assert [b"broken %d" % number for number in broken] == sorted(found, key=lambda body: int(body.split()[1]))
    windows: dict[datetime, list[int]] = {}
    for number in sorted(set(range(2 * EACH)) - set(broken)):
        windows.setdefault(START + number // 100 * WINDOW, []).append(number)
    watermark = START + timedelta(seconds=2 * EACH - 1) - DELAY
    expected = [(start, len(ids), sum(ids)) for start, ids in windows.items() if start + WINDOW <= watermark]
    table = ds.dataset(tmp_path / "out", format="parquet")
    assert [part.path for part in table.get_fragments() if not part.count_rows()] == [], (
        "a batch without rows has no file"
    )
    rows = table.to_table().to_pylist()
    assert expected == sorted((row["start"], row["n"], row["total"]) for row in rows)
    assert len(expected) == 2 * EACH // 100 - 1
