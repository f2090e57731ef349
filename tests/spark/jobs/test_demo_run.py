"""The demo from end to end, on a small file: the broker is killed, and no reader lacks a record."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from contrib.demo import records
from contrib.demo.broker import Broker
from contrib.demo.lake import Lake
from contrib.demo.report import verdict
from contrib.demo.show import Show
from tests.spark.jobs.conftest import Job

PROJECT = Path(__file__).resolve().parents[3]
READERS = ("gnsq", "own", "archive", "sql", "replayed")
LINES = 400
#: Four drivers have to start, one after the other.
LONG = 900
#: The demo says every 5 s what it does; a busy machine may take longer to do so.
QUIET = 30
pytestmark = pytest.mark.timeout(LONG + 60)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Records of the user's."""
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{json.dumps({'number': number})}\n" for number in range(LINES)))
    return path


def test_the_demo_loses_nothing(job: Job, events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what publishes is a process with a Java of its own; the jobs behind the topic run in the shared session."""
    folder = tmp_path / "demo"
    folder.mkdir()
    broker = Broker(Path(sys.executable).with_name("nsqd"), folder)

    def run(lake: Lake, name: str, *words: str, address: bool = True) -> None:
        done = job(name, *words, *(["--nsqd-http-address", broker.http] if address else []))
        assert done.code == 0, done

    monkeypatch.setattr(Lake, "_run", run)
    show = Show(broker, records.from_file(events), folder)
    outcomes = show.run()
    assert [outcome.reader for outcome in outcomes] == [*READERS]
    assert {(outcome.published, outcome.delivered, outcome.lost) for outcome in outcomes} == {(LINES, LINES, 0)}
    assert verdict(outcomes) == "lost = 0"
    assert (folder / "killed").exists()
    assert [(kind.kind, kind.records) for kind in show.kinds] == [("line", LINES)]


@pytest.mark.long
def test_the_command_loses_nothing(events: Path) -> None:
    """`make demo`: each job is a process."""
    command = [sys.executable, "-m", "contrib.demo", "--input", str(events)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "SIGKILL to the broker" in done.stdout
    for reader in READERS:
        [row] = [line.split() for line in done.stdout.splitlines() if line.startswith(f"{reader} ")]
        published, delivered, _repeats, lost = row[-4:]
        assert (str(LINES), str(LINES), "0") == (published, delivered, lost), reader
    assert "\nThe files are in " in done.stdout
    said = [float(line.split()[0]) for line in done.stdout.splitlines() if re.match(r" *\d+\.\d s  ", line)]
    assert all(later - one < QUIET for one, later in pairwise(said)), done.stdout
    [counted] = [line.split() for line in done.stdout.splitlines() if line.startswith("line ")]
    assert str(LINES) == counted[1]
    assert done.stdout.endswith("\nlost = 0\n")
