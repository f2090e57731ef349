"""`nsqtw-spark archive` as a process of its own, and the signals that end it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset
import pytest

from tests.process import NsqdProcess, wait_until
from tests.spark.jobs.conftest import Job, at, publish

LONG = 240
PROGRAM = Path(sys.executable).with_name("nsqtw-spark")
pytestmark = pytest.mark.timeout(600)


def test_sigint_ends_it_after_the_running_batch(broker: NsqdProcess, tmp_path: Path) -> None:
    publish(broker, 0, 20)
    words = ["archive", at(broker), "--topic=t", f"--output={tmp_path / 'lake'}", "--trigger=1"]
    said = tmp_path / "said"
    with said.open("wb") as file:
        process = subprocess.Popen([PROGRAM, *words], stdout=file, stderr=file, start_new_session=True)
    try:
        wait_until(lambda: "batch 0: " in said.read_text() or process.poll() is not None, "a batch", seconds=LONG)
        publish(broker, 20, 30)
        wait_until(lambda: "batch 1: " in said.read_text() or process.poll() is not None, "another", seconds=LONG)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(LONG) == 0, said.read_text()
    finally:
        process.kill()
    lines = [line for line in said.read_text().splitlines() if "incubator" not in line]
    assert re.fullmatch(r"batch 0: 20 rows, [\d,]+ rows/s, 0 behind", lines[0]), lines
    assert re.fullmatch(r"batch 1: 10 rows, [\d,]+ rows/s, 0 behind", lines[1]), lines
    assert re.fullmatch(r"archived 30 rows in .* s to .*lake", lines[2]), lines
    assert len(lines) == 3


def test_after_sigkill_of_it_and_of_the_broker_each_message_is_there_once(
    job: Job, broker: NsqdProcess, tmp_path: Path
) -> None:
    """The short form of test_archive_kills: no cluster, and the session of all tests goes on where the job was."""
    lake = tmp_path / "lake"
    words = ["archive", at(broker), "--topic=t", f"--output={lake}"]
    said = tmp_path / "said"
    bodies = publish(broker, 0, 1000)
    with said.open("wb") as file:
        process = subprocess.Popen(
            [PROGRAM, *words, "--trigger=0.1", "--max-rows=100"], stdout=file, stderr=file, start_new_session=True
        )

    def await_batch(number: int) -> None:
        wait_until(
            lambda: f"batch {number}: " in said.read_text() or process.poll() is not None, "a batch", seconds=LONG
        )
        assert process.poll() is None, said.read_text()

    try:
        await_batch(0)
        broker.kill()
        broker.start()
        bodies += publish(broker, 1000, 2000)
        await_batch(2)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    bodies += publish(broker, 2000, 2100)
    done = job(*words, "--once")
    assert done.code == 0, done
    found = pyarrow.dataset.dataset(lake, partitioning="hive").to_table().sort_by("position")
    assert found["value"].to_pylist() == bodies
    verified = job("archive-verify", at(broker), f"--output={lake}")
    assert verified.code == 0, verified


def in_group(group: int) -> list[str]:
    """The command lines of the processes of a group."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(each.name)) == group and (words := (each / "cmdline").read_bytes()):
                found.append(words.replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_sigint_while_spark_starts_leaves_nothing(broker: NsqdProcess, tmp_path: Path) -> None:
    publish(broker, 0, 20)
    words = ["archive", at(broker), "--topic=t", f"--output={tmp_path / 'lake'}", "--trigger=1"]
    said = tmp_path / "said"
    with said.open("wb") as file:
        process = subprocess.Popen([PROGRAM, *words], stdout=file, stderr=file, start_new_session=True)
    try:
        wait_until(lambda: any("java" in one for one in in_group(process.pid)), "Spark's Java", seconds=LONG)
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 0, said.read_text()
        lines = [line for line in said.read_text().splitlines() if "incubator" not in line]
        assert re.fullmatch(r"archived 0 rows in .* s to .*lake", "\n".join(lines)), lines
        wait_until(lambda: not in_group(process.pid), "the end of all processes", seconds=LONG)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
