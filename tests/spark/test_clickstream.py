"""The pipeline of the README, on clicks of its own and on the user's files."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
LONG = 600
pytestmark = pytest.mark.timeout(LONG + 60)


def test_the_windows_that_came_through_nsq_are_those_of_the_files(tmp_path: Path) -> None:
    clicks = tmp_path / "mine.json"
    clicks.write_text(
        "".join(
            f'{{"time": {60 * number}, "user": "a", "event": "view", "agent": "browser"}}\n' for number in range(60)
        )
        + '{"time": 5, "user": "a", "event": "view", "agent": "robot"}\n'
        + '{"time": 5, "user": "nobody", "event": "view", "agent": "browser"}\n'
        + "no json\n"
    )
    (tmp_path / "users.csv").write_text("user,country\na,DE\n")
    command = [sys.executable, "-m", "contrib.spark.examples.clickstream"]
    command += ["--clicks", str(clicks), "--users", str(tmp_path / "users.csv")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "60 clicks in 6 windows, 0 of them wrong" in done.stdout
    assert '"event": "published", "batch": null, "rows": 60' in done.stderr
