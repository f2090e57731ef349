"""The demo from end to end, on a small file: the broker is killed, and no reader lacks a record."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
LINES = 400
#: Four drivers have to start, one after the other.
LONG = 900
#: The demo says every 5 s what it does; a busy machine may take longer to do so.
QUIET = 30
pytestmark = pytest.mark.timeout(LONG + 60)


def test_the_demo_loses_nothing(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text("".join(f"{json.dumps({'number': number})}\n" for number in range(LINES)))
    command = [sys.executable, "-m", "contrib.demo", "--input", str(events)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "SIGKILL to the broker" in done.stdout
    for reader in ("gnsq", "own", "archive", "sql", "replayed"):
        [row] = [line.split() for line in done.stdout.splitlines() if line.startswith(f"{reader} ")]
        published, delivered, _repeats, lost = row[-4:]
        assert (str(LINES), str(LINES), "0") == (published, delivered, lost), reader
    assert "\nThe files are in " in done.stdout
    said = [float(line.split()[0]) for line in done.stdout.splitlines() if re.match(r" *\d+\.\d s  ", line)]
    assert all(later - one < QUIET for one, later in pairwise(said)), done.stdout
    [counted] = [line.split() for line in done.stdout.splitlines() if line.startswith("line ")]
    assert str(LINES) == counted[1]
    assert done.stdout.endswith("\nlost = 0\n")
