"""One line of JSON for what a job has published."""

import json
import logging

import pytest
from pyspark_nsq.sink.commits import NsqCommit, tell_sum

DONE = [NsqCommit(0, 0, 10, 2, 1, 500), None, NsqCommit(2, 1, 5, 1, 0, 100)]


def test_the_sum_of_the_tasks(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO, "pyspark_nsq"):
        tell_sum("published", 7, DONE, show=False)
    expected = {"event": "published", "batch": 7, "rows": 15, "requests": 3, "retried": 1, "bytes": 600, "tasks": 2}
    [line] = caplog.messages
    assert expected == json.loads(line)
    assert "" == capfd.readouterr().err


def test_shown(capfd: pytest.CaptureFixture[str]) -> None:
    tell_sum("failed", None, DONE, show=True)
    line = json.loads(capfd.readouterr().err)
    assert ("failed", None, 15) == (line["event"], line["batch"], line["rows"])
